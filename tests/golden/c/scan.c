#define T_FEW_TYPES
#include "t_kernel.h"

#include "t_scan.h"

/* The running sums of the lanes. */
T_FN f32v within(f32v v) {
    v = T_MOVED_UP(t_splat_f32(0.0f), v, 1) + v;
    v = T_MOVED_UP(t_splat_f32(0.0f), v, 2) + v;
    v = T_MOVED_UP(t_splat_f32(0.0f), v, 4) + v;
    v = T_MOVED_UP(t_splat_f32(0.0f), v, 8) + v;
    return v;
}

void k081017c3f507(void *const *buf, const int64_t *dim, void *scratch, int64_t begin, int64_t end) {
    (void)dim, (void)scratch;
    const float *b0 = buf[0];
    float *b1 = buf[1];
    const int64_t size = 19, rows = 3;
    for (int64_t task = begin; task < end; task++) {
        const int64_t first = task * 862, last = t_imin(first + 862, rows);
        for (int64_t point = first; point < last; point++) {
            const int64_t i0 = point;
            f32v sum = t_splat_f32(0.0f);
            int64_t t = 0;
            for (; t + 16 <= size; t += 16) {
                const f32v given_0 = t_load_f32(b0 + 19 * i0 + t);
                const f32v given = given_0;
                const f32v part = within(given);
                const f32v y = sum + part;
                sum = sum + t_splat_f32(part[15]);
                t_store_f32(b1 + 19 * i0 + t, y);
            }
            const int64_t left = size - t;
            if (left > 0) {
                const f32v given_0 = t_loadn_f32(b0 + 19 * i0 + t, left);
                const f32v given = given_0;
                const f32v part = within(given);
                const f32v y = sum + part;
                sum = sum + t_splat_f32(part[15]);
                t_storen_f32(b1 + 19 * i0 + t, y, left);
            }
        }
    }
}
