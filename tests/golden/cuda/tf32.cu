#define T_INDEX int
#include "t_cuda.h"
#include "t_packet.h"

extern "C" __global__ void __launch_bounds__(128, 4) kb01814022fa1_kernel(const float *b0, const float *b1, float *b2) {
    const int block = blockIdx.x;
    const int tid = threadIdx.x;
    t_next_may_start();
    t_wait_for_earlier();
    extern __shared__ __align__(16) float tiles[];
    typedef float a_lines[32][36], b_lines[32][40];
    a_lines *const a_tile = (a_lines *)tiles;
    b_lines *const b_tile = (b_lines *)(tiles + 4608);
    /* ---- this block's tile ---- */
    const int rows = 784, columns = 48;
    const int tiles_m = (rows + 31) / 32, tiles_n = (columns + 31) / 32;
    const int tile_n = block % tiles_n, tile_m = block / tiles_n % tiles_m;
    const int warp = tid / 32, lane = tid % 32;
    const int warp_row = warp / 2 * 16, warp_column = warp % 2 * 16;

    const int a_k = tid % 8 * 4, a_line = tid / 8;
    int a_at[2];
    bool a_in[2];
    int a_m0[2];
    int a_m1[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int line = tile_m * 32 + a_line + 16 * i;
        const int m1 = line % 28;
        int line_rest = line / 28;
        const int m0 = line_rest;
        a_at[i] = 896 * m0 + 32 * m1 - 928;
        a_in[i] = line < rows;
        a_m0[i] = m0;
        a_m1[i] = m1;
    }

    const int b_k = tid / 8, b_line = tid % 8 * 4;
    const int b_place = tile_n * 32 + b_line;
    const int b_n0 = b_place;
    const int b_at = b_n0;
    const bool b_in = b_place < columns;

    float sum[1][2][4] = {};
    /* ---- step by step along the sum ---- */
    const int chunks = 1;
    const int steps = 9;
    const int first = 0, last = steps;
    for (int s = first; s < last + 3; s++) {
        const bool ready = s - first >= 3;
        if (ready) {
            t_cp_async_wait<2>();
            __syncthreads();
        }
        if (s < last) {
            const int at_k = s % chunks * 32, tap = s / chunks;
            const int k1 = tap % 3;
            int tap_rest = tap / 3;
            const int k0 = tap_rest;
            {
                const int place = at_k + a_k;
                const int k2 = place;
                const int step = 896 * k0 + 32 * k1 + k2;
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    const bool inside = a_in[i] && place < 32 && (((0 <= (k0 + a_m0[i] - 1)) && ((k0 + a_m0[i] - 1) < 28)) && ((0 <= (k1 + a_m1[i] - 1)) && ((k1 + a_m1[i] - 1) < 28)));
                    float *const to = &a_tile[s % 4][a_line + 16 * i][a_k];
                    if (inside) t_cp_async16(to, b0 + a_at[i] + step);
                    else *(t_packet<float, 4> *)to = t_packet<float, 4>();
                }
            }
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const int place = at_k + b_k + 16 * i;
                const int k2 = place;
                const bool inside = b_in && place < 32;
                float *const to = &b_tile[s % 4][b_k + 16 * i][b_line];
                if (inside) t_cp_async16(to, b1 + b_at + 4608 * k0 + 1536 * k1 + 48 * k2);
                else *(t_packet<float, 4> *)to = t_packet<float, 4>();
            }
        }
        t_cp_async_commit();
        if (ready) {
            const int now = (s - 3) % 4;
#pragma unroll 2
            for (int at = 0; at < 32; at += 8) {
                uint32_t x[1][4], y[1][4], x_rest[1][4], y_rest[1][4];
                t_ldmatrix_x4(x[0], &a_tile[now][warp_row + lane % 16][at + lane / 16 * 4]);
#pragma unroll
                for (int e = 0; e < 4; e++) t_split_tf32(x[0][e], x_rest[0][e]);
#pragma unroll
                for (int e = 0; e < 4; e++) y[0][e] = T_BITS_F32(b_tile[now][at + lane % 4 + e % 2 * 4][warp_column + lane / 4 + e / 2 * 8]);
#pragma unroll
                for (int e = 0; e < 4; e++) t_split_tf32(y[0][e], y_rest[0][e]);
                float part[2][4] = {};
#pragma unroll
                for (int h = 0; h < 2; h++) t_mma_tf32(part[h], x_rest[0], &y[h / 2][h % 2 * 2]);
#pragma unroll
                for (int h = 0; h < 2; h++) t_mma_tf32(part[h], x[0], &y_rest[h / 2][h % 2 * 2]);
#pragma unroll
                for (int h = 0; h < 2; h++) t_mma_tf32(part[h], x[0], &y[h / 2][h % 2 * 2]);
#pragma unroll
                for (int h = 0; h < 2; h++) {
#pragma unroll
                    for (int e = 0; e < 4; e++) sum[0][h][e] += part[h][e];
                }
            }
        }
    }
    float *const sums = (float *)sum;
    uint32_t least = ~0u, most = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) t_tf32_sizes(sums[i], least, most);
    if (t_tf32_are_doubtful(least, most)) {
#pragma unroll 1
        for (int which = 0; which < 8; which++) {
            const int row = tile_m * 32 + warp_row + which / 8 * 16 + lane / 4 + which / 2 % 2 * 8;
            const int column = tile_n * 32 + warp_column + which / 4 % 2 * 8 + lane % 4 * 2 + which % 2;
            float total = sums[0];
            if (t_tf32_is_doubtful(total) && row < rows && column < columns) {
                const int m1 = row % 28;
                int row_rest = row / 28;
                const int m0 = row_rest;
                const int n0 = column;
                total = 0.0f;
#pragma unroll 1
                for (int s = last; s-- > first;) {
                    const int at_k = s % chunks * 32, tap = s / chunks;
                    const int k1 = tap % 3;
                    int tap_rest = tap / 3;
                    const int k0 = tap_rest;
#pragma unroll 1
                    for (int place = at_k; place < at_k + 32 && place < 32; place++) {
                        const int k2 = place;
                        const float x = (((0 <= (k0 + m0 - 1)) && ((k0 + m0 - 1) < 28)) && ((0 <= (k1 + m1 - 1)) && ((k1 + m1 - 1) < 28))) ? b0[896 * k0 + 32 * k1 + k2 + 896 * m0 + 32 * m1 - 928] : 0.0f, y = b1[4608 * k0 + 1536 * k1 + 48 * k2 + n0];
                        total = T_FMA_f32(x, y, total);
                    }
                }
            }
#pragma unroll
            for (int i = 1; i < 8; i++) sums[i - 1] = sums[i];
            sums[7] = total;
        }
    }

    /* ---- results ---- */
    // Neighbouring threads exchange halves, so that each has four neighbours of one row: even ones of row lane / 4, odd
    // ones of that 8 below.
    const int odd = lane % 2;
    const int row = tile_m * 32 + warp_row + lane / 4 + 8 * odd;
    const int m0 = row;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const float *const d = sum[0][h];
        const float other0 = T_SHUFFLE_XOR(odd ? d[0] : d[2], 1), other1 = T_SHUFFLE_XOR(odd ? d[1] : d[3], 1);
        const float four[4] = {odd ? other0 : d[0], odd ? other1 : d[1], odd ? d[2] : other0, odd ? d[3] : other1};
        const int column = tile_n * 32 + warp_column + 8 * h + lane % 4 / 2 * 4;
        if (row >= rows) continue;
        if (column >= columns) continue;
        const int n0 = column;
        float q0[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            q0[j] = four[j];
        }
        t_write4(b2 + 48 * m0 + n0, q0);
    }
}

extern "C" int kb01814022fa1(void *const *buf, const int64_t *dim, int64_t blocks, void *stream) {
    (void)dim;
    T_LAUNCH(kb01814022fa1_kernel, (unsigned)blocks, 128, 38912, (cudaStream_t)stream, (const float *)buf[0], (const float *)buf[1], (float *)buf[2]);
    return (int)cudaGetLastError();
}
