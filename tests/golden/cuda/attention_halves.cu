#define T_INDEX int
#include "t_cuda.h"
#include "t_packet.h"

extern "C" __global__ void __launch_bounds__(256) k8b1b03c1f712_kernel(const float *b0, uint16_t *b1, const float *b2, uint16_t *b3, const float *b4, uint16_t *b5) {
    const int block = blockIdx.x;
    const int tid = threadIdx.x;
    t_next_may_start();
    t_wait_for_earlier();
    if (block < 2) {
        const int packet = block * 256 + tid;
        if (packet >= 288) return;
        const int i0 = packet;
        const float v0 = b0[i0];
        b1[i0] = t_encode_f16(v0);
        return;
    }
    if (block < 7) {
        const int packet = (block - 2) * 256 + tid;
        if (packet >= 1056) return;
        const int i0 = packet;
        const float v0 = b2[i0];
        b3[i0] = t_encode_f16(v0);
        return;
    }
    {
        const int packet = (block - 7) * 256 + tid;
        if (packet >= 528) return;
        const int i0 = packet;
        const float v0 = b4[i0];
        b5[i0] = t_encode_f16(v0);
    }
}

extern "C" int k8b1b03c1f712(void *const *buf, const int64_t *dim, int64_t blocks, void *stream) {
    (void)dim;
    T_LAUNCH(k8b1b03c1f712_kernel, (unsigned)blocks, 256, 0, (cudaStream_t)stream, (const float *)buf[0], (uint16_t *)buf[1], (const float *)buf[2], (uint16_t *)buf[3], (const float *)buf[4], (uint16_t *)buf[5]);
    return (int)cudaGetLastError();
}

#define T_INDEX int
#include "t_cuda.h"
#include "t_packet.h"

extern "C" __global__ void __launch_bounds__(32) kea532f36abe2_kernel(const uint16_t *b0, const uint16_t *b1, const uint16_t *b2, uint16_t *b3) {
    const int block = blockIdx.x;
    const int tid = threadIdx.x;
    t_next_may_start();
    extern __shared__ __align__(16) uint16_t tiles[];
    uint16_t *const keys = tiles, *const values = tiles + 3072;
    /* ---- queries of this block ---- */
    const int rows = 9;
    const int bands = (rows + 15) / 16, band_here = block % bands;
    const int first = band_here * 16;
    const int point = block / bands;
    const int i0 = point;
    const uint16_t *q = b0 + 144 * i0;
    const uint16_t *k = b1 + 528 * i0;
    const uint16_t *v = b2 + 264 * i0;
    t_wait_for_earlier_with(band_here | point);
    const int lane = tid % 32, band = tid / 32 * 16;
    const int keys_seen = 33;

    /* Queries pass through the memory of the keys. */
    {
        const uint16_t *const from = q + first * 16;
        const int there = (int)t_imin(rows - first, 16);
#pragma unroll 4
        for (int i = tid; i < 32; i += 32) {
            const int at = i / 2, c = i % 2 * 8;
            uint16_t *const to = keys + at * 24 + c;
            if (at < there) t_cp_async16(to, from + at * 16 + c);
            else *(t_packet<uint16_t, 8> *)to = t_packet<uint16_t, 8>();
        }
    }
    t_cp_async_commit();
    t_cp_async_wait<0>();
    __syncthreads();
    uint32_t query[1][1][4];
    t_ldmatrix_x4(query[0][0], keys + (band + lane % 16) * 24 + lane / 16 * 8);
    __syncthreads();
    /* ---- block by block of keys ---- */
    float top[1][2], total[1][2], sum[1][2][4] = {};
    top[0][0] = top[0][1] = -T_INF_F32, total[0][0] = total[0][1] = 0.0f;
    {
        const uint16_t *const from = k;
        const int there = (int)t_imin(keys_seen, 64);
#pragma unroll 4
        for (int i = tid; i < 128; i += 32) {
            const int at = i / 2, c = i % 2 * 8;
            uint16_t *const to = keys + at * 24 + c;
            if (at < there) t_cp_async16(to, from + at * 16 + c);
            else *(t_packet<uint16_t, 8> *)to = t_packet<uint16_t, 8>();
        }
    }
    {
        const uint16_t *const from = v;
        const int there = (int)t_imin(keys_seen, 64);
#pragma unroll 4
        for (int i = tid; i < 128; i += 32) {
            const int at = i / 2, c = i % 2 * 8;
            uint16_t *const to = values + at * 24 + c;
            if (at < there && c < 8) t_cp_async16(to, from + at * 8 + c);
            else *(t_packet<uint16_t, 8> *)to = t_packet<uint16_t, 8>();
        }
    }
    t_cp_async_commit();
    int stage = 0;
    for (int start = 0; start < keys_seen; start += 64, stage ^= 1) {
        t_cp_async_wait<0>();
        __syncthreads(); /* this tile is here, and the one before has been used */
        if (start + 64 < keys_seen) {
            {
                const uint16_t *const from = k + (start + 64) * 16;
                const int there = (int)t_imin(keys_seen - (start + 64), 64);
#pragma unroll 4
                for (int i = tid; i < 128; i += 32) {
                    const int at = i / 2, c = i % 2 * 8;
                    uint16_t *const to = keys + (stage ^ 1) * 1536 + at * 24 + c;
                    if (at < there) t_cp_async16(to, from + at * 16 + c);
                    else *(t_packet<uint16_t, 8> *)to = t_packet<uint16_t, 8>();
                }
            }
            {
                const uint16_t *const from = v + (start + 64) * 8;
                const int there = (int)t_imin(keys_seen - (start + 64), 64);
#pragma unroll 4
                for (int i = tid; i < 128; i += 32) {
                    const int at = i / 2, c = i % 2 * 8;
                    uint16_t *const to = values + (stage ^ 1) * 1536 + at * 24 + c;
                    if (at < there && c < 8) t_cp_async16(to, from + at * 8 + c);
                    else *(t_packet<uint16_t, 8> *)to = t_packet<uint16_t, 8>();
                }
            }
            t_cp_async_commit();
        }
        const uint16_t *const key_tile = keys + stage * 1536, *const value_tile = values + stage * 1536;
        /* ---- scores ---- */
        float score[1][8][4] = {};
#pragma unroll
        for (int h = 0; h < 4; h++) {
            uint32_t y[4];
            t_ldmatrix_x4(y, key_tile + (16 * h + lane / 16 * 8 + lane % 8) * 24 + lane / 8 % 2 * 8);
            t_mma_f16(score[0][2 * h], query[0][0], y);
            t_mma_f16(score[0][2 * h + 1], query[0][0], y + 2);
        }
        /* ---- weights ---- */
        const bool whole = start + 64 <= keys_seen;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            if (!whole) {
                const int left = (int)t_imin(keys_seen - start, 64) - lane % 4 * 2;
#pragma unroll
                for (int n = 0; n < 16; n++) {
                    if (n / 2 * 8 + n % 2 >= left) score[0][n / 2][2 * i + n % 2] = -T_INF_F32;
                }
            }
            float highs[2] = {top[0][i], top[0][i]}; /* largest scores pass over NaN, which shows in the weights */
#pragma unroll
            for (int n = 0; n < 16; n++) highs[n % 2] = fmaxf(highs[n % 2], score[0][n / 2][2 * i + n % 2]);
            float high = fmaxf(highs[0], highs[1]);
#pragma unroll
            for (int d = 1; d < 4; d *= 2) high = fmaxf(high, t_shuffle_xor_f32(high, d));
            /* Nothing seen yet: all weights are 2^-inf. */
            const float shift = (high == -T_INF_F32 ? 0.0f : high) * 1.4426950408889634f;
            const float factor = t_weight_f32(top[0][i] * 1.4426950408889634f - shift);
            float sums[2] = {};
            top[0][i] = high;
#pragma unroll
            for (int n = 0; n < 16; n++) {
                float &x = score[0][n / 2][2 * i + n % 2];
                x = t_weight_f32(fmaf(x, 1.4426950408889634f, -shift));
                sums[n % 2] += x;
            }
            total[0][i] = total[0][i] * factor + (sums[0] + sums[1]);
#pragma unroll
            for (int n = 0; n < 2; n++) sum[0][n][2 * i] *= factor, sum[0][n][2 * i + 1] *= factor;
        }
        /* ---- weighted values ---- */
#pragma unroll
        for (int c = 0; c < 4; c++) {
            uint32_t weight[1][4];
#pragma unroll
            for (int e = 0; e < 4; e++) weight[0][e] = t_pack_f16(score[0][2 * c + e / 2][e % 2 * 2], score[0][2 * c + e / 2][e % 2 * 2 + 1]);
            {
                uint32_t y[4];
                t_ldmatrix_x4_trans(y, value_tile + (16 * c + lane % 16) * 24 + lane / 16 * 8);
                t_mma_f16(sum[0][0], weight[0], y);
                t_mma_f16(sum[0][1], weight[0], y + 2);
            }
        }
    }

    /* ---- averages ---- */
#pragma unroll
    for (int i = 0; i < 2; i++) {
#pragma unroll
        for (int d = 1; d < 4; d *= 2) total[0][i] += t_shuffle_xor_f32(total[0][i], d);
    }
    const int odd = lane % 2;
    // Even threads have a row, odd ones that 8 below.
    const int row = first + band + lane / 4 + 8 * odd;
    const float weights = odd ? total[0][1] : total[0][0];
    /* Keys that are all hidden leave 0 / 0. */
    const float inverse = 1.0f / weights;
#pragma unroll
    for (int n = 0; n < 2; n++) {
        const float *const d = sum[0][n];
        const float other0 = T_SHUFFLE_XOR(odd ? d[0] : d[2], 1), other1 = T_SHUFFLE_XOR(odd ? d[1] : d[3], 1);
        const float four[4] = {odd ? other0 : d[0], odd ? other1 : d[1], odd ? d[2] : other0, odd ? d[3] : other1};
        if (row >= rows) continue;
        const int column = 8 * n + lane % 4 / 2 * 4;
        const int col = column;
        if (col >= 8) continue;
        float acc[4];
        for (int e = 0; e < 4; e++) acc[e] = four[e] * inverse;
        float q0[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            q0[j] = acc[j];
        }
        t_write4_f16(b3 + col + 72 * i0 + 8 * row, q0);
    }
}

extern "C" int kea532f36abe2(void *const *buf, const int64_t *dim, int64_t blocks, void *stream) {
    (void)dim;
    T_LAUNCH(kea532f36abe2_kernel, (unsigned)blocks, 32, 12288, (cudaStream_t)stream, (const uint16_t *)buf[0], (const uint16_t *)buf[1], (const uint16_t *)buf[2], (uint16_t *)buf[3]);
    return (int)cudaGetLastError();
}
