/* What every generated kernel includes: vectors, scalar functions, index arithmetic. */
#ifndef T_KERNEL_H
#define T_KERNEL_H

#include "t_math.h"
#include "t_shuffle.h"

/* Index arithmetic rounds down; a division by 0 gives 0, which only an empty tensor ever asks for. It may be about data
 * too, so it wraps: the least number has no negative, and its quotient by -1 would trap. */
T_FN int64_t t_ineg_(int64_t a) { return (int64_t)(0 - (uint64_t)a); }
T_FN int64_t t_iabs(int64_t a) { return a < 0 ? t_ineg_(a) : a; }
T_FN int64_t t_iquot(int64_t a, int64_t b) { return b == 0 ? 0 : b == -1 ? t_ineg_(a) : a / b; }
T_FN int64_t t_idiv(int64_t a, int64_t b) {
    if (b == 0 || b == -1) return t_iquot(a, b);
    return a / b - ((a % b != 0) & ((a < 0) != (b < 0)));
}
T_FN int64_t t_imod(int64_t a, int64_t b) { return b == 0 ? a : b == -1 ? 0 : a - t_idiv(a, b) * b; }
T_FN int64_t t_imin(int64_t a, int64_t b) { return a < b ? a : b; }
T_FN int64_t t_imax(int64_t a, int64_t b) { return a > b ? a : b; }

/* Asks for the line of memory of p[at], which need not be there, to read it or to write it soon. */
#define T_FETCH(p, at) __builtin_prefetch((const void *)((uintptr_t)(p) + sizeof *(p) * (uintptr_t)(at)), 0)
#define T_FETCH_FAR(p, at) __builtin_prefetch((const void *)((uintptr_t)(p) + sizeof *(p) * (uintptr_t)(at)), 0, 2)
#define T_FETCH_OUT(p, at) __builtin_prefetch((const void *)((uintptr_t)(p) + sizeof *(p) * (uintptr_t)(at)), 1)

/* Stores a vector past the caches, where it fills a line: its lines are not read before, and what lies in the caches stays.
 * A kernel that does so ends with T_STREAMED, behind which other threads see what was stored. */
#if defined __AVX512F__ && TORSHC_LANES == 16
#define T_STREAMED __builtin_ia32_sfence()
T_FN void t_stream_f32(float *p, f32v v) {
    if ((uintptr_t)p % sizeof v) t_store_f32(p, v);
#ifdef __clang__
    else __builtin_nontemporal_store(v, (f32v *)p);
#else
    else __builtin_ia32_movntps512(p, v);
#endif
}
#else
#define T_STREAMED (void)0
T_FN void t_stream_f32(float *p, f32v v) { t_store_f32(p, v); }
#endif

/* Mask of the first n lanes. */
T_FN i32v t_first_bool(int64_t n) {
    i32v r = {0};
    for (int i = 0; i < TORSHC_LANES; i++) r[i] = i < n ? -1 : 0;
    return r;
}

/* Mask of the lanes i with d + i * step >= 0; a step is below 2^16. */
T_FN i32v t_steps_bool(int64_t d, int32_t step) {
    const int32_t from = (int32_t)t_imax(-(1 << 30), t_imin(d, 1 << 30));
    return (i32v)(t_splat_i32(from) + T_CONV(t_lanes_i64(), i32) * step >= 0);
}

/* Loads of the lanes whose mask is set; the others are 0 and their memory is not touched. */
#define T_DEF_LOADM(N, S, T) \
    T_FN S##v t_loadm_##N(const T *p, i32v mask) { \
        if (t_hall_bool(mask)) return t_load_##N(p); \
        T r[TORSHC_LANES]; \
        for (int i = 0; i < TORSHC_LANES; i++) r[i] = mask[i] ? p[i] : (T)0; \
        return t_load_##N(r); \
    }
#ifdef T_MASKED
#define T_DEF_LOADM4(N, S, T) \
    T_FN S##v t_loadm_##N(const T *p, i32v mask) { return (S##v)t_maskload_(p, mask); }
#else
#define T_DEF_LOADM4 T_DEF_LOADM
#endif
T_DEF_LOADM4(f32, f32, float) T_DEF_LOADM4(i32, i32, int32_t) T_DEF_LOADM(i64, i64, int64_t)
T_DEF_LOADM(i8, i8, int8_t) T_DEF_LOADM(u8, u8, uint8_t) T_DEF_LOADM(bool, i32, uint8_t)
#ifndef T_FEW_TYPES
T_DEF_LOADM(i16, i16, int16_t) T_DEF_LOADM(u16, u16, uint16_t)
T_DEF_LOADM4(u32, u32, uint32_t) T_DEF_LOADM(u64, u64, uint64_t) T_DEF_LOADM(f64, f64, double)
#endif
#undef T_DEF_LOADM4

/* t_stepm_f32(p, step, mask): p[0], p[step], p[2 * step] and so on, t_gatherm_f32 of any places, of the lanes that are set. */
#define T_DEF_STEPM_(N, S, T, TWICE) \
    T_FN S##v t_stepm_##N(const T *p, int64_t step, i32v mask) { \
        TWICE \
        T r[TORSHC_LANES]; \
        for (int i = 0; i < TORSHC_LANES; i++) r[i] = mask[i] ? p[i * step] : (T)0; \
        return t_load_##N(r); \
    }
#define T_DEF_STEPM(N, S, T) T_DEF_STEPM_(N, S, T, )
#ifdef T_MASKED
#define T_DEF_STEPM4(N, S, T) T_DEF_STEPM_(N, S, T, if (step == 2) return (S##v)t_maskload2_(p, mask);)
#else
#define T_DEF_STEPM4 T_DEF_STEPM
#endif

#define T_DEF_MASKED(N, S, T) \
    T_FN S##v t_gatherm_##N(const T *p, i64v at, i32v mask) { \
        T r[TORSHC_LANES]; \
        for (int i = 0; i < TORSHC_LANES; i++) r[i] = mask[i] ? p[at[i]] : (T)0; \
        return t_load_##N(r); \
    }
#define T_DEF_MASKED_PLAIN(S, T, M) T_DEF_MASKED(S, S, T)
T_EACH_STORED(T_DEF_MASKED_PLAIN)
T_DEF_MASKED(bool, i32, uint8_t)
#undef T_DEF_MASKED_PLAIN
T_DEF_STEPM4(f32, f32, float) T_DEF_STEPM4(i32, i32, int32_t) T_DEF_STEPM(i64, i64, int64_t)
T_DEF_STEPM(i8, i8, int8_t) T_DEF_STEPM(u8, u8, uint8_t) T_DEF_STEPM(bool, i32, uint8_t)
#ifndef T_FEW_TYPES
T_DEF_STEPM(i16, i16, int16_t) T_DEF_STEPM(u16, u16, uint16_t)
T_DEF_STEPM4(u32, u32, uint32_t) T_DEF_STEPM(u64, u64, uint64_t) T_DEF_STEPM(f64, f64, double)
#endif
#undef T_DEF_STEPM4

/* All loads of a type of storage, of which kernels read elements: T is the type of these in C. */
#define T_DEF_READS(N, S, U, T) \
    T_DEF_LOADS(N, S, U) \
    T_DEF_STEPS_OF(N, S, U) \
    T_DEF_LOADM(N, S, T) \
    T_DEF_STEPM(N, S, T) \
    T_DEF_MASKED(N, S, T) \
    T_FN S##v t_splat_##N(const T *p) { return t_decode_##N(t_splat_##U(*p)); }

#endif
