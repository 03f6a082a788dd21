#include "t_kernel.h"

void k48d82d38ad4a(void *const *buf, const int64_t *dim, void *scratch, int64_t begin, int64_t end) {
    (void)dim, (void)scratch;
    const float *b0 = buf[0];
    uint16_t *b1 = buf[1];
    const int64_t size = 1920;
    for (int64_t task = begin; task < end; task++) {
        const int64_t low = task * 16384, high = t_imin(low + 16384, size);
        int64_t i0 = low;
        for (; i0 + 16 <= high; i0 += 16) {
            const f32v v0 = t_as_f16(t_load_f32(b0 + i0));
            t_store_f16(b1 + i0, v0);
        }
        const int64_t left = high - i0;
        if (left > 0) {
            const f32v v0 = t_as_f16(t_loadn_f32(b0 + i0, left));
            t_storen_f16(b1 + i0, v0, left);
        }
    }
}

#include "t_kernel.h"

void kecbd8f025e9e(void *const *buf, const int64_t *dim, void *scratch, int64_t begin, int64_t end) {
    (void)dim, (void)scratch;
    const float *b0 = buf[0];
    uint16_t *b1 = buf[1];
    const int64_t size = 1536;
    for (int64_t task = begin; task < end; task++) {
        const int64_t low = task * 16384, high = t_imin(low + 16384, size);
        int64_t i0 = low;
        for (; i0 + 16 <= high; i0 += 16) {
            const f32v v0 = t_as_f16(t_load_f32(b0 + i0));
            t_store_f16(b1 + i0, v0);
        }
        const int64_t left = high - i0;
        if (left > 0) {
            const f32v v0 = t_as_f16(t_loadn_f32(b0 + i0, left));
            t_storen_f16(b1 + i0, v0, left);
        }
    }
}

#include "t_kernel.h"

void k798dcafea6d3(void *const *buf, const int64_t *dim, void *scratch, int64_t begin, int64_t end) {
    (void)dim, (void)scratch;
    const uint16_t *b0 = buf[0];
    const uint16_t *b1 = buf[1];
    uint16_t *b2 = buf[2];
    const int64_t width = 32;
    const int64_t chunks = (width + 335) / 336;
    const int64_t rows = 40;
    for (int64_t task = begin; task < end; task++) {
        const int64_t low = task % chunks * 336, high = t_imin(low + 336, width);
        const int64_t first = task / chunks * 10, last = t_imin(first + 10, rows);
        for (int64_t point = first; point < last; point++) {
            const int64_t i0 = point;
            (void)i0;
            int64_t i1 = low;
            for (; i1 + 16 <= high; i1 += 16) {
                f32v a0 = t_splat_f32(0.0f);
                for (int64_t r0 = 0; r0 < 48; r0++) {
                    const f32v v0 = t_splat_f16(&b1[48 * i0 + r0]) * t_load_f16(b0 + i1 + 32 * r0);
                    a0 = a0 + v0;
                }
                const f32v x0 = a0;
                (void)x0;
                {
                    t_store_f16(b2 + 32 * i0 + i1, x0);
                }
            }
            const int64_t left = high - i1;
            if (left > 0) {
                f32v a0 = t_splat_f32(0.0f);
                for (int64_t r0 = 0; r0 < 48; r0++) {
                    const f32v v0 = t_splat_f16(&b1[48 * i0 + r0]) * t_loadn_f16(b0 + i1 + 32 * r0, left);
                    a0 = a0 + v0;
                }
                const f32v x0 = a0;
                (void)x0;
                {
                    t_storen_f16(b2 + 32 * i0 + i1, x0, left);
                }
            }
        }
    }
}
