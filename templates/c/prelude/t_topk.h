/* The largest items of a row, in order.  T_KEY is int32_t or int64_t, T_KEYV its vector, T_UKEY its unsigned type.
 *
 * An item is a key with the complement of its place below: as one number it is larger where the key is, and of equal
 * keys where it stands further to the left.  Places are below 2^32. */
#ifndef T_TOPK_H
#define T_TOPK_H

#include "t_kernel.h"

__extension__ typedef unsigned __int128 t_u128;
typedef T_ITEM t_item;

/* Keys have the order of their elements; -0 is 0, and NaN is above all numbers. */
T_FN i32v t_key_f32(f32v x) {
    const i32v bits = (i32v)(x + t_splat_f32(0.0f)), key = bits ^ ((bits >> 31) & 0x7fffffff), nan = x != x;
    return (key & ~nan) | (nan & 0x7fffffff);
}
T_FN i64v t_key_f64(f64v x) {
    const i64v bits = (i64v)(x + t_splat_f64(0.0)), key = bits ^ ((bits >> 63) & INT64_MAX), nan = x != x;
    return (key & ~nan) | (nan & INT64_MAX);
}
T_FN i32v t_key_i8(i8v x) { return T_CONV(x, i32); }
T_FN i32v t_key_u8(u8v x) { return T_CONV(x, i32); }
T_FN i32v t_key_i16(i16v x) { return T_CONV(x, i32); }
T_FN i32v t_key_u16(u16v x) { return T_CONV(x, i32); }
T_FN i32v t_key_i32(i32v x) { return x; }
T_FN i32v t_key_u32(u32v x) { return (i32v)(x ^ 0x80000000u); }
T_FN i64v t_key_i64(i64v x) { return x; }
T_FN i64v t_key_u64(u64v x) { return (i64v)(x ^ ((uint64_t)1 << 63)); }

#define T_SIGN ((T_UKEY)1 << (8 * sizeof(T_UKEY) - 1))

T_FN t_item t_item_of(T_KEY key, int64_t place) {
    return (t_item)((T_UKEY)key ^ T_SIGN) << 32 | (uint32_t)~(uint32_t)place;
}
T_FN int64_t t_place_of(t_item x) { return (int64_t)(uint32_t)~(uint32_t)x; }
T_FN T_KEY t_key_of(t_item x) { return (T_KEY)((T_UKEY)(x >> 32) ^ T_SIGN); }

/* The best so far are a heap, whose first is its smallest. Few of them are in order all the time, from the smallest on,
 * which is a heap too: moving one up among them has no branch to guess. */
enum { T_FEW = 16 };

T_COLD_FN void t_sift(t_item *heap, int64_t count, int64_t at, t_item x) {
    for (;;) {
        int64_t below = 2 * at + 1;
        if (below >= count) break;
        if (below + 1 < count && heap[below + 1] < heap[below]) below++;
        if (heap[below] >= x) break;
        heap[at] = heap[below];
        at = below;
    }
    heap[at] = x;
}
/* Puts x in the place of the smallest. */
T_FN void t_replace(t_item *best, int64_t count, t_item x) {
    if (count > T_FEW) {
        t_sift(best, count, 0, x);
        return;
    }
    for (int64_t i = 1; i < count; i++) {
        const t_item here = best[i];
        best[i - 1] = here < x ? here : x;
        x = here < x ? x : here;
    }
    best[count - 1] = x;
}
T_COLD_FN void t_make_heap(t_item *items, int64_t count) {
    if (count > T_FEW) {
        for (int64_t at = count / 2; at-- > 0;) t_sift(items, count, at, items[at]);
        return;
    }
    for (int64_t i = 1; i < count; i++) {
        const t_item x = items[i];
        int64_t at = i;
        for (; at > 0 && items[at - 1] > x; at--) items[at] = items[at - 1];
        items[at] = x;
    }
}
/* The best in order, the largest first. */
T_COLD_FN void t_order_heap(t_item *heap, int64_t count) {
    for (int64_t last = count - 1, first = 0; last > first; last--) {
        const t_item x = heap[last];
        heap[last] = heap[first];
        if (count > T_FEW) t_sift(heap, last, 0, x);
        else heap[first++] = x;
    }
}

/* Items given by their positions, sorted by a byte of their keys after the other, the largest first; `to` is room
 * for as many.  Returns which of the two holds them. */
T_COLD_FN t_item *t_sort_items(t_item *from, t_item *to, int64_t count) {
    int64_t slots[sizeof(T_KEY)][256] = {{0}};
    for (int64_t i = 0; i < count; i++)
        for (int byte = 0; byte < (int)sizeof(T_KEY); byte++) slots[byte][(uint8_t)(from[i] >> (32 + 8 * byte))]++;
    for (int byte = 0; byte < (int)sizeof(T_KEY); byte++) {
        const int shift = 32 + 8 * byte;
        int64_t *slot = slots[byte], next = 0;
        if (slot[(uint8_t)(from[0] >> shift)] == count) continue; /* the same in all */
        for (int value = 255; value >= 0; value--) {
            const int64_t here = slot[value];
            slot[value] = next;
            next += here;
        }
        for (int64_t i = 0; i < count; i++) to[slot[(uint8_t)(from[i] >> shift)]++] = from[i];
        t_item *swap = from;
        from = to;
        to = swap;
    }
    return from;
}

#endif
