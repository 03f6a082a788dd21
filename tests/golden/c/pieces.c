#include "t_kernel.h"

void k6ba6e7a793b2(void *const *buf, const int64_t *dim, void *scratch, int64_t begin, int64_t end) {
    (void)dim, (void)scratch;
    const float *b0 = buf[0];
    float *b1 = buf[1];
    const int64_t width = 12;
    const int64_t chunks = (width + 255) / 256;
    const int64_t rows = 1;
    for (int64_t task = begin; task < end; task++) {
        const int64_t low = task % chunks * 256, high = t_imin(low + 256, width);
        const int64_t first = task / chunks, last = t_imin(first + 1, rows);
        for (int64_t point = first; point < last; point++) {
            int64_t i0 = low;
            for (; i0 + 16 <= high; i0 += 16) {
                f32v a0 = t_splat_f32(0.0f);
                for (int64_t r0 = 0; r0 < 90000; r0++) {
                    const f32v v0 = t_load_f32(b0 + i0 + 12 * r0);
                    a0 = a0 + v0;
                }
                const f32v x0_0 = a0 / t_splat_f32(90000.0f);
                const f32v x0 = x0_0;
                {
                    t_store_f32(b1 + i0, x0);
                }
            }
            const int64_t left = high - i0;
            if (left > 0) {
                f32v a0 = t_splat_f32(0.0f);
                for (int64_t r0 = 0; r0 < 90000; r0++) {
                    const f32v v0 = t_loadn_f32(b0 + i0 + 12 * r0, left);
                    a0 = a0 + v0;
                }
                const f32v x0_0 = a0 / t_splat_f32(90000.0f);
                const f32v x0 = x0_0;
                {
                    t_storen_f32(b1 + i0, x0, left);
                }
            }
        }
    }
}
