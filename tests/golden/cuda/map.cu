#define T_INDEX int64_t
#include "t_cuda.h"
#include "t_packet.h"

T_FN float t_sigmoid_f32(float x) {
    const float v0 = (x < -104.5f) ? -104.5f : x;
    const float v1 = -((v0 > 40.0f) ? 40.0f : v0);
    const float v2 = (v1 * 1.442695f) + 12582975.0f;
    const float v3 = t_float32_u32((t_raw32_f32(v2) << 23u));
    const float v4 = v2 - 12582975.0f;
    const float v5 = (v1 - (v4 * 0.6933594f)) - (v4 * -0.00021219444f);
    const float v6 = v5 * v5;
    const float v7 = (((v6 * 0.0013818939f) + ((v5 * 0.008368704f) + 0.04166829f)) * v6) + ((v5 * 0.16666521f) + 0.49999994f);
    return 5.421011e-20f / (((v3 * (v5 + (v7 * v6))) + v3) + 5.421011e-20f);
}

extern "C" __global__ void __launch_bounds__(256) kd617b299a166_kernel(const float *b0, const float *b1, float *b2, const int64_t s0) {
    const int64_t block = blockIdx.x;
    const int tid = threadIdx.x;
    t_next_may_start();
    t_wait_for_earlier();
    const int64_t packet = block * 256 + tid;
    if (packet >= 13 * s0) return;
    const int64_t i0 = packet / 13;
    const int i1 = (int)(packet - 13 * i0);
    const float v0 = t_sigmoid_f32(b1[13 * i0 + i1]) * b0[i1];
    b2[13 * i0 + i1] = v0;
}

extern "C" int kd617b299a166(void *const *buf, const int64_t *dim, int64_t blocks, void *stream) {
    T_LAUNCH_BY_SIZE(kd617b299a166_kernel, (unsigned)blocks, 256, 0, (cudaStream_t)stream, (const float *)buf[0], (const float *)buf[1], (float *)buf[2], dim[0]);
    return (int)cudaGetLastError();
}
