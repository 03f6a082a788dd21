#define T_INDEX int64_t
#include "t_metal.h"
#include "t_packet.h"

[[max_total_threads_per_threadgroup(256)]]
kernel void k09736e6ba11f(
    device const float *b0 [[buffer(0)]],
    device float *b1 [[buffer(1)]],
    constant int64_t *dim [[buffer(2)]],
    uint block_ [[threadgroup_position_in_grid]], uint thread_ [[thread_position_in_threadgroup]]) {
    const int64_t block = (int64_t)block_;
    const int tid = (int)thread_;
    const int64_t s0 = dim[0];
    const int64_t point = block * 8 + tid / 32;
    const int part = tid % 32;
    if (point >= s0) return;
    const int64_t i0 = point;
    float row0[2];
    float row1[2];
    float a0 = -T_INF_F32;
#pragma unroll
    for (int step = 0; step < 2; step++) {
        const int at = (step * 32 + part);
        if (at >= 37) break;
        const int r0 = at;
        const float v0 = b0[37 * i0 + r0];
        row0[step] = v0;
        a0 = t_max_f32(a0, v0);
    }
    a0 = t_warp_max_f32(a0);
    float a1 = 0.0f;
#pragma unroll
    for (int step = 0; step < 2; step++) {
        const int at = (step * 32 + part);
        if (at >= 37) break;
        const float v0 = t_exp_f32((row0[step] - a0));
        row1[step] = v0;
        a1 = a1 + v0;
    }
    a1 = t_warp_sum_f32(a1);
#pragma unroll
    for (int step = 0; step < 2; step++) {
        const int at = (step * 32 + part);
        if (at >= 37) break;
        const int r0 = at;
        const float v0 = row1[step] * (1.0f / a1);
        b1[37 * i0 + r0] = v0;
    }
}
