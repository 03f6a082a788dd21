#define T_INDEX int
#include "t_cuda.h"
#include "t_packet.h"

extern "C" __global__ void __launch_bounds__(32) k85e162fc3155_kernel(const float *b0, float *b1) {
    const int block = blockIdx.x;
    const int tid = threadIdx.x;
    t_next_may_start();
    t_wait_for_earlier();
    const int point = block;
    const int lane = tid % 32;
    const int i0 = point;
    const int begin = 0, end = 19;
    float sum = 0.0f;
    for (int at = begin; at < end; at += 128) {
        float x[4] = {};
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int s = at + (j) * 32 + lane;
            const int t = s;
            x[j] = 0.0f;
            if (s < end) {
                const float v = b0[19 * i0 + t];
                x[j] = v;
            }
        }
        /* Of each 32 neighbours: what stands before an element among them, and all of them. */
        float before[4], all[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            before[j] = 0.0f, all[j] = x[j];
#pragma unroll
            for (int d = 1; d < 32; d *= 2) {
                const float other = t_shuffle_xor_f32(all[j], d);
                if (lane & d) before[j] = other + before[j];
                all[j] = all[j] + other;
            }
        }
        float here = sum;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int s = at + (j) * 32 + lane;
            const int t = s;
            if (s >= end) break;
            const float left = here + before[j];
            const float y = left + x[j];
            here = here + all[j];
            b1[19 * i0 + t] = y;
        }
#pragma unroll
        for (int j = 0; j < 4; j++) sum = sum + all[j];
    }
}

extern "C" int k85e162fc3155(void *const *buf, const int64_t *dim, int64_t blocks, void *stream) {
    (void)dim;
    T_LAUNCH(k85e162fc3155_kernel, (unsigned)blocks, 32, 0, (cudaStream_t)stream, (const float *)buf[0], (float *)buf[1]);
    return (int)cudaGetLastError();
}
