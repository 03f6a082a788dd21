/* sin cos tan asin acos atan, f32, at most 4 ULP.
 *
 * sin, cos and tan reduce by pi/2 in f64, which is exact enough up to |x| = 1e6; a register
 * with a larger finite lane is done lane by lane in libm.
 */
#ifndef T_MATH_TRIG_H
#define T_MATH_TRIG_H

#include <math.h>

#include "t_arith.h"

#define T_TRIG_LIMIT 1e6f

/* x = n pi/2 + r, |r| <= pi/4; n modulo 2^32, any value for NaN. The high part of pi/2 has 33
 * bits, so that its product with n < 2^20 is exact. */
T_FN f32v t_trig_reduce_(f32v x, i32v *n) {
    f64v d = T_CONV(x, f64);
    f64v t = d * 0.63661977236758134308 + 0x1.8p52;
    f64v k = t - 0x1.8p52;
    *n = T_CONV((i64v)t, i32);
    return T_CONV((d - k * 1.5707963267341256) - k * 6.077100506506192e-11, f32);
}

/* On |r| <= pi/4, errors 2^-32 and 2^-33. */
T_FN f32v t_sin_poly_(f32v r) {
    f32v z = r * r;
    f32v p = z * 2.832099653e-6f + -1.985304698e-4f;
    p = p * z + 8.333379403e-3f;
    p = p * z + -1.666666716e-1f;
    return r + r * z * p;
}

T_FN f32v t_cos_poly_(f32v r) {
    f32v z = r * r;
    f32v p = z * 2.443066114e-5f + -1.388730132e-3f;
    p = p * z + 4.166664556e-2f;
    return 1.0f + z * (z * p - 0.5f);
}

T_FN i32v t_trig_far_(f32v x) {
    f32v a = t_abs_f32(x);
    return (i32v)(a > T_TRIG_LIMIT) & (i32v)(a < __builtin_inff());
}

/* Through memory: a function of its own must not take wide vectors. */
static __attribute__((noinline, cold, unused)) void t_trig_lanes_(float *x, float (*f)(float)) {
    for (int i = 0; i < TORSHC_LANES; i++) x[i] = f(x[i]);
}

T_FN f32v t_trig_slow_(f32v x, float (*f)(float)) {
    float lane[TORSHC_LANES];
    t_store_f32(lane, x);
    t_trig_lanes_(lane, f);
    return t_load_f32(lane);
}

/* sin(r + n pi/2) */
T_FN f32v t_sin_quarter_(f32v r, i32v n) {
    i32v odd = (i32v){0} - (n & 1);
    f32v v = t_blend_f32_(odd, t_cos_poly_(r), t_sin_poly_(r));
    return (f32v)((u32v)v ^ ((u32v)(n & 2) << 30));
}

T_FN f32v t_sin_f32(f32v x) {
    if (__builtin_expect(t_hany_bool(t_trig_far_(x)), 0)) return t_trig_slow_(x, sinf);
    i32v n;
    f32v r = t_trig_reduce_(x, &n);
    return t_blend_f32_((i32v)(x == 0.0f), x, t_sin_quarter_(r, n));
}

T_FN f32v t_cos_f32(f32v x) {
    if (__builtin_expect(t_hany_bool(t_trig_far_(x)), 0)) return t_trig_slow_(x, cosf);
    i32v n;
    f32v r = t_trig_reduce_(x, &n);
    return t_sin_quarter_(r, (i32v)((u32v)n + 1));
}

T_FN f32v t_tan_f32(f32v x) {
    if (__builtin_expect(t_hany_bool(t_trig_far_(x)), 0)) return t_trig_slow_(x, tanf);
    i32v n;
    f32v r = t_trig_reduce_(x, &n), s = t_sin_poly_(r), c = t_cos_poly_(r);
    i32v odd = (i32v){0} - (n & 1);
    f32v v = t_blend_f32_(odd, -c, s) / t_blend_f32_(odd, s, c);
    return t_blend_f32_((i32v)(x == 0.0f), x, v);
}

/* ---- inverses ---------------------------------------------------------------------------- */

/* asin(s) - s on [0, 1/2], z = s^2, error 2^-27 */
T_FN f32v t_asin_tail_(f32v s, f32v z) {
    f32v p = z * 4.221852124e-2f + 2.414884977e-2f;
    p = p * z + 4.547652975e-2f;
    p = p * z + 7.495249808e-2f;
    p = p * z + 1.666675359e-1f;
    return p * z * s;
}

#define T_PI_2_HIGH 1.57079637050628662109f
#define T_PI_2_LOW -4.37113882867379e-8f

/* Beyond 1/2: asin(a) = pi/2 - 2 asin(sqrt((1 - a) / 2)). */
T_FN f32v t_asin_f32(f32v x) {
    f32v a = t_abs_f32(x);
    i32v far = (i32v)(a > 0.5f);
    f32v z = t_blend_f32_(far, (1.0f - a) * 0.5f, a * a);
    f32v s = t_blend_f32_(far, t_sqrt_f32(z), a);
    f32v tail = t_asin_tail_(s, z);
    f32v r = t_blend_f32_(far, T_PI_2_HIGH - (2.0f * (s + tail) - T_PI_2_LOW), s + tail);
    return t_copysign_f32(r, x);
}

T_FN f32v t_acos_f32(f32v x) {
    f32v a = t_abs_f32(x);
    i32v far = (i32v)(a > 0.5f), negative = (i32v)(x < 0.0f);
    f32v z = t_blend_f32_(far, (1.0f - a) * 0.5f, x * x);
    f32v s = t_blend_f32_(far, t_sqrt_f32(z), x);
    f32v v = s + t_asin_tail_(s, z);
    f32v twice = v + v;
    f32v other = 2.0f * T_PI_2_HIGH - (twice - 2.0f * T_PI_2_LOW);
    return t_blend_f32_(far, t_blend_f32_(negative, other, twice), T_PI_2_HIGH - (v - T_PI_2_LOW));
}

/* Reduced to |t| <= tan(pi/8), error 2^-30, by atan(a) = b + atan((a - tan b) / (1 + a tan b))
 * with b = pi/4 or pi/2. */
T_FN f32v t_atan_f32(f32v x) {
    f32v a = t_abs_f32(x), one = t_splat_f32(1);
    i32v mid = (i32v)(a > 0.414213562f), far = (i32v)(a > 2.41421356f);
    f32v top = t_blend_f32_(far, -one, t_blend_f32_(mid, a - one, a));
    f32v bottom = t_blend_f32_(far, a, t_blend_f32_(mid, a + one, one));
    f32v base = t_blend_f32_(far, t_splat_f32(T_PI_2_HIGH), t_splat_f32(0.5f * T_PI_2_HIGH));
    base = (f32v)((i32v)base & mid);
    f32v t = top / bottom, z = t * t;
    f32v p = z * -6.090630963e-2f + 1.059942842e-1f;
    p = p * z + -1.424442679e-1f;
    p = p * z + 1.999852955e-1f;
    p = p * z + -3.333331645e-1f;
    return t_copysign_f32(base + (t + t * z * p), x);
}

#endif
