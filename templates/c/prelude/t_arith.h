/* Comparisons, logic, and the floating-point arithmetic that is a few instructions long. */
#ifndef T_ARITH_H
#define T_ARITH_H

#include "t_shuffle.h"

/* ---- comparisons (every dtype) and logic on masks ----------------------------------- */

#define T_DEF_COMPARE(NAME, OP, S, M) \
    T_FN i32v t_##NAME##_##S(S##v a, S##v b) { return T_CONV((M##v)(a OP b), i32); }
#define T_DEF_COMPARES(S, T, M) \
    T_DEF_COMPARE(lt, <, S, M) T_DEF_COMPARE(le, <=, S, M) T_DEF_COMPARE(gt, >, S, M) \
    T_DEF_COMPARE(ge, >=, S, M) T_DEF_COMPARE(eq, ==, S, M) T_DEF_COMPARE(ne, !=, S, M)
T_EACH(T_DEF_COMPARES)
#undef T_DEF_COMPARE
#undef T_DEF_COMPARES

T_FN i32v t_and_bool(i32v a, i32v b) { return a & b; }
T_FN i32v t_or_bool(i32v a, i32v b) { return a | b; }
T_FN i32v t_xor_bool(i32v a, i32v b) { return a ^ b; }
T_FN i32v t_not_bool(i32v a) { return ~a; }
T_FN i32v t_eq_bool(i32v a, i32v b) { return ~(a ^ b); }
T_FN i32v t_ne_bool(i32v a, i32v b) { return a ^ b; }

/* ---- f32 and f64 ---------------------------------------------------------------------- */

/* The function of one scalar, lane by lane: in an array, as clang moves a register that a loop indexes through memory once
 * for each lane. */
#define T_LANEWISE1(NAME, S, CALL) \
    T_FN S##v NAME(S##v x) { \
        __typeof__(x[0]) a[TORSHC_LANES]; \
        __builtin_memcpy(a, &x, sizeof x); \
        for (int i = 0; i < TORSHC_LANES; i++) a[i] = CALL(a[i]); \
        __builtin_memcpy(&x, a, sizeof x); \
        return x; \
    }
#define T_LANEWISE2(NAME, S, CALL) \
    T_FN S##v NAME(S##v x, S##v y) { \
        __typeof__(x[0]) a[TORSHC_LANES], b[TORSHC_LANES]; \
        __builtin_memcpy(a, &x, sizeof x); \
        __builtin_memcpy(b, &y, sizeof y); \
        for (int i = 0; i < TORSHC_LANES; i++) a[i] = CALL(a[i], b[i]); \
        __builtin_memcpy(&x, a, sizeof x); \
        return x; \
    }

/* t_fma is fused where the machine has the instruction, and rounds twice elsewhere. */
#define T_DEF_FLOAT(S, T, M) \
    T_FN S##v t_add_##S(S##v a, S##v b) { return a + b; } \
    T_FN S##v t_sub_##S(S##v a, S##v b) { return a - b; } \
    T_FN S##v t_mul_##S(S##v a, S##v b) { return a * b; } \
    T_FN S##v t_div_##S(S##v a, S##v b) { return a / b; } \
    T_FN S##v t_fma_##S(S##v a, S##v b, S##v c) { return a * b + c; } \
    T_FN S##v t_neg_##S(S##v a) { return -a; } \
    T_FN M##v t_signbit_##S##_(S##v a) { return (M##v)a & (M##v)-t_splat_##S(0); } \
    T_FN S##v t_abs_##S(S##v a) { return (S##v)((M##v)a & ~(M##v)-t_splat_##S(0)); } \
    /* Not to be an operand of a blend whose other operand is `sign`: clang 19 gets that wrong for AVX-512. */ \
    T_FN S##v t_copysign_##S(S##v a, S##v sign) { \
        return (S##v)((M##v)t_abs_##S(a) | t_signbit_##S##_(sign)); \
    } \
    /* Blend by a mask of the dtype's own width, as a comparison of S gives it. */ \
    T_FN S##v t_blend_##S##_(M##v m, S##v a, S##v b) { return (S##v)(((M##v)a & m) | ((M##v)b & ~m)); } \
    /* As numpy: NaN stays, zeros of both signs give +0. */ \
    T_FN S##v t_sign_##S(S##v a) { \
        const S##v one = t_splat_##S(1); \
        S##v r = (S##v)((M##v)t_copysign_##S(one, a) & (M##v)(a != 0)); \
        return t_blend_##S##_((M##v)(a == a), r, a); \
    } \
    /* numpy.maximum and minimum: NaN if either is NaN. The choice is x86's own, which gives a where b is NaN. */ \
    T_FN S##v t_max_##S(S##v a, S##v b) { \
        return (S##v)((M##v)t_blend_##S##_((M##v)(a < b), b, a) | (M##v)(b != b)); \
    } \
    T_FN S##v t_min_##S(S##v a, S##v b) { \
        return (S##v)((M##v)t_blend_##S##_((M##v)(a > b), b, a) | (M##v)(b != b)); \
    } \
    T_FN i32v t_isnan_##S(S##v a) { return T_CONV((M##v)(a != a), i32); } \
    T_FN i32v t_isinf_##S(S##v a) { return T_CONV((M##v)(t_abs_##S(a) == (T)__builtin_inff()), i32); }
T_EACH_FLOAT(T_DEF_FLOAT)
#undef T_DEF_FLOAT

/* Reductions over the lanes, in the order of t_vec.h: a step joins the register with itself, turned by half of the lanes
 * that still count, the first ones. Lane by lane both compilers shuffle more, gcc each lane. max and min give NaN if a
 * lane is NaN. */
#define T_DEF_FOLD(NAME, JOIN, S, T) \
    T_FN T t_##NAME##_##S(S##v v) { \
        if (TORSHC_LANES > 8) v = t_##JOIN##_##S(v, T_SHUFFLE(v, v, T_TURNED8_)); \
        if (TORSHC_LANES > 4) v = t_##JOIN##_##S(v, T_SHUFFLE(v, v, T_TURNED4_)); \
        if (TORSHC_LANES > 2) v = t_##JOIN##_##S(v, T_SHUFFLE(v, v, T_TURNED2_)); \
        if (TORSHC_LANES > 1) v = t_##JOIN##_##S(v, T_SHUFFLE(v, v, T_TURNED1_)); \
        return v[0]; \
    }
/* Numbers are joined by one instruction; a sum of what is NaN where v is, and 0 elsewhere, goes beside it. */
#define T_DEF_EXTREME(NAME, OP, S, T, M) \
    T_FN S##v t_##NAME##_number_##S(S##v a, S##v b) { return t_blend_##S##_((M##v)(a OP b), a, b); } \
    T_DEF_FOLD(h##NAME##_number, NAME##_number, S, T) \
    T_FN T t_h##NAME##_##S(S##v v) { \
        const T nan = t_hsum_##S((S##v)(M##v)(v != v)); \
        return nan == 0 ? t_h##NAME##_number_##S(v) : nan; \
    }
#define T_DEF_REDUCE(S, T, M) \
    T_DEF_FOLD(hsum, add, S, T) T_DEF_FOLD(hprod, mul, S, T) \
    T_DEF_EXTREME(max, >, S, T, M) T_DEF_EXTREME(min, <, S, T, M)
T_EACH_FLOAT(T_DEF_REDUCE)
#undef T_DEF_REDUCE
#undef T_DEF_EXTREME
#undef T_DEF_FOLD

#ifdef __has_builtin
#if __has_builtin(__builtin_elementwise_sqrt) /* clang 17 and later */
#define T_WHOLE_SQRT
#endif
#endif
#ifdef T_WHOLE_SQRT
T_FN f32v t_sqrt_f32(f32v x) { return __builtin_elementwise_sqrt(x); }
T_FN f64v t_sqrt_f64(f64v x) { return __builtin_elementwise_sqrt(x); }
#else
T_LANEWISE1(t_sqrt_f32, f32, __builtin_sqrtf)
#ifndef T_FEW_TYPES
T_LANEWISE1(t_sqrt_f64, f64, __builtin_sqrt)
#endif
#endif
/* x * 2^k, rounded once, for whole k of -252 to 254. */
#if TORSHC_LANES == 16 && defined(__AVX512F__)
T_FN f32v t_scale_f32(f32v x, f32v k) { return (f32v)__builtin_ia32_scalefps512_mask(x, k, (f32v){0}, -1, 4); }
#else
T_FN f32v t_scale_f32(f32v x, f32v k) {
    const i32v n = T_CONV(k, i32), half = n >> 1;
    return x * (f32v)((half + 127) << 23) * (f32v)((n - half + 127) << 23);
}
#endif
T_FN f32v t_rsqrt_f32(f32v x) { return 1.0f / t_sqrt_f32(x); }
#ifndef T_FEW_TYPES
T_FN f64v t_rsqrt_f64(f64v x) { return 1.0 / t_sqrt_f64(x); }
#endif

/* ---- rounding ------------------------------------------------------------------------- */

#if defined(__clang__) && (defined(__SSE4_1__) || defined(__aarch64__))
#define T_DEF_ROUND(S, T, M, BIG) \
    T_FN S##v t_floor_##S(S##v x) { return __builtin_elementwise_floor(x); } \
    T_FN S##v t_ceil_##S(S##v x) { return __builtin_elementwise_ceil(x); } \
    T_FN S##v t_trunc_##S(S##v x) { return __builtin_elementwise_trunc(x); } \
    T_FN S##v t_round_##S(S##v x) { return __builtin_elementwise_roundeven(x); }
#else
/* Adding and subtracting BIG = 2^(digits-1) rounds to nearest even; beyond it all floats are
 * whole.  The sign is copied back so that -0.3 rounds to -0. */
#define T_DEF_ROUND(S, T, M, BIG) \
    T_FN S##v t_round_##S(S##v x) { \
        S##v a = t_abs_##S(x), r = (a + BIG) - BIG; \
        return t_blend_##S##_((M##v)(a < BIG), t_copysign_##S(r, x), x); \
    } \
    T_FN S##v t_step_##S##_(M##v m) { return (S##v)(m & (M##v)t_splat_##S(1)); } \
    T_FN S##v t_floor_##S(S##v x) { \
        S##v r = t_round_##S(x); \
        return t_copysign_##S(r - t_step_##S##_((M##v)(r > x)), x); \
    } \
    T_FN S##v t_ceil_##S(S##v x) { \
        S##v r = t_round_##S(x); \
        return t_copysign_##S(r + t_step_##S##_((M##v)(r < x)), x); \
    } \
    T_FN S##v t_trunc_##S(S##v x) { return t_copysign_##S(t_floor_##S(t_abs_##S(x)), x); }
#endif
T_DEF_ROUND(f32, float, i32, 0x1p23f)
#ifndef T_FEW_TYPES
T_DEF_ROUND(f64, double, i64, 0x1p52)
#endif
#undef T_DEF_ROUND

#ifndef T_FEW_TYPES
/* t_cast_f32_u8(t_round_f32(x) + zero), as quantised tensors are made: limits that are whole may come before the rounding,
 * which is then a part of the conversion. That of i8 takes no zero, so that NaN becomes 0 in both. */
#if TORSHC_LANES == 16 && defined(__AVX512F__)
T_FN i32v t_nearest_f32_(f32v x) { return (i32v)__builtin_ia32_cvtps2dq512_mask(x, (i32v){0}, -1, 4); }
#elif TORSHC_LANES == 8 && defined(__AVX__)
T_FN i32v t_nearest_f32_(f32v x) { return (i32v)__builtin_ia32_cvtps2dq256(x); }
#else
T_FN i32v t_nearest_f32_(f32v x) { return T_CONV(t_round_f32(x), i32); }
#endif
T_FN f32v t_within_f32_(f32v x, int32_t zero) {
    const f32v low = t_splat_f32(-zero), high = t_splat_f32(255 - zero);
    const f32v above = t_blend_f32_((i32v)(x > low), x, low);
    return t_blend_f32_((i32v)(above < high), above, high);
}
T_FN u8v t_whole_f32_u8(f32v x, int32_t zero) { return T_CONV(t_nearest_f32_(t_within_f32_(x, zero)) + zero, u8); }
/* The same less zero, as a float: of numbers so small the addition rounds to nearest even, and leaves no zero negative. */
T_FN f32v t_level_f32(f32v x, int32_t zero) { return (t_within_f32_(x, zero) + 0x1.8p23f) - 0x1.8p23f; }
T_FN i8v t_whole_f32_i8(f32v x) { return T_CONV(t_nearest_f32_(t_clamp_f32_(x, -128, 127)), i8); }
/* The same of i8 plus zero, where NaN and what is below are the least number. */
T_FN i8v t_limited_f32_i8(f32v x, int32_t zero) {
    return T_CONV(t_nearest_f32_(t_within_f32_(x, 128 + zero)) + zero, i8);
}
/* Four vectors of f32 to neighbouring bytes, as t_whole_f32_u8, t_whole_f32_i8 and t_limited_f32_i8 make them. */
#if TORSHC_LANES == 8 && defined(__AVX2__)
typedef int16_t t_words_ __attribute__((vector_size(32)));
typedef uint8_t t_bytes_ __attribute__((vector_size(32)));
/* Packs saturate, so that what is too low, and NaN, whose conversion is the least integer, needs no limit. They take the
 * halves of two registers in turns. */
T_FN t_bytes_ t_pack4_(const f32v x[4], int32_t zero) {
    const f32v high = t_splat_f32(255 - zero);
    i32v n[4];
    T_UNROLL for (int k = 0; k < 4; k++) n[k] = t_nearest_f32_(t_blend_f32_((i32v)(high < x[k]), high, x[k]));
    const t_words_ low = (t_words_)__builtin_ia32_packssdw256(n[0], n[1]) + (int16_t)zero;
    const t_words_ far = (t_words_)__builtin_ia32_packssdw256(n[2], n[3]) + (int16_t)zero;
    const i32v bytes = (i32v)__builtin_ia32_packuswb256(low, far);
    return (t_bytes_)T_SHUFFLE(bytes, bytes, 0, 4, 1, 5, 2, 6, 3, 7);
}
T_FN void t_store4_whole_f32_u8(void *p, const f32v x[4], int32_t zero) {
    const t_bytes_ bytes = t_pack4_(x, zero);
    __builtin_memcpy(p, &bytes, sizeof bytes);
}
T_FN void t_store4_limited_f32_i8(void *p, const f32v x[4], int32_t zero) {
    const t_bytes_ bytes = t_pack4_(x, zero + 128) ^ 128;
    __builtin_memcpy(p, &bytes, sizeof bytes);
}
T_FN void t_store4_whole_f32_i8(void *p, const f32v x[4]) {
    f32v numbers[4];
    T_UNROLL for (int k = 0; k < 4; k++) numbers[k] = t_blend_f32_((i32v)(x[k] == x[k]), x[k], t_splat_f32(0));
    t_store4_limited_f32_i8(p, numbers, 0);
}
#else
#define T_EACH_OF_4(S, made) T_UNROLL for (int k = 0; k < 4; k++) t_store_##S((char *)p + k * TORSHC_LANES, made)
T_FN void t_store4_whole_f32_u8(void *p, const f32v x[4], int32_t zero) { T_EACH_OF_4(u8, t_whole_f32_u8(x[k], zero)); }
T_FN void t_store4_limited_f32_i8(void *p, const f32v x[4], int32_t zero) {
    T_EACH_OF_4(i8, t_limited_f32_i8(x[k], zero));
}
T_FN void t_store4_whole_f32_i8(void *p, const f32v x[4]) { T_EACH_OF_4(i8, t_whole_f32_i8(x[k])); }
#undef T_EACH_OF_4
#endif
#endif

/* ---- remainders, for which those of f32 compute in f64 ---------------------------------- */

#ifndef T_FEW_TYPES

T_LANEWISE2(t_far_fmod_f32_, f32, __builtin_fmodf)
/* In doubles, where a quotient of less than 2^29 has an exact whole part, as its fraction is 2^-24 or more below the next
 * whole number, and that times the divisor is exact too. */
T_FN f32v t_fmod_f32(f32v a, f32v b) {
    const f64v x = T_CONV(a, f64), y = T_CONV(b, f64), q = t_trunc_f64(x / y);
    const i64v far = (i64v)(t_abs_f64(q) >= 0x1p29) & (i64v)(t_abs_f64(x) < __builtin_inf()) & (i64v)(y != 0);
    if (__builtin_expect(t_hor__i64(far) != 0, 0)) return t_far_fmod_f32_(a, b);
    const f32v r = t_copysign_f32(T_CONV(x - q * y, f32), a);
    const i32v whole = (i32v)(t_abs_f32(b) == __builtin_inff()) & (i32v)(t_abs_f32(a) < __builtin_inff());
    return t_blend_f32_(whole, a, r);
}
T_LANEWISE2(t_fmod_f64, f64, __builtin_fmod)

/* Python's: mod has the sign of the divisor; floordiv is what goes with mod, so that
 * 1 // 0.1 is 9.  The same steps as numpy.floor_divide. */
#define T_DEF_PYTHON(S, T, M) \
    T_FN M##v t_wrapped_##S##_(S##v r, S##v b) { \
        return (M##v)(r != 0) & ((M##v)(r < 0) ^ (M##v)(b < 0)); \
    } \
    T_FN S##v t_mod_##S(S##v a, S##v b) { \
        S##v r = t_fmod_##S(a, b); \
        r = t_blend_##S##_(t_wrapped_##S##_(r, b), r + b, r); \
        /* A zero with the sign of b; of a copied sign, clang 14 makes b itself here. */ \
        M##v none = (M##v)(r == 0); \
        return (S##v)(((M##v)r & ~none) | (none & (M##v)b & (M##v)t_splat_##S(-(T)0))); \
    } \
    T_FN S##v t_floordiv_##S(S##v a, S##v b) { \
        S##v r = t_fmod_##S(a, b), one = t_splat_##S(1); \
        S##v q = (a - r) / b; \
        q = t_blend_##S##_(t_wrapped_##S##_(r, b), q - one, q); \
        S##v f = t_floor_##S(q); \
        f = t_blend_##S##_((M##v)(q - f > (T)0.5), f + one, f); \
        f = t_blend_##S##_((M##v)(q != 0), f, t_copysign_##S(q, a / b)); \
        return t_blend_##S##_((M##v)(b == 0), a / b, f); \
    }
T_EACH_FLOAT(T_DEF_PYTHON)
#undef T_DEF_PYTHON
#endif

/* ---- functions that reduce their argument, beyond where they can ------------------------ */

/* Whether a finite lane is further from 0. */
T_FN int t_is_beyond_(f32v x, float reach) {
    const f32v a = t_abs_f32(x);
    return t_hany_bool((i32v)(a > reach) & (i32v)(a < __builtin_inff()));
}
/* Through memory: a function of its own must not take wide vectors. */
static __attribute__((noinline, cold, unused)) void t_each_lane_(float *x, float (*f)(float)) {
    for (int i = 0; i < TORSHC_LANES; i++) x[i] = f(x[i]);
}
T_FN f32v t_by_lanes_(f32v x, float (*f)(float)) {
    float lane[TORSHC_LANES];
    t_store_f32(lane, x);
    t_each_lane_(lane, f);
    return t_load_f32(lane);
}

#endif
