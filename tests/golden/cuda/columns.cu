#define T_INDEX int
#include "t_cuda.h"
#include "t_packet.h"

extern "C" __global__ void __launch_bounds__(32, 16) k2632b90764b6_kernel(const float *b0, float *b1) {
    const int block = blockIdx.x;
    const int tid = threadIdx.x;
    t_next_may_start();
    t_wait_for_earlier();
    const int packet = block * 4 + tid % 4;
    const int turn = tid / 4;
    const bool inside = packet < 3;
    const int point = inside ? packet * 4 : 0;
    const int i0 = point;
    float row0[28];
    float row1[28];
    float a0[4];
#pragma unroll
    for (int j = 0; j < 4; j++) a0[j] = -T_INF_F32;
#pragma unroll
    for (int step = 0; step < 7; step++) {
        const int at = step * 8 + turn;
        if (step == 6 && at >= 50) break;
        const int r0 = at;
        float p0[4];
        t_read4(p0, b0 + i0 + 12 * r0);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const float v0 = p0[j];
            row0[step * 4 + j] = v0;
            a0[j] = t_max_f32(a0[j], v0);
        }
    }
#pragma unroll
    for (int d = 4; d < 32; d *= 2) {
#pragma unroll
        for (int j = 0; j < 4; j++) a0[j] = t_max_f32(a0[j], t_shuffle_xor_f32(a0[j], d));
    }
    float a1[4];
#pragma unroll
    for (int j = 0; j < 4; j++) a1[j] = 0.0f;
#pragma unroll
    for (int step = 0; step < 7; step++) {
        const int at = step * 8 + turn;
        if (step == 6 && at >= 50) break;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const float v0 = t_exp_f32((row0[step * 4 + j] - a0[j]));
            row1[step * 4 + j] = v0;
            a1[j] = a1[j] + v0;
        }
    }
#pragma unroll
    for (int d = 4; d < 32; d *= 2) {
#pragma unroll
        for (int j = 0; j < 4; j++) a1[j] = a1[j] + t_shuffle_xor_f32(a1[j], d);
    }
    if (!inside) return;
#pragma unroll
    for (int step = 0; step < 7; step++) {
        const int at = step * 8 + turn;
        if (step == 6 && at >= 50) break;
        const int r0 = at;
        float q0[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const float v0 = row1[step * 4 + j] * (1.0f / a1[j]);
            q0[j] = v0;
        }
        t_write4(b1 + i0 + 12 * r0, q0);
    }
}

extern "C" int k2632b90764b6(void *const *buf, const int64_t *dim, int64_t blocks, void *stream) {
    (void)dim;
    T_LAUNCH(k2632b90764b6_kernel, (unsigned)blocks, 32, 0, (cudaStream_t)stream, (const float *)buf[0], (float *)buf[1]);
    return (int)cudaGetLastError();
}
