#define T_FEW_TYPES
#include "t_kernel.h"

void k09b486ae537d(void *const *buf, const int64_t *dim, void *scratch, int64_t begin, int64_t end) {
    (void)dim, (void)scratch;
    const int64_t *b0 = buf[0];
    const float *b1 = buf[1];
    float *b2 = buf[2];
    const int64_t size = 3, rows = 1;
    const int64_t width = 19, chunks = (width + 1023) / 1024;
    for (int64_t task = begin; task < end; task++) {
        const int64_t low = task % chunks * 1024, high = t_imin(low + 1024, width), part = task / chunks;
        const int64_t first = part * 287, last = t_imin(first + 287, rows);
        for (int64_t row = first; row < last; row++) {
            for (int64_t u = 0; u < size; u++) {
                int64_t at0 = b0[u];
                if ((uint64_t)at0 >= (uint64_t)5) { /* one test of most places */
                    at0 = (int64_t)((uint64_t)at0 + (uint64_t)5);
                    if ((uint64_t)at0 >= (uint64_t)5) continue;
                }
                int64_t i0 = low;
                for (; i0 + 16 <= high; i0 += 16) {
                    const f32v v0 = t_load_f32(b2 + 19 * at0 + i0) + t_load_f32(b1 + i0 + 19 * u);
                    t_store_f32(b2 + 19 * at0 + i0, v0);
                }
                const int64_t left = high - i0;
                if (left > 0) {
                    const f32v v0 = t_loadn_f32(b2 + 19 * at0 + i0, left) + t_loadn_f32(b1 + i0 + 19 * u, left);
                    t_storen_f32(b2 + 19 * at0 + i0, v0, left);
                }
            }
        }
    }
}
