#define T_INDEX int
#include "t_cuda.h"
#include "t_packet.h"

extern "C" __global__ void __launch_bounds__(128, 4) k11a67bca966d_kernel(const uint16_t *b0, const uint16_t *b1, uint16_t *b2) {
    const int block = blockIdx.x;
    const int tid = threadIdx.x;
    t_next_may_start();
    t_wait_for_earlier();
    extern __shared__ __align__(16) uint16_t tiles[];
    typedef uint16_t a_lines[32][72], b_lines[64][40];
    a_lines *const a_tile = (a_lines *)tiles;
    b_lines *const b_tile = (b_lines *)(tiles + 9216);
    /* ---- this block's tile ---- */
    const int rows = 40, columns = 32;
    const int tiles_m = (rows + 31) / 32, tiles_n = (columns + 31) / 32;
    const int tile_n = block % tiles_n, tile_m = block / tiles_n % tiles_m;
    const int warp = tid / 32, lane = tid % 32;
    const int warp_row = warp / 2 * 16, warp_column = warp % 2 * 16;

    const int a_k = tid % 8 * 8, a_line = tid / 8;
    int a_at[2];
    bool a_in[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int line = tile_m * 32 + a_line + 16 * i;
        const int m0 = line;
        a_at[i] = 48 * m0;
        a_in[i] = line < rows;
    }

    const int b_k = tid / 4, b_line = tid % 4 * 8;
    const int b_place = tile_n * 32 + b_line;
    const int b_n0 = b_place;
    const int b_at = b_n0;
    const bool b_in = b_place < columns;

    float sum[1][2][4] = {};
    /* ---- step by step along the sum ---- */
    const int steps = 1;
    const int first = 0, last = steps;
    for (int s = first; s < last + 3; s++) {
        const bool ready = s - first >= 3;
        if (ready) {
            t_cp_async_wait<2>();
            __syncthreads();
        }
        if (s < last) {
            const int at_k = s * 64;
            {
                const int place = at_k + a_k;
                const int k0 = place;
                const int step = k0;
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    const bool inside = a_in[i] && place < 48;
                    uint16_t *const to = &a_tile[s % 4][a_line + 16 * i][a_k];
                    if (inside) t_cp_async16(to, b0 + a_at[i] + step);
                    else *(t_packet<uint16_t, 8> *)to = t_packet<uint16_t, 8>();
                }
            }
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const int place = at_k + b_k + 32 * i;
                const int k0 = place;
                const bool inside = b_in && place < 48;
                uint16_t *const to = &b_tile[s % 4][b_k + 32 * i][b_line];
                if (inside) t_cp_async16(to, b1 + b_at + 32 * k0);
                else *(t_packet<uint16_t, 8> *)to = t_packet<uint16_t, 8>();
            }
        }
        t_cp_async_commit();
        if (ready) {
            const int now = (s - 3) % 4;
#pragma unroll
            for (int at = 0; at < 64; at += 16) {
                uint32_t x[1][4], y[1][4];
                t_ldmatrix_x4(x[0], &a_tile[now][warp_row + lane % 16][at + lane / 16 * 8]);
                t_ldmatrix_x4_trans(y[0], &b_tile[now][at + lane % 16][warp_column + lane / 16 * 8]);
#pragma unroll
                for (int h = 0; h < 2; h++) t_mma_f16(sum[0][h], x[0], &y[h / 2][h % 2 * 2]);
            }
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
        t_write4_f16(b2 + 32 * m0 + n0, q0);
    }
}

extern "C" int k11a67bca966d(void *const *buf, const int64_t *dim, int64_t blocks, void *stream) {
    (void)dim;
    T_LAUNCH(k11a67bca966d_kernel, (unsigned)blocks, 128, 38912, (cudaStream_t)stream, (const uint16_t *)buf[0], (const uint16_t *)buf[1], (uint16_t *)buf[2]);
    return (int)cudaGetLastError();
}
