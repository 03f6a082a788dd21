#include "t_kernel.h"

void k1f5396c16e65(void *const *buf, const int64_t *dim, void *scratch, int64_t begin, int64_t end) {
    (void)dim, (void)scratch;
    const float *b0 = buf[0];
    int8_t *b1 = buf[1];
    const int64_t size = 15000;
    for (int64_t task = begin; task < end; task++) {
        const int64_t low = task * 16384, high = t_imin(low + 16384, size);
        int64_t i0 = low;
        for (; i0 + 16 <= high; i0 += 16) {
            const i8v v0 = t_cast_f32_i8(t_load_f32(b0 + i0));
            t_store_i8(b1 + i0, v0);
        }
        const int64_t left = high - i0;
        if (left > 0) {
            const i8v v0 = t_cast_f32_i8(t_loadn_f32(b0 + i0, left));
            t_storen_i8(b1 + i0, v0, left);
        }
    }
}

#define T_KEY int32_t
#define T_UKEY uint32_t
#define T_ITEM uint64_t
#include "t_topk.h"

enum { BLOCK = 64 };

void kcddb2bb7d6ca(void *const *buf, const int64_t *dim, void *scratch, int64_t begin, int64_t end) {
    (void)dim;
    const int8_t *b0 = buf[0];
    int8_t *b1 = buf[1];
    const int64_t size = 5000, wanted = 5000, rows = 3;
    for (int64_t task = begin; task < end; task++) {
        const int64_t first = task * 3, last = t_imin(first + 3, rows);
        for (int64_t point = first; point < last; point++) {
            const int64_t i0 = point;
            t_item *best = scratch;
            for (int64_t base = 0; base < size; base += BLOCK) {
                const int64_t count = t_imin(BLOCK, size - base);
                T_KEY keys[BLOCK];
                int64_t at = 0;
                for (; at + 16 <= count; at += 16) {
                    const int64_t t = base + at;
                    (void)t;
                    const i8v x_0 = t_load_i8(b0 + 5000 * i0 + t);
                    const i8v x = x_0;
                    const i32v key = t_key_i8(x);
                    t_store_i32(keys + at, key);
                }
                const int64_t left = count - at;
                if (left > 0) {
                    const int64_t t = base + at;
                    (void)t;
                    const i8v x_0 = t_loadn_i8(b0 + 5000 * i0 + t, left);
                    const i8v x = x_0;
                    const i32v key = t_key_i8(x);
                    t_store_i32(keys + at, key);
                }
                for (int64_t j = 0; j < count; j++) best[base + j] = t_item_of(keys[j], base + j);
            }
            best = t_sort_items(best, best + size, size);
            for (int64_t rank = 0; rank < wanted; rank++) {
                const int64_t t = t_place_of(best[rank]);
                const i8v v0 = t_splat_i8(b0[5000 * i0 + t]);
                t_storen_i8(b1 + 5000 * i0 + rank, v0, 1);
            }
        }
    }
}
