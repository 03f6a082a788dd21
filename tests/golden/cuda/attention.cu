#define T_INDEX int
#include "t_cuda.h"
#include "t_packet.h"

extern "C" __global__ void __launch_bounds__(128) k83986fe5efe4_kernel(const float *b0, const float *b1, const float *b2, float *b3) {
    const int block = blockIdx.x;
    const int tid = threadIdx.x;
    t_next_may_start();
    t_wait_for_earlier();
    /* A thread has rows 2 * band and on, keys 4 * part and on of each tile, and every 16th packet of columns. */
    __shared__ float4 queries[80], weights[272];
    __shared__ float4 keys[320], values[1024];
    /* ---- queries of this block ---- */
    const int rows = 9, tiles = (rows + 15) / 16;
    const int first = block % tiles * 16;
    const int point = block / tiles;
    const int i0 = point;
    const float *q = b0 + 144 * i0;
    const float *k = b1 + 528 * i0;
    const float *v = b2 + 264 * i0;
    const int part = tid % 16, band = tid / 16;
    const int keys_seen = 33;
    for (int i = tid; i < 64; i += 128) {
        const int at = i / 4, c = i % 4;
        float x[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        if (first + at < rows) {
            t_read4(x, q + (first + at) * 16 + c * 4);
        }
        float4 packet;
        packet.x = x[0], packet.y = x[1], packet.z = x[2], packet.w = x[3];
        queries[at * 5 + c] = packet;
    }
    /* ---- block by block of keys ---- */
    float top[2], total[2];
    float4 sums[2][1];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        top[i] = -T_INF_F32, total[i] = 0.0f;
        sums[i][0].x = sums[i][0].y = sums[i][0].z = sums[i][0].w = 0.0f;
    }
    for (int start = 0; start < keys_seen; start += 64) {
        __syncthreads(); /* the last tile has been read */
        for (int i = tid; i < 256; i += 128) {
            const int at = i / 4, c = i % 4;
            float x[4] = {0.0f, 0.0f, 0.0f, 0.0f};
            if (start + at < keys_seen) {
                t_read4(x, k + (start + at) * 16 + c * 4);
            }
            float4 packet;
            packet.x = x[0], packet.y = x[1], packet.z = x[2], packet.w = x[3];
            keys[(at % 4 * 16 + at / 4) * 5 + c] = packet;
        }
        for (int i = tid; i < 1024; i += 128) {
            const int at = i / 16, c = i % 16;
            float x[4] = {0.0f, 0.0f, 0.0f, 0.0f};
            if (start + at < keys_seen) {
                if (c * 4 < 8) {
                    t_read4(x, v + (start + at) * 8 + c * 4);
                }
            }
            float4 packet;
            packet.x = x[0], packet.y = x[1], packet.z = x[2], packet.w = x[3];
            values[i] = packet;
        }
        __syncthreads();
        /* ---- scores ---- */
        float score[2][4];
#pragma unroll
        for (int i = 0; i < 2; i++) score[i][0] = score[i][1] = score[i][2] = score[i][3] = 0.0f;
#pragma unroll 4
        for (int c = 0; c < 4; c++) {
            float4 x[2], y[4];
#pragma unroll
            for (int i = 0; i < 2; i++) x[i] = queries[(band * 2 + i) * 5 + c];
#pragma unroll
            for (int j = 0; j < 4; j++) y[j] = keys[(j * 16 + part) * 5 + c];
#pragma unroll
            for (int i = 0; i < 2; i++) {
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    score[i][j] += x[i].x * y[j].x;
                    score[i][j] += x[i].y * y[j].y;
                    score[i][j] += x[i].z * y[j].z;
                    score[i][j] += x[i].w * y[j].w;
                }
            }
        }
        /* ---- weights ---- */
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float high = top[i];
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int key = start + part * 4 + j;
                score[i][j] = key < keys_seen ? score[i][j] : -T_INF_F32;
                high = score[i][j] > high ? score[i][j] : high; /* passes over NaN, which shows in the weights */
            }
#pragma unroll
            for (int d = 1; d < 16; d *= 2) {
                const float other = t_shuffle_xor_f32(high, d);
                high = other > high ? other : high;
            }
            const float base = high == -T_INF_F32 ? 0.0f : high; /* nothing seen yet: all weights are e^-inf */
            const float factor = t_exp_f32(top[i] - base);
            float4 e;
            e.x = t_exp_f32(score[i][0] - base);
            e.y = t_exp_f32(score[i][1] - base);
            e.z = t_exp_f32(score[i][2] - base);
            e.w = t_exp_f32(score[i][3] - base);
            weights[(band * 2 + i) * 17 + part] = e;
            total[i] = total[i] * factor + ((e.x + e.y) + (e.z + e.w));
            top[i] = high;
            sums[i][0].x *= factor;
            sums[i][0].y *= factor;
            sums[i][0].z *= factor;
            sums[i][0].w *= factor;
        }
        __syncthreads();
        /* ---- weighted values ---- */
#pragma unroll 2
        for (int c = 0; c < 16; c++) {
            float4 e[2];
#pragma unroll
            for (int i = 0; i < 2; i++) e[i] = weights[(band * 2 + i) * 17 + c];
            const int at = c * 64 + part;
            const float4 x = values[at];
            const float4 y = values[at + 16];
            const float4 z = values[at + 32];
            const float4 w = values[at + 48];
#pragma unroll
            for (int i = 0; i < 2; i++) {
                sums[i][0].x += e[i].x * x.x + e[i].y * y.x + e[i].z * z.x + e[i].w * w.x;
                sums[i][0].y += e[i].x * x.y + e[i].y * y.y + e[i].z * z.y + e[i].w * w.y;
                sums[i][0].z += e[i].x * x.z + e[i].y * y.z + e[i].z * z.z + e[i].w * w.z;
                sums[i][0].w += e[i].x * x.w + e[i].y * y.w + e[i].z * z.w + e[i].w * w.w;
            }
        }
    }
    /* ---- averages ---- */
#pragma unroll
    for (int i = 0; i < 2; i++) {
#pragma unroll
        for (int d = 1; d < 16; d *= 2) total[i] += t_shuffle_xor_f32(total[i], d);
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int row = first + band * 2 + i;
        if (row >= rows) break;
        /* Keys that are all hidden leave 0 / 0. */
        const float inverse = 1.0f / total[i];
        const int column = part * 4;
        const float y[4] = {sums[i][0].x, sums[i][0].y, sums[i][0].z, sums[i][0].w};
        const int col = column;
        if (col >= 8) continue;
        float acc[4];
        for (int e = 0; e < 4; e++) acc[e] = y[e] * inverse;
        float q0[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            q0[j] = acc[j];
        }
        t_write4(b3 + col + 72 * i0 + 8 * row, q0);
    }
}

extern "C" int k83986fe5efe4(void *const *buf, const int64_t *dim, int64_t blocks, void *stream) {
    (void)dim;
    T_LAUNCH(k83986fe5efe4_kernel, (unsigned)blocks, 128, 0, (cudaStream_t)stream, (const float *)buf[0], (const float *)buf[1], (const float *)buf[2], (float *)buf[3]);
    return (int)cudaGetLastError();
}
