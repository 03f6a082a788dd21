/* Numbers as unsigned ones of the same order: -0 is 0, and NaN is above all others. */
#ifndef T_ORDER_H
#define T_ORDER_H

T_FN uint32_t t_order_f32(float x) {
    const uint32_t bits = T_BITS_F32(x + 0.0f);
    return x != x ? 0xffffffffu : bits ^ (bits >> 31 ? 0xffffffffu : 0x80000000u);
}
T_FN uint32_t t_order_i32(int32_t x) { return (uint32_t)x ^ 0x80000000u; }
T_FN uint32_t t_order_i16(int16_t x) { return t_order_i32(x); }
T_FN uint32_t t_order_i8(int8_t x) { return t_order_i32(x); }
T_FN uint32_t t_order_u32(uint32_t x) { return x; }
T_FN uint32_t t_order_u16(uint16_t x) { return x; }
T_FN uint32_t t_order_u8(uint8_t x) { return x; }

#endif
