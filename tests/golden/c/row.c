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

void kac2672236122(void *const *buf, const int64_t *dim, void *scratch, int64_t begin, int64_t end) {
    (void)dim, (void)scratch;
    const float *b0 = buf[0];
    float *b1 = buf[1];
    const int64_t s0 = dim[0];
    float *row0 = scratch;
    const int64_t rows = s0;
    for (int64_t task = begin; task < end; task++) {
        const int64_t first = task * 442, last = t_imin(first + 442, rows);
        for (int64_t point = first; point < last; point++) {
            const int64_t i0 = point;
            f32v a0 = t_splat_f32(-__builtin_inff());
            {
                int64_t r0 = 0;
                const int64_t size = 37;
                for (; r0 + 16 <= size; r0 += 16) {
                    const f32v v0 = t_load_f32(b0 + 37 * i0 + r0);
                    a0 = t_max_f32(a0, v0);
                }
                const int64_t left = size - r0;
                if (left > 0) {
                    const f32v v0 = t_loadn_f32(b0 + 37 * i0 + r0, left);
                    a0 = t_max_f32(a0, t_select_f32(t_first_bool(left), v0, t_splat_f32(-__builtin_inff())));
                }
            }
            a0 = t_splat_f32(t_hmax_f32(a0));
            f32v a1 = t_splat_f32(0.0f);
            {
                int64_t r0 = 0;
                const int64_t size = 37;
                for (; r0 + 16 <= size; r0 += 16) {
                    const f32v v0 = t_exp_low_f32((t_load_f32(b0 + 37 * i0 + r0) - a0));
                    t_store_f32(row0 + r0, v0);
                    a1 = a1 + v0;
                }
                const int64_t left = size - r0;
                if (left > 0) {
                    const f32v v0 = t_exp_low_f32((t_loadn_f32(b0 + 37 * i0 + r0, left) - a0));
                    t_storen_f32(row0 + r0, v0, left);
                    a1 = a1 + t_select_f32(t_first_bool(left), v0, t_splat_f32(0.0f));
                }
            }
            a1 = t_splat_f32(t_hsum_f32(a1));
            {
                int64_t r0 = 0;
                const int64_t size = 37;
                for (; r0 + 16 <= size; r0 += 16) {
                    const f32v v0 = t_load_f32(row0 + r0) * (t_splat_f32(1.0f) / a1);
                    t_store_f32(b1 + 37 * i0 + r0, v0);
                }
                const int64_t left = size - r0;
                if (left > 0) {
                    const f32v v0 = t_loadn_f32(row0 + r0, left) * (t_splat_f32(1.0f) / a1);
                    t_storen_f32(b1 + 37 * i0 + r0, v0, left);
                }
            }
        }
    }
}
