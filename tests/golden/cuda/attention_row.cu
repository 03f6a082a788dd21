#define T_INDEX int
#include "t_cuda.h"
#include "t_packet.h"

extern "C" __global__ void __launch_bounds__(256) kb30a91529f87_kernel(const float *b0, const float *b1, const float *b2, float *b3) {
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
            const int key = t_imin(64 * u + group, keys_seen - 1);
            const int column = part * 4;
            t_read4(k_[u][0], k + key * 16 + column);
        }
#pragma unroll
        for (int u = 0; u < 4; u++) {
            const int key = t_imin(64 * u + group, keys_seen - 1);
            const int column = part * 4;
            if (column < 8) {
                t_read4(v_[u][0], v + key * 8 + column);
            }
        }
    }
    float query[1][1][4] = {};
    {
        float four[4] = {};
        t_read4(four, q + row * 16 + part * 4);
        for (int e = 0; e < 4; e++) query[0][0][e] = four[e];
    }
    /* ---- block by block of keys ---- */
    float top[1], total[1] = {}, sum[1][1][4] = {};
    top[0] = -T_INF_F32;
    for (int start = 0; start < keys_seen; start += 256) {
        /* ---- scores ---- */
        float score[1][4] = {};
#pragma unroll
        for (int u = 0; u < 4; u++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const float x = k_[u][0][e];
                score[0][u] += query[0][0][e] * x;
            }
        }
        const int next = start + 256;
        if (next < keys_seen) {
#pragma unroll
            for (int u = 0; u < 4; u++) {
                const int key = t_imin(next + 64 * u + group, keys_seen - 1);
                const int column = part * 4;
                t_read4(k_[u][0], k + key * 16 + column);
            }
        }
        /* ---- weights ---- */
        {
            float high = top[0];
#pragma unroll
            for (int u = 0; u < 4; u++) {
                const int key = start + 64 * u + group;
                float x = score[0][u];
#pragma unroll
                for (int d = 1; d < 4; d *= 2) x += t_shuffle_xor_f32(x, d);
                x = key < keys_seen ? x : -T_INF_F32;
                score[0][u] = x;
                high = x > high ? x : high; /* passes over NaN, which shows in the weights */
            }
            /* Nothing seen yet: all weights are e^-inf. */
            const float base = high == -T_INF_F32 ? 0.0f : high;
            const float factor = t_exp_f32(top[0] - base);
            top[0] = high;
            total[0] *= factor;
            for (int e = 0; e < 4; e++) sum[0][0][e] *= factor;
#pragma unroll
            for (int u = 0; u < 4; u++) {
                score[0][u] = t_exp_f32(score[0][u] - base);
                total[0] += score[0][u];
            }
        }
        /* ---- weighted values ---- */
#pragma unroll
        for (int u = 0; u < 4; u++) {
            if (start + 64 * u + group < keys_seen) { /* 0 times infinity is no number */
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    const float x = v_[u][0][e];
                    sum[0][0][e] += score[0][u] * x;
                }
            }
        }
        if (next < keys_seen) {
#pragma unroll
            for (int u = 0; u < 4; u++) {
                const int key = t_imin(next + 64 * u + group, keys_seen - 1);
                const int column = part * 4;
                if (column < 8) {
                    t_read4(v_[u][0], v + key * 8 + column);
                }
            }
        }
    }
    /* ---- sums of all groups ---- */
    /* All groups brought to the largest of their maxima, then added. */
    {
        float high = top[0];
        for (int d = 4; d < 32; d *= 2) {
            const float other = t_shuffle_xor_f32(high, d);
            high = other > high ? other : high;
        }
        if (tid % 32 == 0) tops[warp] = high;
    }
    __syncthreads();
    {
        float high = tops[0];
        for (int i = 1; i < 8; i++) high = tops[i] > high ? tops[i] : high;
        const float factor = t_exp_f32(top[0] - (high == -T_INF_F32 ? 0.0f : high));
        total[0] *= factor;
        for (int d = 4; d < 32; d *= 2) total[0] += t_shuffle_xor_f32(total[0], d);
        if (tid % 32 == 0) totals[warp] = total[0];
#pragma unroll
        for (int e = 0; e < 4; e++) {
            float x = sum[0][0][e] * factor;
            for (int d = 4; d < 32; d *= 2) x += t_shuffle_xor_f32(x, d);
            if (tid % 32 < 4) sums[(warp) * 16 + part * 4 + e] = x;
        }
    }
    __syncthreads();
    {
        float all = totals[0];
        for (int i = 1; i < 8; i++) all += totals[i];
        /* Keys that are all hidden leave 0 / 0. */
        const float inverse = 1.0f / all;
#pragma unroll 1
        for (int col = tid; col < 8; col += 256) {
            float x = sums[col];
            for (int i = 1; i < 8; i++) x += sums[(i) * 16 + col];
            const float acc = x * inverse;
            b3[col + 8 * i0] = acc;
        }
    }
}

extern "C" int kb30a91529f87(void *const *buf, const int64_t *dim, int64_t blocks, void *stream) {
    (void)dim;
    T_LAUNCH(kb30a91529f87_kernel, (unsigned)blocks, 256, 0, (cudaStream_t)stream, (const float *)buf[0], (const float *)buf[1], (const float *)buf[2], (float *)buf[3]);
    return (int)cudaGetLastError();
}
