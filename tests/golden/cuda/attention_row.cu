#define T_INDEX int
#include "t_cuda.h"
#include "t_packet.h"

extern "C" __global__ void __launch_bounds__(256) k5dbc9f14c4d9_kernel(const float *b0, const float *b1, const float *b2, float *b3) {
    const int block = blockIdx.x;
    const int tid = threadIdx.x;
    t_next_may_start();
    t_wait_for_earlier();
    __shared__ float sums[128], tops[8], totals[8];
    const int rows = 1, row = block % rows;
    const int point = block / rows;
    const int i0 = point;
    const float *q = b0 + 16 * i0;
    const float *k = b1 + 528 * i0;
    const float *v = b2 + 264 * i0;
    const int keys_seen = 33;
    /* ---- the first keys and values, and the queries ---- */
    const int part = tid % 4, group = tid / 4, warp = tid / 32;
    float k_[4][1][4] = {}, v_[4][1][4] = {};
    if (0 < keys_seen) {
#pragma unroll
        for (int u = 0; u < 4; u++) {
            const int key = t_imin(u * 64 + group, keys_seen - 1);
#pragma unroll
            for (int n = 0; n < 1; n++) {
                const int column = (part + n * 4) * 4;
                t_read4(k_[u][n], k + key * 16 + column);
            }
        }
#pragma unroll
        for (int u = 0; u < 4; u++) {
            const int key = t_imin(u * 64 + group, keys_seen - 1);
#pragma unroll
            for (int n = 0; n < 1; n++) {
                const int column = (part + n * 4) * 4;
                if (column < 8) {
                    t_read4(v_[u][n], v + key * 8 + column);
                }
            }
        }
    }
    float query[1][1][4] = {};
#pragma unroll
    for (int h = 0; h < 1; h++) {
#pragma unroll
        for (int n = 0; n < 1; n++) {
            float four[4] = {};
            t_read4(four, q + row * 16 + (part + n * 4) * 4);
            for (int e = 0; e < 4; e++) query[h][n][e] = four[e];
        }
    }
    /* ---- block by block of keys ---- */
    float top[1], total[1] = {}, sum[1][1][4] = {};
    for (int h = 0; h < 1; h++) top[h] = -T_INF_F32;
    for (int start = 0; start < keys_seen; start += 256) {
        /* ---- scores ---- */
        float score[1][4] = {};
#pragma unroll
        for (int u = 0; u < 4; u++) {
#pragma unroll
            for (int n = 0; n < 1; n++) {
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    const float x = k_[u][n][e];
                    for (int h = 0; h < 1; h++) score[h][u] += query[h][n][e] * x;
                }
            }
        }
        const int next = start + 256;
        if (next < keys_seen) {
#pragma unroll
            for (int u = 0; u < 4; u++) {
                const int key = t_imin(next + u * 64 + group, keys_seen - 1);
#pragma unroll
                for (int n = 0; n < 1; n++) {
                    const int column = (part + n * 4) * 4;
                    t_read4(k_[u][n], k + key * 16 + column);
                }
            }
        }
        /* ---- weights ---- */
#pragma unroll
        for (int h = 0; h < 1; h++) {
            float high = top[h];
#pragma unroll
            for (int u = 0; u < 4; u++) {
                const int key = start + u * 64 + group;
                float x = score[h][u];
#pragma unroll
                for (int d = 1; d < 4; d *= 2) x += t_shuffle_xor_f32(x, d);
                x = key < keys_seen ? x : -T_INF_F32;
                score[h][u] = x;
                high = x > high ? x : high; /* passes over NaN, which shows in the weights */
            }
            /* Nothing seen yet: all weights are e^-inf. */
            const float base = high == -T_INF_F32 ? 0.0f : high;
            const float factor = t_exp_f32(top[h] - base);
            top[h] = high;
            total[h] *= factor;
#pragma unroll
            for (int n = 0; n < 1; n++)
            for (int e = 0; e < 4; e++) sum[h][n][e] *= factor;
#pragma unroll
            for (int u = 0; u < 4; u++) {
                score[h][u] = t_exp_f32(score[h][u] - base);
                total[h] += score[h][u];
            }
        }
        /* ---- weighted values ---- */
#pragma unroll
        for (int u = 0; u < 4; u++) {
            if (start + u * 64 + group >= keys_seen) continue; /* 0 times infinity is no number */
#pragma unroll
            for (int n = 0; n < 1; n++) {
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    const float x = v_[u][n][e];
                    for (int h = 0; h < 1; h++) sum[h][n][e] += score[h][u] * x;
                }
            }
        }
        if (next < keys_seen) {
#pragma unroll
            for (int u = 0; u < 4; u++) {
                const int key = t_imin(next + u * 64 + group, keys_seen - 1);
#pragma unroll
                for (int n = 0; n < 1; n++) {
                    const int column = (part + n * 4) * 4;
                    if (column < 8) {
                        t_read4(v_[u][n], v + key * 8 + column);
                    }
                }
            }
        }
    }
    /* ---- sums of all groups ---- */
    /* All groups brought to the largest of their maxima, then added. */
#pragma unroll
    for (int h = 0; h < 1; h++) {
        float high = top[h];
#pragma unroll
        for (int d = 4; d < 32; d *= 2) {
            const float other = t_shuffle_xor_f32(high, d);
            high = other > high ? other : high;
        }
        if (tid % 32 == 0) tops[h * 8 + warp] = high;
    }
    __syncthreads();
#pragma unroll
    for (int h = 0; h < 1; h++) {
        float high = tops[h * 8];
        for (int i = 1; i < 8; i++) high = tops[h * 8 + i] > high ? tops[h * 8 + i] : high;
        const float factor = t_exp_f32(top[h] - (high == -T_INF_F32 ? 0.0f : high));
        total[h] *= factor;
#pragma unroll
        for (int d = 4; d < 32; d *= 2) total[h] += t_shuffle_xor_f32(total[h], d);
        if (tid % 32 == 0) totals[h * 8 + warp] = total[h];
#pragma unroll
        for (int n = 0; n < 1; n++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                float x = sum[h][n][e] * factor;
#pragma unroll
                for (int d = 4; d < 32; d *= 2) x += t_shuffle_xor_f32(x, d);
                if (tid % 32 < 4) sums[(h * 8 + warp) * 16 + (part + n * 4) * 4 + e] = x;
            }
        }
    }
    __syncthreads();
#pragma unroll
    for (int h = 0; h < 1; h++) {
        float all = totals[h * 8];
        for (int i = 1; i < 8; i++) all += totals[h * 8 + i];
        /* Keys that are all hidden leave 0 / 0. */
        const float inverse = 1.0f / all;
        for (int col = tid; col < 8; col += 256) {
            float x = sums[h * 128 + col];
            for (int i = 1; i < 8; i++) x += sums[(h * 8 + i) * 16 + col];
            const float acc = x * inverse;
            b3[col + 8 * i0] = acc;
        }
    }
}

extern "C" int k5dbc9f14c4d9(void *const *buf, const int64_t *dim, int64_t blocks, void *stream) {
    (void)dim;
    T_LAUNCH(k5dbc9f14c4d9_kernel, (unsigned)blocks, 256, 0, (cudaStream_t)stream, (const float *)buf[0], (const float *)buf[1], (const float *)buf[2], (float *)buf[3]);
    return (int)cudaGetLastError();
}
