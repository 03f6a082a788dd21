#define T_INDEX int
#include "t_cuda.h"
#include "t_packet.h"

extern "C" __global__ void __launch_bounds__(256) ke2c887793f45_kernel(const float *b0, float *b1) {
    const int block = blockIdx.x;
    const int tid = threadIdx.x;
    t_next_may_start();
    t_wait_for_earlier();
    __shared__ float t0_tile[32][33];
    const int side_by_side = 16, below = 16;
    const int first = block % side_by_side * 32, start = block / side_by_side % below * 32;
    const int column = tid % 32, line = tid / 32;
#pragma unroll
    for (int i = 0; i < 32; i += 8) {
        const int i1 = first + line + i, i0 = start + column;
        {
            t0_tile[line + i][column] = b0[i0 + 512 * i1];
        }
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 32; i += 8) {
        const int i1 = first + column, i0 = start + line + i;
        {
            const float t0 = t0_tile[column][line + i];
            b1[512 * i0 + i1] = t0;
        }
    }
}

extern "C" int ke2c887793f45(void *const *buf, const int64_t *dim, int64_t blocks, void *stream) {
    (void)dim;
    T_LAUNCH(ke2c887793f45_kernel, (unsigned)blocks, 256, 0, (cudaStream_t)stream, (const float *)buf[0], (float *)buf[1]);
    return (int)cudaGetLastError();
}
