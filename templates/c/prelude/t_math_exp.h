/* exp, log and what is built from them, f32, at most 4 ULP, without branches.
 *
 * The polynomials are minimax fits (weighted least squares, coefficients rounded to float in
 * turn) on the reduced interval named beside each; those on a long path are summed in pairs
 * (Estrin), since latency bounds a loop over one register at a time.  Nothing here needs fused multiply-add to
 * be right; contraction only makes it faster.
 */
#ifndef T_MATH_EXP_H
#define T_MATH_EXP_H

#include "t_arith.h"

#define T_LN2_HIGH 0.693359375f /* 10 bits: times any exponent it is exact */
#define T_LN2_LOW -2.12194440054690581e-4f
#define T_LOG2E 1.44269504088896341f

/* ---- exponentials ----------------------------------------------------------------------- */

T_FN f32v t_clamp_f32(f32v x, float low, float high) {
    x = t_blend_f32_((i32v)(x < low), t_splat_f32(low), x);
    return t_blend_f32_((i32v)(x > high), t_splat_f32(high), x);
}

/* 2^n for -126 <= n <= 127. */
T_FN f32v t_pow2_(i32v n) { return (f32v)(((u32v)n + 127) << 23); }

/* n, the integer nearest to x / step: as a float, and as n + offset in the low bits of *n (any value for NaN). */
T_FN f32v t_nearest_(f32v x, float inverse_step, int offset, u32v *n) {
    const float whole = 0x1.8p23f + (float)offset;
    f32v t = x * inverse_step + whole;
    *n = (u32v)t;
    return t - whole;
}

/* 2^(n - 127) of the low bits of n, which are 1 to 254. */
T_FN f32v t_power_(u32v n) { return (f32v)(n << 23); }

/* (1 + e) * 2^n for e in [-0.5, 1] and |n| <= 250, in two halves, so that nothing between overflows or is
 * subnormal; n is t_nearest_'s with an offset of T_HALVES. */
#define T_HALVES 254
T_FN f32v t_scale_(f32v e, u32v n) {
    u32v half = n >> 1;
    f32v s = t_power_(half);
    return (s * e + s) * t_power_(n - half);
}

/* x = n ln2 + r, |r| <= ln2/2 */
T_FN f32v t_exp_reduce_(f32v x, int offset, u32v *n) {
    f32v k = t_nearest_(x, T_LOG2E, offset, n);
    return (x - k * T_LN2_HIGH) - k * T_LN2_LOW;
}

/* e^r - 1 - r on |r| <= ln2/2, error 2^-28 of e^r */
T_FN f32v t_exp_tail_(f32v r) {
    f32v z = r * r, p01 = r * 1.666652113e-1f + 4.999999404e-1f, p23 = r * 8.368703537e-3f + 4.166828841e-2f;
    return ((z * 1.381893875e-3f + p23) * z + p01) * z;
}

/* e^x * 2^shift for x of -104.5 to 90; right where the result is subnormal or e^x alone overflows. */
T_FN f32v t_exp_within_(f32v x, int shift) {
    u32v n;
    f32v r = t_exp_reduce_(x, T_HALVES + shift, &n);
    return t_scale_(r + t_exp_tail_(r), n);
}

/* e^x for x <= 0: 2^64 times as much is normal, so that 2^n needs no halves. */
T_FN f32v t_exp_low_f32(f32v x) {
    u32v n;
    x = t_blend_f32_((i32v)(x < -104.5f), t_splat_f32(-104.5f), x);
    f32v r = t_exp_reduce_(x, 127 + 64, &n), s = t_power_(n);
    return (s * (r + t_exp_tail_(r)) + s) * 0x1p-64f;
}

T_FN f32v t_exp_shifted_(f32v x, int shift) { return t_exp_within_(t_clamp_f32(x, -104.5f, 90.0f), shift); }

T_FN f32v t_exp_f32(f32v x) { return t_exp_shifted_(x, 0); }

/* 2^r = 1 + r Q(r) on |r| <= 1/2, error 2^-28 */
T_FN f32v t_exp2_f32(f32v x) {
    u32v n;
    x = t_clamp_f32(x, -151.0f, 129.0f);
    f32v r = x - t_nearest_(x, 1.0f, T_HALVES, &n);
    f32v p = r * 1.532679307e-4f + 1.339102513e-3f;
    p = p * r + 9.618505836e-3f;
    p = p * r + 5.550359562e-2f;
    p = p * r + 2.402264774e-1f;
    p = p * r + 6.931471825e-1f;
    return t_scale_(p * r, n);
}

/* Half of it first: 2^n (e^r - 1) + (2^n - 1) overflows too early.  The smallest arguments are
 * their own result, which also keeps -0. */
T_FN f32v t_expm1_f32(f32v x) {
    u32v n;
    f32v c = t_clamp_f32(x, -18.0f, 89.0f);
    f32v r = t_exp_reduce_(c, 127 - 1, &n), s = t_power_(n);
    f32v half = s * (r + t_exp_tail_(r)) + (s - 0.5f);
    return t_blend_f32_((i32v)(t_abs_f32(x) < 0x1p-25f), x, half + half);
}

/* ---- logarithms ------------------------------------------------------------------------- */

/* x = 2^k (1 + f), 1 + f in [sqrt(1/2), sqrt(2)), for positive finite x. */
T_FN f32v t_log_reduce_(f32v x, f32v *k) {
    i32v tiny = (i32v)(x < 0x1p-126f);
    u32v u = (u32v)t_blend_f32_(tiny, x * 0x1p23f, x) - 0x3f3504f3;
    *k = T_CONV(((i32v)u >> 23) - (tiny & 23), f32);
    return (f32v)((u & 0x7fffff) + 0x3f3504f3) - 1.0f;
}

/* log(1 + f) - f on the interval above, error 2^-27 of log(1 + f); low is added to it early. */
T_FN f32v t_log_tail_(f32v f, f32v low) {
    f32v z = f * f;
    f32v p01 = f * -2.500082552e-1f + 3.333333135e-1f, p23 = f * -1.662319005e-1f + 2.000125051e-1f;
    f32v p45 = f * -1.316146404e-1f + 1.420117617e-1f, p67 = f * -7.636449486e-2f + 1.276620775e-1f;
    f32v p = (p67 * z + p45) * (z * z) + (p23 * z + p01);
    return (p * (f * z) + low) - 0.5f * z;
}

T_FN f32v t_log_finish_(f32v f, f32v k) {
    return k * T_LN2_HIGH + (f + t_log_tail_(f, k * T_LN2_LOW));
}

/* Puts in what a logarithm gives outside (0, inf), x being its argument. */
T_FN f32v t_log_special_(f32v x, f32v r) {
    const float inf = __builtin_inff();
    r = t_blend_f32_((i32v)(x < inf), r, x);
    r = t_blend_f32_((i32v)(x == 0.0f), t_splat_f32(-inf), r);
    return t_blend_f32_((i32v)(x < 0.0f), t_splat_f32(__builtin_nanf("")), r);
}

T_FN f32v t_log_f32(f32v x) {
    f32v k, f = t_log_reduce_(x, &k);
    return t_log_special_(x, t_log_finish_(f, k));
}

T_FN f32v t_log2_f32(f32v x) {
    f32v k, f = t_log_reduce_(x, &k);
    f32v tail = t_log_tail_(f, t_splat_f32(0));
    return t_log_special_(x, k + (f + (f * 0.442695040888963407f + tail * T_LOG2E)));
}

/* log(u) with u = 1 + x rounded; what the rounding lost is put back into the fraction. For
 * finite x > -1, and NaN. */
T_FN f32v t_log1p_core_(f32v x, f32v u) {
    f32v k;
    f32v lost = t_blend_f32_((i32v)(u >= 2.0f), 1.0f - (u - x), x - (u - 1.0f));
    f32v f = t_log_reduce_(u, &k);
    /* Nothing of weight is lost beyond 2^24, where 2^-k would leave the exponent's range. */
    i32v n = T_CONV(t_clamp_f32(k, -25.0f, 100.0f), i32);
    f += lost * t_pow2_((i32v){0} - n);
    return t_log_finish_(f, k);
}

T_FN f32v t_log1p_f32(f32v x) {
    f32v u = 1.0f + x;
    f32v r = t_log_special_(u, t_log1p_core_(x, u));
    return t_blend_f32_((i32v)(t_abs_f32(x) < 0x1p-25f), x, r);
}

/* ---- hyperbolic functions and their inverses -------------------------------------------- */

/* e^2|x| - 1 = 2^n (e^r - 1) + (2^n - 1) with n of 0 to 29, so that 2^n needs no halves; 1 to the last bit from 10 on. */
T_FN f32v t_tanh_f32(f32v x) {
    u32v n;
    f32v a = t_abs_f32(x), t = a + a;
    f32v r = t_exp_reduce_(t_blend_f32_((i32v)(t > 20.0f), t_splat_f32(20.0f), t), 127, &n);
    f32v two_n = t_power_(n), e = two_n * (r + t_exp_tail_(r)) + (two_n - 1.0f);
    return t_copysign_f32(e / (e + 2.0f), x);
}

T_FN f32v t_sinh_f32(f32v x) {
    f32v a = t_abs_f32(x), e = t_expm1_f32(t_clamp_f32(a, 0.0f, 10.0f));
    f32v small = 0.5f * (e + e / (e + 1.0f));
    f32v r = t_blend_f32_((i32v)(a > 9.5f), t_exp_shifted_(a, -1), small);
    return t_copysign_f32(t_blend_f32_((i32v)(a < 0x1p-25f), a, r), x);
}

T_FN f32v t_cosh_f32(f32v x) {
    f32v e = t_exp_shifted_(t_abs_f32(x), -1);
    return e + 0.25f / e;
}

/* asinh and acosh: beyond 2^28 the square root is x itself, and log(2x) = log(x) + ln2. */
T_FN f32v t_log_double_(f32v x, f32v below) {
    i32v big = (i32v)(x > 0x1p28f);
    f32v r = t_log1p_f32(t_blend_f32_(big, x, below));
    return r + (f32v)(big & (i32v)t_splat_f32(0.693147180559945309f));
}

T_FN f32v t_asinh_f32(f32v x) {
    f32v a = t_abs_f32(x), z = a * a;
    return t_copysign_f32(t_log_double_(a, a + z / (1.0f + t_sqrt_f32(z + 1.0f))), x);
}

T_FN f32v t_acosh_f32(f32v x) {
    f32v t = x - 1.0f;
    f32v r = t_log_double_(x, t + t_sqrt_f32(t * (t + 2.0f)));
    return t_blend_f32_((i32v)(x < 1.0f), t_splat_f32(__builtin_nanf("")), r);
}

T_FN f32v t_atanh_f32(f32v x) {
    f32v a = t_abs_f32(x);
    f32v r = 0.5f * t_log1p_f32((a + a) / (1.0f - a));
    return t_copysign_f32(t_blend_f32_((i32v)(a < 0x1p-25f), a, r), x);
}

/* ---- sigmoid, softplus, erf ------------------------------------------------------------- */

/* e^-|x| never overflows, and e / (1 + e) keeps the far negative side right. */
T_FN f32v t_sigmoid_f32(f32v x) {
    f32v e = t_exp_low_f32(-t_abs_f32(x));
    return t_blend_f32_((i32v)(x < 0.0f), e, t_splat_f32(1)) / (1.0f + e);
}

/* log(1 + e^x) */
T_FN f32v t_softplus_f32(f32v x) {
    f32v positive = t_blend_f32_((i32v)(x > 0.0f), x, t_splat_f32(0));
    f32v e = t_exp_low_f32(-t_abs_f32(x));
    return positive + t_log1p_core_(e, 1.0f + e);
}

/* |x| < 1: x + x P(x^2), error 2^-29; else 1 - e^Q(|x|), Q = log(erfc) on [1, 4], beyond
 * which erf is 1 in f32. */
T_FN f32v t_erf_f32(f32v x) {
    f32v a = t_abs_f32(x);
    a = t_blend_f32_((i32v)(a > 4.0f), t_splat_f32(4.0f), a);
    f32v z = a * a;
    f32v p = z * 7.919187919e-5f + -8.030509343e-4f;
    p = p * z + 5.190716591e-3f;
    p = p * z + -2.685512230e-2f;
    p = p * z + 1.128361821e-1f;
    p = p * z + -3.761262894e-1f;
    p = p * z + 1.283791661e-1f;
    f32v q01 = a * -1.127048492e+0f + -3.515695571e-4f, q23 = a * -1.030487865e-1f + -6.382120848e-1f;
    f32v q45 = a * -2.940882463e-3f + 2.181060053e-2f;
    u32v n;
    f32v r = t_exp_reduce_((z * 1.856994058e-4f + q45) * (z * z) + (q23 * z + q01), 127, &n), s = t_power_(n);
    f32v far = (1.0f - s) - s * (r + t_exp_tail_(r));
    return t_copysign_f32(t_blend_f32_((i32v)(a < 1.0f), a + a * p, far), x);
}

#endif
