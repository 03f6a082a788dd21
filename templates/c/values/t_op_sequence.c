/* Operators of the host on sequences and optionals. Elements are shared, not copied, wherever they go. */
#include "t_value.h"

#include <string.h>

static const torshc_dtype T_SEQUENCE = {TORSHC_SEQUENCE, 8 * sizeof(torshc_tensor) % 256, 1};
static const torshc_dtype T_OPTIONAL = {TORSHC_OPTIONAL, 8 * sizeof(torshc_tensor) % 256, 1};

/* Product of the dimensions [from, to) of a shape that has elements. */
static int64_t extent(const t_value *x, int32_t from, int32_t to) {
    int64_t total = 1;
    for (int32_t d = from; d < to; d++)
        total *= x->shape[d];
    return total;
}

/* A position from the operand, counted from the end where negative, as one of 0..last; `count` is the length. */
static int position_of(const t_value *operand, int64_t count, int64_t last, const char *name, int64_t *position) {
    if (t_count(operand) != 1)
        return t_fail(TORSHC_E_VALUE, "%s: %lld positions; expected one", name, (long long)t_count(operand));
    const int64_t given = t_at(operand, 0);
    if (given < -count || given > last)
        return t_fail(TORSHC_E_VALUE, "%s: position %lld of a sequence of %lld", name, (long long)given,
                      (long long)count);
    *position = given < 0 ? given + count : given;
    return TORSHC_OK;
}

/* ---- sequences ---- */

/* (x...), {how many} -> a sequence of them. */
int t_op_sequence_construct(t_frame *f, const t_value *const *in, t_value *const *out, const int64_t *n) {
    int status = t_make(f, out[0], T_SEQUENCE, 1, n);
    for (int64_t k = 0; !status && k < n[0]; k++)
        status = t_share(f, t_values(out[0]) + k, in[k]);
    return status;
}

/* (sequence, x, position or nothing for the end) -> the sequence with x before what stood there. */
int t_op_sequence_insert(t_frame *f, const t_value *const *in, t_value *const *out, const int64_t *n) {
    (void)n;
    const int64_t count = t_count(in[0]), more = count + 1;
    int64_t at = count;
    int status = in[2] ? position_of(in[2], count, count, "SequenceInsert", &at) : TORSHC_OK;
    if (!status)
        status = t_make(f, out[0], T_SEQUENCE, 1, &more);
    for (int64_t k = 0; !status && k < more; k++)
        status = t_share(f, t_values(out[0]) + k, k == at ? in[1] : t_values(in[0]) + k - (k > at));
    return status;
}

/* (sequence, position or nothing for the last) -> the sequence without it. */
int t_op_sequence_erase(t_frame *f, const t_value *const *in, t_value *const *out, const int64_t *n) {
    (void)n;
    const int64_t count = t_count(in[0]), less = count - 1;
    int64_t at = less;
    if (count < 1)
        return t_fail(TORSHC_E_VALUE, "SequenceErase: the sequence is empty");
    int status = in[1] ? position_of(in[1], count, less, "SequenceErase", &at) : TORSHC_OK;
    if (!status)
        status = t_make(f, out[0], T_SEQUENCE, 1, &less);
    for (int64_t k = 0; !status && k < less; k++)
        status = t_share(f, t_values(out[0]) + k, t_values(in[0]) + k + (k >= at));
    return status;
}

/* (sequence, position) -> the element there. */
int t_op_sequence_at(t_frame *f, const t_value *const *in, t_value *const *out, const int64_t *n) {
    (void)n;
    int64_t at = 0;
    const int64_t count = t_count(in[0]);
    const int status = position_of(in[1], count, count - 1, "SequenceAt", &at);
    return status ? status : t_share(f, out[0], t_values(in[0]) + at);
}

/* (sequence) -> int64 scalar. */
int t_op_sequence_length(t_frame *f, const t_value *const *in, t_value *const *out, const int64_t *n) {
    (void)n;
    const int status = t_make(f, out[0], T_I64, 0, NULL);
    if (!status)
        *(int64_t *)out[0]->data = t_count(in[0]);
    return status;
}

/* ---- between sequences and tensors ---- */

/* Whether tensors can be joined along an axis: same type, same dimensions elsewhere. */
static int fits(const t_value *a, const t_value *b, int32_t axis) {
    int same = a->dtype.code == b->dtype.code && a->dtype.bits == b->dtype.bits && a->ndim == b->ndim;
    for (int32_t d = 0; same && d < a->ndim; d++)
        same = d == axis || a->shape[d] == b->shape[d];
    return same;
}

/* Shape of a joined sequence. `axis` is -1 for `at` being a new axis. */
static int joined_shape(const t_value *sequence, int32_t axis, int32_t at, int64_t *shape) {
    const int64_t count = t_count(sequence);
    const t_value *each = t_values(sequence);
    int64_t length = axis < 0 ? count : 0;
    for (int64_t k = 0; k < count; k++) {
        if (!fits(each, each + k, axis))
            return t_fail(TORSHC_E_SHAPE, "ConcatFromSequence: element %lld does not fit the first", (long long)k);
        if (axis >= 0 && __builtin_add_overflow(length, each[k].shape[axis], &length))
            return t_fail(TORSHC_E_SIZE, "ConcatFromSequence: the result is larger than 2^47 bytes");
    }
    for (int32_t d = 0, to = 0; d < each->ndim; d++, to++) {
        if (axis < 0 && d == at)
            to++;
        shape[to] = each->shape[d];
    }
    shape[at] = length;
    return TORSHC_OK;
}

/* (sequence), {axis, whether it is a new one} -> all elements in a row along the axis. */
int t_op_concat_from_sequence(t_frame *f, const t_value *const *in, t_value *const *out, const int64_t *n) {
    const int64_t count = t_count(in[0]);
    const t_value *each = t_values(in[0]);
    const int32_t stacked = n[1] != 0;
    if (count < 1)
        return t_fail(TORSHC_E_VALUE, "ConcatFromSequence: the sequence is empty");
    const int32_t rank = each->ndim + stacked, at = (int32_t)(n[0] < 0 ? n[0] + rank : n[0]);
    if (each->ndim < 0 || t_is_nested(each->dtype))
        return t_fail(TORSHC_E_DTYPE, "ConcatFromSequence: the elements are not tensors");
    if (at < 0 || at >= rank || rank > T_VALUE_RANK)
        return t_fail(TORSHC_E_RANK, "ConcatFromSequence: axis %lld of %d", (long long)n[0], (int)rank);
    const int32_t axis = stacked ? -1 : at;
    int64_t shape[T_VALUE_RANK] = {0};
    int status = joined_shape(in[0], axis, at, shape);
    if (!status)
        status = t_make(f, out[0], each->dtype, rank, shape);
    if (status || !t_count(out[0]))
        return status;
    const int64_t outer = extent(out[0], 0, at), inner = extent(out[0], at + 1, rank) * t_element_bytes(each->dtype);
    char *to = out[0]->data;
    for (int64_t o = 0; o < outer; o++)
        for (int64_t k = 0; k < count; k++) {
            const int64_t bytes = (stacked ? 1 : each[k].shape[axis]) * inner;
            if (bytes)
                memcpy(to, (const char *)each[k].data + o * bytes, (size_t)bytes);
            to += bytes;
        }
    return TORSHC_OK;
}

/* Number of parts of a dimension. Operand absent: parts of 1; a scalar: parts of that, the last perhaps shorter. */
static int count_parts(const t_value *split, int64_t length, int64_t *count) {
    if (split && split->ndim) {
        int64_t total = 0;
        *count = t_count(split);
        for (int64_t k = 0; k < *count; k++)
            if (t_at(split, k) < 0 || __builtin_add_overflow(total, t_at(split, k), &total))
                return t_fail(TORSHC_E_VALUE, "SplitToSequence: a part has size %lld", (long long)t_at(split, k));
        if (total != length)
            return t_fail(TORSHC_E_VALUE, "SplitToSequence: the parts add up to %lld, the dimension is %lld",
                          (long long)total, (long long)length);
        return TORSHC_OK;
    }
    const int64_t each = split ? t_at(split, 0) : 1;
    if (each < 1)
        return t_fail(TORSHC_E_VALUE, "SplitToSequence: the parts have size %lld", (long long)each);
    *count = length / each + (length % each != 0);
    return TORSHC_OK;
}

/* (x, split or nothing), {axis, whether parts of 1 keep the axis} -> a sequence of parts. */
int t_op_split_to_sequence(t_frame *f, const t_value *const *in, t_value *const *out, const int64_t *n) {
    const t_value *x = in[0], *split = in[1];
    const int32_t axis = (int32_t)n[0], squeezed = !split && !n[1];
    const int64_t length = x->shape[axis];
    int64_t count = 0, start = 0, shape[T_VALUE_RANK] = {0};
    int status = count_parts(split, length, &count);
    if (!status)
        status = t_make(f, out[0], T_SEQUENCE, 1, &count);
    for (int32_t d = 0; d < x->ndim; d++)
        shape[d - (squeezed && d > axis)] = x->shape[d];
    for (int64_t k = 0; !status && k < count; k++) {
        const int64_t each = !split ? 1 : t_at(split, split->ndim ? k : 0);
        const int64_t size = each < length - start ? each : length - start;
        t_value *part = t_values(out[0]) + k;
        if (!squeezed)
            shape[axis] = size;
        status = t_make(f, part, x->dtype, x->ndim - squeezed, shape);
        if (!status && t_count(part)) {
            const int64_t outer = extent(x, 0, axis), inner = extent(x, axis + 1, x->ndim) * t_element_bytes(x->dtype);
            for (int64_t o = 0; o < outer; o++)
                memcpy((char *)part->data + o * size * inner, (const char *)x->data + (o * length + start) * inner,
                       (size_t)(size * inner));
        }
        start += size;
    }
    return status;
}

/* ---- optionals ---- */

static int is_full(const t_value *optional) {
    if (optional->dtype.code != TORSHC_OPTIONAL)
        return optional->ndim >= 0;
    return t_count(optional) > 0 && t_values(optional)->ndim >= 0;
}

/* (x or nothing) -> an optional with it. */
int t_op_optional(t_frame *f, const t_value *const *in, t_value *const *out, const int64_t *n) {
    (void)n;
    const int64_t count = in[0] != NULL;
    const int status = t_make(f, out[0], T_OPTIONAL, 1, &count);
    return status || !count ? status : t_share(f, t_values(out[0]), in[0]);
}

/* (optional) -> bool scalar: whether there is something in it. */
int t_op_optional_has(t_frame *f, const t_value *const *in, t_value *const *out, const int64_t *n) {
    (void)n;
    const int status = t_make(f, out[0], T_BOOL, 0, NULL);
    if (!status)
        *(uint8_t *)out[0]->data = (uint8_t)is_full(in[0]);
    return status;
}

/* (optional) -> what is in it. */
int t_op_optional_get(t_frame *f, const t_value *const *in, t_value *const *out, const int64_t *n) {
    (void)n;
    if (!is_full(in[0]))
        return t_fail(TORSHC_E_VALUE, "OptionalGetElement: the optional is empty");
    return t_share(f, out[0], in[0]->dtype.code == TORSHC_OPTIONAL ? t_values(in[0]) : in[0]);
}
