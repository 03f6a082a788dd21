#define T_INDEX int64_t
#include "t_cuda.h"
#include "t_packet.h"

extern "C" __global__ void __launch_bounds__(128, 4) k488b3419e095_kernel(const float *b0, const float *b1, const float *b2, float *b3, const int64_t s0) {
    const int64_t block = blockIdx.x;
    const int tid = threadIdx.x;
    t_next_may_start();
    t_wait_for_earlier();
    typedef t_packet<float, 4> packet;
    __shared__ packet a_tile[2][32][17], b_tile[2][32][9];
    /* ---- this block's tile ---- */
    const int64_t rows = s0;
    const int columns = 37;
    const int tiles_m = (int)((rows + 63) / 64), tiles_n = (int)((columns + 31) / 32);
    const int tile_n = (int)block % tiles_n;
    const int64_t tile_m = (int)block / tiles_n % tiles_m;
    const int warp = tid / 32, lane = tid % 32;
    const int first_row = warp * 16 + lane / 8 * 4;
    const int first_column = lane % 8 * 4;

    const int a_k = tid % 32, a_line = tid / 32;
    int64_t a_at[16];
    bool a_in[16];
#pragma unroll
    for (int i = 0; i < 16; i++) {
        const int64_t line = tile_m * 64 + a_line + 4 * i;
        const int64_t m0 = line;
        a_at[i] = 29 * m0;
        a_in[i] = line < rows;
    }

    const int b_k = tid / 8, b_line = tid % 8 * 4;
    const int b_place = tile_n * 32 + b_line;
    const int b_n0 = b_place;
    const int64_t b_at = b_n0;
    const bool b_in = b_place < columns;

    float a_next[16];
    float b_next[2][4];
    float sum[4][4] = {};
    /* ---- step by step along the sum ---- */
    const int steps = 1;
    const int first = 0, last = steps;
    for (int s = first; s <= last; s++) {
        if (s < last) {
            const int at_k = s * 32;
            {
                const int place = at_k + a_k;
                const int k0 = place;
                const int64_t step = k0;
#pragma unroll
                for (int i = 0; i < 16; i++) {
                    const bool inside = a_in[i] && place < 29;
                    a_next[i] = inside ? b0[a_at[i] + step] : 0;
                }
            }
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const int place = at_k + b_k + 16 * i;
                const int k0 = place;
                const bool inside = b_in && place < 29;
                for (int j = 0; j < 4; j++) b_next[i][j] = 0;
                if (inside) t_read4(b_next[i], b1 + b_at + 40 * k0);
            }
        }
        if (s > first) {
            const int now = (s - 1) & 1;
#pragma unroll
            for (int at = 0; at < 32; at++) {
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
#pragma unroll
            for (int i = 0; i < 16; i++) {
                const int line = a_line + 4 * i;
                a_tile[s & 1][a_k][line / 4].at[line % 4] = a_next[i];
            }
#pragma unroll
            for (int i = 0; i < 2; i++) {
                packet whole;
                for (int j = 0; j < 4; j++) whole.at[j] = b_next[i][j];
                b_tile[s & 1][b_k + 16 * i][b_line / 4] = whole;
            }
        }
        __syncthreads();
    }

    /* ---- results ---- */
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int64_t row = tile_m * 64 + first_row + i / 4 * 16 + i % 4;
        if (row >= rows) { continue; }
        const int64_t m0 = row;
        const int column = tile_n * 32 + first_column;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int place = column + j;
            if (place >= columns) { continue; }
            const int n0 = place;
            const float v0 = t_max_f32((sum[i][j] + b2[n0]), 0.0f);
            b3[37 * m0 + n0] = v0;
        }
    }
}

extern "C" int k488b3419e095(void *const *buf, const int64_t *dim, int64_t blocks, void *stream) {
    T_LAUNCH_BY_SIZE(k488b3419e095_kernel, (unsigned)blocks, 128, 0, (cudaStream_t)stream, (const float *)buf[0], (const float *)buf[1], (const float *)buf[2], (float *)buf[3], dim[0]);
    return (int)cudaGetLastError();
}
