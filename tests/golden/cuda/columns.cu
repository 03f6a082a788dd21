#define T_INDEX int
#include "t_cuda.h"
#include "t_packet.h"

extern "C" __global__ void __launch_bounds__(32) k74b42bb5ecdf_kernel(const float *b0, float *b1) {
    const int block = blockIdx.x, tid = threadIdx.x;
    t_next_may_start();
    t_wait_for_earlier();
    const int packet = block * 3 + tid % 3;
    const int lane = tid % 3, turn = tid / 3;
    const bool inside = packet < 3 && turn < 6;
    const int point = inside ? packet * 4 : 0;
    const int i0 = point;
    const int first = turn, last = inside ? 50 : 0;
    __shared__ float partial0[72];
    __shared__ float partial1[72];
    float a0[4];
#pragma unroll
    for (int j = 0; j < 4; j++) a0[j] = -T_INF_F32;
#pragma unroll 4
    for (int at = first; at < last; at += 6) {
        const int r0 = at;
        float p0[4];
        t_read4(p0, b0 + i0 + 12 * r0);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const float v0 = p0[j];
            a0[j] = t_max_f32(a0[j], v0);
        }
    }
    if (turn < 6) {
#pragma unroll
        for (int j = 0; j < 4; j++) partial0[(turn * 4 + j) * 3 + lane] = a0[j];
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < 4; j++) a0[j] = partial0[(0 * 4 + j) * 3 + lane];
    for (int i = 1; i < 6; i++) {
#pragma unroll
        for (int j = 0; j < 4; j++) a0[j] = t_max_f32(a0[j], partial0[(i * 4 + j) * 3 + lane]);
    }
    float x0[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
        x0[j] = a0[j];
    }
    float a1[4];
#pragma unroll
    for (int j = 0; j < 4; j++) a1[j] = 0.0f;
#pragma unroll 4
    for (int at = first; at < last; at += 6) {
        const int r0 = at;
        float p0[4];
        t_read4(p0, b0 + i0 + 12 * r0);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const float v0 = t_exp_f32((p0[j] - x0[j]));
            a1[j] = a1[j] + v0;
        }
    }
    if (turn < 6) {
#pragma unroll
        for (int j = 0; j < 4; j++) partial1[(turn * 4 + j) * 3 + lane] = a1[j];
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < 4; j++) a1[j] = partial1[(0 * 4 + j) * 3 + lane];
    for (int i = 1; i < 6; i++) {
#pragma unroll
        for (int j = 0; j < 4; j++) a1[j] = a1[j] + partial1[(i * 4 + j) * 3 + lane];
    }
    float x1[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
        x1[j] = a1[j];
    }
#pragma unroll 4
    for (int at = first; at < last; at += 6) {
        const int r0 = at;
        float p0[4];
        t_read4(p0, b0 + i0 + 12 * r0);
        float q0[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const float v0 = t_exp_f32((p0[j] - x0[j])) / x1[j];
            q0[j] = v0;
        }
        t_write4(b1 + i0 + 12 * r0, q0);
    }
}

extern "C" int k74b42bb5ecdf(void *const *buf, const int64_t *dim, int64_t blocks, void *stream) {
    (void)dim;
    T_LAUNCH(k74b42bb5ecdf_kernel, (unsigned)blocks, 32, 0, (cudaStream_t)stream, (const float *)buf[0], (float *)buf[1]);
    return (int)cudaGetLastError();
}
