#define T_FEW_TYPES
#include "t_kernel.h"
#include "t_sums.h"
T_ROWS_ADD

void kd1d1f68d53f3(void *const *buf, const int64_t *dim, void *scratch, int64_t begin, int64_t end) {
    (void)dim, (void)scratch;
    const float *b0 = buf[0];
    float *b1 = buf[1];
    const int64_t s0 = dim[0];
    const int64_t rows = s0;
    for (int64_t point = begin * 442, last = t_imin(end * 442, rows); point < last;) {
        int64_t start = point % s0;
        const int64_t stop = t_imin(start + last - point, s0);
        point += stop - start;
        for (; start + 16 <= stop; start += 16) {
            f32v a0[16];
            T_UNROLL for (int u = 0; u < 16; u++) a0[u] = t_splat_f32(0.0f);
            int64_t r0 = 0;
            const int64_t size = 37;
            for (; r0 + 16 <= size; r0 += 16) {
                T_UNROLL for (int u = 0; u < 16; u++) {
                    const int64_t i0 = start + u;
                    const f32v v0 = t_load_f32(b0 + 37 * i0 + r0);
                    const f32v v1 = v0 * v0;
                    a0[u] = a0[u] + v1;
                }
            }
            const int64_t left = size - r0;
            if (left > 0) {
                T_UNROLL for (int u = 0; u < 16; u++) {
                    const int64_t i0 = start + u;
                    const f32v v0 = t_loadn_f32(b0 + 37 * i0 + r0, left);
                    const f32v v1 = v0 * v0;
                    a0[u] = a0[u] + t_select_f32(t_first_bool(left), v1, t_splat_f32(0.0f));
                }
            }
            const f32v of_rows = t_hadd_rows_f32(a0);
            const int64_t i0 = start;
            const f32v x0_0 = t_sqrt_f32(of_rows);
            const f32v x0 = x0_0;
            {
                t_store_f32(b1 + i0, x0);
            }
        }
        if (start < stop) {
            const int64_t count = stop - start;
            f32v a0[16];
            T_UNROLL for (int u = 0; u < 16; u++) a0[u] = t_splat_f32(0.0f);
            int64_t r0 = 0;
            const int64_t size = 37;
            for (; r0 + 16 <= size; r0 += 16) {
                T_UNROLL for (int u = 0; u < 16; u++) {
                    const int64_t i0 = start + t_imin(u, count - 1);
                    const f32v v0 = t_load_f32(b0 + 37 * i0 + r0);
                    const f32v v1 = v0 * v0;
                    a0[u] = a0[u] + v1;
                }
            }
            const int64_t left = size - r0;
            if (left > 0) {
                T_UNROLL for (int u = 0; u < 16; u++) {
                    const int64_t i0 = start + t_imin(u, count - 1);
                    const f32v v0 = t_loadn_f32(b0 + 37 * i0 + r0, left);
                    const f32v v1 = v0 * v0;
                    a0[u] = a0[u] + t_select_f32(t_first_bool(left), v1, t_splat_f32(0.0f));
                }
            }
            const f32v of_rows = t_hadd_rows_f32(a0);
            const int64_t i0 = start;
            const f32v x0_0 = t_sqrt_f32(of_rows);
            const f32v x0 = x0_0;
            {
                t_storen_f32(b1 + i0, x0, count);
            }
        }
    }
}
