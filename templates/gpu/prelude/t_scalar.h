/* Scalar prelude of generated kernels: memory, casts, comparisons, integers, index arithmetic, one element at a time.
 *
 * The counterpart of the C target's vector prelude (t_vec.h, t_arith.h, t_integer.h, t_cast.h, t_math*.h): the same
 * names with the same meaning in every corner.  It is written in what C11, CUDA C++17 and MSL (C++14) share: no
 * restrict, no designated initialisers, no unions, no hexadecimal floats, no long long, no pointers to locals.
 *
 * A target's header may define, before it includes this one:
 *   T_FN                      how a function begins
 *   T_GLOBAL                  address space of pointers to buffers (`device` in MSL)
 *   T_HAS_F64                 0 where there is no double
 *   T_INDEX                   type of index arithmetic, int or int64_t
 *   T_BITS_F32, T_FLOAT_U32   the bits of a float and back
 *   T_DECODE_F16, T_ENCODE_F16, T_ENCODE_BF16   conversions that are instructions; others are formulas in t_halves.h,
 *                             which is printed for each target (torshc/expr/formulas_narrow.py)
 *   T_LIB_f32, T_LIB_f64      T_LIB_f32(exp) names the library's function in f32
 *   T_PLAIN_f32, T_PLAIN_f64  the same for those that are exact (floor, fabs, fma)
 *   T_FMA_f32, T_FMA_f64      a multiply-add, fused where the machine has it
 *   T_MAX_f32, T_MIN_f32      the larger and the smaller, NaN if either is, where the machine has that
 *   T_LIB_LACKS               1 where the library has no erf, expm1 and log1p in f32, or is worse than 4 ULP
 *
 * Statements of kernels declare parts of indices with `auto`, as C++ and MSL have it; a target in C defines it, after
 * this header, as __auto_type, since C11 would make them int.
 *
 * Booleans in registers are int, 0 or 1; in memory uint8 0 or 1.  f16 and bf16 exist in memory only, as uint16_t: their
 * registers are float.  Conversions of narrower types stand in the kernels that use them.
 */
#ifndef T_SCALAR_H
#define T_SCALAR_H

#ifndef T_FN
#include <math.h>
#include <stdint.h>
#include <string.h>
#define T_FN static inline
#endif
#ifndef T_GLOBAL
#define T_GLOBAL
#endif
#ifndef T_HAS_F64
#define T_HAS_F64 1
#endif
#ifndef T_INDEX
#define T_INDEX int64_t
#endif
#ifndef T_SIZE_FN
#define T_SIZE_FN T_FN /* of functions of sizes, which launchers compute too */
#endif

/* X(dtype, scalar type) */
#if T_HAS_F64
#define T_EACH_FLOAT(X) X(f32, float) X(f64, double)
#else
#define T_EACH_FLOAT(X) X(f32, float)
#endif
#define T_EACH_INT(X) \
    X(i8, int8_t) X(u8, uint8_t) X(i16, int16_t) X(u16, uint16_t) X(i32, int32_t) X(u32, uint32_t) X(i64, int64_t) \
    X(u64, uint64_t)
#define T_EACH(X) T_EACH_FLOAT(X) T_EACH_INT(X)

/* ---- bits --------------------------------------------------------------------------------- */

#ifndef T_BITS_F32
T_FN uint32_t t_bits_f32_(float x) {
    uint32_t r;
    memcpy(&r, &x, sizeof r);
    return r;
}
T_FN float t_float_u32_(uint32_t u) {
    float r;
    memcpy(&r, &u, sizeof r);
    return r;
}
#define T_BITS_F32(x) t_bits_f32_(x)
#define T_FLOAT_U32(u) t_float_u32_(u)
#endif
#define T_INF_F32 T_FLOAT_U32(0x7f800000u)
#define T_NAN_F32 T_FLOAT_U32(0x7fc00000u)
#define T_INF_F64 ((double)T_INF_F32)
#define T_NAN_F64 ((double)T_NAN_F32)

/* ---- memory --------------------------------------------------------------------------------- */

#define T_DEF_MEMORY(S, T) \
    T_FN T t_load_##S(const T_GLOBAL T *p) { return *p; } \
    T_FN void t_store_##S(T_GLOBAL T *p, T v) { *p = v; }
T_EACH(T_DEF_MEMORY)
#undef T_DEF_MEMORY
T_FN int t_load_bool(const T_GLOBAL uint8_t *p) { return *p != 0; }
T_FN void t_store_bool(T_GLOBAL uint8_t *p, int v) { *p = (uint8_t)(v != 0); }

/* ---- selection, comparisons, logic ------------------------------------------------------------ */

#define T_DEF_COMPARE(S, T) \
    T_FN T t_select_##S(int c, T a, T b) { return c ? a : b; } \
    T_FN int t_lt_##S(T a, T b) { return a < b; } \
    T_FN int t_le_##S(T a, T b) { return a <= b; } \
    T_FN int t_gt_##S(T a, T b) { return a > b; } \
    T_FN int t_ge_##S(T a, T b) { return a >= b; } \
    T_FN int t_eq_##S(T a, T b) { return a == b; } \
    T_FN int t_ne_##S(T a, T b) { return a != b; }
T_EACH(T_DEF_COMPARE)
#undef T_DEF_COMPARE

T_FN int t_select_bool(int c, int a, int b) { return c ? a : b; }
T_FN int t_and_bool(int a, int b) { return a & b; }
T_FN int t_or_bool(int a, int b) { return a | b; }
T_FN int t_xor_bool(int a, int b) { return a ^ b; }
T_FN int t_not_bool(int a) { return !a; }
T_FN int t_eq_bool(int a, int b) { return a == b; }
T_FN int t_ne_bool(int a, int b) { return a != b; }

/* ---- casts: t_cast_<from>_<to> ------------------------------------------------------------------ */

/* Integer to integer keeps the low bits; to float rounds to nearest even; to bool is != 0. */
#define T_DEF_CAST(F, FT, S, ST) \
    T_FN ST t_cast_##F##_##S(FT v) { return (ST)v; }
#define T_DEF_CASTS_INT(F, T) \
    T_DEF_CAST(F, T, i8, int8_t) T_DEF_CAST(F, T, u8, uint8_t) T_DEF_CAST(F, T, i16, int16_t) \
    T_DEF_CAST(F, T, u16, uint16_t) T_DEF_CAST(F, T, i32, int32_t) T_DEF_CAST(F, T, u32, uint32_t) \
    T_DEF_CAST(F, T, i64, int64_t) T_DEF_CAST(F, T, u64, uint64_t) T_DEF_CAST(F, T, f32, float)
T_EACH_INT(T_DEF_CASTS_INT)
T_DEF_CASTS_INT(bool, int)
T_DEF_CAST(f32, float, f32, float)
T_DEF_CAST(bool, int, bool, int)
#if T_HAS_F64
#define T_DEF_CAST_F64(F, T) T_DEF_CAST(F, T, f64, double)
T_EACH(T_DEF_CAST_F64)
T_DEF_CAST_F64(bool, int)
T_DEF_CAST(f64, double, f32, float)
#undef T_DEF_CAST_F64
#endif
#undef T_DEF_CASTS_INT
#undef T_DEF_CAST

#define T_DEF_CAST_BOOL(F, T) \
    T_FN int t_cast_##F##_bool(T v) { return v != 0; }
T_EACH(T_DEF_CAST_BOOL)
#undef T_DEF_CAST_BOOL

/* Float to integer truncates; what C leaves undefined is defined: values out of range saturate, NaN gives 0.  Both LOW,
 * the smallest value, and END, one more than the largest, are powers of two (or 0), so exact as floats. */
#define T_I64_MIN ((int64_t)((uint64_t)1 << 63))
#define T_DEF_TRUNC(F, FT, S, ST, LOW, MIN, END, MAX) \
    T_FN ST t_cast_##F##_##S(FT x) { \
        return x != x ? (ST)0 : x <= (FT)LOW ? (ST)(MIN) : x >= (FT)END ? (ST)(MAX) : (ST)x; \
    }
#define T_DEF_TRUNCS(F, T) \
    T_DEF_TRUNC(F, T, i8, int8_t, -128, -128, 128, 127) T_DEF_TRUNC(F, T, u8, uint8_t, 0, 0, 256, 255) \
    T_DEF_TRUNC(F, T, i16, int16_t, -32768, -32768, 32768, 32767) \
    T_DEF_TRUNC(F, T, u16, uint16_t, 0, 0, 65536, 65535) \
    T_DEF_TRUNC(F, T, i32, int32_t, -2147483648.0f, -2147483647 - 1, 2147483648.0f, 2147483647) \
    T_DEF_TRUNC(F, T, u32, uint32_t, 0, 0, 4294967296.0f, 0xffffffffu) \
    T_DEF_TRUNC(F, T, i64, int64_t, -9223372036854775808.0f, T_I64_MIN, 9223372036854775808.0f, ~T_I64_MIN) \
    T_DEF_TRUNC(F, T, u64, uint64_t, 0, 0, 18446744073709551616.0f, ~(uint64_t)0)
T_EACH_FLOAT(T_DEF_TRUNCS)
#undef T_DEF_TRUNC
#undef T_DEF_TRUNCS

/* ---- integers: wrap, and never trap or are undefined --------------------------------------------- */

/* Division by zero gives 0, as do all remainders by zero; the minimum divided by -1 wraps to itself.  W is an unsigned
 * type that C does not promote: products of uint16_t would overflow int.
 * X(dtype, type, unsigned type, W, bits) */
#define T_EACH_SIGNED_WIDE(X) \
    X(i8, int8_t, uint8_t, uint32_t, 8) X(i16, int16_t, uint16_t, uint32_t, 16) \
    X(i32, int32_t, uint32_t, uint32_t, 32) X(i64, int64_t, uint64_t, uint64_t, 64)
#define T_EACH_UNSIGNED_WIDE(X) \
    X(u8, uint8_t, uint8_t, uint32_t, 8) X(u16, uint16_t, uint16_t, uint32_t, 16) \
    X(u32, uint32_t, uint32_t, uint32_t, 32) X(u64, uint64_t, uint64_t, uint64_t, 64)

#define T_DEF_INT(S, T, U, W, BITS, FAR) \
    T_FN T t_add_##S(T a, T b) { return (T)((W)a + (W)b); } \
    T_FN T t_sub_##S(T a, T b) { return (T)((W)a - (W)b); } \
    T_FN T t_mul_##S(T a, T b) { return (T)((W)a * (W)b); } \
    T_FN T t_fma_##S(T a, T b, T c) { return (T)((W)a * (W)b + (W)c); } \
    T_FN T t_neg_##S(T a) { return (T)((W)0 - (W)a); } \
    T_FN T t_and_##S(T a, T b) { return (T)(a & b); } \
    T_FN T t_or_##S(T a, T b) { return (T)(a | b); } \
    T_FN T t_xor_##S(T a, T b) { return (T)(a ^ b); } \
    T_FN T t_not_##S(T a) { return (T)~a; } \
    T_FN T t_max_##S(T a, T b) { return a > b ? a : b; } \
    T_FN T t_min_##S(T a, T b) { return a < b ? a : b; } \
    /* By the width or more, or a negative amount: 0 to the left, nothing but the sign to the right. */ \
    T_FN T t_shl_##S(T a, T by) { return (U)by < BITS ? (T)((W)(U)a << (U)by) : (T)0; } \
    T_FN T t_shr_##S(T a, T by) { return (U)by < BITS ? (T)(a >> (U)by) : (T)(FAR); }

#define T_DEF_SIGNED(S, T, U, W, BITS) \
    T_DEF_INT(S, T, U, W, BITS, a >> (BITS - 1)) \
    T_FN T t_abs_##S(T a) { return a < 0 ? t_neg_##S(a) : a; } \
    T_FN T t_sign_##S(T a) { return (T)((a > 0) - (a < 0)); } \
    T_FN T t_div_##S(T a, T b) { return b == 0 ? (T)0 : b == -1 ? t_neg_##S(a) : (T)(a / b); } \
    T_FN T t_fmod_##S(T a, T b) { return b == 0 || b == -1 ? (T)0 : (T)(a % b); } \
    T_FN T t_mod_##S(T a, T b) { \
        const T r = t_fmod_##S(a, b); \
        return r != 0 && (r ^ b) < 0 ? (T)(r + b) : r; \
    } \
    T_FN T t_floordiv_##S(T a, T b) { \
        const T r = t_fmod_##S(a, b), q = t_div_##S(a, b); \
        return r != 0 && (r ^ b) < 0 ? (T)(q - 1) : q; \
    } \
    /* 1 / base^|n| truncated for negative n: 1 and -1 have one, all others (0 too) give 0. */ \
    T_FN T t_pow_##S(T base, T n) { \
        W r = 1, b = (W)base; \
        if (n < 0) return (T)(base == 1 ? 1 : base == -1 ? (n & 1 ? -1 : 1) : 0); \
        for (; n > 0; n = (T)(n >> 1), b *= b) r *= n & 1 ? b : 1; \
        return (T)r; \
    }
T_EACH_SIGNED_WIDE(T_DEF_SIGNED)
#undef T_DEF_SIGNED

#define T_DEF_UNSIGNED(S, T, U, W, BITS) \
    T_DEF_INT(S, T, U, W, BITS, 0) \
    T_FN T t_abs_##S(T a) { return a; } \
    T_FN T t_sign_##S(T a) { return (T)(a != 0); } \
    T_FN T t_div_##S(T a, T b) { return b == 0 ? (T)0 : (T)(a / b); } \
    T_FN T t_floordiv_##S(T a, T b) { return t_div_##S(a, b); } \
    T_FN T t_fmod_##S(T a, T b) { return b == 0 ? (T)0 : (T)(a % b); } \
    T_FN T t_mod_##S(T a, T b) { return t_fmod_##S(a, b); } \
    T_FN T t_pow_##S(T base, T n) { \
        W r = 1, b = base; \
        for (; n > 0; n = (T)(n >> 1), b *= b) r *= n & 1 ? b : 1; \
        return (T)r; \
    }
T_EACH_UNSIGNED_WIDE(T_DEF_UNSIGNED)
#undef T_DEF_UNSIGNED
#undef T_DEF_INT

/* ---- indices ------------------------------------------------------------------------------------- */

/* Index arithmetic rounds down; a division by 0 gives 0, which only an empty tensor ever asks for. It may be about data
 * too, so it wraps: the least number has no negative. */
typedef T_INDEX t_index;
T_SIZE_FN t_index t_ineg_(t_index a) { return (t_index)(0 - (uint64_t)a); }
T_SIZE_FN t_index t_iabs(t_index a) { return a < 0 ? t_ineg_(a) : a; }
T_SIZE_FN t_index t_iquot(t_index a, t_index b) { return b == 0 ? 0 : b == -1 ? t_ineg_(a) : a / b; }
T_SIZE_FN t_index t_idiv(t_index a, t_index b) {
    if (b == 0 || b == -1) return t_iquot(a, b);
    return a / b - ((a % b != 0) & ((a < 0) != (b < 0)));
}
T_SIZE_FN t_index t_imod(t_index a, t_index b) { return b == 0 ? a : b == -1 ? 0 : a - t_idiv(a, b) * b; }
T_SIZE_FN t_index t_imin(t_index a, t_index b) { return a < b ? a : b; }
T_SIZE_FN t_index t_imax(t_index a, t_index b) { return a > b ? a : b; }
/* `total` cut in `parts` near-equal pieces: start of piece i; the first total % parts are one longer. */
T_FN t_index t_cut(t_index total, t_index parts, t_index i) {
    return i * (total / parts) + t_imin(i, total % parts);
}

#include "t_scalar_math.h"

#include "t_halves.h"

#endif
