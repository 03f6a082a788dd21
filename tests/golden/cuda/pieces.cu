#define T_INDEX int
#include "t_cuda.h"
#include "t_packet.h"

extern "C" __global__ void __launch_bounds__(256) k72765c5ed2a3_kernel(const float *b0, float *b1) {
    const int block = blockIdx.x;
    const int tid = threadIdx.x;
    t_next_may_start();
    t_wait_for_earlier();
    const int columns = 1, piece = block / columns;
    const int packet = block % columns * 3 + tid % 3;
    const int lane = tid % 3, turn = tid / 3;
    const bool inside = packet < 3 && turn < 85;
    const int point = inside ? packet * 4 : 0;
    const int i0 = point;
    const int end = (piece + 1) * 680;
    const int first = piece * 680 + turn;
    const int last = inside ? end < 90000 ? end : 90000 : 0;
    __shared__ t_packet<float, 4> partial0[255];
    float a0[4];
#pragma unroll
    for (int j = 0; j < 4; j++) a0[j] = 0.0f;
#pragma unroll 8
    for (int at = first; at < last; at += 85) {
        const int r0 = at;
        float p0[4];
        t_read4(p0, b0 + i0 + 12 * r0);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const float v0 = p0[j];
            a0[j] = a0[j] + v0;
        }
    }
    if (turn < 85) {
#pragma unroll
        for (int j = 0; j < 4; j++) partial0[turn * 3 + lane].at[j] = a0[j];
    }
    __syncthreads();
    if (turn > 0) return;
#pragma unroll
    for (int j = 0; j < 4; j++) a0[j] = partial0[lane].at[j];
    for (int i = 1; i < 85; i++) {
#pragma unroll
        for (int j = 0; j < 4; j++) a0[j] = a0[j] + partial0[i * 3 + lane].at[j];
    }
    if (inside) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            b1[133 * (i0 + j) + piece] = a0[j];
        }
    }
}

extern "C" int k72765c5ed2a3(void *const *buf, const int64_t *dim, int64_t blocks, void *stream) {
    (void)dim;
    T_LAUNCH(k72765c5ed2a3_kernel, (unsigned)blocks, 256, 0, (cudaStream_t)stream, (const float *)buf[0], (float *)buf[1]);
    return (int)cudaGetLastError();
}
