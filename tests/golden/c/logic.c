#include "t_kernel.h"

void k04452c64f7ba(void *const *buf, const int64_t *dim, void *scratch, int64_t begin, int64_t end) {
    (void)dim, (void)scratch;
    const uint8_t *b0 = buf[0];
    const uint8_t *b1 = buf[1];
    uint8_t *b2 = buf[2];
    const int64_t s0 = dim[0];
    const int64_t size = 9;
    const int64_t rows = s0;
    const int64_t chunks = (size + 16383) / 16384;
    for (int64_t task = begin; task < end; task++) {
        const int64_t low = task % chunks * 16384, high = t_imin(low + 16384, size);
        const int64_t first = task / chunks * 1820, last = t_imin(first + 1820, rows);
        for (int64_t row = first; row < last; row++) {
            const int64_t i0 = row;
            for (int64_t i1 = low; i1 < high; i1++) {
                const uint8_t x0 = b1[9 * i0 + i1];
                const uint8_t x1 = b0[i1];
                b2[9 * i0 + i1] = !((x0 != 0) != (x1 != 0));
            }
        }
    }
}
