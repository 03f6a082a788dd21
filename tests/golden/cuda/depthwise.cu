#define T_INDEX int
#include "t_cuda.h"
#include "t_packet.h"

extern "C" __global__ void __launch_bounds__(256) k1a405e565eb5_kernel(const float *b0, float *b1) {
    const int block = blockIdx.x;
    const int tid = threadIdx.x;
    t_next_may_start();
    t_wait_for_earlier();
    const int packet = block * 256 + tid;
    if (packet >= 784 / 4) return;
    const int point = packet * 4;
    const int i1 = point % 16;
    int point_rest = point / 16;
    const int i0 = point_rest;
    float q0[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const float v0 = b0[i0 + 49 * (i1 + j)];
        q0[j] = v0;
    }
    t_write4(b1 + 16 * i0 + i1, q0);
}

extern "C" int k1a405e565eb5(void *const *buf, const int64_t *dim, int64_t blocks, void *stream) {
    (void)dim;
    T_LAUNCH(k1a405e565eb5_kernel, (unsigned)blocks, 256, 0, (cudaStream_t)stream, (const float *)buf[0], (float *)buf[1]);
    return (int)cudaGetLastError();
}

#define T_INDEX int
#include "t_cuda.h"
#include "t_packet.h"

extern "C" __global__ void __launch_bounds__(256) k8fbda504c897_kernel(const float *b0, const float *b1, float *b2) {
    const int block = blockIdx.x;
    const int tid = threadIdx.x;
    t_next_may_start();
    t_wait_for_earlier();
    const int point = block * 256 + tid;
    if (point >= 784) return;
    const int i2 = point % 16;
    int point_rest = point / 16;
    const int i1 = point_rest % 7;
    point_rest /= 7;
    const int i0 = point_rest;
    float a0 = 0.0f;
    for (int r0 = 0; r0 < 3; r0++) {
        for (int r1 = 0; r1 < 3; r1++) {
            const int v0 = (((0 <= (i0 + r0 - 1)) && ((i0 + r0 - 1) < 7)) && ((0 <= (i1 + r1 - 1)) && ((i1 + r1 - 1) < 7)));
            const float v1 = (v0 ? b0[112 * i0 + 16 * i1 + i2 + 112 * r0 + 16 * r1 - 128] : 0.0f) * b1[i2 + 48 * r0 + 16 * r1];
            a0 = a0 + v1;
        }
    }
    b2[112 * i0 + 16 * i1 + i2] = a0;
}

extern "C" int k8fbda504c897(void *const *buf, const int64_t *dim, int64_t blocks, void *stream) {
    (void)dim;
    T_LAUNCH(k8fbda504c897_kernel, (unsigned)blocks, 256, 0, (cudaStream_t)stream, (const float *)buf[0], (const float *)buf[1], (float *)buf[2]);
    return (int)cudaGetLastError();
}

#define T_INDEX int
#include "t_cuda.h"
#include "t_packet.h"

extern "C" __global__ void __launch_bounds__(256) k8007acaced51_kernel(const float *b0, float *b1) {
    const int block = blockIdx.x;
    const int tid = threadIdx.x;
    t_next_may_start();
    t_wait_for_earlier();
    const int packet = block * 256 + tid;
    if (packet >= 784) return;
    const int i1 = packet % 49;
    int packet_rest = packet / 49;
    const int i0 = packet_rest;
    const float v0 = b0[i0 + 16 * i1];
    b1[49 * i0 + i1] = v0;
}

extern "C" int k8007acaced51(void *const *buf, const int64_t *dim, int64_t blocks, void *stream) {
    (void)dim;
    T_LAUNCH(k8007acaced51_kernel, (unsigned)blocks, 256, 0, (cudaStream_t)stream, (const float *)buf[0], (float *)buf[1]);
    return (int)cudaGetLastError();
}
