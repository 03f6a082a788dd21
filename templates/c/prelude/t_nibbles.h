/* Products of rows of floats with numbers of 4 bits: T_MR rows by T_NV vectors of columns.
 *
 * Rows are digits, see t_digits.h.  A panel of 16 columns holds words of eight k, each 8 too large: byte j has k = j in its
 * lower half and k = j + 4 in the upper one.  Sums over a group are exact: 15 * 32 * 127 * 2^14 < 2^30.  Groups of floats
 * are multiplied as floats.
 */
#ifndef T_NIBBLES_H
#define T_NIBBLES_H

#include "t_ahead.h"
#include "t_digits.h"
#include "t_dot.h"

#define T_PER (16 / TORSHC_LANES) /* vectors of a panel */
#define T_LINES (T_GROUP / 8)     /* words of a column in a group */
#define T_AHEAD (T_NV == T_PER ? 8192 : 2560) /* bytes of a panel, as measured; a quarter of its scales */

/* sum over k of a group, as floats. */
static __attribute__((noinline)) f32v t_nibbles_plain(const float *x, const uint32_t *b) {
    f32v sum = {0};
    for (int k = 0; k < T_GROUP; k++) {
        const u32v word = t_load_u32(b + k / 8 * 16) >> (uint32_t)(k % 4 * 8 + k / 4 % 2 * 4);
        sum += t_splat_f32(x[k]) * (t_cast_i32_f32((i32v)(word & 15)) - 8.0f);
    }
    return sum;
}

/* Sums of products of bytes over a group: in i32 where an instruction adds four of them, else by one that adds two, in i16,
 * which holds 32 / 4 * 2 * 15 * 127 < 2^15. */
#if defined(T_PAIR_BYTES_) && !defined(T_DOT4_)
#define T_BESIDE 2 /* vectors whose sums registers hold */
typedef t_halves t_part;

T_FN t_part t_nibbles_add(t_part acc, u32v x, i32v digits) {
    return acc + T_PAIR_BYTES_(x, digits);
}

T_FN i32v t_nibbles_total(t_part acc, const int16_t unit) {
    return T_MADD_(acc, (t_halves){0} + unit);
}
#else
#define T_BESIDE T_NV
typedef i32v t_part;

T_FN t_part t_nibbles_add(t_part acc, u32v x, i32v digits) {
    return t_dot4(acc, x, digits);
}

T_FN i32v t_nibbles_total(t_part acc, const int16_t unit) {
    return acc * unit;
}
#endif

/* Four digits in every lane. */
T_FN i32v t_nibbles_digits(const int8_t *p) {
    int32_t x;
    __builtin_memcpy(&x, p, 4);
    return t_splat_i32(x);
}

/* acc[r][v] = sum over groups and the k in them of a[r][k] * (b[k][v] * scale[k / block][v]).  Rows are `a_row` floats and
 * `groups` digits apart, panels of words and of scales `panel` and `scales`. */
T_FN void t_nibbles_sums(const int rows, const int vecs, const int block, int groups, const float *a, int64_t a_row,
                         const struct t_digits *digits, const uint32_t *b, int64_t panel, const float *scale,
                         int64_t scales, f32v acc[T_MR][T_NV]) {
    T_UNROLL for (int r = 0; r < rows; r++)
        T_UNROLL for (int v = 0; v < vecs; v++) acc[r][v] = (f32v){0};
    for (int g = 0; g < groups; g++, b += T_LINES * 16, digits++) {
        const float *factors = scale + g * T_GROUP / block * 16;
        T_UNROLL for (int v = 0; v < vecs; v += T_PER) {
            for (int i = 0; i < T_LINES; i++) t_ask_ahead(b + v / T_PER * panel + i * 16, T_AHEAD, 1);
            t_ask_ahead(factors + v / T_PER * scales, T_AHEAD / 4, 1);
        }
        T_UNROLL for (int r = 0; r < rows; r++) {
            const struct t_digits *x = digits + r * groups;
            const float unit = x->plain ? 1.0f : x->scale;
            f32v sum[T_NV];
            if (__builtin_expect(x->plain, 0)) {
                T_UNROLL for (int v = 0; v < vecs; v++)
                    sum[v] = t_nibbles_plain(a + r * a_row + g * T_GROUP, b + v / T_PER * panel + v % T_PER * TORSHC_LANES);
            } else {
                T_UNROLL for (int first = 0; first < vecs; first += T_BESIDE) {
                    const int end = first + T_BESIDE < vecs ? first + T_BESIDE : vecs;
                    t_part part[T_BESIDE][3];
                    T_UNROLL for (int v = first; v < end; v++)
                        T_UNROLL for (int d = 0; d < 3; d++) part[v - first][d] = (t_part){0};
                    T_UNROLL for (int i = 0; i < T_LINES; i++)
                        T_UNROLL for (int v = first; v < end; v++) {
                            const u32v word = t_load_u32(b + v / T_PER * panel + i * 16 + v % T_PER * TORSHC_LANES);
                            const u32v low = word & 0x0f0f0f0f, high = word >> 4 & 0x0f0f0f0f;
                            T_UNROLL for (int d = 0; d < 3; d++) {
                                t_part *to = &part[v - first][d];
                                *to = t_nibbles_add(*to, low, t_nibbles_digits(x->digit[d] + 8 * i));
                                *to = t_nibbles_add(*to, high, t_nibbles_digits(x->digit[d] + 8 * i + 4));
                            }
                        }
                    T_UNROLL for (int v = first; v < end; v++) {
                        i32v total = t_splat_i32(-x->excess);
                        T_UNROLL for (int d = 0; d < 3; d++) total += t_nibbles_total(part[v - first][d], 1 << (14 - 7 * d));
                        sum[v] = t_cast_i32_f32(total);
                    }
                }
            }
            T_UNROLL for (int v = 0; v < vecs; v++)
                acc[r][v] += sum[v] * (t_load_f32(factors + v / T_PER * scales + v % T_PER * TORSHC_LANES) * unit);
        }
    }
}
#endif
