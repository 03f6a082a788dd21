/* Casts between register dtypes: t_cast_<from>_<to>(v), <from> and <to> each one of
 * f32 f64 i8 u8 i16 u16 i32 u32 i64 u64 bool.
 *
 * Integer to integer keeps the low bits; to float rounds to nearest even; to bool is != 0.
 * Float to integer truncates.  What C leaves undefined is defined: values beyond the range
 * saturate, NaN gives 0.
 */
#ifndef T_CAST_H
#define T_CAST_H

#include "t_vec.h"

/* X(from, to) for integers; narrow ones go to floats through i32, as gcc has no direct vector conversion. */
#define T_DEF_CAST(F, S) T_FN S##v t_cast_##F##_##S(F##v v) { return T_CONV(v, S); }
#define T_DEF_NARROW(F) T_FN f32v t_cast_##F##_f32(F##v v) { return T_CONV(T_CONV(v, i32), f32); }
#ifdef T_FEW_TYPES
#define T_CAST_INT_TO(F, X) X(F, i8) X(F, u8) X(F, i32) X(F, i64)
#else
#define T_CAST_INT_TO(F, X) X(F, i8) X(F, u8) X(F, i16) X(F, u16) X(F, i32) X(F, u32) X(F, i64) X(F, u64)
#endif
T_CAST_INT_TO(i8, T_DEF_CAST)
T_CAST_INT_TO(u8, T_DEF_CAST)
T_CAST_INT_TO(i32, T_DEF_CAST)
T_CAST_INT_TO(i64, T_DEF_CAST)
T_DEF_NARROW(i8)
T_DEF_NARROW(u8)
T_DEF_CAST(i32, f32)
T_DEF_CAST(i64, f32)
T_DEF_CAST(f32, f32)
#ifndef T_FEW_TYPES
T_CAST_INT_TO(i16, T_DEF_CAST)
T_CAST_INT_TO(u16, T_DEF_CAST)
T_CAST_INT_TO(u32, T_DEF_CAST)
T_CAST_INT_TO(u64, T_DEF_CAST)
T_DEF_NARROW(i16)
T_DEF_NARROW(u16)
T_DEF_CAST(u32, f32)
T_DEF_CAST(u64, f32)
T_DEF_CAST(f64, f32)
#define T_DEF_NARROW_WIDE(F) T_FN f64v t_cast_##F##_f64(F##v v) { return T_CONV(T_CONV(v, i32), f64); }
T_DEF_NARROW_WIDE(i8)
T_DEF_NARROW_WIDE(u8)
T_DEF_NARROW_WIDE(i16)
T_DEF_NARROW_WIDE(u16)
T_DEF_CAST(i32, f64)
T_DEF_CAST(u32, f64)
T_DEF_CAST(i64, f64)
T_DEF_CAST(u64, f64)
T_DEF_CAST(f32, f64)
T_DEF_CAST(f64, f64)
#undef T_DEF_NARROW_WIDE
#endif
#undef T_DEF_CAST
#undef T_DEF_NARROW
#undef T_CAST_INT_TO

/* Clamps to [low, high] and turns NaN into 0, so that the conversion is defined; a low of 0 does both at once. */
#define T_DEF_CLAMP(F, T, M) \
    T_FN F##v t_clamp_##F##_(F##v x, T low, T high) { \
        M##v above = (M##v)(x > low); \
        F##v r = (F##v)(((M##v)x & above) | ((M##v)t_splat_##F(low) & ~above)); \
        M##v under = (M##v)(r < high); \
        r = (F##v)(((M##v)r & under) | ((M##v)t_splat_##F(high) & ~under)); \
        return low == 0 ? r : (F##v)((M##v)r & (M##v)(x == x)); \
    }
T_EACH_FLOAT(T_DEF_CLAMP)
#undef T_DEF_CLAMP

/* Both limits are floats: the clamped value converts exactly. */
#define T_DEF_TRUNC(F, S, LOW, HIGH) \
    T_FN S##v t_cast_##F##_##S(F##v x) { return T_CONV(T_CONV(t_clamp_##F##_(x, LOW, HIGH), i32), S); }
/* HIGH is the last float below the integers' end; the maximum is put in by mask. */
#define T_DEF_TRUNC_WIDE(F, S, LOW, HIGH, MAX) \
    T_FN S##v t_cast_##F##_##S(F##v x) { \
        S##v r = T_CONV(t_clamp_##F##_(x, LOW, HIGH), S); \
        S##v over = T_CONV(x > HIGH, S); \
        return (r & ~over) | (t_splat_##S(MAX) & over); \
    }
#define T_DEF_TRUNC_SMALL(F, T, M) \
    T_DEF_TRUNC(F, i8, -128, 127) T_DEF_TRUNC(F, u8, 0, 255) \
    T_DEF_TRUNC(F, i16, -32768, 32767) T_DEF_TRUNC(F, u16, 0, 65535)
T_DEF_TRUNC_WIDE(f32, i32, -0x1p31f, 0x1.fffffep30f, INT32_MAX)
T_DEF_TRUNC_WIDE(f32, i64, -0x1p63f, 0x1.fffffep62f, INT64_MAX)
#ifndef T_FEW_TYPES
T_EACH_FLOAT(T_DEF_TRUNC_SMALL)
T_DEF_TRUNC_WIDE(f32, u32, 0, 0x1.fffffep31f, UINT32_MAX)
T_DEF_TRUNC_WIDE(f32, u64, 0, 0x1.fffffep63f, UINT64_MAX)
T_DEF_TRUNC(f64, i32, -0x1p31, 0x1.fffffffcp30)
T_DEF_TRUNC_WIDE(f64, u32, 0, 0x1.fffffffep31, UINT32_MAX)
T_DEF_TRUNC_WIDE(f64, i64, -0x1p63, 0x1.fffffffffffffp62, INT64_MAX)
T_DEF_TRUNC_WIDE(f64, u64, 0, 0x1.fffffffffffffp63, UINT64_MAX)
#endif
#undef T_DEF_TRUNC
#undef T_DEF_TRUNC_WIDE
#undef T_DEF_TRUNC_SMALL

#define T_DEF_TO_BOOL(F, T, M) \
    T_FN i32v t_cast_##F##_bool(F##v v) { return T_CONV((M##v)(v != 0), i32); }
T_EACH(T_DEF_TO_BOOL)
#undef T_DEF_TO_BOOL
#define T_DEF_FROM_BOOL(S, T, M) \
    T_FN S##v t_cast_bool_##S(i32v m) { return t_cast_i32_##S(m & 1); }
T_EACH(T_DEF_FROM_BOOL)
#undef T_DEF_FROM_BOOL
T_FN i32v t_cast_bool_bool(i32v m) { return m; }

/* Floats as their bits, and back. */
T_FN u32v t_raw32_f32(f32v x) { return (u32v)x; }
T_FN u64v t_raw64_f64(f64v x) { return (u64v)x; }
T_FN f32v t_float32_u32(u32v x) { return (f32v)x; }
T_FN f64v t_float64_u64(u64v x) { return (f64v)x; }

#endif
