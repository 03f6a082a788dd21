/* Narrow storage types of the scalar prelude, one byte an element: floats of 8 and 4 bits and integers of 4 and 2.  The
 * counterpart of the C target's t_narrow.h, which says what each type does with what it cannot hold.
 */
#ifndef T_SCALAR_NARROW_H
#define T_SCALAR_NARROW_H

/* The number of a code without its sign, of m bits of fraction and this bias; subnormals without a subnormal f32. */
T_FN uint32_t t_widen_(uint32_t code, uint32_t m, uint32_t bias) {
    if (code < (1u << m)) return T_BITS_F32((float)code * T_FLOAT_U32((128u - bias - m) << 23));
    return (code << (23u - m)) + ((127u - bias) << 23);
}

/* The code nearest to the absolute value of a number, given as bits; beyond the largest, `most`. */
T_FN uint32_t t_code_(uint32_t a, uint32_t m, uint32_t bias, uint32_t most) {
    const uint32_t shift = 23u - m, first = (151u - bias - m) << 23;
    uint32_t code;
    if (a < ((128u - bias) << 23)) return T_BITS_F32(T_FLOAT_U32(a) + T_FLOAT_U32(first)) - first;
    code = ((a + ((1u << (shift - 1u)) - 1u) + ((a >> shift) & 1u)) >> shift) - ((127u - bias) << m);
    return code < most ? code : most;
}

T_FN uint32_t t_magnitude_(float x) { return T_BITS_F32(x) & 0x7fffffffu; }
T_FN uint32_t t_sign_(float x, int bit) { return (T_BITS_F32(x) >> (31 - bit)) & (1u << bit); }

T_FN float t_decode_f8e4m3fn(uint8_t v) {
    const uint32_t w = v, code = w & 0x7fu, sign = (w & 0x80u) << 24;
    return T_FLOAT_U32(code == 0x7fu ? sign | 0x7fc00000u : sign | t_widen_(code, 3, 7));
}
T_FN uint8_t t_encode_f8e4m3fn(float x) {
    return (uint8_t)(t_code_(t_magnitude_(x), 3, 7, 0x7fu) | t_sign_(x, 7));
}

T_FN float t_decode_f8e5m2(uint8_t v) {
    const uint32_t w = v, code = w & 0x7fu, sign = (w & 0x80u) << 24, quiet = code > 0x7cu ? 0x400000u : 0u;
    return T_FLOAT_U32(code >= 0x7cu ? sign | (code << 21) | 0x7f800000u | quiet : sign | t_widen_(code, 2, 15));
}
T_FN uint8_t t_encode_f8e5m2(float x) {
    const uint32_t a = t_magnitude_(x);
    return (uint8_t)(t_code_(a, 2, 15, 0x7cu) | (a > 0x7f800000u ? 2u : 0u) | t_sign_(x, 7));
}

#define T_DEF_UNSIGNED_ZERO(N, BITS, BIAS) \
    T_FN float t_decode_##N(uint8_t v) { \
        const uint32_t w = v; \
        return T_FLOAT_U32(w == 0x80u ? 0x7fc00000u : t_widen_(w & 0x7fu, BITS, BIAS) | (w & 0x80u) << 24); \
    } \
    T_FN uint8_t t_encode_##N(float x) { \
        const uint32_t code = t_code_(t_magnitude_(x), BITS, BIAS, 0x80u); \
        return (uint8_t)(code == 0u || code == 0x80u ? code : code | t_sign_(x, 7)); \
    }
T_DEF_UNSIGNED_ZERO(f8e4m3fnuz, 3, 8)
T_DEF_UNSIGNED_ZERO(f8e5m2fnuz, 2, 16)
#undef T_DEF_UNSIGNED_ZERO

T_FN float t_decode_f4e2m1(uint8_t v) {
    const uint32_t w = v;
    return T_FLOAT_U32(t_widen_(w & 7u, 1, 1) | (w & 8u) << 28);
}
T_FN uint8_t t_encode_f4e2m1(float x) {
    return (uint8_t)(x != x ? t_sign_(x, 3) ^ 8u : t_code_(t_magnitude_(x), 1, 1, 7u) | t_sign_(x, 3));
}

T_FN float t_decode_f8e8m0(uint8_t v) {
    const uint32_t w = v;
    return T_FLOAT_U32(w << 23 | (w == 0u || w == 255u ? 0x400000u : 0u));
}
T_FN uint8_t t_encode_f8e8m0(float x) { return (uint8_t)(t_magnitude_(x) >> 23); }
T_FN float t_as_f8e8m0_up(float x) {
    const uint32_t a = t_magnitude_(x), code = a >> 23;
    return t_decode_f8e8m0((uint8_t)(code + ((a & 0x7fffffu) != 0u && code < 255u ? 1u : 0u)));
}
T_FN float t_as_f8e8m0_nearest(float x) {
    const uint32_t a = t_magnitude_(x), code = a >> 23, half = code == 0u ? 0x400001u : 0x400000u;
    return t_decode_f8e8m0((uint8_t)(code + ((a & 0x7fffffu) >= half && code < 255u ? 1u : 0u)));
}

#define T_DEF_SHORT(N, T, REST, MASK) \
    T_FN T t_decode_##N(uint8_t v) { return (T)((T)(uint8_t)(v << REST) >> REST); } \
    T_FN uint8_t t_encode_##N(T v) { return (uint8_t)(v & MASK); }
T_DEF_SHORT(i4, int8_t, 4, 15)
T_DEF_SHORT(u4, uint8_t, 4, 15)
T_DEF_SHORT(i2, int8_t, 6, 3)
T_DEF_SHORT(u2, uint8_t, 6, 3)
#undef T_DEF_SHORT

/* X(name, type in registers) */
#define T_EACH_NARROW(X) \
    X(f8e4m3fn, float) X(f8e4m3fnuz, float) X(f8e5m2, float) X(f8e5m2fnuz, float) X(f8e8m0, float) X(f4e2m1, float) \
    X(i4, int8_t) X(u4, uint8_t) X(i2, int8_t) X(u2, uint8_t)
#define T_DEF_NARROW(N, T) \
    T_FN T t_load_##N(const T_GLOBAL uint8_t *p) { return t_decode_##N(*p); } \
    T_FN void t_store_##N(T_GLOBAL uint8_t *p, T v) { *p = t_encode_##N(v); } \
    T_FN T t_as_##N(T x) { return t_decode_##N(t_encode_##N(x)); } \
    T_FN uint8_t t_bits_##N(T x) { return t_encode_##N(x); } \
    T_FN T t_from_bits_##N(uint8_t v) { return t_decode_##N(v); }
T_EACH_NARROW(T_DEF_NARROW)
#undef T_DEF_NARROW

#endif
