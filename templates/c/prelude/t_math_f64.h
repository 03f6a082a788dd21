/* f64 functions: exp and tanh as in f32, at most 4 ULP; the others lane by lane in libm. */
#ifndef T_MATH_F64_H
#define T_MATH_F64_H

#include <math.h>

#include "t_arith.h"

/* x = n ln2 + r, |r| <= ln2/2; e^r - 1 = r + r^2 P(r), error 2^-57; n + offset in the low bits of *n. */
T_FN f64v t_exp_reduced_f64_(f64v x, int offset, u64v *n) {
    const double whole = 0x1.8p52 + offset;
    f64v t = x * 1.4426950408889634 + whole, k = t - whole;
    f64v r = (x - k * 0x1.62e42feep-1) - k * 0x1.a39ef35793c76p-33, z = r * r, y = z * z;
    f64v p01 = r * 0.1666666666666645 + 0.5000000000000011, p23 = r * 0.008333333333473268 + 0.04166666666652711;
    f64v p45 = r * 0.0001984126954923641 + 0.0013888888944303917;
    f64v p67 = r * 2.755755025996967e-06 + 2.4801492479019593e-05;
    f64v p89 = r * 2.5011040151341978e-08 + 2.763045145977846e-07;
    *n = (u64v)t;
    return r + ((p89 * y + (p67 * z + p45)) * y + (p23 * z + p01)) * z;
}

/* 2^n in two halves, as t_scale_ has it. */
T_FN f64v t_exp_f64(f64v x) {
    u64v n;
    x = t_blend_f64_((i64v)(x < -746.0), t_splat_f64(-746.0), x);
    x = t_blend_f64_((i64v)(x > 711.0), t_splat_f64(711.0), x);
    f64v e = t_exp_reduced_f64_(x, 2046, &n);
    u64v half = n >> 1;
    f64v s = (f64v)(half << 52);
    return (s * e + s) * (f64v)((n - half) << 52);
}

/* tanh a = d / (d + 2), d = e^(2a) - 1; from 20 on it is 1. */
T_FN f64v t_tanh_f64(f64v x) {
    u64v n;
    f64v t = 2.0 * t_abs_f64(x), e = t_exp_reduced_f64_(t_blend_f64_((i64v)(t > 40.0), t_splat_f64(40.0), t), 1023, &n);
    f64v two_n = (f64v)(n << 52), d = two_n * e + (two_n - 1.0);
    return t_copysign_f64(d / (d + 2.0), x);
}

T_LANEWISE1(t_expm1_f64, f64, expm1)
T_LANEWISE1(t_log_f64, f64, log)
T_LANEWISE1(t_log1p_f64, f64, log1p)
T_LANEWISE1(t_sinh_f64, f64, sinh)
T_LANEWISE1(t_cosh_f64, f64, cosh)
T_LANEWISE1(t_asinh_f64, f64, asinh)
T_LANEWISE1(t_acosh_f64, f64, acosh)
T_LANEWISE1(t_atanh_f64, f64, atanh)
T_LANEWISE1(t_sin_f64, f64, sin)
T_LANEWISE1(t_cos_f64, f64, cos)
T_LANEWISE1(t_tan_f64, f64, tan)
T_LANEWISE1(t_asin_f64, f64, asin)
T_LANEWISE1(t_acos_f64, f64, acos)
T_LANEWISE1(t_atan_f64, f64, atan)
T_LANEWISE1(t_erf_f64, f64, erf)
T_LANEWISE2(t_pow_f64, f64, pow)

#endif
