#define T_FEW_TYPES
#include "t_kernel.h"

T_FN f32v t_exp_low_f32(f32v x) {
    const i32v v0 = (i32v)(x < -104.5f);
    const f32v v1 = t_blend_f32_(v0, t_splat_f32(-104.5f), x);
    const f32v v2 = v1 * 1.442695f + 12582912.0f - 12582912.0f;
    const f32v v3 = v1 - v2 * 0.6933594f - v2 * -0.00021219444f;
    const f32v v4 = v3 * (v3 * (v3 * 0.0013818939f + 0.008368704f) + 0.04166829f);
    const f32v v5 = v3 * (v3 * (v3 * (v4 + 0.16666521f) + 0.49999994f) + 1.0f) + 1.0f;
    return t_scale_f32(v5, v2);
}

void kbf3414c64350(void *const *buf, const int64_t *dim, void *scratch, int64_t begin, int64_t end) {
    (void)dim, (void)scratch;
    const float *b0 = buf[0];
    float *b1 = buf[1];
    const int64_t width = 12;
    const int64_t chunks = (width + 319) / 320;
    const int64_t rows = 1;
    for (int64_t task = begin; task < end; task++) {
        const int64_t low = task % chunks * 320, high = t_imin(low + 320, width);
        const int64_t first = task / chunks * 27, last = t_imin(first + 27, rows);
        for (int64_t point = first; point < last; point++) {
            int64_t i0 = low;
            const int64_t left = high - i0;
            if (left > 0) {
                f32v a0 = t_splat_f32(-__builtin_inff());
                for (int64_t r0 = 0; r0 < 50; r0++) {
                    const f32v v0 = t_loadn_f32(b0 + i0 + 12 * r0, left);
                    a0 = t_max_f32(a0, v0);
                }
                f32v a1 = t_splat_f32(0.0f);
                for (int64_t r0 = 0; r0 < 50; r0++) {
                    const f32v v0 = t_exp_low_f32((t_loadn_f32(b0 + i0 + 12 * r0, left) - a0));
                    a1 = a1 + v0;
                }
                for (int64_t r0 = 0; r0 < 50; r0++) {
                    const f32v v0 = t_exp_low_f32((t_loadn_f32(b0 + i0 + 12 * r0, left) - a0)) * (t_splat_f32(1.0f) / a1);
                    t_storen_f32(b1 + i0 + 12 * r0, v0, left);
                }
            }
        }
    }
}
