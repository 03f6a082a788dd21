#define T_INDEX int
#include "t_cuda.h"
#include "t_packet.h"

extern "C" __global__ void __launch_bounds__(128, 4) kae16404e514a_kernel(const float *b0, const float *b1, const float *b2, float *b3) {
    const int block = blockIdx.x;
    const int tid = threadIdx.x;
    t_next_may_start();
    t_wait_for_earlier();
    typedef t_packet<float, 4> packet;
    __shared__ packet a_tile[2][32][17], b_tile[2][32][9];
    const int rows = 36, columns = 32;
    const int tiles_m = (rows + 63) / 64, tiles_n = (columns + 31) / 32;
    const int tile_n = block % tiles_n, tile_m = block / tiles_n % tiles_m;
    const int warp = tid / 32, lane = tid % 32;
    const int first_row = warp * 16 + lane / 8 * 4;
    const int first_column = lane % 8 * 4;

    const int a_k = tid / 64, a_line = tid % 64;
    const int a_place = tile_m * 64 + a_line;
    const int a_m1 = a_place % 6;
    int a_place_rest = a_place / 6;
    const int a_m0 = a_place_rest;
    const int a_at = 24 * a_m0 + 2 * a_m1 - 13;
    const bool a_in = a_place < rows;

    const int b_k = tid / 8, b_line = tid % 8 * 4;
    const int b_place = tile_n * 32 + b_line;
    const int b_n0 = b_place;
    const int b_at = b_n0;
    const bool b_in = b_place < columns;

    float a_next[16];
    float b_next[2][4];
    float sum[4][4] = {};
    const int steps = 1;
    const int first = 0, last = steps;
    for (int s = first; s <= last; s++) {
        if (s < last) {
            const int at_k = s * 32;
#pragma unroll
            for (int i = 0; i < 16; i++) {
                const int place = at_k + a_k + i * 2;
                const int k2 = place % 3;
                int place_rest = place / 3;
                const int k1 = place_rest % 3;
                place_rest /= 3;
                const int k0 = place_rest;
                const bool inside = a_in && place < 27 && ((0 <= (k0 + 2 * a_m0 - 1)) && (0 <= (k1 + 2 * a_m1 - 1)));
                a_next[i] = inside ? b0[a_at + 12 * k0 + k1 + 144 * k2] : 0;
            }
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const int place = at_k + b_k + i * 16;
                const int k2 = place % 3;
                int place_rest = place / 3;
                const int k1 = place_rest % 3;
                place_rest /= 3;
                const int k0 = place_rest;
                const bool inside = b_in && place < 27;
                for (int j = 0; j < 4; j++) b_next[i][j] = 0;
                if (inside) t_read4(b_next[i], b1 + b_at + 288 * k0 + 96 * k1 + 32 * k2);
            }
        }
        if (s > first) {
            const int now = (s - 1) & 1;
#pragma unroll
            for (int at = 0; at < 32; at++) {
                packet x[1], y[1];
#pragma unroll
                for (int g = 0; g < 1; g++) x[g] = a_tile[now][at][first_row / 4 + 4 * g];
#pragma unroll
                for (int h = 0; h < 1; h++) y[h] = b_tile[now][at][first_column / 4 + 8 * h];
#pragma unroll
                for (int i = 0; i < 4; i++) {
#pragma unroll
                    for (int j = 0; j < 4; j++) sum[i][j] += x[i / 4].at[i % 4] * y[j / 4].at[j % 4];
                }
            }
        }
        if (s < last) {
#pragma unroll
            for (int i = 0; i < 16; i++) {
                a_tile[s & 1][a_k + i * 2][a_line / 4].at[a_line % 4] = a_next[i];
            }
#pragma unroll
            for (int i = 0; i < 2; i++) {
                packet whole;
                for (int j = 0; j < 4; j++) whole.at[j] = b_next[i][j];
                b_tile[s & 1][b_k + i * 16][b_line / 4] = whole;
            }
        }
        __syncthreads();
    }

#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int row = tile_m * 64 + first_row + i / 4 * 16 + i % 4;
        if (row >= rows) { continue; }
        const int m1 = row % 6;
        int row_rest = row / 6;
        const int m0 = row_rest;
#pragma unroll
        for (int h = 0; h < 1; h++) {
            const int column = tile_n * 32 + first_column + 32 * h;
            if (column >= columns) { continue; }
            const int n0 = column;
            float p0[4];
            t_read4(p0, b2 + n0);
            float q0[4];
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const float v0 = sum[i][4 * h + j] + p0[j];
                q0[j] = v0;
            }
            t_write4(b3 + 192 * m0 + 32 * m1 + n0, q0);
        }
    }
}

extern "C" int kae16404e514a(void *const *buf, const int64_t *dim, int64_t blocks, void *stream) {
    (void)dim;
    T_LAUNCH(kae16404e514a_kernel, (unsigned)blocks, 128, 0, (cudaStream_t)stream, (const float *)buf[0], (const float *)buf[1], (const float *)buf[2], (float *)buf[3]);
    return (int)cudaGetLastError();
}

#define T_INDEX int
#include "t_cuda.h"
#include "t_packet.h"

extern "C" __global__ void __launch_bounds__(256) k3ea4058ee3a9_kernel(const float *b0, float *b1) {
    const int block = blockIdx.x;
    const int tid = threadIdx.x;
    t_next_may_start();
    t_wait_for_earlier();
    const int packet = block * 256 + tid;
    if (packet >= 1152 / 4) return;
    const int point = packet * 4;
    const int i1 = point % 36;
    int point_rest = point / 36;
    const int i0 = point_rest;
    float q0[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const float v0 = b0[i0 + 32 * (i1 + j)];
        q0[j] = v0;
    }
    t_write4(b1 + 36 * i0 + i1, q0);
}

extern "C" int k3ea4058ee3a9(void *const *buf, const int64_t *dim, int64_t blocks, void *stream) {
    (void)dim;
    T_LAUNCH(k3ea4058ee3a9_kernel, (unsigned)blocks, 256, 0, (cudaStream_t)stream, (const float *)buf[0], (float *)buf[1]);
    return (int)cudaGetLastError();
}
