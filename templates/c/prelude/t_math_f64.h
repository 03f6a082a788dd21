/* f64 functions, lane by lane in libm; the short formulas are f32's. */
#ifndef T_MATH_F64_H
#define T_MATH_F64_H

#include <math.h>

#include "t_arith.h"

T_LANEWISE1(t_exp_f64, f64, exp)
T_LANEWISE1(t_exp2_f64, f64, exp2)
T_LANEWISE1(t_expm1_f64, f64, expm1)
T_LANEWISE1(t_log_f64, f64, log)
T_LANEWISE1(t_log2_f64, f64, log2)
T_LANEWISE1(t_log1p_f64, f64, log1p)
T_LANEWISE1(t_tanh_f64, f64, tanh)
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

T_FN f64v t_sigmoid_f64(f64v x) {
    f64v e = t_exp_f64(-t_abs_f64(x));
    return t_blend_f64_((i64v)(x < 0.0), e, t_splat_f64(1)) / (1.0 + e);
}

T_FN f64v t_softplus_f64(f64v x) {
    f64v positive = t_blend_f64_((i64v)(x > 0.0), x, t_splat_f64(0));
    return positive + t_log1p_f64(t_exp_f64(-t_abs_f64(x)));
}

#endif
