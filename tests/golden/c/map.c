#include "t_kernel.h"

void k2b053d909078(void *const *buf, const int64_t *dim, void *scratch, int64_t begin, int64_t end) {
    (void)dim, (void)scratch;
    const float *b0 = buf[0];
    const float *b1 = buf[1];
    float *b2 = buf[2];
    const int64_t s0 = dim[0];
    const int64_t size = 13;
    const int64_t rows = s0;
    const int64_t chunks = (size + 16383) / 16384;
    for (int64_t task = begin; task < end; task++) {
        const int64_t low = task % chunks * 16384, high = t_imin(low + 16384, size);
        const int64_t first = task / chunks * 1260, last = t_imin(first + 1260, rows);
        for (int64_t i0 = first; i0 < last; i0++) {
            int64_t i1 = low;
            for (; i1 + 16 <= high; i1 += 16) {
                const f32v v0 = t_sigmoid_f32(t_load_f32(b1 + 13 * i0 + i1)) * t_load_f32(b0 + i1);
                t_store_f32(b2 + 13 * i0 + i1, v0);
            }
            const int64_t left = high - i1;
            if (left > 0) {
                const f32v v0 = t_sigmoid_f32(t_loadn_f32(b1 + 13 * i0 + i1, left)) * t_loadn_f32(b0 + i1, left);
                t_storen_f32(b2 + 13 * i0 + i1, v0, left);
            }
        }
    }
}
