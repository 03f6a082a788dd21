#define T_INDEX int
#include "t_cuda.h"
#include "t_packet.h"

extern "C" __global__ void __launch_bounds__(256) k7c89baff6c43_kernel(const float *b0, int64_t *b1) {
    const int block = blockIdx.x, tid = threadIdx.x;
    const int point = block * 256 + tid;
    if (point >= 57) return;
    const int i1 = point % 19;
    int point_rest = point / 19;
    const int i0 = point_rest;
    int64_t a0 = 0;
    for (int r0 = 0; r0 < 19; r0++) {
        const float v0 = b0[19 * i0 + r0];
        const float v1 = b0[19 * i0 + i1];
        const int v2 = t_isnan_f32(v0);
        const int v3 = t_isnan_f32(v1);
        const int v4 = ((v0 > v1) || (v2 && (!v3))) || ((!((v1 > v0) || (v3 && (!v2)))) && (r0 < i1));
        const int64_t v5 = v4 ? 1 : 0;
        a0 = t_add_i64(a0, v5);
    }
    const int64_t x0 = a0;
    b1[19 * i0 + i1] = x0;
}

extern "C" int k7c89baff6c43(void *const *buf, const int64_t *dim, int64_t blocks, void *stream) {
    (void)dim;
    k7c89baff6c43_kernel<<<(unsigned)blocks, 256, 0, (cudaStream_t)stream>>>((const float *)buf[0], (int64_t *)buf[1]);
    return (int)cudaGetLastError();
}

#define T_INDEX int
#include "t_cuda.h"
#include "t_packet.h"

extern "C" __global__ void __launch_bounds__(256) k5ad774615873_kernel(const int64_t *b0, int64_t *b1) {
    const int block = blockIdx.x, tid = threadIdx.x;
    const int point = block * 256 + tid;
    if (point >= 9) return;
    const int i1 = point % 3;
    int point_rest = point / 3;
    const int i0 = point_rest;
    int64_t a0 = INT64_MIN;
    for (int r0 = 0; r0 < 19; r0++) {
        const int64_t v0 = (int64_t)r0;
        const int64_t v1 = (b0[19 * i0 + r0] == (int64_t)i1) ? v0 : -1;
        a0 = t_max_i64(a0, v1);
    }
    const int64_t x0 = a0;
    b1[3 * i0 + i1] = x0;
}

extern "C" int k5ad774615873(void *const *buf, const int64_t *dim, int64_t blocks, void *stream) {
    (void)dim;
    k5ad774615873_kernel<<<(unsigned)blocks, 256, 0, (cudaStream_t)stream>>>((const int64_t *)buf[0], (int64_t *)buf[1]);
    return (int)cudaGetLastError();
}

#define T_INDEX int
#include "t_cuda.h"
#include "t_packet.h"

extern "C" __global__ void __launch_bounds__(256) kdfe60d87c93f_kernel(const int64_t *b0, const float *b1, float *b2) {
    const int block = blockIdx.x, tid = threadIdx.x;
    const int packet = block * 256 + tid;
    if (packet >= 9) return;
    const int i1 = packet % 3;
    int packet_rest = packet / 3;
    const int i0 = packet_rest;
    const int64_t v0 = b0[3 * i0 + i1];
    const float v1 = b1[19 * i0 + t_imax(0, t_imin(18, ((v0 < 0) ? (v0 + 19) : v0)))];
    b2[3 * i0 + i1] = v1;
}

extern "C" int kdfe60d87c93f(void *const *buf, const int64_t *dim, int64_t blocks, void *stream) {
    (void)dim;
    kdfe60d87c93f_kernel<<<(unsigned)blocks, 256, 0, (cudaStream_t)stream>>>((const int64_t *)buf[0], (const float *)buf[1], (float *)buf[2]);
    return (int)cudaGetLastError();
}
