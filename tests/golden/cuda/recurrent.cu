#define T_INDEX int
#include "t_cuda.h"
#include "t_packet.h"

T_FN float t_sigmoid_f32(float x) {
    const float v0 = (x < -104.5f) ? -104.5f : x;
    const float v1 = -((v0 > 40.0f) ? 40.0f : v0);
    const float v2 = (v1 * 1.442695f) + 12582975.0f;
    const float v3 = t_float32_u32((t_raw32_f32(v2) << 23u));
    const float v4 = v2 - 12582975.0f;
    const float v5 = (v1 - (v4 * 0.6933594f)) - (v4 * -0.00021219444f);
    const float v6 = v5 * v5;
    const float v7 = (((v6 * 0.0013818939f) + ((v5 * 0.008368704f) + 0.04166829f)) * v6) + ((v5 * 0.16666521f) + 0.49999994f);
    return 5.421011e-20f / (((v3 * (v5 + (v7 * v6))) + v3) + 5.421011e-20f);
}

extern "C" __global__ void __launch_bounds__(160) k1a3861c2d79d_kernel(const float *b0, float *b1, const float *b2) {
    const int block = blockIdx.x;
    const int tid = threadIdx.x;
    t_next_may_start();
    t_wait_for_earlier();
    __shared__ float hidden[2][2][5];
    __shared__ float state_c[2][5];
    const int lane = tid % 32, warp = tid / 32;
    const int times = 6, batch = 2;
    const int first = 0;
    const int d = block, n0 = 0;
    const int count = batch - n0 < 2 ? (int)(batch - n0) : 2;
    const float *weights = b0;
    /* ---- states at the start ---- */
    int now = 0;
    for (int i = tid; i < count * 5; i += 160) {
        const int r = i / 5, unit = i % 5;
        hidden[now][r][unit] = 0.0f;
        if (unit < first || unit >= first + 5) continue;
        state_c[r][unit - first] = 0.0f;
    }
    float kept0[1][4][1] = {};
    {
        const int unit = first + warp;
        if (unit < 5) {
            {
                const int e = lane;
                if (e < 5) {
                    kept0[0][0][0] = weights[unit * 5 + e];
                    kept0[0][1][0] = weights[(unit + 5) * 5 + e];
                    kept0[0][2][0] = weights[(unit + 10) * 5 + e];
                    kept0[0][3][0] = weights[(unit + 15) * 5 + e];
                }
            }
        }
    }
    /* Thread r of each warp computes the cells of row r. */
    const int n = n0 + (lane < count ? lane : 0);
    __syncthreads();
    /* ---- step by step ---- */
    for (int step = 0; step < times; step++) {
        const int at = step;
        {
            const int unit = first + warp;
            if (unit < 5) {
                const int runs = lane < count;
                float x0 = 0.0f;
                float x1 = 0.0f;
                float x2 = 0.0f;
                float x3 = 0.0f;
                if (runs) {
                    const int place = (at * batch + n) * 20 + d * 20 + unit;
                    x0 = b2[place];
                    x1 = b2[place + 5];
                    x2 = b2[place + 10];
                    x3 = b2[place + 15];
                }
                float sum[4][2] = {};
                {
                    const int e = lane;
                    if (e < 5) {
#pragma unroll
                        for (int r = 0; r < 2; r++) {
                            const float x = hidden[now][r][e];
#pragma unroll
                            for (int g = 0; g < 4; g++) {
                                sum[g][r] += kept0[0][g][0] * x;
                            }
                        }
                    }
                }
#pragma unroll
                for (int g = 0; g < 4; g++) {
#pragma unroll
                    for (int r = 0; r < 2; r++) {
                        const float all = t_warp_sum_f32(sum[g][r]);
                        if (lane == r) sum[g][0] = all;
                    }
                }
                if (lane < count) {
                    const int r = lane;
                    const float r0 = sum[0][0];
                    const float r1 = sum[1][0];
                    const float r2 = sum[2][0];
                    const float r3 = sum[3][0];
                    const float old_c = state_c[r][unit - first];
                    const float new_c = (t_sigmoid_f32((x2 + r2)) * old_c) + (t_sigmoid_f32((x0 + r0)) * t_tanh_f32((x3 + r3)));
                    state_c[r][unit - first] = new_c;
                    const float new_next = t_sigmoid_f32((x1 + r1)) * t_tanh_f32(new_c);
                    hidden[1 - now][r][unit] = new_next;
                    const int t = at;
                    b1[5 * n + 10 * t + unit] = new_next;
                }
            }
        }
        __syncthreads();
        now = 1 - now;
    }
    /* ---- states at the end ---- */
}

extern "C" int k1a3861c2d79d(void *const *buf, const int64_t *dim, int64_t blocks, void *stream) {
    (void)dim;
    T_LAUNCH(k1a3861c2d79d_kernel, (unsigned)blocks, 160, 0, (cudaStream_t)stream, (const float *)buf[0], (float *)buf[1], (const float *)buf[2]);
    return (int)cudaGetLastError();
}
