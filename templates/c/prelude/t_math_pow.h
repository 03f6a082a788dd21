/* pow, f32, through f64: 2^(y log2|x|), rounded once, so well within 1 ULP. */
#ifndef T_MATH_POW_H
#define T_MATH_POW_H

#include "t_arith.h"
#include "t_math_exp.h"

/* log2 of positive finite x to 2^-42: 2/ln2 atanh(f / (2 + f)) */
T_FN f64v t_log2_wide_(f32v x) {
    f32v k, m = t_log_reduce_(x, &k);
    f64v f = T_CONV(m, f64), s = f / (f + 2.0), z = s * s;
    f64v p = z * 0.28295569816318067 + 0.3199019512689901;
    p = p * z + 0.412209339869544;
    p = p * z + 0.5770779415400279;
    p = p * z + 0.9617966941159797;
    p = p * z + 2.885390081777851;
    return p * s + T_CONV(k, f64);
}

/* 2^t to 2^-40 for |t| <= 1000, larger ones clamped: they are 0 or inf in f32. */
T_FN f64v t_exp2_wide_(f64v t) {
    t = t_blend_f64_((i64v)(t < -1000.0), t_splat_f64(-1000), t);
    t = t_blend_f64_((i64v)(t > 1000.0), t_splat_f64(1000), t);
    f64v u = t + 0x1.8p52, r = t - (u - 0x1.8p52);
    f64v p = r * 1.317878516868302e-06 + 1.5309380404736074e-05;
    p = p * r + 0.0001540382783631662;
    p = p * r + 0.0013333454040291646;
    p = p * r + 0.00961812861019364;
    p = p * r + 0.05550410936083865;
    p = p * r + 0.24022650698145948;
    p = p * r + 0.6931471805480277;
    /* The low bits of u hold the exponent. */
    return (p * r + 1.0) * (f64v)(((u64v)u + 1023) << 52);
}

T_FN f32v t_pow_f32(f32v x, f32v y) {
    const float inf = __builtin_inff();
    f32v a = t_abs_f32(x), one = t_splat_f32(1);
    f64v log = t_log2_wide_(a);
    f32v edge = t_blend_f32_((i32v)(a == 0.0f), t_splat_f32(-inf), a);
    i32v inside = (i32v)(a > 0.0f) & (i32v)(a < inf);
    log = t_blend_f64_(T_CONV(inside, i64), log, T_CONV(edge, f64));
    f32v r = T_CONV(t_exp2_wide_(log * T_CONV(y, f64)), f32);

    f32v half = y * 0.5f;
    i32v whole = (i32v)(t_trunc_f32(y) == y);
    i32v odd = whole & (i32v)(t_trunc_f32(half) != half);
    r = (f32v)((i32v)r ^ (t_signbit_f32_(x) & odd));
    i32v root = (i32v)(x < 0.0f) & (i32v)(a < inf) & ~whole;
    r = t_blend_f32_(root, t_splat_f32(__builtin_nanf("")), r);
    i32v unit = (i32v)(a == 1.0f) & (i32v)(t_abs_f32(y) == inf);
    return t_blend_f32_(unit | (i32v)(x == 1.0f) | (i32v)(y == 0.0f), one, r);
}

#endif
