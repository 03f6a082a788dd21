/* The whole CUDA prelude in one kernel. */
#include "t_cuda.h"

#include "every.h"

#define POINTER(S, T) T *p_##S,
extern "C" __global__ void every(T_EACH(POINTER) uint16_t *h, uint8_t *b, int c) {
    const int i = threadIdx.x;
    T_EACH(EVERY_LINE)
    p_f32[i] += every_storage(h, b, p_f32[i], c);

    __shared__ __align__(16) uint32_t shared[1024];
    t_cp_async16(shared + 4 * i, p_f32 + 4 * i);
    t_cp_async_commit();
    t_cp_async_wait<0>();
    __syncthreads();
    uint32_t left[4], right[4];
    float sum[4] = {0, 0, 0, 0};
    t_ldmatrix_x4(left, shared + 4 * i);
    t_ldmatrix_x4_trans(right, shared + 4 * i);
    t_mma_f16(sum, left, right);
    right[0] = t_pack_f16(sum[0], sum[1]);
    right[1] = t_pack_bf16(sum[2], sum[3]);
    t_mma_bf16(sum, left, right);
    right[1] = t_tf32(sum[1]);
    t_mma_tf32(sum, left, right);
    p_f32[i] += sum[0] + sum[1] + sum[2] + sum[3];
}
