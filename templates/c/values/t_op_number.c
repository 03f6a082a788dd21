/* Casts between numbers and text. */
#include "t_decimal.h"
#include "t_text.h"

enum { DIGITS_MAX = 780, TEXT_MAX = 32 }; /* digits that can matter in a float, bytes of the longest text of one */

/* ---- numbers in memory ---- */

static int kind_of(torshc_dtype dtype, t_float_kind *kind) {
    *kind = dtype.code == TORSHC_BFLOAT ? T_KIND_BF16
            : dtype.bits == 64          ? T_KIND_F64
            : dtype.bits == 32          ? T_KIND_F32
                                        : T_KIND_F16;
    return dtype.code == TORSHC_FLOAT || dtype.code == TORSHC_BFLOAT;
}

static double load_float(const t_value *v, int64_t i) {
    uint32_t bits;
    float x;
    if (v->dtype.bits == 64)
        return ((const double *)v->data)[i];
    if (v->dtype.bits == 32)
        return (double)((const float *)v->data)[i];
    bits = ((const uint16_t *)v->data)[i];
    if (v->dtype.code == TORSHC_FLOAT) {
        const double part = (double)(bits & 0x3ff), sign = bits >> 15 ? -1 : 1;
        const int exponent = (int)(bits >> 10 & 31);
        if (exponent == 31)
            return part != 0 ? (double)NAN : sign * (double)INFINITY;
        return sign * (exponent ? t_scaled(part + 1024, exponent - 25) : t_scaled(part, -24));
    }
    bits <<= 16;
    memcpy(&x, &bits, sizeof x);
    return (double)x;
}

/* x is a float of the value's type. */
static void store_float(const t_value *v, int64_t i, double x) {
    const float narrow = (float)x;
    uint32_t bits, sign;
    int exponent;
    if (v->dtype.bits == 64) {
        ((double *)v->data)[i] = x;
        return;
    }
    if (v->dtype.bits == 32) {
        ((float *)v->data)[i] = narrow;
        return;
    }
    memcpy(&bits, &narrow, sizeof bits);
    sign = bits >> 16 & 0x8000;
    exponent = (int)(bits >> 23 & 255) - 127;
    if (v->dtype.code == TORSHC_BFLOAT)
        bits = bits >> 16 | (narrow != narrow ? 0x40 : 0);
    else if (exponent == 128)
        bits = sign | 0x7c00 | (narrow != narrow ? 0x200 : 0);
    else if (exponent >= -14)
        bits = sign | (uint32_t)(exponent + 15) << 10 | (bits >> 13 & 0x3ff);
    else
        bits = sign | (uint32_t)(t_scaled(narrow < 0 ? -(double)narrow : (double)narrow, 24));
    ((uint16_t *)v->data)[i] = (uint16_t)bits;
}

/* ---- to text ---- */

static int64_t put(char *to, const char *text) {
    const size_t length = strlen(text);
    memcpy(to, text, length);
    return (int64_t)length;
}

static int64_t put_integer(char *to, uint64_t magnitude, int negative, int least) {
    char digit[20];
    int count = 0;
    int64_t at = 0;
    do
        digit[count++] = (char)('0' + magnitude % 10);
    while (magnitude /= 10);
    if (negative)
        to[at++] = '-';
    for (; least > count; least--)
        to[at++] = '0';
    while (count)
        to[at++] = digit[--count];
    return at;
}

/* Plain from 0.0001 up to below 10^16, with an exponent elsewhere; always with a point or an exponent. */
static int64_t put_float(char *to, double x, t_float_kind kind) {
    char digit[20];
    int count = 1, point = 1;
    int64_t at = 0;
    if (x != x)
        return put(to, "nan");
    if (signbit(x))
        to[at++] = '-';
    x = x < 0 ? -x : x;
    if (x > 0x1.fffffffffffffp1023)
        return at + put(to + at, "inf");
    digit[0] = '0';
    if (x > 0)
        count = t_shortest(x, kind, digit, &point);
    if (x > 0 && (x >= 1e16 || x < 1e-4)) {
        to[at++] = digit[0];
        if (count > 1)
            to[at++] = '.';
        memcpy(to + at, digit + 1, (size_t)count - 1);
        at += count - 1;
        to[at++] = 'e';
        to[at++] = point > 0 ? '+' : '-';
        return at + put_integer(to + at, (uint64_t)(point > 0 ? point - 1 : 1 - point), 0, 2);
    }
    if (point <= 0)
        at += put(to + at, "0.");
    for (int k = point; k < 0; k++)
        to[at++] = '0';
    for (int k = 0; k < count || k < point; k++) {
        if (k && k == point)
            to[at++] = '.';
        to[at++] = k < count ? digit[k] : '0';
    }
    if (point >= count)
        at += put(to + at, ".0");
    return at;
}

/* x of numbers or bools -> their text: "True", "-12", "0.1", "1e-05", "inf", "nan". */
int t_op_text_from(t_frame *f, const t_value *const *in, t_value *const *out, const int64_t *n) {
    const t_value *x = in[0];
    const int64_t count = t_count(x);
    t_float_kind kind;
    const int is_float = kind_of(x->dtype, &kind);
    char *text;
    int status;
    (void)n;
    if ((status = t_make(f, out[0], T_STRING, x->ndim, x->shape)))
        return status;
    if (!(text = t_characters(f, count * TEXT_MAX)))
        return TORSHC_E_MEMORY;
    for (int64_t i = 0; i < count; i++) {
        int64_t bytes;
        if (is_float) {
            bytes = put_float(text, load_float(x, i), kind);
        } else if (x->dtype.code == TORSHC_BOOL) {
            bytes = put(text, ((const uint8_t *)x->data)[i] ? "True" : "False");
        } else if (x->dtype.code == TORSHC_UINT && x->dtype.bits == 64) {
            bytes = put_integer(text, ((const uint64_t *)x->data)[i], 0, 1);
        } else {
            const int64_t v = t_at(x, i);
            bytes = put_integer(text, v < 0 ? 0 - (uint64_t)v : (uint64_t)v, v < 0, 1);
        }
        t_strings(out[0])[i] = (t_string){text, bytes};
        text += bytes;
    }
    return TORSHC_OK;
}

/* ---- from text ---- */

/* The parts of a text: a sign, and a word, or digits with a decimal exponent. */
typedef struct {
    int negative, infinite, nan, whole; /* whole: digits only */
    int64_t exponent;
    int64_t begin, end; /* of digits and point */
} literal;

static int is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

static int is_digit(char c) { return c >= '0' && c <= '9'; }

static int is_word(const char *text, int64_t bytes, const char *lower) {
    if (bytes != (int64_t)strlen(lower))
        return 0;
    for (int64_t i = 0; i < bytes; i++)
        if ((text[i] >= 'A' && text[i] <= 'Z' ? text[i] + ('a' - 'A') : text[i]) != lower[i])
            return 0;
    return 1;
}

/* Splits a text into its parts; 0 when it is not a number. */
static int take_apart(const t_string *s, literal *l) {
    const char *c = s->text;
    int64_t at = 0, end = s->bytes, digits = 0, points = 0;
    int down;
    memset(l, 0, sizeof *l);
    while (at < end && is_blank(c[at]))
        at++;
    while (end > at && is_blank(c[end - 1]))
        end--;
    if (at < end && (c[at] == '+' || c[at] == '-'))
        l->negative = c[at++] == '-';
    l->infinite = at < end && (is_word(c + at, end - at, "inf") || is_word(c + at, end - at, "infinity"));
    l->nan = at < end && is_word(c + at, end - at, "nan");
    if (l->infinite || l->nan)
        return 1;
    l->begin = at;
    for (; at < end && (is_digit(c[at]) || (c[at] == '.' && !points)); at++) {
        points += c[at] == '.';
        digits += c[at] != '.';
    }
    l->end = at;
    l->whole = at == end && !points;
    if (!digits || at == end)
        return digits > 0;
    if (c[at] != 'e' && c[at] != 'E')
        return 0;
    at++;
    down = at < end && c[at] == '-';
    at += at < end && (c[at] == '+' || c[at] == '-');
    if (at == end)
        return 0;
    for (; at < end && is_digit(c[at]); at++) /* beyond what any text could make up for by its digits it stays */
        if (l->exponent < INT64_C(1) << 50)
            l->exponent = 10 * l->exponent + (c[at] - '0');
    l->exponent = down ? -l->exponent : l->exponent;
    return at == end;
}

static double to_float(const t_string *s, const literal *l, t_float_kind kind) {
    int64_t exponent = l->exponent, digits = 0;
    int behind = 0, more = 0;
    double x;
    t_big top, bottom;
    t_big_set(&top, 0);
    t_big_set(&bottom, 1);
    if (l->nan)
        return (double)NAN;
    for (int64_t at = l->begin; at < l->end; at++) {
        const char c = s->text[at];
        if (c == '.') {
            behind = 1;
            continue;
        }
        exponent -= behind;
        if (digits == DIGITS_MAX) {
            more |= c != '0';
            exponent++;
        } else if (digits || c != '0') {
            digits++;
            t_big_mul(&top, 10, (uint32_t)(c - '0'));
        }
    }
    if (more) {
        t_big_mul(&top, 10, 1);
        digits++;
        exponent--;
    }
    if (l->infinite || (digits && exponent + digits > 310)) {
        x = (double)INFINITY;
    } else if (!digits || exponent + digits < -345) {
        x = 0;
    } else {
        t_big_pow10(exponent > 0 ? &top : &bottom, (int)(exponent < 0 ? -exponent : exponent));
        x = t_nearest(&top, &bottom, kind);
    }
    return l->negative ? -x : x;
}

/* An integer of a type, what follows the point dropped; 0 where there is none. */
static int to_integer(const t_string *s, const literal *l, torshc_dtype dtype, uint64_t *bits) {
    const int is_signed = dtype.code == TORSHC_INT;
    const uint64_t top = UINT64_MAX >> (64 - dtype.bits), most = is_signed ? top >> 1 : top;
    const uint64_t limit = l->negative ? (is_signed ? most + 1 : 0) : most;
    uint64_t magnitude = 0;
    if (l->nan || l->infinite)
        return 0;
    if (l->whole) {
        for (int64_t at = l->begin; at < l->end; at++) {
            const uint64_t d = (uint64_t)(s->text[at] - '0');
            if (magnitude > (UINT64_MAX - d) / 10)
                return 0;
            magnitude = 10 * magnitude + d;
        }
    } else {
        double x = to_float(s, l, T_KIND_F64);
        x = x < 0 ? -x : x;
        if (!(x < 0x1p64))
            return 0;
        magnitude = (uint64_t)x;
    }
    *bits = l->negative ? 0 - magnitude : magnitude;
    return magnitude <= limit;
}

static void store_integer(const t_value *v, int64_t i, uint64_t bits) {
    if (v->dtype.bits == 64)
        ((uint64_t *)v->data)[i] = bits;
    else if (v->dtype.bits == 32)
        ((uint32_t *)v->data)[i] = (uint32_t)bits;
    else if (v->dtype.bits == 16)
        ((uint16_t *)v->data)[i] = (uint16_t)bits;
    else
        ((uint8_t *)v->data)[i] = (uint8_t)bits;
}

static int read_number(const t_string *s, const t_value *to, int64_t i) {
    t_float_kind kind;
    literal l;
    uint64_t bits;
    const int is_bool = to->dtype.code == TORSHC_BOOL;
    if (is_bool && (is_word(s->text, s->bytes, "true") || is_word(s->text, s->bytes, "false"))) {
        store_integer(to, i, s->bytes == 4);
        return 1;
    }
    if (!take_apart(s, &l))
        return 0;
    if (kind_of(to->dtype, &kind)) {
        store_float(to, i, to_float(s, &l, kind));
        return 1;
    }
    if (is_bool) {
        store_integer(to, i, to_float(s, &l, T_KIND_F64) != 0);
        return 1;
    }
    if (!to_integer(s, &l, to->dtype, &bits))
        return 0;
    store_integer(to, i, bits);
    return 1;
}

/* x of text -> numbers of type code n[0] with n[1] bits. */
int t_op_text_to(t_frame *f, const t_value *const *in, t_value *const *out, const int64_t *n) {
    const torshc_dtype dtype = {(uint8_t)n[0], (uint8_t)n[1], 1};
    const int64_t count = t_count(in[0]);
    int status;
    if ((status = t_check_text(in[0], 0)) || (status = t_make(f, out[0], dtype, in[0]->ndim, in[0]->shape)))
        return status;
    for (int64_t i = 0; i < count; i++)
        if (!read_number(&t_strings(in[0])[i], out[0], i))
            return t_fail(TORSHC_E_VALUE, "operand 0: element %lld is not a number of the result's type", (long long)i);
    return TORSHC_OK;
}
