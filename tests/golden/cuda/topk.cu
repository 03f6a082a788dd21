#define T_INDEX int
#include "t_cuda.h"
#include "t_packet.h"

extern "C" __global__ void __launch_bounds__(256) k92d0cd2a6a26_kernel(const float *b0, float *b1) {
    const int block = blockIdx.x;
    const int tid = threadIdx.x;
    t_next_may_start();
    t_wait_for_earlier();
    __shared__ uint64_t best[4];
    __shared__ int counts[256], above[256], chosen[2], held;
    const int begin = 0, end = 19, wanted = 3, point = block;
    const int i0 = point;
    /* Items whose highest digits are those of the last one wanted, and how many of them are. */
    uint64_t known = 0, mask = 0;
    int left = (int)wanted;
    for (int shift = 56; shift >= 0; shift -= 8) {
        for (int i = tid; i < 256; i += 256) counts[i] = 0;
        if (tid == 0) held = 0;
        __syncthreads();
        for (int t = begin + tid; t < end; t += 256) {
            const float x = b0[19 * i0 + t];
            const uint64_t item = (uint64_t)t_order_f32(x) << 32 | (uint32_t)~(uint32_t)t;
            if ((item & mask) == known) atomicAdd(&counts[item >> shift & 255], 1);
        }
        __syncthreads();
        /* above[d]: items with digit d or a higher one. */
        for (int i = tid; i < 256; i += 256) above[i] = counts[i];
        for (int d = 1; d < 256; d *= 2) {
            __syncthreads();
            int more = 0;
            if (tid + d < 256) more = above[tid + d];
            __syncthreads();
            if (tid < 256) above[tid] += more;
        }
        __syncthreads();
        if (tid < 256 && above[tid] >= left && above[tid] - counts[tid] < left) chosen[0] = tid, chosen[1] = above[tid] - counts[tid];
        __syncthreads();
        known |= (uint64_t)chosen[0] << shift, mask |= (uint64_t)255 << shift;
        left -= chosen[1];
        if (counts[chosen[0]] == left) break;
        __syncthreads(); /* counts have been read */
    }
    for (int t = begin + tid; t < end; t += 256) {
        const float x = b0[19 * i0 + t];
        const uint64_t item = (uint64_t)t_order_f32(x) << 32 | (uint32_t)~(uint32_t)t;
        if (item >= known) best[atomicAdd(&held, 1)] = item;
    }
    int all = 1;
    while (all < wanted) all *= 2;
    for (int i = (int)wanted + tid; i < all; i += 256) best[i] = 0;
    /* Sorted, the highest first: bitonic runs of twice the length each time. */
    for (int run = 2; run <= all; run *= 2) {
        for (int step = run / 2; step > 0; step /= 2) {
            __syncthreads();
            for (int i = tid; i < all / 2; i += 256) {
                const int low = 2 * i - (i & (step - 1)), high = low + step;
                const uint64_t one = best[low], other = best[high];
                if ((one < other) == ((low & run) == 0)) best[low] = other, best[high] = one;
            }
        }
    }
    __syncthreads();
    for (int rank = tid; rank < wanted; rank += 256) {
        const int t = (int)(uint32_t)~(uint32_t)best[rank];
        const float v0 = b0[19 * i0 + t];
        b1[3 * i0 + rank] = v0;
    }
}

extern "C" int k92d0cd2a6a26(void *const *buf, const int64_t *dim, int64_t blocks, void *stream) {
    (void)dim;
    T_LAUNCH(k92d0cd2a6a26_kernel, (unsigned)blocks, 256, 0, (cudaStream_t)stream, (const float *)buf[0], (float *)buf[1]);
    return (int)cudaGetLastError();
}
