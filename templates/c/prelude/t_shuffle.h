/* Lanes of two registers picked by a rule that is known when compiled: T_SHUFFLE_(W, a, b, s) has W(i, s) in lane i, which
 * counts the lanes of a, then those of b; and what is made of that: loads of every second, third or fourth element.
 */
#ifndef T_SHUFFLE_H
#define T_SHUFFLE_H

#include "t_vec.h"

#define T_PICK4_(W, s, i) W(i, s), W((i) + 1, s), W((i) + 2, s), W((i) + 3, s)
#if TORSHC_LANES == 1
#define T_PICK_(W, s) W(0, s)
#elif TORSHC_LANES == 4
#define T_PICK_(W, s) T_PICK4_(W, s, 0)
#elif TORSHC_LANES == 8
#define T_PICK_(W, s) T_PICK4_(W, s, 0), T_PICK4_(W, s, 4)
#else
#define T_PICK_(W, s) T_PICK4_(W, s, 0), T_PICK4_(W, s, 4), T_PICK4_(W, s, 8), T_PICK4_(W, s, 12)
#endif

#ifdef __has_builtin
#if __has_builtin(__builtin_shufflevector)
#define T_SHUFFLE_(W, a, b, s) __builtin_shufflevector(a, b, T_PICK_(W, s))
#endif
#endif
#ifndef T_SHUFFLE_ /* gcc below 12 */
#define T_SHUFFLE_(W, a, b, s) \
    ({ \
        const int from_[] = {T_PICK_(W, s)}; \
        __typeof__(a) a_ = (a), b_ = (b), r_; \
        for (int i_ = 0; i_ < TORSHC_LANES; i_++) \
            r_[i_] = from_[i_] < TORSHC_LANES ? a_[from_[i_]] : b_[from_[i_] - TORSHC_LANES]; \
        r_; \
    })
#endif

/* t_load2_f32(p): p[0], p[2], p[4] and so on; t_loadr_f32(p): p[0], p[-1], p[-2]; t_loadh_f32(p): p[0], p[0], p[1], p[1],
 * and t_loadhn_f32(p, n) the first n of these.  Vectors share an element with the next,
 * so that none reaches behind the last one that is asked for: vector j begins at element j * (lanes - 1). */
#define T_LAST_ (TORSHC_LANES - 1)
#define T_IN_(x) (TORSHC_LANES + ((x) > T_LAST_ ? T_LAST_ : (x)))
#define T_JOIN1_(i, s) ((s) * (i) <= T_LAST_ ? (s) * (i) : T_IN_((s) * (i)-T_LAST_))
#define T_JOIN2_(i, s) ((s) * (i) <= 2 * T_LAST_ ? (i) : T_IN_((s) * (i)-2 * T_LAST_))
#define T_JOIN3_(i, s) ((s) * (i) <= 3 * T_LAST_ ? (i) : T_IN_((s) * (i)-3 * T_LAST_))
#define T_REVERSED_(i, s) (T_LAST_ - (i))
#define T_HALVED_(i, s) ((i) / 2)
/* Of integers of each width; other elements as wide are the same bits. */
#define T_DEF_STEPS(S, T) \
    T_FN S##v t_part_##S##_(const void *p, int j) { return t_load_##S((const T *)p + j * T_LAST_); } \
    T_FN S##v t_load2_##S(const void *p) { return T_SHUFFLE_(T_JOIN1_, t_part_##S##_(p, 0), t_part_##S##_(p, 1), 2); } \
    T_FN S##v t_load3_##S(const void *p) { \
        const S##v v = T_SHUFFLE_(T_JOIN1_, t_part_##S##_(p, 0), t_part_##S##_(p, 1), 3); \
        return T_SHUFFLE_(T_JOIN2_, v, t_part_##S##_(p, 2), 3); \
    } \
    T_FN S##v t_load4_##S(const void *p) { \
        const S##v v = T_SHUFFLE_(T_JOIN1_, t_part_##S##_(p, 0), t_part_##S##_(p, 1), 4); \
        const S##v w = T_SHUFFLE_(T_JOIN2_, v, t_part_##S##_(p, 2), 4); \
        return T_SHUFFLE_(T_JOIN3_, w, t_part_##S##_(p, 3), 4); \
    } \
    T_FN S##v t_loadr_##S(const void *p) { \
        const S##v v = t_load_##S((const T *)p - T_LAST_); \
        return T_SHUFFLE_(T_REVERSED_, v, v, 0); \
    } \
    T_FN S##v t_loadhn_##S(const void *p, int64_t n) { \
        const S##v v = t_loadn_##S(p, (n + 1) / 2); \
        return T_SHUFFLE_(T_HALVED_, v, v, 0); \
    } \
    T_FN S##v t_loadh_##S(const void *p) { return t_loadhn_##S(p, TORSHC_LANES); }
T_DEF_STEPS(i8, int8_t)
T_DEF_STEPS(i16, int16_t)
T_DEF_STEPS(i32, int32_t)
T_DEF_STEPS(i64, int64_t)
#undef T_DEF_STEPS
#define T_DEF_STEPS_AS(S, U) \
    T_FN S##v t_load2_##S(const void *p) { return (S##v)t_load2_##U(p); } \
    T_FN S##v t_load3_##S(const void *p) { return (S##v)t_load3_##U(p); } \
    T_FN S##v t_load4_##S(const void *p) { return (S##v)t_load4_##U(p); } \
    T_FN S##v t_loadr_##S(const void *p) { return (S##v)t_loadr_##U(p); } \
    T_FN S##v t_loadh_##S(const void *p) { return (S##v)t_loadh_##U(p); } \
    T_FN S##v t_loadhn_##S(const void *p, int64_t n) { return (S##v)t_loadhn_##U(p, n); }
T_DEF_STEPS_AS(u8, i8)
T_DEF_STEPS_AS(u16, i16)
T_DEF_STEPS_AS(u32, i32)
T_DEF_STEPS_AS(f32, i32)
T_DEF_STEPS_AS(u64, i64)
T_DEF_STEPS_AS(f64, i64)
#undef T_DEF_STEPS_AS
#define T_DEF_STEPS_OF(N, S, U) \
    T_FN S##v t_load2_##N(const void *p) { return t_decode_##N(t_load2_##U(p)); } \
    T_FN S##v t_load3_##N(const void *p) { return t_decode_##N(t_load3_##U(p)); } \
    T_FN S##v t_load4_##N(const void *p) { return t_decode_##N(t_load4_##U(p)); } \
    T_FN S##v t_loadr_##N(const void *p) { return t_decode_##N(t_loadr_##U(p)); } \
    T_FN S##v t_loadh_##N(const void *p) { return t_decode_##N(t_loadh_##U(p)); } \
    T_FN S##v t_loadhn_##N(const void *p, int64_t n) { return t_decode_##N(t_loadhn_##U(p, n)); }
T_DEF_STEPS_OF(bool, i32, u8)

#endif
