#define T_FEW_TYPES
#include "t_kernel.h"
#include "t_transpose.h"

void k54e99366384b(void *const *buf, const int64_t *dim, void *scratch, int64_t begin, int64_t end) {
    (void)dim, (void)scratch;
    const float *b0 = buf[0];
    float *b1 = buf[1];
    const int64_t width = 512, height = 512;
    const int64_t across = (width + 255) / 256, down = (height + 63) / 64;
    for (int64_t task = begin; task < end; task++) {
        const int64_t left = task % across * 256, right = t_imin(left + 256, width);
        const int64_t top = task / across % down * 64, bottom = t_imin(top + 64, height);
        /* Few lines of the result are written side by side: at strides of powers of two they share sets of the caches. */
        for (int64_t start = top; start < bottom; start += 16) {
            for (int64_t column = left; column < right; column += 16) {
                if (column + 16 <= right && start + 16 <= bottom) {
                    f32v t0_square[16];
                    for (int line = 0; line < 16; line++) {
                        const int64_t i1 = column, i0 = start + line;
                        (void)i1, (void)i0;
                        T_FETCH_OUT(b1, 512 * i0 + i1);
                    }
                    for (int line = 0; line < 16; line++) {
                        const int64_t i1 = column + line, i0 = start;
                        const f32v t0_line_0 = t_load_f32(b0 + i0 + 512 * i1);
                        const f32v t0_line = t0_line_0;
                        t0_square[line] = t0_line;
                    }
                    t_transpose_f32(t0_square);
                    for (int line = 0; line < 16; line++) {
                        const int64_t i1 = column, i0 = start + line;
                        (void)i1, (void)i0;
                        const f32v t0 = t0_square[line];
                        t_store_f32(b1 + 512 * i0 + i1, t0);
                    }
                } else {
                    const int64_t lanes = t_imin(16, right - column), lines = t_imin(16, bottom - start);
                    f32v t0_square[16] = {{0}};
                    for (int line = 0; line < lines; line++) {
                        const int64_t i1 = column, i0 = start + line;
                        (void)i1, (void)i0;
                        T_FETCH_OUT(b1, 512 * i0 + i1);
                    }
                    for (int line = 0; line < lanes; line++) {
                        const int64_t i1 = column + line, i0 = start;
                        const f32v t0_line_0 = t_loadn_f32(b0 + i0 + 512 * i1, lines);
                        const f32v t0_line = t0_line_0;
                        t0_square[line] = t0_line;
                    }
                    t_transpose_f32(t0_square);
                    for (int line = 0; line < lines; line++) {
                        const int64_t i1 = column, i0 = start + line;
                        (void)i1, (void)i0;
                        const f32v t0 = t0_square[line];
                        t_storen_f32(b1 + 512 * i0 + i1, t0, lanes);
                    }
                }
            }
        }
    }
}
