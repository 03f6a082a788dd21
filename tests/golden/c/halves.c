#include "t_kernel.h"

#ifdef T_ENCODE_F16
T_FN u16v t_encode_f16(f32v x) { return T_ENCODE_F16(x); }
#else
T_FN u16v t_encode_f16(f32v x) {
    const u32v v0 = (u32v)x;
    const u32v v1 = v0 & 0x7fffffffu;
    const u32v v2 = v1 >> 13u;
    const u32v v3 = (v2 & 0x3ffu) | 0x7e00u;
    const i32v v4 = (i32v)(v1 > 0x7f800000u);
    const u32v v5 = t_blend_u32_(v4, v3, t_splat_u32(0x7c00u));
    const u32v v6 = ((v1 + 0xfffu + (v2 & 1u)) >> 13u) - 0x1c000u;
    const u32v v7 = (u32v)((f32v)v1 + 0.5f) - 0x3f000000u;
    const i32v v8 = (i32v)(v1 < 0x38800000u);
    const u32v v9 = t_blend_u32_(v8, v7, v6);
    const i32v v10 = (i32v)(v1 < 0x477ff000u);
    return T_CONV(t_blend_u32_(v10, v9, v5) | ((v0 >> 16u) & 0x8000u), u16);
}
#endif

#ifdef T_DECODE_F16
T_FN f32v t_decode_f16(u16v x) { return T_DECODE_F16(x); }
#else
T_FN f32v t_decode_f16(u16v x) {
    const u32v v0 = T_CONV(x, u32);
    const u32v v1 = (v0 & 0x7fffu) << 13u;
    const i32v v2 = (i32v)((f32v)(v1 + 0x38000000u) >= 65536.0f);
    const u32v v3 = ((u32v)((f32v)v1 * 5.192297e+33f) | ((u32v)v2 & 0x7f800000u)) | ((v0 & 0x8000u) << 16u);
    return (f32v)v3;
}
#endif

void k37ec78050dfd(void *const *buf, const int64_t *dim, void *scratch, int64_t begin, int64_t end) {
    (void)dim, (void)scratch;
    const float *b0 = buf[0];
    float *b1 = buf[1];
    const int64_t size = 1920;
    for (int64_t task = begin; task < end; task++) {
        const int64_t low = task * 16384, high = t_imin(low + 16384, size);
        int64_t i0 = low;
        for (; i0 + 16 <= high; i0 += 16) {
            const f32v v0 = t_decode_f16(t_encode_f16(t_load_f32(b0 + i0)));
            t_store_f32(b1 + i0, v0);
        }
    }
}

/* Panels [ceil(N / NR)][K][NR] of a matrix known only at run time, zero padded.  Task: a panel. */
#define T_FEW_TYPES
#include "t_kernel.h"

/* The arguments of the kernel, and where a task is. */
struct call {
    void *const *buf;
};

#define N 32
#define K 48
#define NR 48
#define PANELS 1
#define STEP_K 32
#define STEP_N 1

/* One vector of columns, all of k; columns from `count` on are zero. */
static void column(const struct call *c, const float *b, float *out, int64_t count) {
    int64_t i = 0;
    (void)c;
    if (count == 16) {
        for (; i < K; i++) t_store_f32(out + i * NR, t_load_f32(b + i * STEP_K));
    }
    for (; i < K; i++)
    for (int64_t j = 0; j < 16; j++) out[i * NR + j] = j < count ? b[i * STEP_K + j * STEP_N] : 0;
}

void k9a4387659963(void *const *buf, const int64_t *dim, void *scratch, int64_t begin, int64_t end) {
    struct call at = {.buf = buf}, *c = &at;
    (void)dim;
    (void)scratch;
    for (int64_t task = begin; task < end; task++) {
        const int64_t first = task % PANELS * NR;
        const float *b = buf[0];
        float *out = (float *)buf[1] + first * K;
        for (int64_t n = first; n < first + NR; n += 16)
        column(c, b + n * STEP_N, out + n - first, t_imax(0, t_imin(16, N - n)));
    }
}
