/* A value of each of the 32 threads of a warp (simdgroup) combined, in every thread: t_warp_sum_f32(x).
 *
 * A butterfly: after the step of distance d, threads whose numbers differ in bit d agree.  All 32 threads must take
 * part, and all get equal values (of zeros of both signs, max and min may give each thread its own).  A target defines
 * T_SHUFFLE_XOR(v, d): the 32-bit word v (int32_t, uint32_t or float) of the thread whose number differs by d; and
 * where it has f64 T_SHUFFLE_XOR_F64.
 */
#ifndef T_WARP_H
#define T_WARP_H

#define T_WARP 32

/* Narrow integers travel as 32 bits, wide ones as two words. */
#define T_DEF_SHUFFLE(S, T, W) \
    T_FN T t_shuffle_xor_##S(T v, int d) { return (T)T_SHUFFLE_XOR((W)v, d); }
T_DEF_SHUFFLE(f32, float, float)
T_DEF_SHUFFLE(i8, int8_t, int32_t)
T_DEF_SHUFFLE(i16, int16_t, int32_t)
T_DEF_SHUFFLE(i32, int32_t, int32_t)
T_DEF_SHUFFLE(u8, uint8_t, uint32_t)
T_DEF_SHUFFLE(u16, uint16_t, uint32_t)
T_DEF_SHUFFLE(u32, uint32_t, uint32_t)
T_DEF_SHUFFLE(bool, int, int32_t)
#undef T_DEF_SHUFFLE
T_FN uint64_t t_shuffle_xor_u64(uint64_t v, int d) {
    const uint32_t low = T_SHUFFLE_XOR((uint32_t)v, d), high = T_SHUFFLE_XOR((uint32_t)(v >> 32), d);
    return (uint64_t)high << 32 | low;
}
T_FN int64_t t_shuffle_xor_i64(int64_t v, int d) { return (int64_t)t_shuffle_xor_u64((uint64_t)v, d); }
#if T_HAS_F64
T_FN double t_shuffle_xor_f64(double v, int d) { return T_SHUFFLE_XOR_F64(v, d); }
#endif

#define T_DEF_WARP(NAME, COMBINE, S, T) \
    T_FN T t_warp_##NAME##_##S(T v) { \
        for (int d = 1; d < T_WARP; d *= 2) v = COMBINE##_##S(v, t_shuffle_xor_##S(v, d)); \
        return v; \
    }
#define T_DEF_WARPS(S, T) \
    T_DEF_WARP(sum, t_add, S, T) T_DEF_WARP(prod, t_mul, S, T) \
    T_DEF_WARP(max, t_max, S, T) T_DEF_WARP(min, t_min, S, T)
T_EACH(T_DEF_WARPS)
T_DEF_WARP(any, t_or, bool, int)
T_DEF_WARP(all, t_and, bool, int)
#undef T_DEF_WARPS
#undef T_DEF_WARP

#endif
