/* Text in string tensors. What a caller passes may be any bytes: operators check a tensor before they look into it. */
#ifndef T_TEXT_H
#define T_TEXT_H

#include "t_value.h"

static const torshc_dtype T_STRING = {TORSHC_STRING, 128, 1};

static inline t_string *t_strings(const t_value *v) { return (t_string *)v->data; }

/* The code point at *at, which moves behind it; -1, without a move, where the bytes there are no UTF-8. */
static inline int32_t t_decode(const t_string *s, int64_t *at) {
    static const int32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *c = (const unsigned char *)s->text + *at;
    int32_t code = *c, length;
    if (code < 0x80) {
        (*at)++;
        return code;
    }
    length = code >= 0xf8 ? 0 : code >= 0xf0 ? 4 : code >= 0xe0 ? 3 : code >= 0xc0 ? 2 : 0;
    if (!length || length > s->bytes - *at)
        return -1;
    code &= 0x7f >> length;
    for (int32_t i = 1; i < length; i++) {
        if ((c[i] & 0xc0) != 0x80)
            return -1;
        code = code << 6 | (c[i] & 0x3f);
    }
    if (code < least[length] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
        return -1;
    *at += length;
    return code;
}

/* Bytes of a code point, written where `to` is not NULL. */
static inline int64_t t_encode(int64_t code, char *to) {
    const int64_t length = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    if (!to)
        return length;
    if (length == 1) {
        to[0] = (char)code;
        return 1;
    }
    for (int64_t i = length - 1; i > 0; i--, code >>= 6)
        to[i] = (char)(0x80 | (code & 0x3f));
    to[0] = (char)((0xf00 >> length & 0xff) | code);
    return length;
}

/* Whether all elements are text; `operand` is its number, for the message. */
static inline int t_check_text(const t_value *v, int operand) {
    const int64_t count = t_count(v);
    for (int64_t i = 0; i < count; i++) {
        const t_string *s = &t_strings(v)[i];
        if (s->bytes < 0 || s->bytes > T_BYTES_MAX || (s->bytes && !s->text))
            return t_fail(TORSHC_E_VALUE, "operand %d: element %lld is not a string", operand, (long long)i);
        for (int64_t at = 0; at < s->bytes;)
            if (t_decode(s, &at) < 0)
                return t_fail(TORSHC_E_VALUE, "operand %d: element %lld is not UTF-8 at byte %lld", operand,
                              (long long)i, (long long)at);
    }
    return TORSHC_OK;
}

/* Adds to the characters that a result needs. */
static inline int t_add_bytes(int64_t *total, int64_t bytes) {
    if (bytes > T_BYTES_MAX - *total)
        return t_fail(TORSHC_E_SIZE, "the strings of a result need more than 2^47 bytes");
    *total += bytes;
    return TORSHC_OK;
}

#endif
