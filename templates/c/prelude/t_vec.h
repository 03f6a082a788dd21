/* Vector prelude of generated kernels: types, memory, select, reductions over lanes.
 *
 * Every register holds TORSHC_LANES elements whatever the dtype; wide types are split into
 * machine registers by the compiler.  Only the vector extensions shared by gcc and clang are
 * used.  gcc has no vector ?: in C, so selection is done by bits; both compilers turn it
 * into a blend where the mask comes from a comparison.
 *
 * Booleans in registers are i32v masks (0 or -1 in each lane); in memory uint8 0 or 1.
 * f16, bf16 and narrower types exist in memory only: registers of floats are f32v, of integers i8v and u8v.
 */
#ifndef T_VEC_H
#define T_VEC_H

#include <stddef.h>
#include <stdint.h>

#ifndef TORSHC_LANES
#error "define TORSHC_LANES as 1, 4, 8 or 16"
#endif

/* Functions are inlined, so the calling convention of wide vectors never matters. */
#pragma GCC diagnostic ignored "-Wpsabi"

#define T_FN static inline __attribute__((always_inline, unused))
/* For code that is run once per loop (tails): the compiler decides. */
#define T_COLD_FN static inline __attribute__((unused))
#ifdef __clang__ /* before 17 it passes over GCC's pragma, and the sums go to memory */
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define T_UNROLL /* their checks, sixteen times, take the compiler minutes */
#else
#define T_UNROLL _Pragma("clang loop unroll(full)")
#endif
#define T_ROLLED _Pragma("clang loop unroll(disable)")
#else
#define T_UNROLL _Pragma("GCC unroll 16")
#define T_ROLLED _Pragma("GCC unroll 1")
#endif
#define T_CONV(x, S) __builtin_convertvector(x, S##v)

#define T_DEF_TYPE(S, T) typedef T S##v __attribute__((vector_size(sizeof(T) * TORSHC_LANES)));
T_DEF_TYPE(f32, float)
T_DEF_TYPE(f64, double)
T_DEF_TYPE(i8, int8_t)
T_DEF_TYPE(u8, uint8_t)
T_DEF_TYPE(i16, int16_t)
T_DEF_TYPE(u16, uint16_t)
T_DEF_TYPE(i32, int32_t)
T_DEF_TYPE(u32, uint32_t)
T_DEF_TYPE(i64, int64_t)
T_DEF_TYPE(u64, uint64_t)
#undef T_DEF_TYPE

/* X(dtype, scalar type, dtype of the comparison mask of equal width) for the types that a kernel computes with.  One that
 * defines T_FEW_TYPES has f32, i32, i64 and truth values alone, and bytes in memory: a compiler takes longer to read the
 * functions of all types than to compile most kernels. */
#define T_EACH_BYTE(X) X(i8, int8_t, i8) X(u8, uint8_t, i8)
#ifdef T_FEW_TYPES
#define T_EACH_FLOAT(X) X(f32, float, i32)
#define T_EACH_SIGNED(X) X(i32, int32_t, i32) X(i64, int64_t, i64)
#define T_EACH_UNSIGNED(X)
#define T_EACH_STORED(X) T_EACH(X) T_EACH_BYTE(X)
#else
#define T_EACH_FLOAT(X) X(f32, float, i32) X(f64, double, i64)
#define T_EACH_SIGNED(X) X(i8, int8_t, i8) X(i16, int16_t, i16) X(i32, int32_t, i32) X(i64, int64_t, i64)
#define T_EACH_UNSIGNED(X) X(u8, uint8_t, i8) X(u16, uint16_t, i16) X(u32, uint32_t, i32) X(u64, uint64_t, i64)
#define T_EACH_STORED(X) T_EACH(X)
#endif
#define T_EACH_INT(X) T_EACH_SIGNED(X) T_EACH_UNSIGNED(X)
#define T_EACH(X) T_EACH_FLOAT(X) T_EACH_INT(X)

/* ---- constants -------------------------------------------------------------------- */

/* x - 0 is x, -0 included, and both compilers make one broadcast of it; gcc makes none of a loop over the lanes. */
#define T_DEF_SPLAT(S, T, M) \
    T_FN S##v t_splat_##S(T x) { return x - (S##v){0}; }
T_EACH(T_DEF_SPLAT)
#undef T_DEF_SPLAT
T_FN i32v t_splat_bool(int x) { return t_splat_i32(x ? -1 : 0); }

/* {0, 1, .., lanes-1}: the offsets of a contiguous access. */
T_FN i64v t_lanes_i64(void) {
#if TORSHC_LANES == 1
    return (i64v){0};
#elif TORSHC_LANES == 4
    return (i64v){0, 1, 2, 3};
#elif TORSHC_LANES == 8
    return (i64v){0, 1, 2, 3, 4, 5, 6, 7};
#elif TORSHC_LANES == 16
    return (i64v){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
#else
#error "TORSHC_LANES must be 1, 4, 8 or 16"
#endif
}

/* The same in lanes of 32 bits, of which a vector is one register. */
T_FN i32v t_lanes_i32(void) { return T_CONV(t_lanes_i64(), i32); }

/* ---- memory ----------------------------------------------------------------------- */

/* Copies n < lanes elements in power-of-two pieces of constant size: no access beyond n and
 * no call of memcpy. */
T_COLD_FN void t_copyn_(unsigned char *to, const unsigned char *from, int64_t n, int size) {
    int64_t at = 0;
    for (int piece = TORSHC_LANES / 2; piece > 0; piece /= 2) {
        if (!(n & piece)) continue;
        __builtin_memcpy(to + at, from + at, (size_t)piece * (size_t)size);
        at += (int64_t)piece * size;
    }
}

/* Pointers need no alignment in load and store; n is 0..lanes, lanes from n on read as 0. */
#define T_DEF_WHOLE(S, T, M) \
    T_FN S##v t_load_##S(const void *p) { S##v r; __builtin_memcpy(&r, p, sizeof r); return r; } \
    T_FN void t_store_##S(void *p, S##v v) { __builtin_memcpy(p, &v, sizeof v); }
T_EACH_STORED(T_DEF_WHOLE)
#undef T_DEF_WHOLE

#define T_DEF_COPIED(S, T, M) \
    T_FN S##v t_someload_##S(const void *p, int64_t n) { \
        S##v r = {0}; \
        if (n > 0) t_copyn_((unsigned char *)&r, (const unsigned char *)p, n, (int)sizeof(T)); \
        return r; \
    } \
    T_FN void t_somestore_##S(void *p, S##v v, int64_t n) { \
        if (n > 0) t_copyn_((unsigned char *)p, (const unsigned char *)&v, n, (int)sizeof(T)); \
    }
/* No sanitizer sees what AVX2's masked accesses touch; those of AVX-512 clang knows. */
#ifdef __has_feature
#if __has_feature(address_sanitizer)
#define T_CHECKED 1
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#define T_CHECKED 1
#endif
#ifdef __has_builtin
#if (TORSHC_LANES == 16 && defined(__AVX512DQ__) && __has_builtin(__builtin_ia32_cvtd2mask512)) || \
    (TORSHC_LANES == 8 && defined(__AVX2__) && !defined(T_CHECKED) && __has_builtin(__builtin_ia32_maskloadps256))
#define T_MASKED 1
#endif
#endif
#ifdef T_MASKED
/* Masked accesses of 4-byte elements are one instruction, which neither compiler finds in vector code. */
T_FN i32v t_lanes_below_(int64_t n) {
    i32v r = {0};
    for (int i = 0; i < TORSHC_LANES; i++) r[i] = i;
    return (i32v)(r < (i32v){0} + (int32_t)n);
}
#if TORSHC_LANES == 16
T_FN f32v t_maskload_(const void *p, i32v m) {
    return (f32v)__builtin_ia32_loadups512_mask(p, (f32v){0}, (uint16_t)__builtin_ia32_cvtd2mask512(m));
}
T_FN void t_maskstore_(void *p, f32v v, i32v m) {
    __builtin_ia32_storeups512_mask(p, v, (uint16_t)__builtin_ia32_cvtd2mask512(m));
}
#else
T_FN f32v t_maskload_(const void *p, i32v m) { return (f32v)__builtin_ia32_maskloadps256(p, m); }
T_FN void t_maskstore_(void *p, f32v v, i32v m) { __builtin_ia32_maskstoreps256(p, m, v); }
#endif
#define T_DEF_SOME(S, T, M) \
    T_FN S##v t_someload_##S(const void *p, int64_t n) { return (S##v)t_maskload_(p, t_lanes_below_(n)); } \
    T_FN void t_somestore_##S(void *p, S##v v, int64_t n) { t_maskstore_(p, (f32v)v, t_lanes_below_(n)); }
#else
#define T_DEF_SOME T_DEF_COPIED
#endif
T_DEF_SOME(f32, float, i32) T_DEF_SOME(i32, int32_t, i32) T_DEF_COPIED(i64, int64_t, i64)
T_EACH_BYTE(T_DEF_COPIED)
#ifndef T_FEW_TYPES
T_DEF_COPIED(i16, int16_t, i16) T_DEF_COPIED(u16, uint16_t, i16)
T_DEF_SOME(u32, uint32_t, i32) T_DEF_COPIED(u64, uint64_t, i64) T_DEF_COPIED(f64, double, i64)
#endif
#undef T_DEF_SOME
#undef T_DEF_COPIED

/* One element is stored as one: a masked store takes several times as long. */
#define T_IS_ONE(n) (__builtin_constant_p(n) && (n) == 1)
#define T_DEF_MEMORY(S, T, M) \
    T_FN S##v t_loadn_##S(const void *p, int64_t n) { \
        return n >= TORSHC_LANES ? t_load_##S(p) : t_someload_##S(p, n); \
    } \
    T_FN void t_storen_##S(void *p, S##v v, int64_t n) { \
        if (n >= TORSHC_LANES) t_store_##S(p, v); \
        else if (T_IS_ONE(n)) __builtin_memcpy(p, &v, sizeof(T)); \
        else t_somestore_##S(p, v, n); \
    } \
    /* Offsets count elements from base, which is aligned to its element. */ \
    T_FN S##v t_gather_##S(const void *base, i64v at) { \
        S##v r = {0}; \
        for (int i = 0; i < TORSHC_LANES; i++) r[i] = ((const T *)base)[at[i]]; \
        return r; \
    } \
    T_FN S##v t_gathern_##S(const void *base, i64v at, int64_t n) { \
        S##v r = {0}; \
        for (int i = 0; i < TORSHC_LANES && i < n; i++) r[i] = ((const T *)base)[at[i]]; \
        return r; \
    } \
    T_FN S##v t_gather32_##S(const void *base, i32v at) { \
        S##v r = {0}; \
        for (int i = 0; i < TORSHC_LANES; i++) r[i] = ((const T *)base)[at[i]]; \
        return r; \
    } \
    T_FN S##v t_gathern32_##S(const void *base, i32v at, int64_t n) { \
        S##v r = {0}; \
        for (int i = 0; i < TORSHC_LANES && i < n; i++) r[i] = ((const T *)base)[at[i]]; \
        return r; \
    } \
    T_FN void t_scatter_##S(void *base, i64v at, S##v v) { \
        for (int i = 0; i < TORSHC_LANES; i++) ((T *)base)[at[i]] = v[i]; \
    } \
    T_FN void t_scattern_##S(void *base, i64v at, S##v v, int64_t n) { \
        for (int i = 0; i < TORSHC_LANES && i < n; i++) ((T *)base)[at[i]] = v[i]; \
    }
T_EACH_STORED(T_DEF_MEMORY)
#undef T_DEF_MEMORY

/* Types of storage are another type in registers; t_decode_ and t_encode_ join them, and kernels hold those that they use. */
T_FN i32v t_decode_bool(u8v v) { return (i32v)(T_CONV(v, i32) != 0); }
T_FN u8v t_encode_bool(i32v m) { return T_CONV(m & 1, u8); }

/* Where instructions convert f16, these names say so.  On x86-64 they are ones that clang cannot look into: of a conversion
 * to float that it knows, it makes comparisons and roundings of halves, which processors without arithmetic of halves do
 * lane by lane.  Builtins, as immintrin.h is long to read; 8: no exceptions, for which clang has no conversion of its own. */
#if TORSHC_LANES == 16 && defined(__AVX512F__)
typedef int16_t t_halfv __attribute__((vector_size(2 * TORSHC_LANES)));
#define T_DECODE_F16(h) (f32v)__builtin_ia32_vcvtph2ps512_mask((t_halfv)(h), (f32v){0}, -1, 8)
#define T_ENCODE_F16(x) (u16v)__builtin_ia32_vcvtps2ph512_mask(x, 0, (t_halfv){0}, -1)
#elif TORSHC_LANES == 8 && defined(__F16C__)
typedef int16_t t_halfv __attribute__((vector_size(2 * TORSHC_LANES)));
#ifdef __clang__
#if !__has_builtin(__builtin_ia32_vcvtph2ps256)
#define T_NO_VCVTPH2PS_
#endif
#endif
T_FN f32v t_from_half_(u16v h) {
#ifdef T_NO_VCVTPH2PS_ /* clang 22 converts vectors of halves instead */
    typedef _Float16 t_wholev __attribute__((vector_size(2 * TORSHC_LANES)));
    f32v x = __builtin_convertvector((t_wholev)h, f32v);
#else
    f32v x = (f32v)__builtin_ia32_vcvtph2ps256((t_halfv)h);
#endif
    __asm__("" : "+x"(x));
    return x;
}
#define T_DECODE_F16(h) t_from_half_(h)
#define T_ENCODE_F16(x) (u16v)__builtin_ia32_vcvtps2ph256(x, 0)
#elif defined(__clang__) && defined(__FLT16_MAX__) && (defined(__F16C__) || defined(__aarch64__))
typedef _Float16 t_halfv __attribute__((vector_size(2 * TORSHC_LANES)));
#define T_DECODE_F16(h) __builtin_convertvector((t_halfv)(h), f32v)
#define T_ENCODE_F16(x) (u16v)__builtin_convertvector(x, t_halfv)
#endif

#if TORSHC_LANES == 16 && defined(__AVX512BF16__)
/* By name, as compilers' builtins for it have many types.  It takes subnormal numbers (class 0x20) for zeros. */
T_FN u16v t_normal_to_bf16_(f32v x) {
    u16v y;
    __asm__("vcvtneps2bf16 %1, %0" : "=v"(y) : "v"(x));
    return y;
}
T_FN u16v t_to_bf16_(f32v x) {
    const u16v y = t_normal_to_bf16_(x);
    if (__builtin_expect(!__builtin_ia32_fpclassps512_mask(x, 0x20, -1), 1)) return y;
    const u32v w = (u32v)x, small = (u32v)((w & 0x7f800000) == 0);
    return T_CONV(((w + 0x7fff + (w >> 16 & 1)) >> 16 & small) | (T_CONV(y, u32) & ~small), u16);
}
/* Kernels whose products take subnormal numbers for zeros store zeros for them: a product with Gelu takes 0.87 of the time so. */
#ifdef T_FLUSHES
#define T_ENCODE_BF16(x) t_normal_to_bf16_(x)
#else
#define T_ENCODE_BF16(x) t_to_bf16_(x)
#endif
#endif

#define T_DEF_LOADS(N, S, U) \
    T_FN S##v t_load_##N(const void *p) { return t_decode_##N(t_load_##U(p)); } \
    T_FN S##v t_loadn_##N(const void *p, int64_t n) { return t_decode_##N(t_loadn_##U(p, n)); } \
    T_FN S##v t_gather_##N(const void *b, i64v at) { return t_decode_##N(t_gather_##U(b, at)); } \
    T_FN S##v t_gathern_##N(const void *b, i64v at, int64_t n) { return t_decode_##N(t_gathern_##U(b, at, n)); } \
    T_FN S##v t_gather32_##N(const void *b, i32v at) { return t_decode_##N(t_gather32_##U(b, at)); } \
    T_FN S##v t_gathern32_##N(const void *b, i32v at, int64_t n) { return t_decode_##N(t_gathern32_##U(b, at, n)); }
#define T_DEF_STORES(N, S, U) \
    T_FN void t_store_##N(void *p, S##v v) { t_store_##U(p, t_encode_##N(v)); } \
    T_FN void t_storen_##N(void *p, S##v v, int64_t n) { t_storen_##U(p, t_encode_##N(v), n); } \
    T_FN void t_scatter_##N(void *b, i64v at, S##v v) { t_scatter_##U(b, at, t_encode_##N(v)); } \
    T_FN void t_scattern_##N(void *b, i64v at, S##v v, int64_t n) { t_scattern_##U(b, at, t_encode_##N(v), n); }
T_DEF_LOADS(bool, i32, u8)
T_DEF_STORES(bool, i32, u8)

/* ---- selection -------------------------------------------------------------------- */

#define T_DEF_SELECT(S, T, M) \
    T_FN S##v t_select_##S(i32v mask, S##v a, S##v b) { \
        M##v m = T_CONV(mask, M); \
        return (S##v)(((M##v)a & m) | ((M##v)b & ~m)); \
    }
T_EACH(T_DEF_SELECT)
#undef T_DEF_SELECT
T_FN i32v t_select_bool(i32v mask, i32v a, i32v b) { return (a & mask) | (b & ~mask); }

/* ---- reductions over the lanes of a register ---------------------------------------- */
/* Pairwise by halves, always in the same order: (v0+v4)+(v2+v6) + ... for 8 lanes. Integers
 * wrap; their product is in t_integer.h, and floats are in t_arith.h. */

#define T_DEF_FOLD(NAME, S, T, EXPR) \
    T_FN T t_##NAME##_##S(S##v v) { \
        T lane[TORSHC_LANES]; \
        __builtin_memcpy(lane, &v, sizeof v); \
        for (int half = TORSHC_LANES / 2; half > 0; half /= 2) \
            for (int i = 0; i < half; i++) { \
                const T a = lane[i], b = lane[i + half]; \
                lane[i] = (T)(EXPR); \
            } \
        return lane[0]; \
    }
#define T_DEF_REDUCE_INT(S, T, M) \
    T_DEF_FOLD(hsum, S, T, (uint64_t)a + (uint64_t)b) \
    T_DEF_FOLD(hmax, S, T, a >= b ? a : b) \
    T_DEF_FOLD(hmin, S, T, a <= b ? a : b)
T_EACH_INT(T_DEF_REDUCE_INT)
#undef T_DEF_REDUCE_INT

T_DEF_FOLD(hor_, i32, int32_t, a | b)
T_DEF_FOLD(hor_, i64, int64_t, a | b)
T_DEF_FOLD(hand_, i32, int32_t, a & b)
#undef T_DEF_FOLD
/* 1 if any (all) lanes of a mask are set, else 0. */
T_FN int t_hany_bool(i32v m) { return t_hor__i32(m) != 0; }
T_FN int t_hall_bool(i32v m) { return t_hand__i32(m) != 0; }

#include "t_cast.h"

#endif
