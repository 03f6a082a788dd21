/* One warp over the prelude's shuffles, tensor cores and copies.  Pointers are the device's. */
#include "t_cuda.h"

/* in and out hold a pointer for each dtype, in the order of T_EACH, then one for truth values as int32.  in: 32 values;
 * out: what each of the 32 threads got of sum, prod, max, min (of truth values: any, all). */
__global__ void reduce_kernel(void *const *in, void *const *out) {
    const int i = threadIdx.x;
    int k = 0;
#define REDUCE(S, T) \
    { \
        const T v = ((const T *)in[k])[i]; \
        T *to = (T *)out[k++]; \
        to[i] = t_warp_sum_##S(v); \
        to[32 + i] = t_warp_prod_##S(v); \
        to[64 + i] = t_warp_max_##S(v); \
        to[96 + i] = t_warp_min_##S(v); \
    }
    T_EACH(REDUCE)
    const int v = ((const int *)in[k])[i];
    ((int *)out[k])[i] = t_warp_any_bool(v);
    ((int *)out[k])[32 + i] = t_warp_all_bool(v);
}
extern "C" int reduce(void *const *in, void *const *out) {
    reduce_kernel<<<1, 32>>>(in, out);
    return (int)cudaDeviceSynchronize();
}

/* c[16][16] += a[16][16] b[16][16], a and b of f16 or bf16. */
__global__ void product_kernel(const uint16_t *a, const uint16_t *b, float *c, int bf16) {
    __shared__ __align__(16) uint16_t as[16][16], bs[16][16];
    const int lane = threadIdx.x, row = lane % 16, column = lane / 16 * 8;
    t_cp_async16(&as[row][column], a + row * 16 + column);
    t_cp_async16(&bs[row][column], b + row * 16 + column);
    t_cp_async_commit();
    t_cp_async_wait<0>();
    __syncthreads();
    uint32_t left[4], right[4];
    t_ldmatrix_x4(left, &as[row][column]);
    t_ldmatrix_x4_trans(right, &bs[row][column]);
    for (int half = 0; half < 2; half++) {
        float sum[4];
        for (int e = 0; e < 4; e++) sum[e] = c[(lane / 4 + e / 2 * 8) * 16 + half * 8 + lane % 4 * 2 + e % 2];
        if (bf16) t_mma_bf16(sum, left, right + 2 * half);
        else t_mma_f16(sum, left, right + 2 * half);
        for (int e = 0; e < 4; e++) c[(lane / 4 + e / 2 * 8) * 16 + half * 8 + lane % 4 * 2 + e % 2] = sum[e];
    }
}
extern "C" int product(const uint16_t *a, const uint16_t *b, float *c, int bf16) {
    product_kernel<<<1, 32>>>(a, b, c, bf16);
    return (int)cudaDeviceSynchronize();
}

/* c[16][8] = a[16][8] b[8][8] in tf32. */
__global__ void product_tf32_kernel(const float *a, const float *b, float *c) {
    const int lane = threadIdx.x, g = lane / 4, t = lane % 4;
    uint32_t left[4], right[2];
    float sum[4] = {0, 0, 0, 0};
    for (int e = 0; e < 4; e++) left[e] = t_tf32(a[(g + e % 2 * 8) * 8 + t + e / 2 * 4]);
    for (int e = 0; e < 2; e++) right[e] = t_tf32(b[(t + e * 4) * 8 + g]);
    t_mma_tf32(sum, left, right);
    for (int e = 0; e < 4; e++) c[(g + e / 2 * 8) * 8 + t * 2 + e % 2] = sum[e];
}
extern "C" int product_tf32(const float *a, const float *b, float *c) {
    product_tf32_kernel<<<1, 32>>>(a, b, c);
    return (int)cudaDeviceSynchronize();
}
