#define T_INDEX int
#include "t_cuda.h"
#include "t_packet.h"

extern "C" __global__ void __launch_bounds__(256) k1ffa21fa3363_kernel(const float *b0, float *b1) {
    const int block = blockIdx.x, tid = threadIdx.x;
    const int point = block * 256 + tid;
    if (point >= 57) return;
    const int i1 = point % 19;
    int point_rest = point / 19;
    const int i0 = point_rest;
    float a0 = 0.0f;
    for (int r0 = 0; r0 < 19; r0++) {
        const float v0 = (r0 <= i1) ? b0[19 * i0 + r0] : 0.0f;
        a0 = a0 + v0;
    }
    const float x0 = a0;
    b1[19 * i0 + i1] = x0;
}

extern "C" int k1ffa21fa3363(void *const *buf, const int64_t *dim, int64_t blocks, void *stream) {
    (void)dim;
    k1ffa21fa3363_kernel<<<(unsigned)blocks, 256, 0, (cudaStream_t)stream>>>((const float *)buf[0], (float *)buf[1]);
    return (int)cudaGetLastError();
}
