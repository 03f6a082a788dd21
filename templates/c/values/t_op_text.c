/* Operators over strings: joined, compared, split, in other cases, looked up, moved. */
#include "t_text.h"

/* ---- two operands that broadcast ---- */

typedef struct {
    int32_t rank;
    int64_t shape[T_VALUE_RANK], step[2][T_VALUE_RANK], index[T_VALUE_RANK], at[2];
} pairing;

static int pair_up(const t_value *const *in, pairing *p) {
    memset(p, 0, sizeof *p);
    p->rank = in[0]->ndim > in[1]->ndim ? in[0]->ndim : in[1]->ndim;
    for (int k = 0; k < 2; k++) {
        int64_t step = 1;
        for (int32_t d = in[k]->ndim - 1, to = p->rank - 1; d >= 0; d--, to--) {
            const int64_t size = in[k]->shape[d];
            p->step[k][to] = size == 1 ? 0 : step;
            step *= size;
        }
    }
    for (int32_t d = 0; d < p->rank; d++) {
        const int32_t i = d - (p->rank - in[0]->ndim), j = d - (p->rank - in[1]->ndim);
        const int64_t a = i < 0 ? 1 : in[0]->shape[i], b = j < 0 ? 1 : in[1]->shape[j];
        if (a != b && a != 1 && b != 1)
            return t_fail(TORSHC_E_SHAPE, "dimensions of %lld and %lld do not broadcast", (long long)a, (long long)b);
        p->shape[d] = a == 1 ? b : a;
    }
    return TORSHC_OK;
}

/* To the next element; behind the last one it starts again. */
static void advance(pairing *p) {
    for (int32_t d = p->rank - 1; d >= 0; d--) {
        if (++p->index[d] < p->shape[d]) {
            p->at[0] += p->step[0][d];
            p->at[1] += p->step[1][d];
            return;
        }
        p->index[d] = 0;
        p->at[0] -= p->step[0][d] * (p->shape[d] - 1);
        p->at[1] -= p->step[1][d] * (p->shape[d] - 1);
    }
}

static int begin_pair(const t_value *const *in, pairing *p) {
    int status;
    if ((status = t_check_text(in[0], 0)) || (status = t_check_text(in[1], 1)))
        return status;
    return pair_up(in, p);
}

/* x, y -> the text of x with that of y behind it. */
int t_op_text_concat(t_frame *f, const t_value *const *in, t_value *const *out, const int64_t *n) {
    pairing p;
    int64_t total = 0;
    char *text;
    int status;
    (void)n;
    if ((status = begin_pair(in, &p)) || (status = t_make(f, out[0], T_STRING, p.rank, p.shape)))
        return status;
    const t_string *a = t_strings(in[0]), *b = t_strings(in[1]);
    const int64_t count = t_count(out[0]);
    for (int64_t i = 0; i < count; i++, advance(&p))
        if ((status = t_add_bytes(&total, a[p.at[0]].bytes)) || (status = t_add_bytes(&total, b[p.at[1]].bytes)))
            return status;
    if (!(text = t_characters(f, total)))
        return TORSHC_E_MEMORY;
    for (int64_t i = 0; i < count; i++, advance(&p)) {
        const t_string *x = &a[p.at[0]], *y = &b[p.at[1]];
        t_strings(out[0])[i] = (t_string){text, x->bytes + y->bytes};
        if (x->bytes)
            memcpy(text, x->text, (size_t)x->bytes);
        if (y->bytes)
            memcpy(text + x->bytes, y->text, (size_t)y->bytes);
        text += x->bytes + y->bytes;
    }
    return TORSHC_OK;
}

static int compare(const t_string *a, const t_string *b) {
    const int64_t shorter = a->bytes < b->bytes ? a->bytes : b->bytes;
    const int order = shorter ? memcmp(a->text, b->text, (size_t)shorter) : 0;
    return order ? order : (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

/* x, y -> whether they are the same, byte for byte. */
int t_op_text_equal(t_frame *f, const t_value *const *in, t_value *const *out, const int64_t *n) {
    pairing p;
    int status;
    (void)n;
    if ((status = begin_pair(in, &p)) || (status = t_make(f, out[0], T_BOOL, p.rank, p.shape)))
        return status;
    const int64_t count = t_count(out[0]);
    for (int64_t i = 0; i < count; i++, advance(&p))
        ((uint8_t *)out[0]->data)[i] = compare(&t_strings(in[0])[p.at[0]], &t_strings(in[1])[p.at[1]]) == 0;
    return TORSHC_OK;
}

/* ---- split ---- */

/* White space as Unicode has it, and also the separators 28 to 31. */
static int is_space(int32_t c) {
    return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

/* The first place of the delimiter from `at` on, or the end of the text. */
static int64_t find_delimiter(const t_string *s, const t_string *delimiter, int64_t at) {
    while (at <= s->bytes - delimiter->bytes) {
        const char *hit = memchr(s->text + at, delimiter->text[0], (size_t)(s->bytes - delimiter->bytes + 1 - at));
        if (!hit)
            break;
        at = hit - s->text;
        if (!memcmp(hit, delimiter->text, (size_t)delimiter->bytes))
            return at;
        at++;
    }
    return s->bytes;
}

/* The piece from *at on, or 0 when there is none. *at becomes where the next one may start, -1 behind the last.
 * `last`: it takes all that is left. */
static int next_piece(const t_string *s, const t_string *delimiter, int64_t *at, int last, t_string *piece) {
    int64_t begin = *at, end, behind;
    if (begin < 0)
        return 0;
    if (delimiter->bytes) {
        end = last ? s->bytes : find_delimiter(s, delimiter, begin);
        *at = end < s->bytes ? end + delimiter->bytes : -1;
    } else {
        for (behind = begin; behind < s->bytes && is_space(t_decode(s, &behind));)
            begin = behind;
        for (end = behind = begin; behind < s->bytes && !is_space(t_decode(s, &behind));)
            end = behind;
        if (begin == s->bytes)
            return 0;
        end = last ? s->bytes : end;
        *at = end < s->bytes ? end : -1;
    }
    *piece = (t_string){s->text ? s->text + begin : "", end - begin};
    return 1;
}

/* x[...], a delimiter ("": white space) -> pieces[..., most], filled up with "", and their numbers[...].
 * n: how often an element is split at most, -1 for no limit. */
int t_op_text_split(t_frame *f, const t_value *const *in, t_value *const *out, const int64_t *n) {
    const t_value *x = in[0];
    const t_string *delimiter = t_strings(in[1]);
    const int64_t count = t_count(x);
    int64_t shape[T_VALUE_RANK + 1], most = 0;
    t_value *number = out[1], counted = {.ndim = -1};
    t_string piece;
    int status;
    if ((status = t_check_text(x, 0)) || (status = t_check_text(in[1], 1)))
        return status;
    number = number ? number : &counted;
    if ((status = t_make(f, number, T_I64, x->ndim, x->shape)))
        return status;
    for (int64_t i = 0; i < count; i++) {
        int64_t at = 0, pieces = 0;
        while (next_piece(&t_strings(x)[i], delimiter, &at, n[0] >= 0 && pieces >= n[0], &piece))
            pieces++;
        ((int64_t *)number->data)[i] = pieces;
        most = pieces > most ? pieces : most;
    }
    for (int32_t d = 0; d < x->ndim; d++)
        shape[d] = x->shape[d];
    shape[x->ndim] = most;
    if (out[0] && x->ndim == T_VALUE_RANK)
        status = t_fail(TORSHC_E_RANK, "StringSplit of %d dimensions", (int)x->ndim);
    else if (out[0])
        status = t_make(f, out[0], T_STRING, x->ndim + 1, shape);
    for (int64_t i = 0; !status && out[0] && i < count; i++) {
        t_string *to = t_strings(out[0]) + i * most;
        int64_t at = 0, pieces = 0;
        for (; next_piece(&t_strings(x)[i], delimiter, &at, n[0] >= 0 && pieces >= n[0], &piece); pieces++)
            to[pieces] = piece;
        for (; pieces < most; pieces++)
            to[pieces] = (t_string){"", 0};
    }
    if (number == &counted)
        t_drop(f, &counted);
    return status;
}

/* ---- cases ---- */

enum { ASCII = 128, COLUMNS = 4 };

typedef struct {
    const int64_t *row; /* code point, then what it becomes: up to three, ended by 0 */
    int64_t rows;
    int64_t ascii[ASCII];
} case_map;

/* What a code point becomes, written where `to` is not NULL; returns its bytes. */
static int64_t put_case(const case_map *m, int32_t code, char *to) {
    int64_t low = 0, high = m->rows, bytes = 0;
    if (code < ASCII)
        return t_encode(m->ascii[code], to);
    while (low < high) {
        const int64_t mid = low + (high - low) / 2;
        if (m->row[mid * COLUMNS] < code)
            low = mid + 1;
        else
            high = mid;
    }
    if (low == m->rows || m->row[low * COLUMNS] != code)
        return t_encode(code, to);
    for (int k = 1; k < COLUMNS && m->row[low * COLUMNS + k]; k++)
        bytes += t_encode(m->row[low * COLUMNS + k], to ? to + bytes : NULL);
    return bytes;
}

static int64_t put_text(const case_map *m, const t_string *s, char *to) {
    int64_t bytes = 0;
    for (int64_t at = 0; at < s->bytes;)
        bytes += put_case(m, t_decode(s, &at), to ? to + bytes : NULL);
    return bytes;
}

/* x, a map[rows, 4] of code points in ascending order -> the text with all of them replaced. */
int t_op_text_case(t_frame *f, const t_value *const *in, t_value *const *out, const int64_t *n) {
    case_map m = {(const int64_t *)in[1]->data, in[1]->shape[0], {0}};
    const int64_t count = t_count(in[0]);
    int64_t total = 0;
    char *text;
    int status;
    (void)n;
    for (int64_t k = 0; k < ASCII; k++)
        m.ascii[k] = k;
    for (int64_t k = 0; k < m.rows && m.row[k * COLUMNS] < ASCII; k++)
        m.ascii[m.row[k * COLUMNS]] = m.row[k * COLUMNS + 1];
    if ((status = t_check_text(in[0], 0)) || (status = t_make(f, out[0], T_STRING, in[0]->ndim, in[0]->shape)))
        return status;
    for (int64_t i = 0; i < count; i++)
        if ((status = t_add_bytes(&total, put_text(&m, &t_strings(in[0])[i], NULL))))
            return status;
    if (!(text = t_characters(f, total)))
        return TORSHC_E_MEMORY;
    for (int64_t i = 0; i < count; i++) {
        const int64_t bytes = put_text(&m, &t_strings(in[0])[i], text);
        t_strings(out[0])[i] = (t_string){text, bytes};
        text += bytes;
    }
    return TORSHC_OK;
}

/* ---- look up and move ---- */

/* x, keys[K] in ascending order of their bytes -> the place of each among the keys, K where it is none of them, which
 * is an error when n[0] is 1. */
int t_op_text_find(t_frame *f, const t_value *const *in, t_value *const *out, const int64_t *n) {
    const t_string *key = t_strings(in[1]);
    const int64_t keys = t_count(in[1]), count = t_count(in[0]);
    int status;
    if ((status = t_check_text(in[0], 0)) || (status = t_make(f, out[0], T_I64, in[0]->ndim, in[0]->shape)))
        return status;
    for (int64_t i = 0; i < count; i++) {
        const t_string *x = &t_strings(in[0])[i];
        int64_t low = 0, high = keys;
        while (low < high) {
            const int64_t mid = low + (high - low) / 2;
            if (compare(&key[mid], x) < 0)
                low = mid + 1;
            else
                high = mid;
        }
        if (low < keys && compare(&key[low], x))
            low = keys;
        if (low == keys && n[0])
            return t_fail(TORSHC_E_VALUE, "operand 0: element %lld is in no category", (long long)i);
        ((int64_t *)out[0]->data)[i] = low;
    }
    return TORSHC_OK;
}

/* x[C] or [1, C], places of as many -> the elements whose place is n[0]; one "" when there are none. */
int t_op_text_keep(t_frame *f, const t_value *const *in, t_value *const *out, const int64_t *n) {
    const int64_t count = t_count(in[0]);
    int64_t shape[2] = {1, 1}, kept = 0;
    int status;
    if (in[0]->ndim < 1 || in[0]->ndim > 2 || (in[0]->ndim == 2 && in[0]->shape[0] != 1))
        return t_fail(TORSHC_E_SHAPE, "StringNormalizer takes [C] and [1, C]");
    if (t_count(in[1]) != count)
        return t_fail(TORSHC_E_SHAPE, "%lld places for %lld strings", (long long)t_count(in[1]), (long long)count);
    for (int64_t i = 0; i < count; i++)
        kept += t_at(in[1], i) == n[0];
    shape[in[0]->ndim - 1] = kept ? kept : 1;
    if ((status = t_make(f, out[0], T_STRING, in[0]->ndim, shape)))
        return status;
    t_strings(out[0])[0] = (t_string){"", 0};
    for (int64_t i = 0, to = 0; i < count; i++)
        if (t_at(in[1], i) == n[0])
            t_strings(out[0])[to++] = t_strings(in[0])[i];
    return TORSHC_OK;
}

/* places, n[0] tensors of strings -> the strings at those places, counted from 1 through all tensors; 0 gives "". */
int t_op_text_pick(t_frame *f, const t_value *const *in, t_value *const *out, const int64_t *n) {
    const int64_t count = t_count(in[0]);
    int64_t sizes = 0;
    int status;
    for (int64_t k = 1; k <= n[0]; k++)
        sizes += t_count(in[k]);
    if ((status = t_make(f, out[0], T_STRING, in[0]->ndim, in[0]->shape)))
        return status;
    for (int64_t i = 0; i < count; i++) {
        int64_t place = t_at(in[0], i) - 1, k = 1;
        t_strings(out[0])[i] = (t_string){"", 0};
        if (place < -1 || place >= sizes)
            return t_fail(TORSHC_E_VALUE, "place %lld of %lld strings", (long long)place, (long long)sizes);
        if (place < 0)
            continue;
        for (; place >= t_count(in[k]); k++)
            place -= t_count(in[k]);
        t_strings(out[0])[i] = t_strings(in[k])[place];
    }
    return TORSHC_OK;
}

/* x -> the same elements; under the n[0] dimensions n[1...] unless n[0] is -1. */
int t_op_text_view(t_frame *f, const t_value *const *in, t_value *const *out, const int64_t *n) {
    return n[0] < 0 ? t_share(f, out[0], in[0]) : t_view(f, out[0], in[0], (int32_t)n[0], n + 1);
}
