#define T_INDEX int
#include "t_cuda.h"
#include "t_packet.h"

extern "C" __global__ void __launch_bounds__(128) kf645ac1b7464_kernel(const uint16_t *b0, const uint16_t *b1, const uint16_t *b2, float *b3) {
    const int block = blockIdx.x;
    const int tid = threadIdx.x;
    t_next_may_start();
    t_wait_for_earlier();
    __shared__ __align__(16) float sums[512];
    __shared__ float tops[8], totals[8];
    /* 3 blocks share the keys of a query. */
    const int number = block / 3, split = block % 3;
    const int point = number;
    const int i0 = point;
    const uint16_t *q = b0 + 128 * i0;
    const uint16_t *k = b1 + 57600 * i0;
    const uint16_t *v = b2 + 57600 * i0;
    const int keys_seen = 900;
    const int each = (keys_seen + 47) / 48 * 16, first = split * each, last = t_imin(first + each, keys_seen);
    /* ---- the first keys and values, and the queries ---- */
    const int warp = tid / 32, g = tid % 32 / 4, t = tid % 4;
    uint32_t k_[2][2][2][4] = {}, v_[2][4][1][4] = {}, query[2][4] = {};
    if (first < last) {
#pragma unroll
        for (int u = 0; u < 2; u++) {
#pragma unroll
            for (int r = 0; r < 2; r++) {
                const int key = first + (4 * u + warp) * 16 + 8 * r + g;
                if (key >= last) continue;
#pragma unroll
                for (int n = 0; n < 2; n++) {
                    t_read4(k_[u][r][n], (const uint32_t *)(k + key * 64 + 32 * n + 8 * t));
                }
            }
        }
#pragma unroll
        for (int u = 0; u < 2; u++) {
#pragma unroll
            for (int r = 0; r < 4; r++) {
                const int key = first + (4 * u + warp) * 16 + r / 2 * 8 + 2 * t + r % 2;
                if (key < last) {
                    t_read4(v_[u][r][0], (const uint32_t *)(v + key * 64 + 8 * g));
                } else {
                    for (int e = 0; e < 4; e++) v_[u][r][0][e] = 0;
                }
            }
        }
    }
    if (g % 4 < 2) {
#pragma unroll
        for (int n = 0; n < 2; n++) {
            t_read4(query[n], (const uint32_t *)(q + (g % 4) * 64 + 32 * n + 8 * t));
        }
    }
    /* ---- block by block of keys ---- */
    /* Of queries t % 2 * 2 and the next. */
    float top[2] = {-T_INF_F32, -T_INF_F32}, total[2] = {}, sum[4][4] = {};
    for (int start = first; start < last; start += 128) {
        /* ---- scores ---- */
        float score[2][4] = {};
#pragma unroll
        for (int u = 0; u < 2; u++) {
#pragma unroll
            for (int n = 0; n < 2; n++) {
#pragma unroll
                for (int i = 0; i < 4; i += 2) {
                    const uint32_t rows_[4] = {k_[u][0][n][i], k_[u][1][n][i], k_[u][0][n][i + 1], k_[u][1][n][i + 1]};
                    t_mma_f16(score[u], rows_, query[n] + i);
                }
            }
        }
        const int next = start + 128;
        if (next < last) {
#pragma unroll
            for (int u = 0; u < 2; u++) {
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    const int key = next + (4 * u + warp) * 16 + 8 * r + g;
                    if (key >= last) continue;
#pragma unroll
                    for (int n = 0; n < 2; n++) {
                        t_read4(k_[u][r][n], (const uint32_t *)(k + key * 64 + 32 * n + 8 * t));
                    }
                }
            }
        }
        /* ---- the largest scores ---- */
        float highs[2] = {top[0], top[1]}, factors[2];
#pragma unroll
        for (int u = 0; u < 2; u++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int key = start + (4 * u + warp) * 16 + e / 2 * 8 + g;
                float x = -T_INF_F32;
                if (key < last) x = score[u][e] * 0.125f;
                score[u][e] = x;
                highs[e % 2] = x > highs[e % 2] ? x : highs[e % 2]; /* passes over NaN, which shows in the weights */
            }
        }
#pragma unroll
        for (int e = 0; e < 2; e++) {
#pragma unroll
            for (int d = 4; d < 32; d *= 2) {
                const float other = t_shuffle_xor_f32(highs[e], d);
                highs[e] = other > highs[e] ? other : highs[e];
            }
            /* Nothing seen yet: all weights are 2^-inf. */
            const float base = (highs[e] == -T_INF_F32 ? 0.0f : highs[e]) * 1.44269504f;
            factors[e] = t_weight_f32(t_fma_f32(top[e], 1.44269504f, -base));
            top[e] = highs[e];
            total[e] *= factors[e];
            highs[e] = base;
        }
#pragma unroll
        for (int i = 0; i < 4; i++)
        for (int e = 0; e < 4; e++) sum[i][e] *= factors[e % 2];
        /* ---- weights, and weighted values ---- */
#pragma unroll
        for (int u = 0; u < 2; u++) {
            uint32_t weights[2];
#pragma unroll
            for (int r = 0; r < 2; r++) {
                float w[2];
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    w[e] = t_weight_f32(t_fma_f32(score[u][2 * r + e], 1.44269504f, -highs[e]));
                    total[e] += w[e];
                }
                const uint32_t near = t_pack_f16(w[0], w[1]);
                const uint32_t rest = t_pack_f16(w[0] - t_decode_f16((uint16_t)near), w[1] - t_decode_f16((uint16_t)(near >> 16)));
                weights[r] = t_transpose(t < 2 ? near : rest);
            }
#pragma unroll
            for (int i = 0; i < 4; i++) {
                uint32_t columns[4]; /* 2 i and 2 i + 1 of the eight of this thread, each of two pairs of keys */
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    const uint32_t x = v_[u][2 * r][0][i], y = v_[u][2 * r + 1][0][i];
                    columns[2 * r] = (x & 0xffffu) | y << 16;
                    columns[2 * r + 1] = x >> 16 | (y & 0xffff0000u);
                }
                t_mma_f16(sum[i], columns, weights);
            }
        }
        if (next < last) {
#pragma unroll
            for (int u = 0; u < 2; u++) {
#pragma unroll
                for (int r = 0; r < 4; r++) {
                    const int key = next + (4 * u + warp) * 16 + r / 2 * 8 + 2 * t + r % 2;
                    if (key < last) {
                        t_read4(v_[u][r][0], (const uint32_t *)(v + key * 64 + 8 * g));
                    } else {
                        for (int e = 0; e < 4; e++) v_[u][r][0][e] = 0;
                    }
                }
            }
        }
    }
    /* ---- sums of all warps ---- */
    /* All warps brought to the largest of their maxima, then added. */
#pragma unroll
    for (int e = 0; e < 2; e++) {
        const int h = t % 2 * 2 + e;
        if (tid % 32 < 2 && h < 2) tops[h * 4 + warp] = top[e];
    }
    __syncthreads();
    float factors[2];
#pragma unroll
    for (int e = 0; e < 2; e++) {
        const int h = t % 2 * 2 + e;
        float high = top[e];
        if (h < 2) {
            for (int i = 0; i < 4; i++) high = tops[h * 4 + i] > high ? tops[h * 4 + i] : high;
        }
        factors[e] = t_exp_f32(top[e] - (high == -T_INF_F32 ? 0.0f : high));
        total[e] *= factors[e];
        for (int d = 4; d < 32; d *= 2) total[e] += t_shuffle_xor_f32(total[e], d);
        if (tid % 32 < 2 && h < 2) totals[h * 4 + warp] = total[e];
    }
    /* Threads that have the same queries' sums, and what is left of them, exchange halves of their columns. Of a sum that is no
    finite number nothing is left. */
    const bool left = t >= 2;
    {
        float both[2][4];
#pragma unroll
        for (int i = 0; i < 2; i++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const float low = sum[i][e], high = sum[2 + i][e];
                const float mine = left ? high : low, other = t_shuffle_xor_f32(left ? low : high, 2);
                const float whole = left ? other : mine;
                both[e % 2][2 * i + e / 2] = (t_abs_f32(whole) < T_INF_F32 ? mine + other : whole) * factors[e % 2];
            }
        }
#pragma unroll
        for (int e = 0; e < 2; e++) {
            const int h = t % 2 * 2 + e;
            if (h < 2) *(float4 *)(sums + (h * 4 + warp) * 64 + 8 * g + t / 2 * 4) = make_float4(both[e][0], both[e][1], both[e][2], both[e][3]);
        }
    }
    __syncthreads();
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float all = totals[4 * h];
        for (int i = 1; i < 4; i++) all += totals[4 * h + i];
        float *part_ = b3 + ((number * 2 + h) * 3 + split) * 66;
        if (tid == 0) {
            float high = tops[4 * h];
            for (int i = 1; i < 4; i++) high = tops[4 * h + i] > high ? tops[4 * h + i] : high;
            part_[64] = high;
            part_[65] = all;
        }

        for (int col = tid; col < 64; col += 128) {
            float x = sums[256 * h + col];
            for (int i = 1; i < 4; i++) x += sums[(4 * h + i) * 64 + col];
            part_[col] = x;
        }
    }
}

extern "C" int kf645ac1b7464(void *const *buf, const int64_t *dim, int64_t blocks, void *stream) {
    (void)dim;
    T_LAUNCH(kf645ac1b7464_kernel, (unsigned)blocks, 128, 0, (cudaStream_t)stream, (const uint16_t *)buf[0], (const uint16_t *)buf[1], (const uint16_t *)buf[2], (float *)buf[3]);
    return (int)cudaGetLastError();
}

#define T_INDEX int
#include "t_cuda.h"
#include "t_packet.h"

extern "C" __global__ void __launch_bounds__(64) kc02f3ad0d9d0_kernel(const float *b0, uint16_t *b1) {
    const int block = blockIdx.x;
    const int tid = threadIdx.x;
    t_next_may_start();
    t_wait_for_earlier();
    const int rows = 2, row = block % rows;
    const int point = block / rows;
    const int i0 = point;
    (void)row;
    const float *parts = b0 + block * 198;
    float high = -T_INF_F32;
#pragma unroll
    for (int i = 0; i < 3; i++) {
        const float top = parts[i * 66 + 64];
        high = top > high ? top : high;
    }
    const float base = high == -T_INF_F32 ? 0.0f : high; /* nothing seen at all: the sums are 0 */
    float factor[3], total = 0.0f;
#pragma unroll
    for (int i = 0; i < 3; i++) {
        factor[i] = t_exp_f32(parts[i * 66 + 64] - base);
        total += factor[i] * parts[i * 66 + 65];
    }
    /* Keys that are all hidden leave 0 / 0. */
    const float inverse = 1.0f / total;
    for (int col = tid; col < 64; col += 64) {
        float x = 0.0f;
#pragma unroll
        for (int i = 0; i < 3; i++) x += factor[i] * parts[i * 66 + col];
        const float acc = x * inverse;
        b1[col + 128 * i0 + 64 * row] = t_encode_f16(acc);
    }
}

extern "C" int kc02f3ad0d9d0(void *const *buf, const int64_t *dim, int64_t blocks, void *stream) {
    (void)dim;
    T_LAUNCH(kc02f3ad0d9d0_kernel, (unsigned)blocks, 64, 0, (cudaStream_t)stream, (const float *)buf[0], (uint16_t *)buf[1]);
    return (int)cudaGetLastError();
}
