#define T_FEW_TYPES
#include "t_kernel.h"

void k2f4880838222(void *const *buf, const int64_t *dim, void *scratch, int64_t begin, int64_t end) {
    (void)dim, (void)scratch;
    const float *b0 = buf[0];
    const int64_t *b1 = buf[1];
    const float *b2 = buf[2];
    float *b3 = buf[3];
    const int64_t s0 = dim[0];
    const int64_t size = 8;
    const int64_t rows = 96;
    const int64_t chunks = (size + 16383) / 16384;
    const int in_place = buf[0] == buf[3];
    for (int64_t task = begin; task < end; task++) {
        const int64_t low = task % chunks * 16384, high = t_imin(low + 16384, size);
        const int64_t first = task / chunks * 2048, last = t_imin(first + 2048, rows);
        for (int64_t row = first; row < last;) {
            int64_t i2 = row % 16, stop = t_imin(i2 + last - row, 16);
            const int64_t plane = row / 16;
            const int64_t i1 = plane % 3;
            int64_t rest = plane / 3;
            const int64_t i0 = rest;
            row += stop - i2;
            if (in_place) {
                i2 = t_imax(i2, t_imax(0, b1[i0]));
                stop = t_imin(stop, t_imin((s0 + b1[i0]), 16));
            }
            for (; i2 < stop; i2++) {
                int64_t i3 = low;
                for (; i3 + 16 <= high; i3 += 16) {
                    const i64v v0 = t_splat_i64((int64_t)((uint64_t)i2 + (uint64_t)((int64_t)((uint64_t)(-1) * (uint64_t)b1[i0]))));
                    const i64v v1 = t_splat_i64(s0);
                    const i32v v2 = t_and_bool(t_le_i64(t_splat_i64(0), v0), t_lt_i64(v0, v1));
                    const f32v v3 = t_load_f32(b2 + 24 * i0 * s0 + 8 * i1 * s0 + i3 + 8 * t_imax(0, t_imin(((int64_t)((uint64_t)i2 + (uint64_t)((int64_t)((uint64_t)(-1) * (uint64_t)b1[i0])))), (s0 - 1))));
                    const int64_t v4 = 384 * i0 + 128 * i1 + 8 * i2 + i3;
                    const f32v v5 = t_load_f32(b0 + v4);
                    const f32v v6 = t_select_f32(v2, v3, v5);
                    t_store_f32(b3 + v4, v6);
                }
                const int64_t left = high - i3;
                if (left > 0) {
                    const i64v v0 = t_splat_i64((int64_t)((uint64_t)i2 + (uint64_t)((int64_t)((uint64_t)(-1) * (uint64_t)b1[i0]))));
                    const i64v v1 = t_splat_i64(s0);
                    const i32v v2 = t_and_bool(t_le_i64(t_splat_i64(0), v0), t_lt_i64(v0, v1));
                    const f32v v3 = t_loadn_f32(b2 + 24 * i0 * s0 + 8 * i1 * s0 + i3 + 8 * t_imax(0, t_imin(((int64_t)((uint64_t)i2 + (uint64_t)((int64_t)((uint64_t)(-1) * (uint64_t)b1[i0])))), (s0 - 1))), left);
                    const int64_t v4 = 384 * i0 + 128 * i1 + 8 * i2 + i3;
                    const f32v v5 = t_loadn_f32(b0 + v4, left);
                    const f32v v6 = t_select_f32(v2, v3, v5);
                    t_storen_f32(b3 + v4, v6, left);
                }
            }
        }
    }
}
