#define T_INDEX int64_t
#include "t_cuda.h"
#include "t_packet.h"

extern "C" __global__ void __launch_bounds__(256) kc2bdba8cbc0c_kernel(const float *b0, float *b1, const int64_t s0) {
    const int64_t block = blockIdx.x;
    const int tid = threadIdx.x;
    t_next_may_start();
    t_wait_for_earlier();
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

extern "C" int kc2bdba8cbc0c(void *const *buf, const int64_t *dim, int64_t blocks, void *stream) {
    T_LAUNCH_BY_SIZE(kc2bdba8cbc0c_kernel, (unsigned)blocks, 256, 0, (cudaStream_t)stream, (const float *)buf[0], (float *)buf[1], dim[0]);
    return (int)cudaGetLastError();
}
