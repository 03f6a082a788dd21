/* Numbers as unsigned ones of the same order, and back: -0 is 0, and NaN is above all others. */
#ifndef T_ORDER_H
#define T_ORDER_H

T_FN uint32_t t_order_f32(float x) {
    const uint32_t bits = T_BITS_F32(x + 0.0f);
    return x != x ? 0xffffffffu : bits ^ (bits >> 31 ? 0xffffffffu : 0x80000000u);
}
T_FN float t_ordered_f32(uint32_t key) { return T_FLOAT_U32(key ^ (key >> 31 ? 0x80000000u : 0xffffffffu)); }
/* Those of 16 bits in as many. */
#define T_DEF_ORDER_HALF(S) \
    T_FN uint32_t t_order_##S(float x) { \
        const uint32_t bits = t_encode_##S(x + 0.0f); \
        return x != x ? 0xffffu : bits ^ (bits >> 15 ? 0xffffu : 0x8000u); \
    } \
    T_FN float t_ordered_##S(uint32_t key) { \
        const uint32_t bits = key ^ (key >> 15 ? 0x8000u : 0xffffu); \
        return t_decode_##S((uint16_t)bits); \
    }
T_DEF_ORDER_HALF(f16)
T_DEF_ORDER_HALF(bf16)
#undef T_DEF_ORDER_HALF
#if T_HAS_F64
T_FN uint64_t t_order_f64(double x) {
    const uint64_t bits = t_raw64_f64(x + 0.0), sign = (uint64_t)1 << 63;
    return x != x ? ~(uint64_t)0 : bits ^ (bits >> 63 ? ~(uint64_t)0 : sign);
}
T_FN double t_ordered_f64(uint64_t key) {
    const uint64_t sign = (uint64_t)1 << 63;
    return t_float64_u64(key ^ (key >> 63 ? sign : ~(uint64_t)0));
}
#endif

/* Integers: the least is 0. */
#define T_DEF_ORDER_INT(S, T, U, LEAST) \
    T_FN U t_order_##S(T x) { return (U)x - (U)(LEAST); } \
    T_FN T t_ordered_##S(U key) { return (T)(key + (U)(LEAST)); }
T_DEF_ORDER_INT(i8, int8_t, uint32_t, -128)
T_DEF_ORDER_INT(i16, int16_t, uint32_t, -32768)
T_DEF_ORDER_INT(i32, int32_t, uint32_t, INT32_MIN)
T_DEF_ORDER_INT(i64, int64_t, uint64_t, INT64_MIN)
T_DEF_ORDER_INT(u8, uint8_t, uint32_t, 0)
T_DEF_ORDER_INT(u16, uint16_t, uint32_t, 0)
T_DEF_ORDER_INT(u32, uint32_t, uint32_t, 0)
T_DEF_ORDER_INT(u64, uint64_t, uint64_t, 0)
#undef T_DEF_ORDER_INT

#endif
