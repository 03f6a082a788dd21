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
            for (int i = 0; i < T_LINES; i++) t_ask_ahead(b + v / T_PER * panel + i * 16, T_AHEAD);
            t_ask_ahead(factors + v / T_PER * scales, T_AHEAD / 4);
        }
        T_UNROLL for (int r = 0; r < rows; r++) {
            const struct t_digits *x = digits + r * groups;
            const float unit = x->plain ? 1.0f : x->scale;
            f32v sum[T_NV];
            if (__builtin_expect(x->plain, 0)) {
                T_UNROLL for (int v = 0; v < vecs; v++)
                    sum[v] = t_nibbles_plain(a + r * a_row + g * T_GROUP, b + v / T_PER * panel + v % T_PER * TORSHC_LANES);
            } else {
                i32v part[T_NV][3];
                T_UNROLL for (int v = 0; v < vecs; v++)
                    T_UNROLL for (int d = 0; d < 3; d++) part[v][d] = (i32v){0};
                T_UNROLL for (int i = 0; i < T_LINES; i++)
                    T_UNROLL for (int v = 0; v < vecs; v++) {
                        const u32v word = t_load_u32(b + v / T_PER * panel + i * 16 + v % T_PER * TORSHC_LANES);
                        const u32v low = word & 0x0f0f0f0f, high = word >> 4 & 0x0f0f0f0f;
                        T_UNROLL for (int d = 0; d < 3; d++) {
                            part[v][d] = t_dot4(part[v][d], low, t_nibbles_digits(x->digit[d] + 8 * i));
                            part[v][d] = t_dot4(part[v][d], high, t_nibbles_digits(x->digit[d] + 8 * i + 4));
                        }
                    }
                T_UNROLL for (int v = 0; v < vecs; v++) {
                    const i32v total = (((part[v][0] << 7) + part[v][1]) << 7) + part[v][2] - x->excess;
                    sum[v] = t_cast_i32_f32(total);
                }
            }
            T_UNROLL for (int v = 0; v < vecs; v++)
                acc[r][v] += sum[v] * (t_load_f32(factors + v / T_PER * scales + v % T_PER * TORSHC_LANES) * unit);
        }
    }
}
#endif
