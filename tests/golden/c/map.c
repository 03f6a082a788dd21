#define T_FEW_TYPES
#include "t_kernel.h"

T_FN f32v t_sigmoid_f32(f32v x) {
    const i32v v0 = (i32v)(x < -104.5f);
    const f32v v1 = t_blend_f32_(v0, t_splat_f32(-104.5f), x);
    const i32v v2 = (i32v)(v1 > 40.0f);
    const f32v v3 = -t_blend_f32_(v2, t_splat_f32(40.0f), v1);
    const f32v v4 = v3 * 1.442695f + 12582912.0f - 12582912.0f;
    const f32v v5 = v3 - v4 * 0.6933594f - v4 * -0.00021219444f;
    const f32v v6 = v5 * (v5 * (v5 * 0.0013818939f + 0.008368704f) + 0.04166829f);
    const f32v v7 = v5 * (v5 * (v5 * (v6 + 0.16666521f) + 0.49999994f) + 1.0f) + 1.0f;
    return 5.421011e-20f / (t_scale_f32(v7, v4 - 64.0f) + 5.421011e-20f);
}

void k3845bfb27111(void *const *buf, const int64_t *dim, void *scratch, int64_t begin, int64_t end) {
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
            const int64_t left = high - i1;
            if (left > 0) {
                const f32v v0 = t_sigmoid_f32(t_loadn_f32(b1 + 13 * i0 + i1, left)) * t_loadn_f32(b0 + i1, left);
                t_storen_f32(b2 + 13 * i0 + i1, v0, left);
            }
        }
    }
}
