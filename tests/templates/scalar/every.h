/* A function for each dtype that calls every function of the scalar prelude of that dtype, to be compiled by each GPU
 * target's compiler: `every_f32(x, y, c)` and so on.  `and`, `or` are words of C++, hence the suffixes written out. */
#include "t_functions.h"

#define EVERY_CASTS(S, T) \
    t_cast_##S##_i8(x) + t_cast_##S##_u8(x) + t_cast_##S##_i16(x) + t_cast_##S##_u16(x) + (T)t_cast_##S##_i32(x) + \
        (T)t_cast_##S##_u32(x) + (T)t_cast_##S##_i64(x) + (T)t_cast_##S##_u64(x) + (T)t_cast_##S##_f32(x) + \
        (T)t_cast_##S##_bool(x) + t_cast_bool_##S(c)
#define EVERY_COMMON(S, T) \
    T r = t_select_##S(c, x, y); \
    r = (T)(r + t_lt_##S(x, y) + t_le_##S(x, y) + t_gt_##S(x, y) + t_ge_##S(x, y) + t_eq_##S(x, y) + t_ne_##S(x, y)); \
    r = (T)(r + t_add_##S(x, y) + t_sub_##S(x, y) + t_mul_##S(x, y) + t_div_##S(x, y) + t_max_##S(x, y)); \
    r = (T)(r + t_min_##S(x, y) + t_fmod_##S(x, y) + t_mod_##S(x, y) + t_floordiv_##S(x, y) + t_pow_##S(x, y)); \
    r = (T)(r + t_neg_##S(x) + t_abs_##S(x) + t_sign_##S(x) + t_fma_##S(x, y, r) + EVERY_CASTS(S, T)); \
    r = t_warp_sum_##S(r) + t_warp_prod_##S(r) + t_warp_max_##S(r) + t_warp_min_##S(r);

#define DEF_EVERY_INT(S, T) \
    T_FN T every_##S(T x, T y, int c) { \
        EVERY_COMMON(S, T) \
        r = (T)(r + t_and_##S(x, y) + t_or_##S(x, y) + t_xor_##S(x, y) + t_shl_##S(x, y) + t_shr_##S(x, y)); \
        return (T)(r + t_not_##S(x)); \
    }
T_EACH_INT(DEF_EVERY_INT)

#define DEF_EVERY_FLOAT(S, T) \
    T_FN T every_##S(T x, T y, int c) { \
        EVERY_COMMON(S, T) \
        r += t_floor_##S(x) + t_ceil_##S(x) + t_round_##S(x) + t_trunc_##S(x) + t_sqrt_##S(x) + t_rsqrt_##S(x); \
        r += t_exp_##S(x) + t_expm1_##S(x) + t_log_##S(x) + t_log1p_##S(x); \
        r += t_sinh_##S(x) + t_cosh_##S(x) + t_tanh_##S(x) + t_asinh_##S(x) + t_acosh_##S(x) + t_atanh_##S(x); \
        r += t_sin_##S(x) + t_cos_##S(x) + t_tan_##S(x) + t_asin_##S(x) + t_acos_##S(x) + t_atan_##S(x); \
        r += t_erf_##S(x) + t_sigmoid_##S(x) + t_copysign_##S(x, y); \
        return r + t_isnan_##S(x) + t_isinf_##S(x); \
    }
T_EACH_FLOAT(DEF_EVERY_FLOAT)

T_FN float every_storage(T_GLOBAL uint16_t *h, T_GLOBAL uint8_t *b, float x, int c) {
    h[0] = t_encode_f16(t_decode_f16(h[0]) + x);
    h[1] = t_encode_bf16(t_decode_bf16(h[1]) + x);
#define EVERY_NARROW(N, T) b[0] = t_encode_##N((T)(t_decode_##N(b[0]) + x));
    EVERY_NARROW(f8e4m3fn, float) EVERY_NARROW(f8e4m3fnuz, float) EVERY_NARROW(f8e5m2, float)
    EVERY_NARROW(f8e5m2fnuz, float) EVERY_NARROW(f8e8m0, float) EVERY_NARROW(f4e2m1, float)
    EVERY_NARROW(i4, int8_t) EVERY_NARROW(u4, uint8_t) EVERY_NARROW(i2, int8_t) EVERY_NARROW(u2, uint8_t)
    x += t_as_f8e8m0_up(x) + t_as_f8e8m0_nearest(x);
    t_store_bool(b, t_select_bool(c, t_and_bool(t_load_bool(b), c), t_or_bool(c, t_not_bool(c))));
    c = t_xor_bool(t_eq_bool(c, 1), t_ne_bool(c, 1)) + t_warp_any_bool(c) + t_warp_all_bool(c);
    return (float)(t_idiv(c, 3) + t_imod(c, 3) + t_iquot(c, 3) + t_imin(c, 3) + t_imax(c, 3) + t_iabs(c) + t_cut(c, 3, 1));
}

#define EVERY(T, S) t_store_##S(p_##S + i, every_##S(t_load_##S(p_##S + i), t_load_##S(p_##S + i + 1), c));
#define EVERY_LINE(S, T) EVERY(T, S)
