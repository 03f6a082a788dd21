/* Integer arithmetic on registers: wraps, and never traps or is undefined.
 *
 * Division by zero gives 0, as do all remainders by zero; the minimum divided by -1 wraps to
 * itself.  Shifts by the width or more (or by a negative amount) give 0.
 */
#ifndef T_INTEGER_H
#define T_INTEGER_H

#include "t_arith.h"

/* X(dtype, scalar, mask dtype, unsigned dtype, unsigned scalar) */
#ifdef T_FEW_TYPES
#define T_EACH_SIGNED_PAIR(X) X(i32, int32_t, i32, u32, uint32_t) X(i64, int64_t, i64, u64, uint64_t)
#define T_EACH_UNSIGNED_PAIR(X)
#else
#define T_EACH_SIGNED_PAIR(X) \
    X(i8, int8_t, i8, u8, uint8_t) X(i16, int16_t, i16, u16, uint16_t) \
    X(i32, int32_t, i32, u32, uint32_t) X(i64, int64_t, i64, u64, uint64_t)
#define T_EACH_UNSIGNED_PAIR(X) \
    X(u8, uint8_t, i8, u8, uint8_t) X(u16, uint16_t, i16, u16, uint16_t) \
    X(u32, uint32_t, i32, u32, uint32_t) X(u64, uint64_t, i64, u64, uint64_t)
#endif

#define T_DEF_INT(S, T, M, U, UT) \
    T_FN S##v t_add_##S(S##v a, S##v b) { return (S##v)((U##v)a + (U##v)b); } \
    T_FN S##v t_sub_##S(S##v a, S##v b) { return (S##v)((U##v)a - (U##v)b); } \
    T_FN S##v t_mul_##S(S##v a, S##v b) { return (S##v)((U##v)a * (U##v)b); } \
    T_FN S##v t_fma_##S(S##v a, S##v b, S##v c) { return t_add_##S(t_mul_##S(a, b), c); } \
    /* Of registers, not of lanes: clang 16 makes 0 of a product of integers of which some are known to be equal. */ \
    T_FN T t_hprod_##S(S##v v) { \
        for (int half = TORSHC_LANES / 2; half > 0; half /= 2) { \
            S##v upper = v; \
            __builtin_memcpy(&upper, (const char *)&v + half * sizeof(T), half * sizeof(T)); \
            v = t_mul_##S(v, upper); \
        } \
        return v[0]; \
    } \
    T_FN S##v t_neg_##S(S##v a) { return (S##v)((U##v){0} - (U##v)a); } \
    T_FN S##v t_and_##S(S##v a, S##v b) { return a & b; } \
    T_FN S##v t_or_##S(S##v a, S##v b) { return a | b; } \
    T_FN S##v t_xor_##S(S##v a, S##v b) { return a ^ b; } \
    T_FN S##v t_not_##S(S##v a) { return ~a; } \
    T_FN S##v t_blend_##S##_(M##v m, S##v a, S##v b) { return (S##v)(((M##v)a & m) | ((M##v)b & ~m)); } \
    T_FN S##v t_max_##S(S##v a, S##v b) { return t_blend_##S##_((M##v)(a > b), a, b); } \
    T_FN S##v t_min_##S(S##v a, S##v b) { return t_blend_##S##_((M##v)(a < b), a, b); } \
    T_FN S##v t_shl_##S(S##v a, S##v by) { \
        const UT width = (UT)(8 * sizeof(T)), low = (UT)(width - 1); \
        return (S##v)(((U##v)a << ((U##v)by & low)) & (U##v)((U##v)by < width)); \
    } \
    T_FN S##v t_shr_##S(S##v a, S##v by) { \
        const UT width = (UT)(8 * sizeof(T)), low = (UT)(width - 1); \
        /* A shift by the width or more leaves only the sign: by width - 1, then nothing but the sign is kept. */ \
        const U##v far = (U##v)((U##v)by >= width), by_low = ((U##v)by & low & ~far) | (low & far); \
        const U##v negative = (U##v)(a < 0); \
        return (S##v)((U##v)(a >> (S##v)by_low) & (~far | negative)); \
    }
T_EACH_SIGNED_PAIR(T_DEF_INT)
T_EACH_UNSIGNED_PAIR(T_DEF_INT)
#undef T_DEF_INT

/* Division by what does not trap: neither 0 nor -1. */
#define T_DEF_QUOTIENT(S) \
    T_FN S##v t_quotient_##S##_(S##v a, S##v b) { return a / b; } \
    T_FN S##v t_remainder_##S##_(S##v a, S##v b) { return a % b; }
#if TORSHC_LANES > 1
/* No instruction divides integers.  Floats hold those of 16 bits and doubles those of 32, and the whole part of a quotient
 * is exact: see below for those of 64.  By a constant compilers multiply. */
#define T_DEF_FLOATED(S, INT, FLOAT) \
    T_FN S##v t_quotient_##S##_(S##v a, S##v b) { \
        if (__builtin_constant_p(b[0])) return a / b; \
        const FLOAT##v q = T_CONV(T_CONV(a, INT), FLOAT) / T_CONV(T_CONV(b, INT), FLOAT); \
        return T_CONV(T_CONV(q, INT), S); \
    } \
    T_FN S##v t_remainder_##S##_(S##v a, S##v b) { return t_sub_##S(a, t_mul_##S(t_quotient_##S##_(a, b), b)); }
T_DEF_FLOATED(i32, i32, f64)
#ifndef T_FEW_TYPES
T_DEF_FLOATED(i8, i32, f32)
T_DEF_FLOATED(u8, i32, f32)
T_DEF_FLOATED(i16, i32, f32)
T_DEF_FLOATED(u16, i32, f32)
T_DEF_FLOATED(u32, u32, f64)
#endif
#undef T_DEF_FLOATED
#else
T_DEF_QUOTIENT(i32)
#ifndef T_FEW_TYPES
T_DEF_QUOTIENT(i8)
T_DEF_QUOTIENT(u8)
T_DEF_QUOTIENT(i16)
T_DEF_QUOTIENT(u16)
T_DEF_QUOTIENT(u32)
#endif
#endif
#ifndef T_FEW_TYPES
T_DEF_QUOTIENT(u64)
#endif
#if TORSHC_LANES > 1 && defined(__AVX512DQ__) && defined(__clang__) /* gcc 12 makes slower code of it */
/* No instruction divides integers, but some convert those of 64 bits to doubles and back.  From -2^51 to 2^51 that is
 * exact, and so is the whole part of the quotient: a fraction is 1/b or more below the next whole number, and doubles
 * lie less than 1/b apart there. */
T_FN i64v t_quotient_i64_(i64v a, i64v b) {
    const uint64_t half = 1ull << 51;
    const i64v far = (i64v)((((u64v)a + half) | ((u64v)b + half)) >> 52);
    if (__builtin_expect(t_hor__i64(far) != 0, 0)) return a / b;
    return __builtin_convertvector(__builtin_convertvector(a, f64v) / __builtin_convertvector(b, f64v), i64v);
}
T_FN i64v t_remainder_i64_(i64v a, i64v b) { return t_sub_i64(a, t_mul_i64(t_quotient_i64_(a, b), b)); }
#else
T_DEF_QUOTIENT(i64)
#endif
#undef T_DEF_QUOTIENT

#define T_DEF_SIGNED(S, T, M, U, UT) \
    T_FN S##v t_abs_##S(S##v a) { return t_blend_##S##_((M##v)(a < 0), t_neg_##S(a), a); } \
    T_FN S##v t_sign_##S(S##v a) { return (S##v)(a < 0) - (S##v)(a > 0); } \
    /* The divisor with 0 and -1, which would trap, replaced by 1. */ \
    T_FN S##v t_divisor_##S##_(S##v b) { \
        return t_blend_##S##_((M##v)(b == 0) | (M##v)(b == -1), t_splat_##S(1), b); \
    } \
    T_FN S##v t_div_##S(S##v a, S##v b) { \
        S##v q = t_quotient_##S##_(a, t_divisor_##S##_(b)); \
        q = t_blend_##S##_((M##v)(b == -1), t_neg_##S(a), q); \
        return q & (S##v)(b != 0); \
    } \
    T_FN S##v t_fmod_##S(S##v a, S##v b) { return t_remainder_##S##_(a, t_divisor_##S##_(b)); } \
    T_FN S##v t_mod_##S(S##v a, S##v b) { \
        S##v r = t_fmod_##S(a, b); \
        return t_add_##S(r, b & (S##v)(r != 0) & (S##v)((r ^ b) < 0)); \
    } \
    T_FN S##v t_floordiv_##S(S##v a, S##v b) { \
        S##v r = t_fmod_##S(a, b); \
        return t_add_##S(t_div_##S(a, b), (S##v)(r != 0) & (S##v)((r ^ b) < 0)); \
    } \
    /* 1 / base^|n| truncated for negative n: 1 and -1 have one, all others (0 too) give 0. */ \
    T_FN T t_pow_##S##_(T base, T n) { \
        if (n < 0) return base == 1 ? 1 : base == -1 ? (T)(n & 1 ? -1 : 1) : 0; \
        uint64_t r = 1, b = (uint64_t)base; \
        for (; n > 0; n = (T)(n >> 1), b *= b) r *= n & 1 ? b : 1; \
        return (T)r; \
    }
T_EACH_SIGNED_PAIR(T_DEF_SIGNED)
#undef T_DEF_SIGNED

#define T_DEF_UNSIGNED(S, T, M, U, UT) \
    T_FN S##v t_abs_##S(S##v a) { return a; } \
    T_FN S##v t_sign_##S(S##v a) { return (S##v)(a != 0) & 1; } \
    T_FN S##v t_divisor_##S##_(S##v b) { return b | ((S##v)(b == 0) & 1); } \
    T_FN S##v t_div_##S(S##v a, S##v b) { \
        return t_quotient_##S##_(a, t_divisor_##S##_(b)) & (S##v)(b != 0); \
    } \
    T_FN S##v t_floordiv_##S(S##v a, S##v b) { return t_div_##S(a, b); } \
    T_FN S##v t_fmod_##S(S##v a, S##v b) { return t_remainder_##S##_(a, t_divisor_##S##_(b)); } \
    T_FN S##v t_mod_##S(S##v a, S##v b) { return t_fmod_##S(a, b); } \
    T_FN T t_pow_##S##_(T base, T n) { \
        uint64_t r = 1, b = base; \
        for (; n > 0; n = (T)(n >> 1), b *= b) r *= n & 1 ? b : 1; \
        return (T)r; \
    }
T_EACH_UNSIGNED_PAIR(T_DEF_UNSIGNED)
#undef T_DEF_UNSIGNED

#define T_DEF_INT_POW(S, T, M) T_LANEWISE2(t_pow_##S, S, t_pow_##S##_)
T_EACH_INT(T_DEF_INT_POW)
#undef T_DEF_INT_POW

#endif
