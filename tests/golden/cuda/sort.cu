#define T_INDEX int
#include "t_cuda.h"
#include "t_packet.h"

extern "C" __global__ void __launch_bounds__(256) kbe8b83baa2e3_kernel(const int8_t *b0, uint32_t *b1) {
    const int block = blockIdx.x;
    const int tid = threadIdx.x;
    t_next_may_start();
    t_wait_for_earlier();
    __shared__ int counts[256];
    const int size = 5000;
    const int tiles = 2, point = block / tiles, begin = block % tiles * 4096;
    const int end = size - begin < 4096 ? size : begin + 4096;
    const int i0 = point;
    for (int d = tid; d < 256; d += 256) counts[d] = 0;
    __syncthreads();
#pragma unroll
    for (int j = 0; j < 16; j++) {
        const int t = begin + j * 256 + tid;
        if (t < end) {
            const int8_t x = b0[5000 * i0 + t];
            const uint32_t key = ~t_order_i8(x);
            atomicAdd(&counts[key >> 0 & 255], 1);
        }
    }
    __syncthreads();
    for (int d = tid; d < 256; d += 256) b1[block * 256 + d] = counts[d];
}

extern "C" int kbe8b83baa2e3(void *const *buf, const int64_t *dim, int64_t blocks, void *stream) {
    (void)dim;
    T_LAUNCH(kbe8b83baa2e3_kernel, (unsigned)blocks, 256, 0, (cudaStream_t)stream, (const int8_t *)buf[0], (uint32_t *)buf[1]);
    return (int)cudaGetLastError();
}

#define T_INDEX int
#include "t_cuda.h"
#include "t_packet.h"

extern "C" __global__ void __launch_bounds__(64) ka16ebe05d718_kernel(uint32_t *b0, uint32_t *b1) {
    const int block = blockIdx.x;
    const int tid = threadIdx.x;
    t_next_may_start();
    t_wait_for_earlier();
    __shared__ uint32_t sums[2][32];
    const int lane = tid % 32, part = tid / 32;
    const int tiles = 2, row = block / 8, digit = block % 8 * 32 + lane;
    const int each = (tiles + 1) / 2, begin = part * each, end = begin + each < tiles ? begin + each : tiles;
    uint32_t *const counts = b0 + row * tiles * 256 + digit;
    uint32_t sum = 0;
    for (int i = begin; i < end; i++) sum += counts[i * 256];
    sums[part][lane] = sum;
    __syncthreads();
    uint32_t before = 0;
    for (int i = 0; i < part; i++) before += sums[i][lane];
    for (int i = begin; i < end; i++) {
        const uint32_t count = counts[i * 256];
        counts[i * 256] = before;
        before += count;
    }
    if (part == 1) b1[row * 256 + digit] = before;
}

extern "C" int ka16ebe05d718(void *const *buf, const int64_t *dim, int64_t blocks, void *stream) {
    (void)dim;
    T_LAUNCH(ka16ebe05d718_kernel, (unsigned)blocks, 64, 0, (cudaStream_t)stream, (uint32_t *)buf[0], (uint32_t *)buf[1]);
    return (int)cudaGetLastError();
}

#define T_INDEX int
#include "t_cuda.h"
#include "t_packet.h"

extern "C" __global__ void __launch_bounds__(256) k358b6a1b2ee8_kernel(const int8_t *b0, int8_t *b1, const uint32_t *b2, const uint32_t *b3) {
    const int block = blockIdx.x;
    const int tid = threadIdx.x;
    t_next_may_start();
    t_wait_for_earlier();
    __shared__ uint32_t keys[4096];
    __shared__ uint32_t places[4096], first[256];
    __shared__ uint16_t counts[2048]; /* of each digit, for each warp */
    __shared__ uint64_t sums[8];
    __shared__ uint32_t starts[256];
    const int size = 5000;
    const int tiles = 2, point = block / tiles, begin = block % tiles * 4096;
    const int end = size - begin < 4096 ? size : begin + 4096;
    const int i0 = point;
    const int lane = tid % 32, warp = tid / 32, count = (int)(end - begin);
    /* ---- items of this tile ---- */
    /* Items in the order of their places by warps, then j, then lanes; behind the row's end come the largest keys. */
    uint32_t mine[16];
    uint32_t from[16];
#pragma unroll
    for (int j = 0; j < 16; j++) {
        const int i = (warp * 16 + j) * 32 + lane;
        mine[j] = ~(uint32_t)0, from[j] = 0;
        if (i < count) {
            const int t = begin + i;
            const int8_t x = b0[5000 * i0 + t];
            const uint32_t key = ~t_order_i8(x);
            const int64_t place = (int64_t)t;
            mine[j] = key, from[j] = (uint32_t)place;
        }
    }
    const int shift = 0;
    {
        /* ---- numbers of items before each, by digit ---- */
        for (int i = tid; i < 2048; i += 256) counts[i] = 0;
        __syncthreads();
        /* How many of a warp's items with the same digit come before each. */
        int before[16];
#pragma unroll
        for (int j = 0; j < 16; j++) {
            const int digit = (int)(mine[j] >> shift & 255);
            unsigned same = 0xffffffffu;
#pragma unroll
            for (int bit = 0; bit < 8; bit++) {
                const int set = digit >> bit & 1;
                const unsigned votes = __ballot_sync(0xffffffffu, set);
                same &= set ? votes : ~votes;
            }
            const int left = __popc(same & ((1u << lane) - 1)), sofar = counts[warp * 256 + digit];
            __syncwarp();
            if (left == 0) counts[warp * 256 + digit] = (uint16_t)(sofar + __popc(same));
            __syncwarp();
            before[j] = sofar + left;
        }
        __syncthreads();
        /* ---- where digits begin ---- */
        /* Where each digit begins: in the tile in the low 16 bits, in the row above these. */
        uint64_t start = 0, all = 0;
        if (tid < 256) {
#pragma unroll
            for (int i = 0; i < 8; i++) {
                const uint16_t here = counts[i * 256 + tid];
                counts[i * 256 + tid] = (uint16_t)all;
                all += here;
            }
            all |= (uint64_t)b3[point * 256 + tid] << 16;
#pragma unroll
            for (int d = 1; d < 32; d *= 2) {
                const uint64_t other = t_shuffle_xor_u64(all, d);
                if (lane & d) start += other;
                all += other;
            }
            if (lane == 0) sums[warp] = all;
        }
        __syncthreads();
        if (tid < 256) {
            for (int i = 0; i < warp; i++) start += sums[i];
            first[tid] = (uint32_t)(start & 0xffff);
            starts[tid] = (uint32_t)(start >> 16) + b2[block * 256 + tid] - first[tid];
        }
        __syncthreads();
        /* ---- items in their order ---- */
#pragma unroll
        for (int j = 0; j < 16; j++) {
            const int digit = (int)(mine[j] >> shift & 255), i = (int)first[digit] + counts[warp * 256 + digit] + before[j];
            keys[i] = mine[j], places[i] = from[j];
        }
        __syncthreads();
    }
    /* ---- results ---- */
#pragma unroll
    for (int j = 0; j < 16; j++) {
        const int i = j * 256 + tid;
        if (i >= count) break;
        const uint32_t key = keys[i];
        const int rank = (int)(uint32_t)(starts[key >> shift & 255] + (uint32_t)i);
        int8_t x = t_ordered_i8(~key);
        b1[5000 * i0 + rank] = x;
    }
}

extern "C" int k358b6a1b2ee8(void *const *buf, const int64_t *dim, int64_t blocks, void *stream) {
    (void)dim;
    T_LAUNCH(k358b6a1b2ee8_kernel, (unsigned)blocks, 256, 0, (cudaStream_t)stream, (const int8_t *)buf[0], (int8_t *)buf[1], (const uint32_t *)buf[2], (const uint32_t *)buf[3]);
    return (int)cudaGetLastError();
}
