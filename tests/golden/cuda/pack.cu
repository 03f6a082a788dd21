#define T_INDEX int
#include "t_cuda.h"
#include "t_packet.h"

extern "C" __global__ void __launch_bounds__(256, 2) kff309a3ce962_kernel(const float *b0, const float *b1, float *b2) {
    const int block = blockIdx.x;
    const int tid = threadIdx.x;
    t_next_may_start();
    t_wait_for_earlier();
    typedef t_packet<float, 4> packet;
    __shared__ packet a_tile[2][16][17], b_tile[2][16][17];
    const int rows = 65, columns = 90;
    const int tiles_m = (rows + 63) / 64, tiles_n = (columns + 63) / 64;
    const int tile_n = block % tiles_n, tile_m = block / tiles_n % tiles_m;
    const int warp = tid / 32, lane = tid % 32;
    const int first_row = warp / 2 * 16 + lane / 8 * 4;
    const int first_column = warp % 2 * 32 + lane % 8 * 4;

    const int a_k = tid % 16, a_line = tid / 16;
    int a_at[4];
    bool a_in[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int line = tile_m * 64 + a_line + i * 16;
        const int m0 = line;
        a_at[i] = 70 * m0;
        a_in[i] = line < rows;
    }

    const int b_k = tid / 64, b_line = tid % 64;
    const int b_place = tile_n * 64 + b_line;
    const int b_n0 = b_place;
    const int b_at = b_n0;
    const bool b_in = b_place < columns;

    float a_next[4];
    float b_next[4];
    float sum[4][4] = {};
    const int steps = 5;
    const int first = 0, last = steps;
    for (int s = first; s <= last; s++) {
        if (s < last) {
            const int at_k = s * 16;
            {
                const int place = at_k + a_k;
                const int k0 = place;
                const int step = k0;
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const bool inside = a_in[i] && place < 70;
                    a_next[i] = inside ? b0[a_at[i] + step] : 0;
                }
            }
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int place = at_k + b_k + i * 4;
                const int k0 = place;
                const bool inside = b_in && place < 70;
                b_next[i] = inside ? b1[b_at + 90 * k0] : 0;
            }
        }
        if (s > first) {
            const int now = (s - 1) & 1;
#pragma unroll
            for (int at = 0; at < 16; at++) {
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
            for (int i = 0; i < 4; i++) {
                const int line = a_line + i * 16;
                a_tile[s & 1][a_k][line / 4].at[line % 4] = a_next[i];
            }
#pragma unroll
            for (int i = 0; i < 4; i++) {
                b_tile[s & 1][b_k + i * 4][b_line / 4].at[b_line % 4] = b_next[i];
            }
        }
        __syncthreads();
    }

#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int row = tile_m * 64 + first_row + i / 4 * 16 + i % 4;
        if (row >= rows) { continue; }
        const int m0 = row;
#pragma unroll
        for (int h = 0; h < 1; h++) {
            const int column = tile_n * 64 + first_column + 32 * h;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int place = column + j;
                if (place >= columns) { continue; }
                const int n0 = place;
                b2[90 * m0 + n0] = sum[i][4 * h + j];
            }
        }
    }
}

extern "C" int kff309a3ce962(void *const *buf, const int64_t *dim, int64_t blocks, void *stream) {
    (void)dim;
    T_LAUNCH(kff309a3ce962_kernel, (unsigned)blocks, 256, 0, (cudaStream_t)stream, (const float *)buf[0], (const float *)buf[1], (float *)buf[2]);
    return (int)cudaGetLastError();
}
