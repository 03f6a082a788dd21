/* CUDA prelude of generated kernels: t_scalar.h in device words, sums over a warp, tensor cores, asynchronous copies.
 *
 * Functions come from CUDA's own library, without fast-math.  Greatest errors in ULP as documented (CUDA C++ Programming
 * Guide, appendix on mathematical functions; they differ by one between versions): sqrt, /, fmod 0; exp, log, log2,
 * log1p, expm1, tanh, erf, cosh 1 or 2; exp2, sin, cos, asin, acos, atan 2; sinh, asinh, atanh 3; tan, acosh, pow 4.
 *
 * Under T_EMULATED (a stand-in for cuda_runtime.h that runs kernels on the processor) whatever is PTX here is a call of
 * the stand-in.
 */
#ifndef T_CUDA_H
#define T_CUDA_H

#include <cuda_runtime.h>
#include <stdint.h>

/* The processor's functions launch kernels, no more: gcc takes less time for them so.  What a card runs is not gcc's. */
#if defined(__NVCC_DIAG_PRAGMA_SUPPORT__) && defined(__GNUC__) && !defined(__clang__)
#pragma nv_diagnostic push
#pragma nv_diag_suppress 1675 /* a pragma that is for gcc */
#pragma GCC optimize("O1")
#pragma nv_diagnostic pop
#endif

#define T_FN static __device__ __forceinline__
#define T_SIZE_FN static __device__ __host__ __forceinline__
#ifdef T_EMULATED
#include <math.h>
#include <string.h>
#define T_STORE_WORDS(to, words) memcpy(to, words, sizeof words)
#else
#define T_BITS_F32(x) __float_as_uint(x)
#define T_FLOAT_U32(u) __uint_as_float(u)
#define T_FMA_f32(a, b, c) fmaf(a, b, c)
#define T_FMA_f64(a, b, c) fma(a, b, c)

/* Store two or four words in memory of the device at once. */
T_FN void t_store_words_(uint32_t *to, const uint32_t (&words)[2]) {
    asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(__cvta_generic_to_global(to)), "r"(words[0]), "r"(words[1])
                 : "memory");
}
T_FN void t_store_words_(uint32_t *to, const uint32_t (&words)[4]) {
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(to)), "r"(words[0]), "r"(words[1]),
                 "r"(words[2]), "r"(words[3])
                 : "memory");
}
#define T_STORE_WORDS(to, words) t_store_words_(to, words)

T_FN float t_half_bits_(uint16_t h) {
    float r;
    asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(h));
    return r;
}
T_FN uint16_t t_bits_half_(float x) {
    uint16_t r;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(x));
    return r;
}
#define T_DECODE_F16(h) t_half_bits_(h)
#define T_ENCODE_F16(x) t_bits_half_(x)

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
T_FN uint16_t t_bits_bfloat_(float x) {
    uint16_t r;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(x));
    return r;
}
#define T_ENCODE_BF16(x) t_bits_bfloat_(x)

T_FN float t_larger_(float a, float b) {
    float r;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    return r;
}
T_FN float t_smaller_(float a, float b) {
    float r;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    return r;
}
#define T_MAX_f32(a, b) t_larger_(a, b)
#define T_MIN_f32(a, b) t_smaller_(a, b)
#endif
#endif

#include "t_scalar.h"

/* ---- warps ------------------------------------------------------------------------------------ */

#define T_SHUFFLE_XOR(v, d) __shfl_xor_sync(0xffffffffu, v, d)
#define T_SHUFFLE_XOR_F64(v, d) __shfl_xor_sync(0xffffffffu, v, d)
#include "t_warp.h"

#include "t_order.h"

/* What a loop that waits for another block does each time round. */
T_FN void t_pause() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 700
    __nanosleep(20);
#endif
}

/* ---- launches ----------------------------------------------------------------------------------- */

/* From sm_90 on a kernel's blocks may start while the kernel before it runs, if T_LAUNCH launches it.  All its threads wait
 * for that kernel to end, which waited too or began when all before had ended, before they read or write anything but
 * constants. */
T_FN void t_next_may_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}
T_FN void t_wait_for_earlier() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
/* The same once a number that is not negative has been computed: without that the compiler puts the waiting first. */
T_FN void t_wait_for_earlier_with(int number) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("{ .reg .pred p; setp.ge.s32 p, %0, 0; @p griddepcontrol.wait; }" ::"r"(number) : "memory");
#else
    (void)number;
#endif
}

/* Brings memory to the second cache; address and number of bytes are multiples of 16. */
T_FN void t_prefetch(const void *from, uint32_t bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
#else
    (void)from;
    (void)bytes;
#endif
}

/* ---- clusters: blocks that run at the same time, from sm_90 on ----------------------------------- */

/* All threads of a cluster's blocks meet; what each wrote to shared memory before, the others may read.  The last meeting may be
 * in two parts: a thread that leaves reads no other block's memory any more, and waits before it ends. */
T_FN void t_cluster_meet() {
#ifdef T_EMULATED
    t_emulate_cluster_arrive();
    t_emulate_cluster_wait();
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release.aligned;\n barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}
T_FN void t_cluster_arrive() {
#ifdef T_EMULATED
    t_emulate_cluster_arrive();
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}
T_FN void t_cluster_leave() {
#ifdef T_EMULATED
    t_emulate_cluster_arrive();
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
}
T_FN void t_cluster_wait() {
#ifdef T_EMULATED
    t_emulate_cluster_wait();
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
#endif
}
/* A number that block `rank` of the cluster has where this one has `*at` in shared memory. */
T_FN float t_cluster_read_f32(const float *at, int rank) {
#ifdef T_EMULATED
    return *(const float *)t_emulate_in_cluster(at, rank);
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    float x;
    asm volatile("{ .reg .b32 there;\n mapa.shared::cluster.u32 there, %1, %2;\n ld.shared::cluster.f32 %0, [there]; }"
                 : "=f"(x) : "r"((uint32_t)__cvta_generic_to_shared(at)), "r"(rank) : "memory");
    return x;
#else
    (void)rank;
    return *at;
#endif
}
/* Writes it there: for all of that block when they have met. */
T_FN void t_cluster_write_f32(float *at, int rank, float x) {
#ifdef T_EMULATED
    *(float *)t_emulate_in_cluster(at, rank) = x;
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("{ .reg .b32 there;\n mapa.shared::cluster.u32 there, %0, %1;\n st.shared::cluster.f32 [there], %2; }"
                 ::"r"((uint32_t)__cvta_generic_to_shared(at)), "r"(rank), "f"(x) : "memory");
#else
    (void)rank;
    *at = x;
#endif
}
/* Four in a row, `at` a multiple of 16 bytes. */
T_FN float4 t_cluster_read_f32x4(const float *at, int rank) {
#ifdef T_EMULATED
    return *(const float4 *)t_emulate_in_cluster(at, rank);
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    float4 x;
    asm volatile("{ .reg .b32 there;\n mapa.shared::cluster.u32 there, %4, %5;\n ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [there]; }"
                 : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w) : "r"((uint32_t)__cvta_generic_to_shared(at)), "r"(rank) : "memory");
    return x;
#else
    (void)rank;
    return *(const float4 *)at;
#endif
}

/* ---- how kernels are launched -------------------------------------------------------------------- */

#define T_LAUNCH_AFTER(KERNEL, BLOCKS, THREADS, SHARED, STREAM, ...) \
    KERNEL<<<BLOCKS, THREADS, SHARED, STREAM>>>(__VA_ARGS__)
#ifdef T_EMULATED
#define T_LAUNCH T_LAUNCH_AFTER
#define T_LAUNCH_BY_SIZE T_LAUNCH_AFTER
#define T_LAUNCH_CLUSTERS(KERNEL, CLUSTER, BLOCKS, THREADS, SHARED, STREAM, ...) \
    t_emulate_launch_clusters(#KERNEL, KERNEL, CLUSTER, BLOCKS, THREADS, SHARED, STREAM, __VA_ARGS__)
#else
/* Its kernel says itself how many blocks a cluster has. */
#define T_LAUNCH_CLUSTERS(KERNEL, CLUSTER, ...) T_LAUNCH(KERNEL, __VA_ARGS__)
#define T_LAUNCH(KERNEL, BLOCKS, THREADS, SHARED, STREAM, ...) \
    t_launch(true, KERNEL, BLOCKS, THREADS, SHARED, STREAM, __VA_ARGS__)
/* Of as many blocks as a run's sizes make; the waiting of thousands would cost more than it gains. */
#define T_LAUNCH_BY_SIZE(KERNEL, BLOCKS, THREADS, SHARED, STREAM, ...) \
    t_launch((BLOCKS) <= 4096, KERNEL, BLOCKS, THREADS, SHARED, STREAM, __VA_ARGS__)

/* Whether all code has the functions above, PTX for later cards too. */
constexpr bool t_may_overlap() {
    bool all = false;
#if defined(__CUDA_ARCH_LIST__) && CUDART_VERSION >= 12030
    all = true;
    for (int arch : {__CUDA_ARCH_LIST__})
        all = all && arch >= 900;
#endif
    return all;
}

template <typename... P, typename... A>
static void t_launch(bool overlaps, void (*kernel)(P...), unsigned blocks, unsigned threads, size_t shared,
                     cudaStream_t stream, A... arguments) {
    if constexpr (!t_may_overlap()) {
        kernel<<<blocks, threads, shared, stream>>>(arguments...);
        return;
    }
    cudaLaunchAttribute overlap = {};
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = overlaps;
    cudaLaunchConfig_t how = {};
    how.gridDim = dim3(blocks);
    how.blockDim = dim3(threads);
    how.dynamicSmemBytes = shared;
    how.stream = stream;
    how.attrs = &overlap;
    how.numAttrs = 1;
    (void)cudaLaunchKernelEx(&how, kernel, static_cast<P>(arguments)...);
}
#endif

/* ---- tensor cores: d += a b for the whole warp (sm_80) ------------------------------------------ */

/* Fragments are as in PTX ISA, "Matrix fragments for mma".  With g = lane / 4, t = lane % 4:
 *   d[2i + j]          row g + 8i, column 2t + j                         i, j in 0, 1
 *   f16, bf16: a[i + 2k]  row g + 8i, columns 2t + 8k and one more;  b[k]  rows 2t + 8k and one more, column g
 *   tf32:      a[i + 2k]  row g + 8i, column t + 4k;                 b[k]  row t + 4k, column g */
#ifdef T_EMULATED
#define T_DEF_MMA(NAME, SHAPE, TYPES) \
    T_FN void t_mma_##NAME(float d[4], const uint32_t a[4], const uint32_t b[2]) { \
        t_emulate_mma_##SHAPE##_##NAME(d, a, b); \
    }
#else
#define T_DEF_MMA(NAME, SHAPE, TYPES) \
    T_FN void t_mma_##NAME(float d[4], const uint32_t a[4], const uint32_t b[2]) { \
        asm volatile("mma.sync.aligned." #SHAPE ".row.col." TYPES " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, " \
                     "{%0, %1, %2, %3};" \
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1])); \
    }
#endif
T_DEF_MMA(f16, m16n8k16, "f32.f16.f16.f32")
T_DEF_MMA(bf16, m16n8k16, "f32.bf16.bf16.f32")
T_DEF_MMA(tf32, m16n8k8, "f32.tf32.tf32.f32")
#undef T_DEF_MMA

/* The bits of x rounded to tf32 (10 bits of mantissa, nearest, halves away from zero), an operand of t_mma_tf32. */
T_FN uint32_t t_tf32(float x) {
#ifdef T_EMULATED
    const uint32_t w = T_BITS_F32(x);
    return (w & 0x7f800000u) == 0x7f800000u ? w : (w + 0x1000u) & ~0x1fffu;
#else
    uint32_t r;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x));
    return r;
#endif
}

/* The float whose bits x holds as two tf32: the nearest in x, and in rest what it leaves, of which 11 bits are read.  Of
 * what is infinite or NaN, or rounds to infinity, one of them is infinite or NaN.  t_tf32 would take two instructions more. */
T_FN void t_split_tf32(uint32_t &x, uint32_t &rest) {
    const float whole = T_FLOAT_U32(x);
    x = (x + 0x1000u) & ~0x1fffu;
    rest = T_BITS_F32(whole - T_FLOAT_U32(x));
}

/* What a float leaves when it is read as tf32, without its low 13 bits; rounded, as it will be read so itself. */
T_FN uint32_t t_tf32_rest(uint32_t x) {
    return T_BITS_F32(T_FLOAT_U32(x) - T_FLOAT_U32(x & ~0x1fffu)) + 0x1000u;
}

/* Whether a sum of products of floats as two tf32 may be another than that of the floats: infinite or NaN, or so small
 * that factors had too few bits (below 2^-80). */
T_FN bool t_tf32_is_doubtful(float sum) {
    const uint32_t size = T_BITS_F32(sum) << 1;
    return size != 0 && size - (47u << 24) >= (255u - 47u) << 24;
}

/* The same of many sums: `least` becomes the least of their bits without the sign, twice and less one, so that 0 is the
 * largest, and `most` the most of these bits twice.  They begin as ~0 and 0. */
T_FN void t_tf32_sizes(float sum, uint32_t &least, uint32_t &most) {
    const uint32_t size = T_BITS_F32(sum) << 1;
    least = size - 1u < least ? size - 1u : least;
    most = size > most ? size : most;
}
T_FN bool t_tf32_are_doubtful(uint32_t least, uint32_t most) { return least < (47u << 24) - 1u || most >= 255u << 24; }

/* Eight numbers of 4 bits less 8, times a scale of f16 (which both halves of `scale` hold), rounded to f16: as pairs of
 * numbers 0 and 4, 1 and 5, 2 and 6, 3 and 7, from the lowest bits on.  A number's bits below those of 1024 are it and 1024;
 * four bits further up below those of 64, it and 64. */
T_FN void t_unpair_f16(uint32_t pairs[4], uint32_t word, uint32_t scale) {
    for (int i = 0; i < 4; i++) {
        const uint32_t at = word >> i / 2 * 8;
        const uint32_t mask = i % 2 ? 0x00f000f0u : 0x000f000fu, above = i % 2 ? 0x54005400u : 0x64006400u;
        const uint32_t base = i % 2 ? 0x54805480u : 0x64086408u; /* 72 and 1032 */
#ifdef T_EMULATED
        const uint32_t x = (at & mask) | above;
        uint32_t r = 0;
        for (int h = 0; h < 32; h += 16) {
            const float number = t_decode_f16((uint16_t)(x >> h)) - t_decode_f16((uint16_t)base);
            r |= (uint32_t)t_encode_f16(number * t_decode_f16((uint16_t)(scale >> h))) << h;
        }
        pairs[i] = r;
#else
        uint32_t x;
        asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(x) : "r"(at), "r"(mask), "r"(above)); /* one instruction, not two */
        asm("{ .reg .b32 less;\n sub.rn.f16x2 less, %1, %2;\n mul.rn.f16x2 %0, less, %3; }" : "=r"(pairs[i]) : "r"(x), "r"(base), "r"(scale));
#endif
    }
}

/* Eight numbers of f16 in that order of pairs: their bits, or floats that are rounded. */
T_FN void t_interleave_bits(uint32_t pairs[4], const uint32_t x[4]) {
    for (int i = 0; i < 2; i++) {
        pairs[2 * i] = (x[i] & 0xffffu) | x[i + 2] << 16;
        pairs[2 * i + 1] = x[i] >> 16 | (x[i + 2] & 0xffff0000u);
    }
}
T_FN void t_interleave_f16(uint32_t pairs[4], const float x[8]) {
    for (int i = 0; i < 4; i++) pairs[i] = t_encode_f16(x[i]) | (uint32_t)t_encode_f16(x[i + 4]) << 16;
}

/* ---- functions of which 16 bits are kept ----------------------------------------------------------- */

/* 2^x, as a weight of attention or part of what follows: 2 ULP, and 0 below 2^-126. */
T_FN float t_weight_f32(float x) {
#ifdef T_EMULATED
    const float weight = exp2f(x);
    return weight < 0x1p-126f ? 0.0f : weight;
#else
    float weight;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(weight) : "f"(x));
    return weight;
#endif
}

/* 1 / x of an x from 1 on: 1 ULP, and 0 below 2^-126. */
T_FN float t_near_inverse_(float x) {
#ifdef T_EMULATED
    const float inverse = 1.0f / x;
    return inverse < 0x1p-126f ? 0.0f : inverse;
#else
    float inverse;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(x));
    return inverse;
#endif
}

/* Sigmoid with a relative error of 2^-17, and 0 below 2^-126: the exponent, up to 126, is rounded to 2^-18, and by ln 2 of
 * that the power of two is wrong. */
T_FN float t_near_sigmoid_f32(float x) { return t_near_inverse_(1.0f + t_weight_f32(x * -1.44269504f)); }

/* The share of the normal distribution below x, erfc(-x / sqrt 2) / 2.  The logarithm of the share below -|x| is a polynomial,
 * here from its leading coefficient on, which is negative, so that it is -infinity in the end. */
#define T_DEF_NEAR_NORMAL(NAME, ...) \
    T_FN float t_near_normal_##NAME##_f32(float x) { \
        constexpr float c[] = {__VA_ARGS__}; \
        const float t = t_abs_f32(x); \
        float p = c[0]; \
        for (int i = 1; i < (int)(sizeof c / sizeof *c); i++) p = t_fma_f32(t, p, c[i]); \
        const float q = t_weight_f32(p); \
        return x < 0.0f ? q : 1.0f - q; \
    }
/* With a relative error of 2^-17 from x = -6.5 on, where the share is 2^-34; below that at most as much as there.  The
 * coefficients make the greatest error least: 2^-17.7, and what rounding them and the polynomial adds. */
T_DEF_NEAR_NORMAL(f16, -1.7577797e-6f, 5.9936672e-5f, -9.1636396e-4f, 8.447391e-3f, -5.3824518e-2f, -4.586157e-1f,
                  -1.1511801f, -1.0000038f)
/* With a relative error of 2^-14.4 from x = -13 on, where the share is 2^-126, the least that there is. */
T_DEF_NEAR_NORMAL(bf16, -2.0123858e-9f, 1.4528727e-7f, -4.617318e-6f, 8.5530017e-5f, -1.0343975e-3f, 8.723313e-3f,
                  -5.40889e-2f, -4.5863625e-1f, -1.151051f, -1.0000257f)
#undef T_DEF_NEAR_NORMAL

/* Two floats as f16 (bf16) in one word, the first in the low half. */
#if !defined(T_EMULATED) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define T_DEF_PACK(NAME) \
    T_FN uint32_t t_pack_##NAME(float low, float high) { \
        uint32_t r; \
        asm("cvt.rn." #NAME "x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low)); \
        return r; \
    }
#else
#define T_DEF_PACK(NAME) \
    T_FN uint32_t t_pack_##NAME(float low, float high) { \
        return t_encode_##NAME(low) | (uint32_t)t_encode_##NAME(high) << 16; \
    }
#endif
T_DEF_PACK(f16)
T_DEF_PACK(bf16)
#undef T_DEF_PACK

/* Four or eight floats to neighbours in memory, as f16 (bf16). */
#define T_DEF_WRITE(N, NAME) \
    T_FN void t_write##N##_##NAME(uint16_t *p, const float (&x)[N]) { \
        uint32_t words[N / 2]; \
        for (int i = 0; i < N / 2; i++) words[i] = t_pack_##NAME(x[2 * i], x[2 * i + 1]); \
        T_STORE_WORDS((uint32_t *)p, words); \
    }
T_DEF_WRITE(4, f16)
T_DEF_WRITE(8, f16)
T_DEF_WRITE(4, bf16)
T_DEF_WRITE(8, bf16)
#undef T_DEF_WRITE

/* Four 8x8 matrices of 16-bit elements from shared memory: thread 8i + r gives the address of row r of matrix i, and
 * gets in r[i] columns 2t, 2t + 1 of row g (of the transpose: rows 2t, 2t + 1 of column g). */
T_FN void t_ldmatrix_x4(uint32_t r[4], const void *shared) {
#ifdef T_EMULATED
    t_emulate_ldmatrix_x4(r, shared);
#else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(shared)) : "memory");
#endif
}
T_FN void t_ldmatrix_x4_trans(uint32_t r[4], const void *shared) {
#ifdef T_EMULATED
    t_emulate_ldmatrix_x4_trans(r, shared);
#else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(shared)) : "memory");
#endif
}

/* An 8x8 matrix of 16-bit elements, of which thread 4g + t has columns 2t, 2t + 1 of row g, transposed. */
T_FN uint32_t t_transpose(uint32_t x) {
#ifdef T_EMULATED
    return t_emulate_transpose(x);
#else
    uint32_t r;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(r) : "r"(x));
    return r;
#endif
}

/* ---- asynchronous copies from global to shared memory (sm_80) ------------------------------------ */

/* 16 bytes, both addresses aligned to 16; done after commit, wait and a barrier. */
T_FN void t_cp_async16(void *shared, const void *global) {
#ifdef T_EMULATED
    t_emulate_cp_async16(shared, global);
#else
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                 :: "r"((uint32_t)__cvta_generic_to_shared(shared)), "l"(global) : "memory");
#endif
}
/* Closes a group of copies. */
T_FN void t_cp_async_commit() {
#ifndef T_EMULATED
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
/* Until at most N groups of this thread are on their way. */
template <int N> T_FN void t_cp_async_wait() {
#ifndef T_EMULATED
    asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory");
#endif
}

#endif
