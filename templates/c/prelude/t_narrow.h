/* Narrow storage types, one byte an element: floats of 8 and 4 bits, whose registers are f32v, and integers of 4 and 2
 * bits, whose registers are i8v and u8v.  Only kernels that use them include this.
 *
 * Bits above those of the type are not looked at by loads, and stores clear them.  Stores of floats round to nearest
 * even; what overflows becomes infinite where the type has infinities (f8e5m2), NaN where it has only that, and the
 * largest number in f4e2m1, which has neither.  A cast that saturates clamps before.  Integers keep their low bits.
 */
#ifndef T_NARROW_H
#define T_NARROW_H

#include "t_kernel.h"

/* ---- floats with a fraction of m bits and this bias of the exponent ------------------------------ */

/* The number of a code without its sign.  Subnormals are whole numbers times their step: an f32 made of their bits would
 * be subnormal too, and many processors are slow to multiply such. */
T_FN u32v t_widen_(u32v code, unsigned m, unsigned bias) {
    const u32v normal = (code << (23 - m)) + ((127 - bias) << 23);
    const f32v step = (f32v)((u32v){0} + ((128 - bias - m) << 23));
    const u32v tiny = (u32v)(T_CONV((i32v)code, f32) * step);
    return t_blend_bits_((u32v)(code < (1u << m)), tiny, normal);
}

/* The code nearest to the absolute value of a number, given as bits; beyond the largest some larger code.  Below the
 * smallest normal number by adding a number whose last place is the subnormal step. */
T_FN u32v t_code_(u32v a, unsigned m, unsigned bias) {
    const unsigned shift = 23 - m, first = 151 - bias - m;
    const u32v normal = ((a + ((1u << (shift - 1)) - 1) + ((a >> shift) & 1)) >> shift) - ((127 - bias) << m);
    const u32v bits = (u32v){0} + (first << 23);
    const u32v tiny = (u32v)((f32v)a + (f32v)bits) - bits;
    return t_blend_bits_((u32v)(a < ((128 - bias) << 23)), tiny, normal);
}

T_FN u32v t_least_bits_(u32v a, unsigned most) { return t_blend_bits_((u32v)(a < most), a, (u32v){0} + most); }
T_FN u32v t_magnitude_(f32v x) { return (u32v)x & 0x7fffffff; }

/* No infinities; all ones are NaN. */
T_FN f32v t_decode_f8e4m3fn(u8v v) {
    const u32v w = T_CONV(v, u32), code = w & 0x7f;
    const u32v nan = (u32v)(code == 0x7f) & 0x7fc00000;
    return (f32v)(t_widen_(code, 3, 7) | nan | ((w & 0x80) << 24));
}
T_FN u8v t_encode_f8e4m3fn(f32v x) {
    const u32v code = t_least_bits_(t_code_(t_magnitude_(x), 3, 7), 0x7f);
    return T_CONV(code | (((u32v)x >> 24) & 0x80), u8);
}

/* As the upper half of an f16: infinities, and three NaN of each sign. */
T_FN f32v t_decode_f8e5m2(u8v v) {
    const u32v w = T_CONV(v, u32), code = w & 0x7f;
    const u32v special = (code << 21) | 0x7f800000;
    const u32v nan = (u32v)(code > 0x7c) & 0x400000;
    return (f32v)(t_blend_bits_((u32v)(code >= 0x7c), special, t_widen_(code, 2, 15)) | nan | ((w & 0x80) << 24));
}
T_FN u8v t_encode_f8e5m2(f32v x) {
    const u32v a = t_magnitude_(x), code = t_least_bits_(t_code_(a, 2, 15), 0x7c);
    return T_CONV(code | ((u32v)(a > 0x7f800000) & 2) | (((u32v)x >> 24) & 0x80), u8);
}

/* "fnuz": one zero, and where -0 would be NaN; no infinities. */
#define T_DEF_UNSIGNED_ZERO(N, BITS, BIAS) \
    T_FN f32v t_decode_##N(u8v v) { \
        const u32v w = T_CONV(v, u32), nan = (u32v)(w == 0x80) & 0x7fc00000; \
        return (f32v)(t_widen_(w & 0x7f, BITS, BIAS) | nan | ((w & 0x80) << 24)); \
    } \
    T_FN u8v t_encode_##N(f32v x) { \
        const u32v code = t_code_(t_magnitude_(x), BITS, BIAS); \
        const u32v sign = ((u32v)x >> 24) & 0x80 & (u32v)(code != 0); \
        return T_CONV(t_blend_bits_((u32v)(code > 0x7f), (u32v){0} + 0x80, code | sign), u8); \
    }
T_DEF_UNSIGNED_ZERO(f8e4m3fnuz, 3, 8)
T_DEF_UNSIGNED_ZERO(f8e5m2fnuz, 2, 16)
#undef T_DEF_UNSIGNED_ZERO

/* Neither infinities nor NaN, which becomes the zero of the other sign, as in ml_dtypes. */
T_FN f32v t_decode_f4e2m1(u8v v) {
    const u32v w = T_CONV(v, u32);
    return (f32v)(t_widen_(w & 7, 1, 1) | ((w & 8) << 28));
}
T_FN u8v t_encode_f4e2m1(f32v x) {
    const u32v a = t_magnitude_(x), sign = ((u32v)x >> 28) & 8, code = t_least_bits_(t_code_(a, 1, 1), 7);
    return T_CONV(t_blend_bits_((u32v)(a > 0x7f800000), sign ^ 8, code | sign), u8);
}

/* The exponent of an f32 alone: 2^(code - 127), and NaN.  The sign is dropped, and numbers round down in stores; zero is
 * then the smallest number, and infinity NaN. */
T_FN f32v t_decode_f8e8m0(u8v v) {
    const u32v w = T_CONV(v, u32);
    return (f32v)(w << 23 | ((u32v)(w == 0) & 0x400000) | ((u32v)(w == 255) & 0x400000));
}
T_FN u8v t_encode_f8e8m0(f32v x) { return T_CONV(t_magnitude_(x) >> 23, u8); }
T_FN f32v t_as_f8e8m0_up(f32v x) {
    const u32v a = t_magnitude_(x), code = a >> 23;
    return t_decode_f8e8m0(T_CONV(code + ((u32v)((a & 0x7fffff) != 0) & (u32v)(code < 255) & 1), u8));
}
/* Half of the way rounds up, but for subnormal numbers. */
T_FN f32v t_as_f8e8m0_nearest(f32v x) {
    const u32v a = t_magnitude_(x), code = a >> 23, half = 0x400000 + ((u32v)(code == 0) & 1);
    return t_decode_f8e8m0(T_CONV(code + ((u32v)((a & 0x7fffff) >= half) & (u32v)(code < 255) & 1), u8));
}

/* ---- integers -------------------------------------------------------------------------------- */

#define T_DEF_SHORT(N, S, REST, MASK) \
    T_FN S##v t_decode_##N(u8v v) { return (S##v)(v << REST) >> REST; } \
    T_FN u8v t_encode_##N(S##v v) { return (u8v)v & MASK; }
T_DEF_SHORT(i4, i8, 4, 15)
T_DEF_SHORT(u4, u8, 4, 15)
T_DEF_SHORT(i2, i8, 6, 3)
T_DEF_SHORT(u2, u8, 6, 3)
#undef T_DEF_SHORT

/* ---- memory, and what storing and loading again gives; X(name, register dtype) ------------------- */

#define T_EACH_NARROW(X) \
    X(f8e4m3fn, f32) X(f8e4m3fnuz, f32) X(f8e5m2, f32) X(f8e5m2fnuz, f32) X(f8e8m0, f32) X(f4e2m1, f32) \
    X(i4, i8) X(u4, u8) X(i2, i8) X(u2, u8)
#define T_DEF_NARROW(N, S) \
    T_DEF_STORAGE(N, S, u8) \
    T_DEF_LOADM(N, S, uint8_t) \
    T_DEF_MASKED(N, S, uint8_t) \
    T_FN S##v t_splat_##N(const uint8_t *p) { return t_decode_##N(t_splat_u8(*p)); } \
    T_FN S##v t_as_##N(S##v x) { return t_decode_##N(t_encode_##N(x)); } \
    T_FN u8v t_bits_##N(S##v x) { return t_encode_##N(x); } \
    T_FN S##v t_from_bits_##N(u8v v) { return t_decode_##N(v); }
T_EACH_NARROW(T_DEF_NARROW)
#undef T_DEF_NARROW

#endif
