/* Operators of the host whose results are as large as what they find: NonZero, Compress, Unique, NonMaxSuppression. */
#include "t_value.h"

#include <string.h>

/* Product of the dimensions [from, to) of a shape; 0 where one of them is, else at most INT64_MAX. */
static int64_t extent(const t_value *x, int32_t from, int32_t to) {
    int64_t total = 1;
    for (int32_t d = from; d < to; d++)
        if (__builtin_mul_overflow(total, x->shape[d], &total))
            total = INT64_MAX;
    return total;
}

/* memcpy that takes NULL where there is nothing to copy. */
static void put(void *to, const void *from, int64_t bytes) {
    if (bytes > 0)
        memcpy(to, from, (size_t)bytes);
}

/* The same of an element or slice: sizes of numbers are copied without a call. */
static void put_one(char *to, const char *from, int64_t bytes) {
    if (bytes == 4)
        memcpy(to, from, 4);
    else if (bytes == 8)
        memcpy(to, from, 8);
    else
        put(to, from, bytes);
}

static int refuse(const char *name, torshc_dtype dtype) {
    return t_fail(TORSHC_E_DTYPE, "%s of elements of type code %d with %d bits", name, dtype.code, dtype.bits);
}

/* ---- elements ---- */

static int is_string(torshc_dtype dtype) { return dtype.code == TORSHC_STRING; }

/* Numbers whose bits are understood below: integers and bools of whole bytes, floats of 16 bits or more. */
static int is_number(torshc_dtype dtype) {
    const int wide = dtype.bits == 16 || dtype.bits == 32 || dtype.bits == 64;
    switch (dtype.code) {
    case TORSHC_INT:
    case TORSHC_UINT:
        return wide || dtype.bits == 8;
    case TORSHC_FLOAT:
        return wide;
    case TORSHC_BFLOAT:
        return dtype.bits == 16;
    default:
        return dtype.code == TORSHC_BOOL && dtype.bits == 8;
    }
}

static int is_float(torshc_dtype dtype) { return dtype.code == TORSHC_FLOAT || dtype.code == TORSHC_BFLOAT; }

static uint64_t bits_of(const void *data, int64_t i, int32_t bits) {
    switch (bits) {
    case 64:
        return ((const uint64_t *)data)[i];
    case 32:
        return ((const uint32_t *)data)[i];
    case 16:
        return ((const uint16_t *)data)[i];
    default:
        return ((const uint8_t *)data)[i];
    }
}

/* Element i of numbers as an unsigned integer with the same order. -0 is 0, and every NaN one key after all numbers. Of a
 * type that is known when this is compiled it takes few instructions. */
static inline __attribute__((always_inline)) uint64_t key_of(const void *data, int64_t i, torshc_dtype dtype) {
    const uint64_t bits = bits_of(data, i, dtype.bits), sign = UINT64_C(1) << (dtype.bits - 1);
    if (dtype.code == TORSHC_BOOL)
        return bits != 0;
    if (dtype.code == TORSHC_INT)
        return bits ^ sign;
    if (!is_float(dtype))
        return bits;
    const int fraction = dtype.code == TORSHC_BFLOAT ? 7 : dtype.bits == 16 ? 10 : dtype.bits == 32 ? 23 : 52;
    const uint64_t infinity = sign - (UINT64_C(1) << fraction), size = bits & (sign - 1);
    if (size > infinity)
        return UINT64_MAX;
    return bits & sign ? sign - size : sign + size;
}

/* ---- NonZero ---- */

/* Of floats all bits but the sign count: -0 is zero, NaN is not. Of strings the empty one is zero. */
static int is_set(const t_value *x, int64_t i, uint64_t mask) {
    if (is_string(x->dtype))
        return ((const t_string *)x->data)[i].bytes != 0;
    return (bits_of(x->data, i, x->dtype.bits) & mask) != 0;
}

/* (x) -> int64 of shape (rank of x, number found): a column for each element that is not 0, in row-major order. */
int t_op_nonzero(t_frame *f, const t_value *const *in, t_value *const *out, const int64_t *n) {
    (void)n;
    const t_value *x = in[0];
    if (!is_number(x->dtype) && !is_string(x->dtype))
        return refuse("NonZero", x->dtype);
    const uint64_t mask = is_float(x->dtype) ? (UINT64_C(1) << (x->dtype.bits - 1)) - 1 : UINT64_MAX;
    const int64_t total = t_count(x);
    int64_t count = 0;
    for (int64_t i = 0; i < total; i++)
        count += is_set(x, i, mask);
    const int status = t_make(f, out[0], T_I64, 2, (const int64_t[]){x->ndim, count});
    if (status || !x->ndim || !count)
        return status;
    const int32_t last = x->ndim - 1;
    const int64_t width = x->shape[last];
    int64_t *to = out[0]->data, at[T_VALUE_RANK] = {0}, k = 0;
    for (int64_t row = 0; row < total; row += width) {
        for (int64_t j = 0; j < width; j++) {
            if (!is_set(x, row + j, mask))
                continue;
            for (int32_t d = 0; d < last; d++)
                to[d * count + k] = at[d];
            to[last * count + k++] = j;
        }
        for (int32_t d = last - 1; d >= 0 && ++at[d] == x->shape[d]; d--)
            at[d] = 0;
    }
    return TORSHC_OK;
}

/* ---- Compress ---- */

/* (x, condition), {axis, or -1 for all elements in a row} -> the slices where the condition holds. A condition may be
 * shorter than the axis, which leaves out the rest; it may be longer where it does not hold. */
int t_op_compress(t_frame *f, const t_value *const *in, t_value *const *out, const int64_t *n) {
    const t_value *x = in[0], *condition = in[1];
    const int32_t axis = (int32_t)n[0], rank = axis < 0 ? 1 : x->ndim;
    const int64_t outer = axis < 0 ? 1 : extent(x, 0, axis), length = axis < 0 ? t_count(x) : x->shape[axis];
    const int64_t slice = axis < 0 ? 1 : extent(x, axis + 1, x->ndim), given = t_count(condition);
    const uint8_t *wanted = condition->data;
    int64_t count = 0, shape[T_VALUE_RANK] = {0};
    for (int64_t i = 0; i < given; i++) {
        if (wanted[i] && i >= length)
            return t_fail(TORSHC_E_VALUE, "Compress: the condition holds at index %lld of a dimension of %lld",
                          (long long)i, (long long)length);
        count += wanted[i] != 0;
    }
    for (int32_t d = 0; axis >= 0 && d < rank; d++)
        shape[d] = x->shape[d];
    shape[axis < 0 ? 0 : axis] = count;
    const int status = t_make(f, out[0], x->dtype, rank, shape);
    if (status || !t_count(out[0]))
        return status;
    const int64_t bytes = slice * t_element_bytes(x->dtype), end = given < length ? given : length;
    const char *from = x->data;
    char *to = out[0]->data;
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < end;) {
            int64_t run = 0; /* of slices side by side */
            while (i + run < end && wanted[i + run])
                run++;
            put(to, from + (o * length + i) * bytes, run * bytes);
            to += run * bytes;
            i += run ? run : 1;
        }
    return TORSHC_OK;
}

/* ---- sorting ---- */

/* Below 0, 0 or above 0 as item a comes before b, is equal, or comes after. */
typedef int t_compare(const void *items, int64_t a, int64_t b);

/* Sorts the numbers 0..n-1 of items into `order`; equal ones stay in order. Merges runs of doubling length. */
static void sort(int64_t *order, int64_t *spare, int64_t n, t_compare *compare, const void *items) {
    for (int64_t i = 0; i < n; i++)
        order[i] = i;
    for (int64_t width = 1; width < n; width *= 2) {
        for (int64_t low = 0; low < n; low += 2 * width) {
            const int64_t middle = n - low < width ? n : low + width, high = n - middle < width ? n : middle + width;
            int64_t a = low, b = middle;
            for (int64_t k = low; k < high; k++) {
                const int left = b == high || (a < middle && compare(items, order[a], order[b]) <= 0);
                spare[k] = left ? order[a++] : order[b++];
            }
        }
        put(order, spare, n * (int64_t)sizeof *order);
    }
}

/* The same of keys: by their bytes, the lowest first, but for those in which all keys are equal. */
static void sort_by_keys(int64_t *order, int64_t *spare, int64_t n, const uint64_t *keys) {
    uint64_t differ = 0;
    for (int64_t i = 0; i < n; i++) {
        order[i] = i;
        differ |= keys[i] ^ keys[0];
    }
    for (int shift = 0; shift < 64; shift += 8) {
        if (!(differ >> shift & 255))
            continue;
        int64_t starts[257] = {0};
        for (int64_t i = 0; i < n; i++)
            starts[(keys[i] >> shift & 255) + 1]++;
        for (int digit = 1; digit < 256; digit++)
            starts[digit] += starts[digit - 1];
        for (int64_t k = 0; k < n; k++)
            spare[starts[keys[order[k]] >> shift & 255]++] = order[k];
        put(order, spare, n * (int64_t)sizeof *order);
    }
}

/* ---- Unique ---- */

/* What is compared: rows of keys or of strings, of equal length. */
typedef struct {
    const uint64_t *keys;
    const t_string *strings; /* NULL for numbers */
    int64_t length;
} t_rows;

static int compare_strings(const t_string *a, const t_string *b) {
    const int64_t shorter = a->bytes < b->bytes ? a->bytes : b->bytes;
    const int found = shorter ? memcmp(a->text, b->text, (size_t)shorter) : 0;
    return found ? found : (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

static int compare_rows(const void *items, int64_t a, int64_t b) {
    const t_rows *rows = items;
    a *= rows->length;
    b *= rows->length;
    for (int64_t k = 0; k < rows->length; k++, a++, b++) {
        const int found = rows->strings ? compare_strings(rows->strings + a, rows->strings + b)
                                        : (rows->keys[a] > rows->keys[b]) - (rows->keys[a] < rows->keys[b]);
        if (found)
            return found;
    }
    return 0;
}

/* The operand's elements as `count` rows: row i is what stands at i along the axis, in row-major order. */
static void fill_rows(void *rows, const t_value *x, int64_t outer, int64_t count, int64_t inner) {
    uint64_t *keys = rows;
    t_string *strings = rows;
    int64_t k = 0;
    if (outer == 1 && x->dtype.code == TORSHC_FLOAT && x->dtype.bits == 32) { /* as they lie */
        for (; k < count * inner; k++)
            keys[k] = key_of(x->data, k, (torshc_dtype){TORSHC_FLOAT, 32, 1});
        return;
    }
    for (int64_t i = 0; i < count; i++)
        for (int64_t o = 0; o < outer; o++)
            for (int64_t j = 0; j < inner; j++, k++) {
                const int64_t at = (o * count + i) * inner + j;
                if (is_string(x->dtype))
                    strings[k] = ((const t_string *)x->data)[at];
                else
                    keys[k] = key_of(x->data, at, x->dtype);
            }
}

/* Groups of equal rows. Group g is number `number[g]` of the result. */
typedef struct {
    int64_t count, *first, *many, *number, *group; /* `group` of each row */
} t_groups;

/* Finds the groups. `work` has room for four numbers a row. */
static t_groups find_groups(const t_rows *rows, int64_t count, int sorted, int64_t *work) {
    int64_t *order = work, *spare = work + count;
    t_groups g = {0, spare, work + 2 * count, order, work + 3 * count};
    if (!rows->strings && rows->length == 1)
        sort_by_keys(order, spare, count, rows->keys);
    else
        sort(order, spare, count, compare_rows, rows);
    int64_t before = 0; /* g.first takes the place of what was sorted through, g.number that of the order */
    for (int64_t k = 0; k < count; k++) {
        const int64_t i = order[k];
        if (!k || compare_rows(rows, before, i)) {
            g.first[g.count] = i;
            g.many[g.count++] = 0;
        }
        g.many[g.count - 1]++;
        g.group[i] = g.count - 1;
        before = i;
    }
    int64_t next = 0;
    for (int64_t k = 0; sorted && k < g.count; k++)
        g.number[k] = k;
    for (int64_t i = 0; !sorted && i < count; i++)
        if (g.first[g.group[i]] == i)
            g.number[g.group[i]] = next++;
    return g;
}

/* The same for numbers by a table of them, in the order of their first places. `work` has room for eight numbers a row, of
 * which the table takes four to be at most half full: 1 + the group at a place, 0 where there is none. Finds no groups, a
 * count of -1, of numbers that were chosen to collide: those are sorted. */
static t_groups find_groups_by_table(const uint64_t *keys, int64_t count, int64_t *work) {
    t_groups g = {0, work, work + count, work + 2 * count, work + 3 * count};
    int64_t *table = work + 4 * count;
    int64_t collisions = 16 * count;
    int bits = 1;
    while ((INT64_C(1) << bits) < 2 * count)
        bits++;
    const uint64_t last = (UINT64_C(1) << bits) - 1;
    int64_t *first = g.first, *many = g.many, *group = g.group, groups = 0;
    memset(table, 0, (size_t)(last + 1) * sizeof *table);
    for (int64_t i = 0; i < count; i++) {
        const uint64_t key = keys[i];
        uint64_t at = key * UINT64_C(0x9e3779b97f4a7c15) >> (64 - bits); /* 2^64 by the golden ratio: spreads keys */
        while (table[at] && keys[first[table[at] - 1]] != key) {
            at = (at + 1) & last;
            if (!collisions--) {
                g.count = -1;
                return g;
            }
        }
        if (!table[at]) {
            first[groups] = i;
            many[groups] = 0;
            g.number[groups] = groups;
            table[at] = ++groups;
        }
        group[i] = table[at] - 1;
        many[group[i]]++;
    }
    g.count = groups;
    return g;
}

static int unique_results(t_frame *f, const t_value *x, t_value *const *out, const t_groups *g, int32_t axis,
                          int64_t count) {
    const int32_t rank = axis < 0 ? 1 : x->ndim;
    const int64_t outer = axis < 0 ? 1 : extent(x, 0, axis), inner = axis < 0 ? 1 : extent(x, axis + 1, x->ndim);
    int64_t shape[T_VALUE_RANK] = {0};
    int status = TORSHC_OK;
    for (int32_t d = 0; axis >= 0 && d < rank; d++)
        shape[d] = x->shape[d];
    shape[axis < 0 ? 0 : axis] = g->count;
    const int64_t *number = g->number, *group = g->group;
    if (out[0] && !(status = t_make(f, out[0], x->dtype, rank, shape)) && t_count(out[0])) {
        const int64_t bytes = inner * t_element_bytes(x->dtype);
        const char *from = x->data;
        char *to = out[0]->data;
        for (int64_t o = 0; o < outer; o++)
            for (int64_t k = 0; k < g->count; k++)
                put_one(to + (o * g->count + number[k]) * bytes, from + (o * count + g->first[k]) * bytes, bytes);
    }
    if (!status && out[1] && !(status = t_make(f, out[1], T_I64, 1, &g->count))) {
        int64_t *to = out[1]->data;
        for (int64_t k = 0; k < g->count; k++)
            to[number[k]] = g->first[k];
    }
    if (!status && out[2] && !(status = t_make(f, out[2], T_I64, 1, &count))) {
        int64_t *to = out[2]->data;
        for (int64_t i = 0; i < count; i++)
            to[i] = number[group[i]];
    }
    if (!status && out[3] && !(status = t_make(f, out[3], T_I64, 1, &g->count))) {
        int64_t *to = out[3]->data;
        for (int64_t k = 0; k < g->count; k++)
            to[number[k]] = g->many[k];
    }
    return status;
}

/* (x), {axis, or -1 for all elements in a row; whether sorted} -> what there is, the first place of each, what stands
 * at each place, how often each is there. */
int t_op_unique(t_frame *f, const t_value *const *in, t_value *const *out, const int64_t *n) {
    const t_value *x = in[0];
    const int32_t axis = (int32_t)n[0];
    if (!is_number(x->dtype) && !is_string(x->dtype))
        return refuse("Unique", x->dtype);
    const int64_t outer = axis < 0 ? 1 : extent(x, 0, axis), count = axis < 0 ? t_count(x) : x->shape[axis];
    const int64_t inner = axis < 0 ? 1 : extent(x, axis + 1, x->ndim), total = t_count(x);
    const int64_t each = is_string(x->dtype) ? (int64_t)sizeof(t_string) : (int64_t)sizeof(uint64_t);
    if (count > T_BYTES_MAX / 64)
        return t_fail(TORSHC_E_SIZE, "Unique of %lld slices", (long long)count);
    void *elements = t_scratch(f, total * each + 1);
    const int by_table = !n[1] && !is_string(x->dtype) && total == count; /* 2 * count rounded up to a power of 2 */
    const int64_t numbers = (by_table ? 8 : 4) * count;
    int64_t *work = elements ? t_scratch(f, (numbers + 2) * (int64_t)sizeof *work) : NULL;
    int status = TORSHC_E_MEMORY;
    if (work) {
        if (total)
            fill_rows(elements, x, outer, count, inner);
        const t_rows rows = {elements, is_string(x->dtype) ? elements : NULL, count ? total / count : 0};
        t_groups groups = {.count = -1};
        if (by_table)
            groups = find_groups_by_table(elements, count, work);
        if (groups.count < 0)
            groups = find_groups(&rows, count, n[1] != 0, work);
        status = unique_results(f, x, out, &groups, axis, count);
    }
    t_scratch_free(work);
    t_scratch_free(elements);
    return status;
}

/* ---- NonMaxSuppression ---- */

typedef struct {
    float low[2], high[2], area;
} t_box;

/* Corners from two opposite ones (center = 0), or from a centre and sizes. */
static t_box box_of(const float *from, int center) {
    t_box box;
    for (int d = 0; d < 2; d++) {
        const float a = from[d], b = from[d + 2];
        box.low[d] = center ? a - b / 2 : a >= b ? b : a;
        box.high[d] = center ? a + b / 2 : a >= b ? a : b;
    }
    box.area = (box.high[0] - box.low[0]) * (box.high[1] - box.low[1]);
    return box;
}

/* Whether two boxes overlap by more than a ratio of what both cover; never those with a NaN, or without an area. */
static int suppresses(const t_box *a, const t_box *b, float ratio) {
    float side[2];
    for (int d = 0; d < 2; d++) {
        const float low = a->low[d] > b->low[d] ? a->low[d] : b->low[d];
        const float high = a->high[d] < b->high[d] ? a->high[d] : b->high[d];
        side[d] = high - low;
    }
    if (!(side[0] > 0 && side[1] > 0 && a->area > 0 && b->area > 0))
        return 0;
    const volatile float shared = side[0] * side[1]; /* rounded: at the threshold a fused subtraction would differ */
    const float both = a->area + b->area - shared;
    return shared > 0 && both > 0 && shared / both > ratio;
}

/* The first element of an operand, or a default where the operand is absent or empty. */
static float number_or(const t_value *x, float fallback) {
    return x && t_count(x) > 0 ? *(const float *)x->data : fallback;
}

typedef struct {
    int64_t limit, count; /* boxes wanted; boxes there */
    int center;           /* whether boxes are given by their centres */
    float ratio;
    t_box *chosen;
    uint64_t *heap; /* of what passed the threshold: the key of its score, the greatest first, above its number */
} t_suppression;

/* Moves the item at a place of a heap down, behind those that come before it. */
static void sift(uint64_t *heap, int64_t n, int64_t at) {
    const uint64_t item = heap[at];
    for (int64_t child; (child = 2 * at + 1) < n; at = child) {
        child += child + 1 < n && heap[child + 1] < heap[child];
        if (item < heap[child])
            break;
        heap[at] = heap[child];
    }
    heap[at] = item;
}

/* Selects boxes of one class from the best on; `found[3 * k + 2]` becomes the place of the k-th. */
static int64_t suppress(const t_suppression *s, const float *boxes, int64_t passed, int64_t *found) {
    int64_t chosen = 0; /* of a heap, since few boxes are looked at where the limit is low */
    for (int64_t k = passed / 2 - 1; k >= 0; k--)
        sift(s->heap, passed, k);
    for (int64_t left = passed; left > 0 && chosen < s->limit;) {
        const int64_t place = (int64_t)(uint32_t)s->heap[0];
        const t_box box = box_of(boxes + 4 * place, s->center);
        int64_t other = 0;
        s->heap[0] = s->heap[--left];
        sift(s->heap, left, 0);
        while (other < chosen && !suppresses(&box, &s->chosen[other], s->ratio))
            other++;
        if (other == chosen) {
            s->chosen[chosen] = box;
            found[3 * chosen++ + 2] = place;
        }
    }
    return chosen;
}

/* All classes of all batches. Returns how many rows of (batch, class, box) it has written to `found`. */
static int64_t suppress_all(const t_value *boxes, const t_value *scores, const t_value *threshold,
                            const t_suppression *s, int64_t *found) {
    const int64_t classes = scores->shape[1];
    const int is_limited = threshold && t_count(threshold) > 0;
    const float least = number_or(threshold, 0);
    int64_t total = 0;
    for (int64_t batch = 0; batch < scores->shape[0]; batch++) {
        for (int64_t kind = 0; kind < classes; kind++) {
            const float *from = (const float *)scores->data + (batch * classes + kind) * s->count;
            int64_t passed = 0;
            for (int64_t i = 0; i < s->count; i++) { /* no NaN passes, so that keys have 32 bits */
                s->heap[passed] = ~key_of(from, i, (torshc_dtype){TORSHC_FLOAT, 32, 1}) << 32 | (uint64_t)i;
                passed += is_limited ? from[i] > least : from[i] == from[i];
            }
            const float *of_batch = (const float *)boxes->data + batch * s->count * 4;
            const int64_t chosen = suppress(s, of_batch, passed, found + 3 * total);
            for (int64_t k = 0; k < chosen; k++, total++) {
                found[3 * total] = batch;
                found[3 * total + 1] = kind;
            }
        }
    }
    return total;
}

/* (boxes (batch, box, 4), scores (batch, class, box), limit, ratio, score threshold), {whether boxes are given by their
 * centres} -> rows of (batch, class, box). */
int t_op_non_max_suppression(t_frame *f, const t_value *const *in, t_value *const *out, const int64_t *n) {
    const t_value *boxes = in[0], *scores = in[1], *limit = in[2];
    if (boxes->ndim != 3 || scores->ndim != 3 || boxes->shape[2] != 4 || boxes->shape[0] != scores->shape[0] ||
        boxes->shape[1] != scores->shape[2])
        return t_fail(TORSHC_E_SHAPE, "NonMaxSuppression: boxes and scores do not fit together");
    const int64_t count = boxes->shape[1], wanted = limit && t_count(limit) > 0 ? t_at(limit, 0) : 0;
    const int64_t most = wanted < 0 ? 0 : wanted < count ? wanted : count;
    const t_value bound = {.shape = {scores->shape[0], scores->shape[1], most, 3 * (int64_t)sizeof(int64_t)}};
    const int64_t bytes = most ? extent(&bound, 0, 4) : 0;
    if (!bytes)
        return t_make(f, out[0], T_I64, 2, (const int64_t[]){0, 3});
    if (bytes > T_BYTES_MAX || count > UINT32_MAX)
        return t_fail(TORSHC_E_SIZE, "NonMaxSuppression needs more than 2^47 bytes, or has 2^32 boxes");
    int64_t *found = t_scratch(f, bytes);
    uint64_t *heap = found ? t_scratch(f, (count + 1) * (int64_t)sizeof *heap + most * (int64_t)sizeof(t_box)) : NULL;
    int status = TORSHC_E_MEMORY;
    if (heap) {
        const t_suppression s = {.limit = most,
                                 .count = count,
                                 .center = n[0] != 0,
                                 .ratio = number_or(in[3], 0),
                                 .chosen = (t_box *)(void *)(heap + count + 1),
                                 .heap = heap};
        const int64_t total = suppress_all(boxes, scores, in[4], &s, found);
        status = t_make(f, out[0], T_I64, 2, (const int64_t[]){total, 3});
        if (!status)
            put(out[0]->data, found, total * 3 * (int64_t)sizeof(int64_t));
    }
    t_scratch_free(heap);
    t_scratch_free(found);
    return status;
}
