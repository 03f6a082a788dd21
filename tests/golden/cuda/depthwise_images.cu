#define T_INDEX int
#include "t_cuda.h"
#include "t_packet.h"

extern "C" __global__ void __launch_bounds__(256) ka0467d6db7b6_kernel(const float *b0, const float *b1, float *b2) {
    const int block = blockIdx.x;
    const int tid = threadIdx.x;
    t_next_may_start();
    t_wait_for_earlier();
    const int columns = 1, piece = block / columns;
    const int packet = block % columns * 4 + tid % 4;
    const int turn = tid / 4;
    if (packet >= 4) return;
    const int point = packet * 4;
    const int i2 = point;
    float tap0[4];
    float tap0_p0[4];
    t_read4(tap0_p0, b1 + i2);
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const float tap0_0 = tap0_p0[j];
        tap0[j] = tap0_0;
    }
    float tap1[4];
    float tap1_p0[4];
    t_read4(tap1_p0, b1 + i2 + 16);
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const float tap1_0 = tap1_p0[j];
        tap1[j] = tap1_0;
    }
    float tap2[4];
    float tap2_p0[4];
    t_read4(tap2_p0, b1 + i2 + 32);
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const float tap2_0 = tap2_p0[j];
        tap2[j] = tap2_0;
    }
    const int first = piece * 128 + turn, end = (piece + 1) * 128;
    const int last = end < 20480 ? end : 20480;
    for (int at = first; at < last; at += 64) {
        const int i1 = at % 16;
        int at_rest = at / 16;
        const int i0 = at_rest;
        float a0[4] = {};
        float a1[4] = {};
        float a2[4] = {};
        float a3[4] = {};
        {
            float p0[4] = {};
            if (((4 * i1 + 4) < 64)) {
                t_read4(p0, b0 + 1024 * i0 + 64 * i1 + i2 + 64);
            }
            float p1[4];
            t_read4(p1, b0 + 1024 * i0 + 64 * i1 + i2 + 48);
            float p2[4];
            t_read4(p2, b0 + 1024 * i0 + 64 * i1 + i2 + 32);
            float p3[4];
            t_read4(p3, b0 + 1024 * i0 + 64 * i1 + i2 + 16);
            float p4[4];
            t_read4(p4, b0 + 1024 * i0 + 64 * i1 + i2);
            float p5[4] = {};
            if ((0 <= (4 * i1 - 1))) {
                t_read4(p5, b0 + 1024 * i0 + 64 * i1 + i2 - 16);
            }
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const float v0 = p4[j];
                const float v1 = p3[j];
                a0[j] = a0[j] + (((p5[j] * tap0[j]) + (v0 * tap1[j])) + (v1 * tap2[j]));
                const float v2 = p2[j];
                a1[j] = a1[j] + (((v0 * tap0[j]) + (v1 * tap1[j])) + (v2 * tap2[j]));
                const float v3 = p1[j];
                a2[j] = a2[j] + (((v1 * tap0[j]) + (v2 * tap1[j])) + (v3 * tap2[j]));
                a3[j] = a3[j] + (((v2 * tap0[j]) + (v3 * tap1[j])) + (p0[j] * tap2[j]));
            }
        }
        float q0[4];
        float q1[4];
        float q2[4];
        float q3[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            q0[j] = a0[j];
            q1[j] = a1[j];
            q2[j] = a2[j];
            q3[j] = a3[j];
        }
        t_write4(b2 + 1024 * i0 + 64 * i1 + i2, q0);
        t_write4(b2 + 1024 * i0 + 64 * i1 + i2 + 16, q1);
        t_write4(b2 + 1024 * i0 + 64 * i1 + i2 + 32, q2);
        t_write4(b2 + 1024 * i0 + 64 * i1 + i2 + 48, q3);
    }
}

extern "C" int ka0467d6db7b6(void *const *buf, const int64_t *dim, int64_t blocks, void *stream) {
    (void)dim;
    T_LAUNCH(ka0467d6db7b6_kernel, (unsigned)blocks, 256, 0, (cudaStream_t)stream, (const float *)buf[0], (const float *)buf[1], (float *)buf[2]);
    return (int)cudaGetLastError();
}
