#define T_INDEX int
#include "t_cuda.h"
#include "t_packet.h"

extern "C" __global__ void __launch_bounds__(256) kf07f19c9751a_kernel(const float *b0, uint16_t *b1) {
    const int block = blockIdx.x;
    const int tid = threadIdx.x;
    t_next_may_start();
    t_wait_for_earlier();
    const int packet = block * 256 + tid;
    if (packet >= 1152 / 4) return;
    const int point = packet * 4;
    const int i1 = point % 16;
    int point_rest = point / 16;
    const int i0 = point_rest;
    uint16_t q0[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const float v0 = t_as_bf16(b0[i0 + 72 * (i1 + j)]);
        q0[j] = t_encode_bf16(v0);
    }
    t_write4(b1 + 16 * i0 + i1, q0);
}

extern "C" int kf07f19c9751a(void *const *buf, const int64_t *dim, int64_t blocks, void *stream) {
    (void)dim;
    T_LAUNCH(kf07f19c9751a_kernel, (unsigned)blocks, 256, 0, (cudaStream_t)stream, (const float *)buf[0], (uint16_t *)buf[1]);
    return (int)cudaGetLastError();
}

#define T_INDEX int
#include "t_cuda.h"
#include "t_packet.h"

extern "C" __global__ void __launch_bounds__(128, 4) k430357b53b53_kernel(const uint16_t *b0, const uint16_t *b1, const float *b2, float *b3) {
    const int block = blockIdx.x;
    const int tid = threadIdx.x;
    t_next_may_start();
    t_wait_for_earlier();
    extern __shared__ __align__(16) uint16_t tiles[];
    typedef uint16_t a_lines[32][72], b_lines[64][40];
    a_lines *const a_tile = (a_lines *)tiles;
    b_lines *const b_tile = (b_lines *)(tiles + 9216);
    const int rows = 72, columns = 24;
    const int tiles_m = (rows + 31) / 32, tiles_n = (columns + 31) / 32;
    const int tile_n = block % tiles_n, tile_m = block / tiles_n % tiles_m;
    const int warp = tid / 32, lane = tid % 32;
    const int warp_row = warp / 2 * 16, warp_column = warp % 2 * 16;

    const int a_k = tid % 8 * 8, a_line = tid / 8;
    int a_at[2];
    bool a_in[2];
    int a_m0[2];
    int a_m1[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int line = tile_m * 32 + a_line + i * 16;
        const int m1 = line % 8;
        int line_rest = line / 8;
        const int m0 = line_rest;
        a_at[i] = 128 * m0 + 16 * m1 - 144;
        a_in[i] = line < rows;
        a_m0[i] = m0;
        a_m1[i] = m1;
    }

    const int b_k = tid / 4, b_line = tid % 4 * 8;
    const int b_place = tile_n * 32 + b_line;
    const int b_n0 = b_place;
    const int b_at = b_n0;
    const bool b_in = b_place < columns;

    float sum[1][2][4] = {};
    const int steps = 3;
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
                const int k2 = place % 16;
                int place_rest = place / 16;
                const int k1 = place_rest % 3;
                place_rest /= 3;
                const int k0 = place_rest;
                const int step = 128 * k0 + 16 * k1 + k2;
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    const bool inside = a_in[i] && place < 144 && (((0 <= (k0 + a_m0[i] - 1)) && ((k0 + a_m0[i] - 1) < 9)) && ((0 <= (k1 + a_m1[i] - 1)) && ((k1 + a_m1[i] - 1) < 8)));
                    uint16_t *const to = &a_tile[s % 4][a_line + i * 16][a_k];
                    if (inside) t_cp_async16(to, b0 + a_at[i] + step);
                    else *(t_packet<uint16_t, 8> *)to = t_packet<uint16_t, 8>();
                }
            }
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const int place = at_k + b_k + i * 32;
                const int k2 = place % 16;
                int place_rest = place / 16;
                const int k1 = place_rest % 3;
                place_rest /= 3;
                const int k0 = place_rest;
                const bool inside = b_in && place < 144;
                uint16_t *const to = &b_tile[s % 4][b_k + i * 32][b_line];
                if (inside) t_cp_async16(to, b1 + b_at + 1152 * k0 + 384 * k1 + 24 * k2);
                else *(t_packet<uint16_t, 8> *)to = t_packet<uint16_t, 8>();
            }
        }
        t_cp_async_commit();
        if (ready) {
            const int now = (s - 3) % 4;
#pragma unroll
            for (int at = 0; at < 64; at += 16) {
                uint32_t x[1][4], y[1][4];
#pragma unroll
                for (int g = 0; g < 1; g++) {
                    t_ldmatrix_x4(x[g], &a_tile[now][warp_row + 16 * g + lane % 16][at + lane / 16 * 8]);
                }
#pragma unroll
                for (int h = 0; h < 1; h++) {
                    t_ldmatrix_x4_trans(y[h], &b_tile[now][at + lane % 16][warp_column + 16 * h + lane / 16 * 8]);
                }
#pragma unroll
                for (int g = 0; g < 1; g++) {
#pragma unroll
                    for (int h = 0; h < 2; h++) t_mma_bf16(sum[g][h], x[g], &y[h / 2][h % 2 * 2]);
                }
            }
        }
    }

    // Neighbouring threads exchange halves, so that each has four neighbours of one row: even ones of row lane / 4, odd
    // ones of that 8 below.
    const int odd = lane % 2;
#pragma unroll
    for (int g = 0; g < 1; g++) {
        const int row = tile_m * 32 + warp_row + 16 * g + lane / 4 + 8 * odd;
        const int m1 = row % 8;
        int row_rest = row / 8;
        const int m0 = row_rest;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const float *const d = sum[g][h];
            const float other0 = T_SHUFFLE_XOR(odd ? d[0] : d[2], 1), other1 = T_SHUFFLE_XOR(odd ? d[1] : d[3], 1);
            const float four[4] = {odd ? other0 : d[0], odd ? other1 : d[1], odd ? d[2] : other0, odd ? d[3] : other1};
            const int column = tile_n * 32 + warp_column + 8 * h + lane % 4 / 2 * 4;
            if (row >= rows) continue;
            if (column >= columns) continue;
            const int n0 = column;
            float p0[4];
            t_read4(p0, b2 + n0);
            float q0[4];
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const float v0 = four[j] + p0[j];
                q0[j] = v0;
            }
            t_write4(b3 + 192 * m0 + 24 * m1 + n0, q0);
        }
    }
}

extern "C" int k430357b53b53(void *const *buf, const int64_t *dim, int64_t blocks, void *stream) {
    (void)dim;
    T_LAUNCH(k430357b53b53_kernel, (unsigned)blocks, 128, 38912, (cudaStream_t)stream, (const uint16_t *)buf[0], (const uint16_t *)buf[1], (const float *)buf[2], (float *)buf[3]);
    return (int)cudaGetLastError();
}

#define T_INDEX int
#include "t_cuda.h"
#include "t_packet.h"

extern "C" __global__ void __launch_bounds__(256) kcd14a8406903_kernel(const float *b0, float *b1) {
    const int block = blockIdx.x;
    const int tid = threadIdx.x;
    t_next_may_start();
    t_wait_for_earlier();
    const int packet = block * 256 + tid;
    if (packet >= 1728 / 4) return;
    const int point = packet * 4;
    const int i1 = point % 72;
    int point_rest = point / 72;
    const int i0 = point_rest;
    float q0[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const float v0 = b0[i0 + 24 * (i1 + j)];
        q0[j] = v0;
    }
    t_write4(b1 + 72 * i0 + i1, q0);
}

extern "C" int kcd14a8406903(void *const *buf, const int64_t *dim, int64_t blocks, void *stream) {
    (void)dim;
    T_LAUNCH(kcd14a8406903_kernel, (unsigned)blocks, 256, 0, (cudaStream_t)stream, (const float *)buf[0], (float *)buf[1]);
    return (int)cudaGetLastError();
}
