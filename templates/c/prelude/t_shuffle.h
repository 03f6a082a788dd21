/* Lanes of two registers picked by numbers that are known when compiled, which count the lanes of a, then those of b:
 * T_SHUFFLE(a, b, ...) lists them, T_SHUFFLE_(W, a, b, s) has W(i, s) in lane i; and what is made of that: loads of every
 * second, third or fourth element.
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
#define T_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#endif
#endif
#ifndef T_SHUFFLE /* gcc below 12 */
#define T_SHUFFLE(a, b, ...) \
    ({ \
        const int from_[] = {__VA_ARGS__}; \
        __typeof__(a) a_ = (a), b_ = (b), r_; \
        for (int i_ = 0; i_ < TORSHC_LANES; i_++) \
            r_[i_] = from_[i_] < TORSHC_LANES ? a_[from_[i_]] : b_[from_[i_] - TORSHC_LANES]; \
        r_; \
    })
#endif

#define T_SHUFFLE_(W, a, b, s) T_SHUFFLE(a, b, T_PICK_(W, s))

/* The lanes of what follows here and of sums over lanes, in numbers: compilers take long to read rules. Steps of 2, and of
 * 3 and 4 as far as the first two vectors reach, then with the third and the fourth. */
#if TORSHC_LANES == 16
#define T_BY2_ 0, 2, 4, 6, 8, 10, 12, 14, 17, 19, 21, 23, 25, 27, 29, 31
#define T_BY3_ 0, 3, 6, 9, 12, 15, 19, 22, 25, 28, 31, 31, 31, 31, 31, 31
#define T_BY3_MORE_ 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 19, 22, 25, 28, 31
#define T_BY4_ 0, 4, 8, 12, 17, 21, 25, 29, 31, 31, 31, 31, 31, 31, 31, 31
#define T_BY4_MORE_ 0, 1, 2, 3, 4, 5, 6, 7, 18, 22, 26, 30, 31, 31, 31, 31
#define T_BY4_LAST_ 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 19, 23, 27, 31
#define T_REVERSED_ 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0
#define T_HALVED_ 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7
#define T_UPPER_TWICE_ 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13, 14, 14, 15, 15
#define T_TURNED8_ 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7
#define T_TURNED4_ 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3
#define T_TURNED2_ 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1
#define T_TURNED1_ 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0
#elif TORSHC_LANES == 8
#define T_BY2_ 0, 2, 4, 6, 9, 11, 13, 15
#define T_BY3_ 0, 3, 6, 10, 13, 15, 15, 15
#define T_BY3_MORE_ 0, 1, 2, 3, 4, 9, 12, 15
#define T_BY4_ 0, 4, 9, 13, 15, 15, 15, 15
#define T_BY4_MORE_ 0, 1, 2, 3, 10, 14, 15, 15
#define T_BY4_LAST_ 0, 1, 2, 3, 4, 5, 11, 15
#define T_REVERSED_ 7, 6, 5, 4, 3, 2, 1, 0
#define T_HALVED_ 0, 0, 1, 1, 2, 2, 3, 3
#define T_UPPER_TWICE_ 4, 4, 5, 5, 6, 6, 7, 7
#define T_TURNED8_ 0, 1, 2, 3, 4, 5, 6, 7
#define T_TURNED4_ 4, 5, 6, 7, 0, 1, 2, 3
#define T_TURNED2_ 2, 3, 4, 5, 6, 7, 0, 1
#define T_TURNED1_ 1, 2, 3, 4, 5, 6, 7, 0
#elif TORSHC_LANES == 4
#define T_BY2_ 0, 2, 5, 7
#define T_BY3_ 0, 3, 7, 7
#define T_BY3_MORE_ 0, 1, 2, 7
#define T_BY4_ 0, 5, 7, 7
#define T_BY4_MORE_ 0, 1, 6, 7
#define T_BY4_LAST_ 0, 1, 2, 7
#define T_REVERSED_ 3, 2, 1, 0
#define T_HALVED_ 0, 0, 1, 1
#define T_TURNED8_ 0, 1, 2, 3
#define T_TURNED4_ 0, 1, 2, 3
#define T_TURNED2_ 2, 3, 0, 1
#define T_TURNED1_ 1, 2, 3, 0
#else
#define T_BY2_ 0
#define T_BY3_ 0
#define T_BY3_MORE_ 0
#define T_BY4_ 0
#define T_BY4_MORE_ 0
#define T_BY4_LAST_ 0
#define T_REVERSED_ 0
#define T_HALVED_ 0
#define T_TURNED8_ 0
#define T_TURNED4_ 0
#define T_TURNED2_ 0
#define T_TURNED1_ 0
#endif

/* t_load2_f32(p): p[0], p[2], p[4] and so on; t_loadr_f32(p): p[0], p[-1], p[-2]; t_loadh_f32(p): p[0], p[0], p[1], p[1],
 * and t_loadhn_f32(p, n) the first n of these.  Vectors share an element with the next,
 * so that none reaches behind the last one that is asked for: vector j begins at element j * (lanes - 1). */
#define T_LAST_ (TORSHC_LANES - 1)
/* Of integers of each width; other elements as wide are the same bits. */
#define T_DEF_STEPS(S, T) \
    T_FN S##v t_part_##S##_(const void *p, int j) { return t_load_##S((const T *)p + j * T_LAST_); } \
    T_FN S##v t_load2_##S(const void *p) { return T_SHUFFLE(t_part_##S##_(p, 0), t_part_##S##_(p, 1), T_BY2_); } \
    T_FN S##v t_load3_##S(const void *p) { \
        const S##v v = T_SHUFFLE(t_part_##S##_(p, 0), t_part_##S##_(p, 1), T_BY3_); \
        return T_SHUFFLE(v, t_part_##S##_(p, 2), T_BY3_MORE_); \
    } \
    T_FN S##v t_load4_##S(const void *p) { \
        const S##v v = T_SHUFFLE(t_part_##S##_(p, 0), t_part_##S##_(p, 1), T_BY4_); \
        const S##v w = T_SHUFFLE(v, t_part_##S##_(p, 2), T_BY4_MORE_); \
        return T_SHUFFLE(w, t_part_##S##_(p, 3), T_BY4_LAST_); \
    } \
    T_FN S##v t_loadr_##S(const void *p) { \
        const S##v v = t_load_##S((const T *)p - T_LAST_); \
        return T_SHUFFLE(v, v, T_REVERSED_); \
    } \
    T_FN S##v t_loadhn_##S(const void *p, int64_t n) { \
        const S##v v = t_loadn_##S(p, (n + 1) / 2); \
        return T_SHUFFLE(v, v, T_HALVED_); \
    } \
    T_FN S##v t_loadh_##S(const void *p) { return t_loadhn_##S(p, TORSHC_LANES); }
T_DEF_STEPS(i8, int8_t)
#ifndef T_FEW_TYPES
T_DEF_STEPS(i16, int16_t)
#endif
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
T_DEF_STEPS_AS(f32, i32)
#ifndef T_FEW_TYPES
T_DEF_STEPS_AS(u16, i16)
T_DEF_STEPS_AS(u32, i32)
T_DEF_STEPS_AS(u64, i64)
T_DEF_STEPS_AS(f64, i64)
#endif
#undef T_DEF_STEPS_AS
#define T_DEF_STEPS_OF(N, S, U) \
    T_FN S##v t_load2_##N(const void *p) { return t_decode_##N(t_load2_##U(p)); } \
    T_FN S##v t_load3_##N(const void *p) { return t_decode_##N(t_load3_##U(p)); } \
    T_FN S##v t_load4_##N(const void *p) { return t_decode_##N(t_load4_##U(p)); } \
    T_FN S##v t_loadr_##N(const void *p) { return t_decode_##N(t_loadr_##U(p)); } \
    T_FN S##v t_loadh_##N(const void *p) { return t_decode_##N(t_loadh_##U(p)); } \
    T_FN S##v t_loadhn_##N(const void *p, int64_t n) { return t_decode_##N(t_loadhn_##U(p, n)); }
T_DEF_STEPS_OF(bool, i32, u8)

#ifdef T_MASKED
T_FN i32v t_even_lanes_(void) {
    i32v even = {0};
    for (int i = 0; i < TORSHC_LANES; i++) even[i] = i % 2 - 1;
    return even;
}
/* p[0], p[2], p[4] and so on of the lanes whose mask is set, as of t_load2_f32. */
T_FN f32v t_maskload2_(const void *p, i32v mask) {
    const f32v low = t_maskload_(p, T_SHUFFLE(mask, mask, T_HALVED_) & t_even_lanes_());
    const f32v high = t_maskload_((const float *)p + T_LAST_, T_SHUFFLE(mask, mask, T_UPPER_TWICE_) & ~t_even_lanes_());
    return T_SHUFFLE(low, high, T_BY2_);
}
#endif

/* t_store2_f32(p, v): lanes to p[0], p[2], p[4] and so on; what lies between them stays. A masked store of AVX2 takes a Zen
 * as long as twelve stores of a lane. */
T_FN void t_store2_f32(void *p, f32v v) {
#if defined T_MASKED && TORSHC_LANES == 16
    const i32v even = t_even_lanes_();
    t_maskstore_(p, T_SHUFFLE(v, v, T_HALVED_), even);
    t_maskstore_((float *)p + TORSHC_LANES, T_SHUFFLE(v, v, T_UPPER_TWICE_), even);
#else
    for (int i = 0; i < TORSHC_LANES; i++) ((float *)p)[2 * i] = v[i];
#endif
}
T_FN void t_store2_i32(void *p, i32v v) { t_store2_f32(p, (f32v)v); }

#endif
