#define T_INDEX int
#include "t_cuda.h"
#include "t_packet.h"

extern "C" __global__ void __launch_bounds__(256, 2) k1289f4ecc6a7_kernel(const float *b0, const float *b1, float *b2) {
    const int block = blockIdx.x;
    const int tid = threadIdx.x;
    t_next_may_start();
    t_wait_for_earlier();
    typedef t_packet<float, 4> packet;
    __shared__ packet a_tile[2][8][33], b_tile[2][8][33];
    const int rows = 12, columns = 20;
    const int tiles_m = (rows + 127) / 128, tiles_n = (columns + 127) / 128;
    const int tile_n = block % tiles_n, tile_m = block / tiles_n % tiles_m;
    const int warp = tid / 32, lane = tid % 32;
    const int first_row = warp / 2 * 32 + lane / 8 * 4;
    const int first_column = warp % 2 * 64 + lane % 8 * 4;

    const int a_k = tid % 8, a_line = tid / 8;
    int a_at[4];
    bool a_in[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int line = tile_m * 128 + a_line + i * 32;
        const int m0 = line;
        a_at[i] = 3 * m0;
        a_in[i] = line < rows;
    }

    const int b_k = tid / 32, b_line = tid % 32 * 4;
    const int b_place = tile_n * 128 + b_line;
    const int b_n0 = b_place;
    const int b_at = b_n0;
    const bool b_in = b_place < columns;

    float a_next[4];
    float b_next[1][4];
    float sum[8][8] = {};
    const int steps = 1;
    const int first = 0, last = steps;
    for (int s = first; s <= last; s++) {
        if (s < last) {
            const int at_k = s * 8;
            {
                const int place = at_k + a_k;
                const int k0 = place;
                const int step = k0;
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const bool inside = a_in[i] && place < 3;
                    a_next[i] = inside ? b0[a_at[i] + step] : 0;
                }
            }
#pragma unroll
            for (int i = 0; i < 1; i++) {
                const int place = at_k + b_k + i * 8;
                const int k0 = place;
                const bool inside = b_in && place < 3;
                for (int j = 0; j < 4; j++) b_next[i][j] = 0;
                if (inside) t_read4(b_next[i], b1 + b_at + 20 * k0);
            }
        }
        if (s > first) {
            const int now = (s - 1) & 1;
#pragma unroll
            for (int at = 0; at < 8; at++) {
                packet x[2], y[2];
#pragma unroll
                for (int g = 0; g < 2; g++) x[g] = a_tile[now][at][first_row / 4 + 4 * g];
#pragma unroll
                for (int h = 0; h < 2; h++) y[h] = b_tile[now][at][first_column / 4 + 8 * h];
#pragma unroll
                for (int i = 0; i < 8; i++) {
#pragma unroll
                    for (int j = 0; j < 8; j++) sum[i][j] += x[i / 4].at[i % 4] * y[j / 4].at[j % 4];
                }
            }
        }
        if (s < last) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int line = a_line + i * 32;
                a_tile[s & 1][a_k][line / 4].at[line % 4] = a_next[i];
            }
#pragma unroll
            for (int i = 0; i < 1; i++) {
                packet whole;
                for (int j = 0; j < 4; j++) whole.at[j] = b_next[i][j];
                b_tile[s & 1][b_k + i * 8][b_line / 4] = whole;
            }
        }
        __syncthreads();
    }

#pragma unroll
    for (int i = 0; i < 8; i++) {
        const int row = tile_m * 128 + first_row + i / 4 * 16 + i % 4;
        if (row >= rows) { continue; }
        const int m0 = row;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int column = tile_n * 128 + first_column + 32 * h;
            if (column >= columns) { continue; }
            const int n0 = column;
            float q0[4];
#pragma unroll
            for (int j = 0; j < 4; j++) {
                q0[j] = sum[i][4 * h + j];
            }
            t_write4(b2 + 20 * m0 + n0, q0);
        }
    }
}

extern "C" int k1289f4ecc6a7(void *const *buf, const int64_t *dim, int64_t blocks, void *stream) {
    (void)dim;
    T_LAUNCH(k1289f4ecc6a7_kernel, (unsigned)blocks, 256, 0, (cudaStream_t)stream, (const float *)buf[0], (const float *)buf[1], (float *)buf[2]);
    return (int)cudaGetLastError();
}

#define T_INDEX int
#include "t_cuda.h"
#include "t_packet.h"

T_FN float t_sigmoid_f32(float x) {
    const float v0 = t_exp_f32((-t_abs_f32(x)));
    return ((x < 0.0f) ? v0 : 1.0f) / (v0 + 1.0f);
}

extern "C" __global__ void __launch_bounds__(160) k78ff60bca207_kernel(const float *b0, float *b1, const float *b2) {
    const int block = blockIdx.x;
    const int tid = threadIdx.x;
    t_next_may_start();
    t_wait_for_earlier();
    __shared__ float hidden[2][2][5];
    __shared__ float state_c[2][5];
    const int lane = tid % 32, warp = tid / 32;
    const int times = 6, batch = 2;
    const int first = 0;
    const int d = block, n0 = 0;
    const int count = batch - n0 < 2 ? (int)(batch - n0) : 2;
    const float *weights = b0;
    int now = 0;
    for (int i = tid; i < count * 5; i += 160) {
        const int r = i / 5, unit = i % 5;
        hidden[now][r][unit] = 0.0f;
        if (unit < first || unit >= first + 5) continue;
        state_c[r][unit - first] = 0.0f;
    }
    float kept0[1][4][1] = {};
#pragma unroll
    for (int u = 0; u < 1; u++) {
        const int unit = first + warp + u * 5;
        if (unit >= 5) break;
#pragma unroll
        for (int i = 0; i < 1; i++) {
            const int at = lane + i * 32;
            if (at >= 5) continue;
            kept0[u][0][i] = weights[unit * 5 + at];
            kept0[u][1][i] = weights[(unit + 5) * 5 + at];
            kept0[u][2][i] = weights[(unit + 10) * 5 + at];
            kept0[u][3][i] = weights[(unit + 15) * 5 + at];
        }
    }
    /* Thread r of each warp computes the cells of row r. */
    const int n = n0 + (lane < count ? lane : 0);
    __syncthreads();
    for (int step = 0; step < times; step++) {
        const int at = step;
#pragma unroll
        for (int u = 0; u < 1; u++) {
            const int unit = first + warp + u * 5;
            if (unit >= 5) break;
            const int runs = lane < count;
            float x0 = 0.0f;
            float x1 = 0.0f;
            float x2 = 0.0f;
            float x3 = 0.0f;
            if (runs) {
                const int place = (at * batch + n) * 20 + d * 20 + unit;
                x0 = b2[place];
                x1 = b2[place + 5];
                x2 = b2[place + 10];
                x3 = b2[place + 15];
            }
            float sum[4][2] = {};
#pragma unroll
            for (int i = 0; i < 1; i++) {
                const int e = lane + i * 32;
                if (e >= 5) continue;
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    const float x = hidden[now][r][e];
#pragma unroll
                    for (int g = 0; g < 4; g++) sum[g][r] += kept0[u][g][i] * x;
                }
            }
#pragma unroll
            for (int g = 0; g < 4; g++) {
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    const float all = t_warp_sum_f32(sum[g][r]);
                    if (lane == r) sum[g][0] = all;
                }
            }
            if (lane >= count) continue;
            const int r = lane;
            const float r0 = sum[0][0];
            const float r1 = sum[1][0];
            const float r2 = sum[2][0];
            const float r3 = sum[3][0];
            const float old_c = state_c[r][unit - first];
            const float new_c = (t_sigmoid_f32((x2 + r2)) * old_c) + (t_sigmoid_f32((x0 + r0)) * t_tanh_f32((x3 + r3)));
            state_c[r][unit - first] = new_c;
            const float new_next = t_sigmoid_f32((x1 + r1)) * t_tanh_f32(new_c);
            hidden[1 - now][r][unit] = new_next;
            const int t = at;
            b1[5 * n + 10 * t + unit] = new_next;
        }
        __syncthreads();
        now = 1 - now;
    }
}

extern "C" int k78ff60bca207(void *const *buf, const int64_t *dim, int64_t blocks, void *stream) {
    (void)dim;
    T_LAUNCH(k78ff60bca207_kernel, (unsigned)blocks, 160, 0, (cudaStream_t)stream, (const float *)buf[0], (float *)buf[1], (const float *)buf[2]);
    return (int)cudaGetLastError();
}
