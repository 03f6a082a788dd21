/* Functions of one float or double: arithmetic, rounding, remainders, exponentials, trigonometry.
 *
 * What has a name in the library of the target is called there (T_LIB_f32); where that lacks a function or is worse than
 * 4 ULP, kernels hold it themselves.
 */
#ifndef T_SCALAR_MATH_H
#define T_SCALAR_MATH_H

#ifndef T_LIB_f32
#define T_LIB_f32(NAME) NAME##f
#define T_PLAIN_f32(NAME) NAME##f
#endif
#ifndef T_LIB_f64
#define T_LIB_f64(NAME) NAME
#define T_PLAIN_f64(NAME) NAME
#endif
#ifndef T_FMA_f32
#define T_FMA_f32(a, b, c) ((a) * (b) + (c))
#define T_FMA_f64(a, b, c) ((a) * (b) + (c))
#endif
#ifndef T_MAX_f32
#define T_MAX_f32(a, b) ((a) >= (b) || (a) != (a) ? (a) : (b))
#define T_MIN_f32(a, b) ((a) <= (b) || (a) != (a) ? (a) : (b))
#endif
#define T_MAX_f64(a, b) ((a) >= (b) || (a) != (a) ? (a) : (b))
#define T_MIN_f64(a, b) ((a) <= (b) || (a) != (a) ? (a) : (b))
#ifndef T_LIB_LACKS
#define T_LIB_LACKS 0
#endif

/* ---- arithmetic and rounding ------------------------------------------------------------------ */

#define T_DEF_FLOAT(S, T) \
    T_FN T t_add_##S(T a, T b) { return a + b; } \
    T_FN T t_sub_##S(T a, T b) { return a - b; } \
    T_FN T t_mul_##S(T a, T b) { return a * b; } \
    T_FN T t_div_##S(T a, T b) { return a / b; } \
    T_FN T t_fma_##S(T a, T b, T c) { return T_FMA_##S(a, b, c); } \
    T_FN T t_neg_##S(T a) { return -a; } \
    T_FN T t_abs_##S(T a) { return T_PLAIN_##S(fabs)(a); } \
    T_FN T t_copysign_##S(T a, T sign) { return T_PLAIN_##S(copysign)(a, sign); } \
    /* As numpy: NaN stays, zeros of both signs give +0. */ \
    T_FN T t_sign_##S(T a) { return a > 0 ? (T)1 : a < 0 ? (T)-1 : a == 0 ? (T)0 : a; } \
    /* numpy.maximum and minimum: NaN if either is NaN. */ \
    T_FN T t_max_##S(T a, T b) { return T_MAX_##S(a, b); } \
    T_FN T t_min_##S(T a, T b) { return T_MIN_##S(a, b); } \
    T_FN int t_isnan_##S(T a) { return a != a; } \
    T_FN int t_isinf_##S(T a) { return T_PLAIN_##S(fabs)(a) == (T)T_INF_F32; } \
    T_FN T t_sqrt_##S(T x) { return T_LIB_##S(sqrt)(x); } \
    T_FN T t_rsqrt_##S(T x) { return (T)1 / T_LIB_##S(sqrt)(x); } \
    T_FN T t_floor_##S(T x) { return T_PLAIN_##S(floor)(x); } \
    T_FN T t_ceil_##S(T x) { return T_PLAIN_##S(ceil)(x); } \
    T_FN T t_trunc_##S(T x) { return T_PLAIN_##S(trunc)(x); } \
    /* Halves to even. */ \
    T_FN T t_round_##S(T x) { return T_PLAIN_##S(rint)(x); } \
    T_FN T t_fmod_##S(T a, T b) { return T_LIB_##S(fmod)(a, b); } \
    /* Python's: mod has the sign of the divisor; floordiv is what goes with mod, so that 1 // 0.1 is 9.  The same steps \
     * as numpy.floor_divide. */ \
    T_FN T t_mod_##S(T a, T b) { \
        const T r = t_fmod_##S(a, b); \
        if (r == 0) return t_copysign_##S(r, b); \
        return (r < 0) != (b < 0) ? r + b : r; \
    } \
    T_FN T t_floordiv_##S(T a, T b) { \
        const T r = t_fmod_##S(a, b); \
        T q = (a - r) / b, f; \
        if (b == 0) return a / b; \
        if (r != 0 && (r < 0) != (b < 0)) q = q - (T)1; \
        if (q == 0) return t_copysign_##S(q, a / b); \
        f = t_floor_##S(q); \
        return q - f > (T)0.5f ? f + (T)1 : f; \
    }
T_EACH_FLOAT(T_DEF_FLOAT)
#undef T_DEF_FLOAT

/* ---- functions of the library -------------------------------------------------------------------- */

#define T_DEF_LIB(NAME, S, T) \
    T_FN T t_##NAME##_##S(T x) { return T_LIB_##S(NAME)(x); }
#define T_DEF_LIBS(S, T) \
    T_DEF_LIB(exp, S, T) T_DEF_LIB(log, S, T) T_DEF_LIB(sinh, S, T) T_DEF_LIB(cosh, S, T) T_DEF_LIB(asinh, S, T) \
    T_DEF_LIB(acosh, S, T) T_DEF_LIB(sin, S, T) T_DEF_LIB(cos, S, T) T_DEF_LIB(tan, S, T) T_DEF_LIB(asin, S, T) \
    T_DEF_LIB(acos, S, T)
#define T_DEF_LIBS_MORE(S, T) \
    T_DEF_LIB(expm1, S, T) T_DEF_LIB(log1p, S, T) T_DEF_LIB(tanh, S, T) T_DEF_LIB(erf, S, T) T_DEF_LIB(atan, S, T) \
    T_DEF_LIB(atanh, S, T) \
    T_FN T t_pow_##S(T x, T y) { return T_LIB_##S(pow)(x, y); }
T_EACH_FLOAT(T_DEF_LIBS)
#if !T_LIB_LACKS
T_DEF_LIBS_MORE(f32, float)
#endif
#if T_HAS_F64
T_DEF_LIBS_MORE(f64, double)
#endif
#undef T_DEF_LIBS_MORE
#undef T_DEF_LIBS
#undef T_DEF_LIB

/* ---- floats as their bits, and back -------------------------------------------------------- */

T_FN uint32_t t_raw32_f32(float x) { return T_BITS_F32(x); }
T_FN float t_float32_u32(uint32_t x) { return T_FLOAT_U32(x); }
#if T_HAS_F64
T_FN uint64_t t_raw64_f64(double x) {
    uint64_t r;
    memcpy(&r, &x, sizeof r);
    return r;
}
T_FN double t_float64_u64(uint64_t x) {
    double r;
    memcpy(&r, &x, sizeof r);
    return r;
}
#endif

#endif
