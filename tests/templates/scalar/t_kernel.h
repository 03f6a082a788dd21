/* The scalar prelude in the names that math_harness.c calls: vectors of one lane. */
#ifndef SCALAR_T_KERNEL_H
#define SCALAR_T_KERNEL_H

#include "t_scalar.h"
#include "t_functions.h"

#define TORSHC_LANES 1
#define t_exp_low_f32 t_exp_f32 /* only vectors have a shorter one for x <= 0 */

/* X(dtype, type in memory, type in registers) */
#define EACH_STORED(X) \
    X(f16, uint16_t, float) X(bf16, uint16_t, float) X(f8e4m3fn, uint8_t, float) X(f8e4m3fnuz, uint8_t, float) \
    X(f8e5m2, uint8_t, float) X(f8e5m2fnuz, uint8_t, float) X(f8e8m0, uint8_t, float) X(f4e2m1, uint8_t, float) \
    X(i4, uint8_t, int8_t) X(u4, uint8_t, uint8_t) X(i2, uint8_t, int8_t) X(u2, uint8_t, uint8_t)
#define EACH_MEMORY(X) \
    X(f32, float, float) X(f64, double, double) X(i8, int8_t, int8_t) X(u8, uint8_t, uint8_t) \
    X(i16, int16_t, int16_t) X(u16, uint16_t, uint16_t) X(i32, int32_t, int32_t) X(u32, uint32_t, uint32_t) \
    X(i64, int64_t, int64_t) X(u64, uint64_t, uint64_t) X(bool, uint8_t, int) EACH_STORED(X)

#define DEF_ACCESS(S, M, T) \
    T_FN T t_load_##S(const M *p) { return t_decode_##S(*p); } \
    T_FN void t_store_##S(M *p, T v) { *p = t_encode_##S(v); }
EACH_STORED(DEF_ACCESS)

/* Buffers of the harness may lie anywhere. */
#define DEF_MEMORY(S, M, T) \
    T_FN T t_loadn_##S(const void *p, int64_t n) { \
        M element; \
        (void)n; \
        memcpy(&element, p, sizeof element); \
        return t_load_##S(&element); \
    } \
    T_FN void t_storen_##S(void *p, T v, int64_t n) { \
        M element; \
        (void)n; \
        t_store_##S(&element, v); \
        memcpy(p, &element, sizeof element); \
    } \
    T_FN T t_gather_##S(const void *p, int64_t at) { return t_load_##S((const M *)p + at); } \
    T_FN T t_gathern_##S(const void *p, int64_t at, int64_t n) { return t_loadn_##S((const M *)p + at, n); } \
    T_FN void t_scatter_##S(void *p, int64_t at, T v) { t_store_##S((M *)p + at, v); } \
    T_FN void t_scattern_##S(void *p, int64_t at, T v, int64_t n) { t_storen_##S((M *)p + at, v, n); }
EACH_MEMORY(DEF_MEMORY)

/* Of one lane every reduction is the lane. */
#define DEF_FOLDS(S, T) \
    T_FN T t_hsum_##S(T v) { return v; } \
    T_FN T t_hprod_##S(T v) { return v; } \
    T_FN T t_hmax_##S(T v) { return v; } \
    T_FN T t_hmin_##S(T v) { return v; }
T_EACH(DEF_FOLDS)
T_FN int64_t t_lanes_i64(void) { return 0; }

typedef float f32v;
typedef double f64v;
typedef int8_t i8v;
typedef uint8_t u8v;
typedef int16_t i16v;
typedef uint16_t u16v;
typedef int i32v; /* also a truth value */
typedef uint32_t u32v;
typedef int64_t i64v;
typedef uint64_t u64v;

#endif
