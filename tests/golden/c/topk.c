#define T_KEY int32_t
#define T_UKEY uint32_t
#define T_ITEM uint64_t
#include "t_topk.h"

enum { BLOCK = 64 };

void k21b43f675edb(void *const *buf, const int64_t *dim, void *scratch, int64_t begin, int64_t end) {
    (void)dim;
    const float *b0 = buf[0];
    float *b1 = buf[1];
    const int64_t size = 19, wanted = 3, rows = 3;
    for (int64_t task = begin; task < end; task++) {
        const int64_t first = task * 862, last = t_imin(first + 862, rows);
        for (int64_t point = first; point < last; point++) {
            const int64_t i0 = point;
            t_item *best = scratch;
            int64_t held = 0;
            T_KEY low = 0; /* of the smallest in a full heap */
            for (int64_t base = 0; base < size; base += BLOCK) {
                const int64_t count = t_imin(BLOCK, size - base);
                T_KEY keys[BLOCK];
                i32v top = t_splat_i32(INT32_MIN);
                int64_t at = 0;
                for (; at + 16 <= count; at += 16) {
                    const int64_t t = base + at;
                    (void)t;
                    const f32v x_0 = t_load_f32(b0 + 19 * i0 + t);
                    const f32v x = x_0;
                    const i32v key = t_key_f32(x);
                    t_store_i32(keys + at, key);
                    top = t_max_i32(top, key);
                }
                const int64_t left = count - at;
                if (left > 0) {
                    const int64_t t = base + at;
                    (void)t;
                    const f32v x_0 = t_loadn_f32(b0 + 19 * i0 + t, left);
                    const f32v x = x_0;
                    const i32v key = t_key_f32(x);
                    t_store_i32(keys + at, key);
                    top = t_max_i32(top, key);
                }
                int64_t j = 0;
                if (held < wanted) {
                    for (; j < count && held < wanted; j++) best[held++] = t_item_of(keys[j], base + j);
                    if (held < wanted) continue;
                    t_make_heap(best, wanted);
                    low = t_key_of(best[0]);
                }
                if (!t_hany_bool(T_CONV(top > t_splat_i32(low), i32))) continue;
                for (; j < count; j++) {
                    if (keys[j] <= low) continue; /* an equal one stands to the left */
                    t_replace(best, wanted, t_item_of(keys[j], base + j));
                    low = t_key_of(best[0]);
                }
            }
            t_order_heap(best, wanted);
            for (int64_t rank = 0; rank < wanted; rank++) {
                const int64_t t = t_place_of(best[rank]);
                const f32v v0 = t_splat_f32(b0[19 * i0 + t]);
                t_storen_f32(b1 + 3 * i0 + rank, v0, 1);
            }
        }
    }
}
