/* expm1 log1p tanh erf atan atanh pow in f32, for a library that lacks them or is worse than 4 ULP.
 *
 * The polynomials are those of the C target (t_math_exp.h, t_math_trig.h), minimax fits on the interval named beside
 * each, with the same bound of 4 ULP.  Nothing here needs contraction to a fused multiply-add, or its absence.
 */
#ifndef T_SCALAR_OWN_H
#define T_SCALAR_OWN_H

#define T_LN2_HIGH 0.693359375f /* 10 bits: times any exponent it is exact */
#define T_LN2_LOW -2.12194440054690581e-4f
#define T_LOG2E 1.44269504088896341f
#define T_SMALL 2.98023224e-8f /* 2^-25: below it these functions are x itself */

/* ---- pieces ------------------------------------------------------------------------------------- */

/* 2^n for -126 <= n <= 127. */
T_FN float t_pow2_(int n) { return T_FLOAT_U32((uint32_t)(n + 127) << 23); }

/* p * 2^n for p in [0.5, 2] and |n| <= 250 with one rounding: in two halves. */
T_FN float t_scale_(float p, int n) { return p * t_pow2_(n >> 1) * t_pow2_(n - (n >> 1)); }

/* Positive finite x is 2^k m with m in [sqrt(1/2), sqrt(2)). */
T_FN uint32_t t_log_bits_(float x) { return T_BITS_F32(x) - 0x3f3504f3u; }
T_FN int t_log_exponent_(uint32_t u) { return (int)(int32_t)u >> 23; }
T_FN float t_log_mantissa_(uint32_t u) { return T_FLOAT_U32((u & 0x7fffffu) + 0x3f3504f3u); }

/* log(1 + f) - f on the interval of m, error 2^-27 of log(1 + f); low is added to it early. */
T_FN float t_log_tail_(float f, float low) {
    const float z = f * f;
    const float p01 = f * -2.500082552e-1f + 3.333333135e-1f, p23 = f * -1.662319005e-1f + 2.000125051e-1f;
    const float p45 = f * -1.316146404e-1f + 1.420117617e-1f, p67 = f * -7.636449486e-2f + 1.276620775e-1f;
    const float p = (p67 * z + p45) * (z * z) + (p23 * z + p01);
    return (p * (f * z) + low) - 0.5f * z;
}

/* ---- exponentials and logarithms --------------------------------------------------------------------- */

/* x = n ln2 + r; half of the result first: 2^n (e^r - 1) + (2^n - 1) overflows too early. */
T_FN float t_expm1_f32(float x) {
    if (x != x || t_abs_f32(x) < T_SMALL) return x;
    const float c = x < -18.0f ? -18.0f : x > 89.0f ? 89.0f : x;
    const float k = t_round_f32(c * T_LOG2E), r = (c - k * T_LN2_HIGH) - k * T_LN2_LOW;
    /* e^r - 1 - r on |r| <= ln2/2, error 2^-28 of e^r */
    const float z = r * r, p01 = r * 1.666652113e-1f + 4.999999404e-1f, p23 = r * 8.368703537e-3f + 4.166828841e-2f;
    const float tail = ((z * 1.381893875e-3f + p23) * z + p01) * z;
    const float s = t_pow2_((int)k - 1), r2 = s * (r + tail) + (s - 0.5f);
    return r2 + r2;
}

/* log(u) with u = 1 + x rounded; what the rounding lost is put back into the fraction. */
T_FN float t_log1p_f32(float x) {
    const float u = 1.0f + x;
    if (t_abs_f32(x) < T_SMALL) return x;
    if (!(u > 0.0f)) return u == 0.0f ? -T_INF_F32 : T_NAN_F32;
    if (u == T_INF_F32) return u;
    const float lost = u >= 2.0f ? 1.0f - (u - x) : x - (u - 1.0f);
    const uint32_t w = t_log_bits_(u);
    const int n = t_log_exponent_(w);
    /* Nothing of weight is lost beyond 2^24, where 2^-n would leave the exponent's range. */
    const float f = t_log_mantissa_(w) - 1.0f + lost * t_pow2_(n > 100 ? -100 : -n), k = (float)n;
    return k * T_LN2_HIGH + (f + t_log_tail_(f, k * T_LN2_LOW));
}

/* (e^2x - 1) / (e^2x + 1) */
T_FN float t_tanh_f32(float x) {
    const float a = t_abs_f32(x), e = t_expm1_f32(a > 10.0f ? 20.0f : a + a);
    return t_copysign_f32(e / (e + 2.0f), x);
}

/* log((1 + x) / (1 - x)) / 2 */
T_FN float t_atanh_f32(float x) {
    const float a = t_abs_f32(x);
    if (a < T_SMALL) return x;
    return t_copysign_f32(0.5f * t_log1p_f32((a + a) / (1.0f - a)), x);
}

/* |x| < 1: x + x P(x^2), error 2^-29; else 1 - e^Q(|x|), Q = log(erfc) on [1, 4], beyond which erf is 1 in f32. */
T_FN float t_erf_f32(float x) {
    const float z = x * x, a = t_abs_f32(x) > 4.0f ? 4.0f : t_abs_f32(x);
    if (a < 1.0f) {
        float p = z * 7.919187919e-5f + -8.030509343e-4f;
        p = p * z + 5.190716591e-3f;
        p = p * z + -2.685512230e-2f;
        p = p * z + 1.128361821e-1f;
        p = p * z + -3.761262894e-1f;
        p = p * z + 1.283791661e-1f;
        return x + x * p;
    }
    const float b = a * a, q01 = a * -1.127048492e+0f + -3.515695571e-4f;
    const float q23 = a * -1.030487865e-1f + -6.382120848e-1f, q45 = a * -2.940882463e-3f + 2.181060053e-2f;
    const float q = (b * 1.856994058e-4f + q45) * (b * b) + (q23 * b + q01);
    return t_copysign_f32(1.0f - t_exp_f32(q), x);
}

/* ---- atan -------------------------------------------------------------------------------------------- */

/* Reduced to |t| <= tan(pi/8), error 2^-30, by atan(a) = b + atan((a - tan b) / (1 + a tan b)) with b = pi/4 or pi/2. */
T_FN float t_atan_f32(float x) {
    const float a = t_abs_f32(x), half_pi = 1.57079637050628662109f;
    const int mid = a > 0.414213562f, far = a > 2.41421356f;
    const float t = (far ? -1.0f : mid ? a - 1.0f : a) / (far ? a : mid ? a + 1.0f : 1.0f), z = t * t;
    float p = z * -6.090630963e-2f + 1.059942842e-1f;
    p = p * z + -1.424442679e-1f;
    p = p * z + 1.999852955e-1f;
    p = p * z + -3.333331645e-1f;
    return t_copysign_f32((far ? half_pi : mid ? 0.5f * half_pi : 0.0f) + (t + t * z * p), x);
}

/* ---- pow --------------------------------------------------------------------------------------------- */

#define T_FMA_EXACT(a, b, c) T_PLAIN_f32(fma)(a, b, c)

/* a^y for finite a > 0, finite y: 2^(y log2 a), the logarithm as a sum of two floats.
 *
 * log2 m = 2/ln2 atanh(s), s = (m - 1) / (m + 1), by the series s + s^3/3 + .. + s^11/11: |s| <= 0.1716, so the next
 * term is 2^-34 of the sum.  Products whose rounding error is needed are written as fma(a, b, 0), which no compiler
 * contracts with what follows. */
T_FN float t_pow_positive_(float a, float y) {
    const int tiny = a < 1.17549435e-38f;
    const uint32_t u = t_log_bits_(tiny ? a * 8388608.0f : a);
    const float k = (float)(t_log_exponent_(u) - (tiny ? 23 : 0)), m = t_log_mantissa_(u);

    /* s + s_low, with m + 1 = d + d_low. */
    const float f = m - 1.0f, d = m + 1.0f, part = d - 1.0f, d_low = (1.0f - (d - part)) + (m - part);
    const float s = f / d, s_low = (T_FMA_EXACT(-s, d, f) - s * d_low) / d, z = T_FMA_EXACT(s, s, 0.0f);
    const float z_low = T_FMA_EXACT(s, s, -z) + 2.0f * s * s_low;
    /* P = 2/ln2 / 3 + z (2/ln2 / 5 + ..), the whole 2/ln2 s + z s P; of the second part, too, the rounding counts. */
    float q = z * 0.26230819f + 0.32059889f;
    q = (q * z + 0.41219857f) * z + 0.57707801f;
    q = q * z;
    const float c3 = 0.961796701f, c3_low = -7.0284618e-09f, p = c3 + q, p_low = (q - (p - c3)) + c3_low;
    const float w = T_FMA_EXACT(z, p, 0.0f), w_low = T_FMA_EXACT(z, p, -w) + (z * p_low + z_low * p);
    const float part3 = T_FMA_EXACT(w, s, 0.0f), part3_low = T_FMA_EXACT(w, s, -part3) + (w * s_low + w_low * s);
    const float c1 = 2.88539008f, c1_low = 3.8519260e-8f, part1 = T_FMA_EXACT(c1, s, 0.0f);
    const float part1_low = T_FMA_EXACT(c1, s, -part1) + (c1_low * s + c1 * s_low);
    const float sum = part1 + part3, sum_low = (part3 - (sum - part1)) + (part1_low + part3_low);
    const float log = k + sum, log_low = (sum - (log - k)) + sum_low;

    const float t = T_FMA_EXACT(y, log, 0.0f), t_low = T_FMA_EXACT(y, log, -t) + y * log_low;
    if (t > 130.0f) return T_INF_F32;
    if (t < -152.0f) return 0.0f;
    /* 2^r = 1 + r Q(r) on |r| <= 1/2, error 2^-28 */
    const float n = t_round_f32(t), r = (t - n) + t_low;
    q = r * 1.532679307e-4f + 1.339102513e-3f;
    q = q * r + 9.618505836e-3f;
    q = q * r + 5.550359562e-2f;
    q = q * r + 2.402264774e-1f;
    q = q * r + 6.931471825e-1f;
    return t_scale_(q * r + 1.0f, (int)n);
}

/* The cases of C's pow (annex F). */
T_FN float t_pow_f32(float x, float y) {
    const float a = t_abs_f32(x);
    const int whole = t_trunc_f32(y) == y, odd = whole && t_trunc_f32(y * 0.5f) != y * 0.5f;
    float r;
    if (x == 1.0f || y == 0.0f) return 1.0f;
    if (x != x || y != y) return x + y;
    if (a == 1.0f && t_isinf_f32(y)) return 1.0f;
    if (x < 0.0f && !whole && a < T_INF_F32) return T_NAN_F32;
    if (a == 0.0f || a == T_INF_F32) r = (a == 0.0f) == (y < 0.0f) ? T_INF_F32 : 0.0f;
    else if (t_isinf_f32(y)) r = (a < 1.0f) == (y < 0.0f) ? T_INF_F32 : 0.0f;
    else r = t_pow_positive_(a, y);
    return odd ? t_copysign_f32(r, x) : r;
}

#undef T_FMA_EXACT

#endif
