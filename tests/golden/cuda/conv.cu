#define T_INDEX int
#include "t_cuda.h"
#include "t_packet.h"

extern "C" __global__ void __launch_bounds__(256, 2) k8ec110e9e1c4_kernel(const float *b0, const float *b1, float *b2) {
    const int block = blockIdx.x;
    const int tid = threadIdx.x;
    t_next_may_start();
    t_wait_for_earlier();
    typedef t_packet<float, 4> packet;
    __shared__ packet a_tile[2][16][17], b_tile[2][16][17];
    /* ---- this block's tile ---- */
    const int rows = 49, columns = 24;
    const int tiles_m = (rows + 63) / 64, tiles_n = (columns + 63) / 64;
    const int tile_n = block % tiles_n, tile_m = block / tiles_n % tiles_m;
    const int outer = block / (tiles_n * tiles_m);
    const int parts = outer % 3;
    const int warp = tid / 32, lane = tid % 32;
    const int first_row = warp / 2 * 16 + lane / 8 * 4;
    const int first_column = warp % 2 * 32 + lane % 8 * 4;

    const int a_k = tid % 4 * 4, a_line = tid / 4;
    int a_at[1];
    bool a_in[1];
    int a_m0[1];
    int a_m1[1];
    {
        const int line = tile_m * 64 + a_line;
        const int m1 = line % 7;
        int line_rest = line / 7;
        const int m0 = line_rest;
        a_at[0] = 112 * m0 + 16 * m1 - 128;
        a_in[0] = line < rows;
        a_m0[0] = m0;
        a_m1[0] = m1;
    }

    const int b_k = tid / 16, b_line = tid % 16 * 4;
    const int b_place = tile_n * 64 + b_line;
    const int b_n0 = b_place;
    const int b_at = b_n0;
    const bool b_in = b_place < columns;

    float a_next[1][4];
    float b_next[1][4];
    float sum[4][4] = {};
    /* ---- step by step along the sum ---- */
    const int chunks = 1;
    const int steps = 9;
    const int first = steps * parts / 3, last = steps * (parts + 1) / 3;
    for (int s = first; s <= last; s++) {
        if (s < last) {
            const int at_k = s % chunks * 16, tap = s / chunks;
            const int k1 = tap % 3;
            int tap_rest = tap / 3;
            const int k0 = tap_rest;
            {
                const int place = at_k + a_k;
                const int k2 = place;
                const int step = 112 * k0 + 16 * k1 + k2;
                {
                    const bool inside = a_in[0] && place < 16 && (((0 <= (k0 + a_m0[0] - 1)) && ((k0 + a_m0[0] - 1) < 7)) && ((0 <= (k1 + a_m1[0] - 1)) && ((k1 + a_m1[0] - 1) < 7)));
                    for (int j = 0; j < 4; j++) a_next[0][j] = 0;
                    if (inside) t_read4(a_next[0], b0 + a_at[0] + step);
                }
            }
            {
                const int place = at_k + b_k;
                const int k2 = place;
                const bool inside = b_in && place < 16;
                for (int j = 0; j < 4; j++) b_next[0][j] = 0;
                if (inside) t_read4(b_next[0], b1 + b_at + 1152 * k0 + 384 * k1 + 24 * k2);
            }
        }
        if (s > first) {
            const int now = (s - 1) & 1;
#pragma unroll
            for (int at = 0; at < 16; at++) {
                packet x[1], y[1];
                x[0] = a_tile[now][at][first_row / 4];
                y[0] = b_tile[now][at][first_column / 4];
#pragma unroll
                for (int i = 0; i < 4; i++) {
#pragma unroll
                    for (int j = 0; j < 4; j++) sum[i][j] += x[i / 4].at[i % 4] * y[j / 4].at[j % 4];
                }
            }
        }
        if (s < last) {
            {
                const int line = a_line;
                for (int j = 0; j < 4; j++) {
                    a_tile[s & 1][a_k + j][line / 4].at[line % 4] = a_next[0][j];
                }
            }
            {
                packet whole;
                for (int j = 0; j < 4; j++) whole.at[j] = b_next[0][j];
                b_tile[s & 1][b_k][b_line / 4] = whole;
            }
        }
        __syncthreads();
    }

    /* ---- results ---- */
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int row = tile_m * 64 + first_row + i / 4 * 16 + i % 4;
        if (row >= rows) { continue; }
        const int m0 = row;
        const int column = tile_n * 64 + first_column;
        if (column >= columns) { continue; }
        const int n0 = column;
        float q0[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            q0[j] = sum[i][j];
        }
        t_write4(b2 + 24 * m0 + n0 + 1176 * parts, q0);
    }
}

extern "C" int k8ec110e9e1c4(void *const *buf, const int64_t *dim, int64_t blocks, void *stream) {
    (void)dim;
    T_LAUNCH(k8ec110e9e1c4_kernel, (unsigned)blocks, 256, 0, (cudaStream_t)stream, (const float *)buf[0], (const float *)buf[1], (float *)buf[2]);
    return (int)cudaGetLastError();
}
