#define T_INDEX int64_t
#include "t_cuda.h"
#include "t_packet.h"

extern "C" __global__ void __launch_bounds__(256) kc7c0c3891fe3_kernel(const int32_t *b0, const int32_t *b1, const float *b2, const float *b3, const int32_t *b4, int32_t *b5, const int64_t s0) {
    const int64_t block = blockIdx.x;
    const int tid = threadIdx.x;
    t_next_may_start();
    t_wait_for_earlier();
    const int64_t packet = block * 256 + tid;
    if (packet >= s0) return;
    const int64_t i0 = packet;
    const float v0 = b2[4 * i0 + (int64_t)b1[0]];
    const int v1 = (v0 <= b3[0]) || (t_isnan_f32(v0) && (t_and_i32(b0[0], 1073741824) != 0));
    const int32_t v2 = b0[t_add_i64(t_cast_i32_i64(b4[0]), t_cast_bool_i64(v1))];
    b5[i0] = v2;
}

extern "C" int kc7c0c3891fe3(void *const *buf, const int64_t *dim, int64_t blocks, void *stream) {
    T_LAUNCH(kc7c0c3891fe3_kernel, (unsigned)blocks, 256, 0, (cudaStream_t)stream, (const int32_t *)buf[0], (const int32_t *)buf[1], (const float *)buf[2], (const float *)buf[3], (const int32_t *)buf[4], (int32_t *)buf[5], dim[0]);
    return (int)cudaGetLastError();
}

#define T_INDEX int64_t
#include "t_cuda.h"
#include "t_packet.h"

extern "C" __global__ void __launch_bounds__(256) k6662c00f35f7_kernel(const int32_t *b0, const float *b1, float *b2, const int64_t s0) {
    const int64_t block = blockIdx.x;
    const int tid = threadIdx.x;
    t_next_may_start();
    t_wait_for_earlier();
    const int64_t point = block * 256 + tid;
    if (point >= s0) return;
    const int64_t i0 = point;
    float a0 = 0.0f;
    for (int64_t r0 = 0; r0 < 1; r0++) {
        const float v0 = b1[(int64_t)b0[i0]];
        a0 = a0 + v0;
    }
    b2[i0] = a0;
}

extern "C" int k6662c00f35f7(void *const *buf, const int64_t *dim, int64_t blocks, void *stream) {
    T_LAUNCH(k6662c00f35f7_kernel, (unsigned)blocks, 256, 0, (cudaStream_t)stream, (const int32_t *)buf[0], (const float *)buf[1], (float *)buf[2], dim[0]);
    return (int)cudaGetLastError();
}
