/* Products of bytes, u8 by i8, by Arm's instructions; t_dot.h says what they are for.
 *
 * With I8MM one adds four products to each of four sums (usdot), or eight to each of 2 x 2 sums of two rows and two columns
 * (usmmla).  Before that only bytes that are both signed had such an instruction (sdot): there 128 is taken from each byte of
 * a row, and 128 times the sum of the weights added.  Sums wrap in between, as those of integers may.
 */
#ifndef T_DOT_ARM_H
#define T_DOT_ARM_H

#include "t_arm.h"
#include "t_tile.h"

#ifdef __ARM_FEATURE_MATMUL_INT8
T_FN i32v t_dot4(i32v acc, u32v x, i32v w) {
    T_ARM_("usdot %0.4s, %1.16b, %2.16b", acc, x, w);
    return acc;
}

/* acc[r][v] += sum over i < n of a[r][i] * b[i][v], two rows or more; n, the largest multiple of 8 up to k, is returned. */
T_FN int t_dot_most(const int rows, const int vecs, int k, const uint8_t *const *row, const int32_t *b,
                    i32v acc[T_MR][T_NV]) {
    i32v square[T_MR / 2 + 1][T_NV][2];
    int i = 0;
    T_UNROLL for (int p = 0; p < rows / 2; p++)
        T_UNROLL for (int v = 0; v < vecs; v++) square[p][v][0] = square[p][v][1] = (i32v){0};
    for (; i + 8 <= k; i += 8, b += 2 * T_NR) {
        t_two_rows x[T_MR / 2 + 1];
        T_UNROLL for (int p = 0; p < rows / 2; p++) x[p] = t_rows_of_8(row[2 * p] + i, row[2 * p + 1] + i);
        if (rows % 2) x[rows / 2] = t_rows_of_8(row[rows - 1] + i, row[rows - 1] + i);
        T_UNROLL for (int v = 0; v < vecs; v++) {
            const i32v w0 = t_load_i32(b + v * 4), w1 = t_load_i32(b + T_NR + v * 4);
            const i32v low = T_SHUFFLE_(T_LOWER_, w0, w1, TORSHC_LANES), high = T_SHUFFLE_(T_UPPER_, w0, w1, TORSHC_LANES);
            T_UNROLL for (int p = 0; p < rows / 2; p++) {
                T_ARM_("usmmla %0.4s, %1.16b, %2.16b", square[p][v][0], x[p], low);
                T_ARM_("usmmla %0.4s, %1.16b, %2.16b", square[p][v][1], x[p], high);
            }
            if (rows % 2) {
                T_ARM_("sudot %0.4s, %1.16b, %2.4b[0]", acc[rows - 1][v], w0, x[rows / 2]);
                T_ARM_("sudot %0.4s, %1.16b, %2.4b[1]", acc[rows - 1][v], w1, x[rows / 2]);
            }
        }
    }
    T_UNROLL for (int p = 0; p < rows / 2; p++)
        T_UNROLL for (int v = 0; v < vecs; v++) {
            acc[2 * p][v] += (i32v)T_SQUARES_ROW_(0, square[p][v][0], square[p][v][1]);
            acc[2 * p + 1][v] += (i32v)T_SQUARES_ROW_(1, square[p][v][0], square[p][v][1]);
        }
    return i;
}
#else
#define T_ONES_ t_splat_u32(0x01010101)
#define T_LESS_128_ 0x80808080 /* from each byte of a word: as signed ones they are what was unsigned, less 128 */

T_FN i32v t_dot4(i32v acc, u32v x, i32v w) {
    i32v weights = {0};
    T_ARM_("sdot %0.4s, %1.16b, %2.16b", weights, T_ONES_, w);
    acc = (i32v)((u32v)acc + ((u32v)weights << 7));
    T_ARM_("sdot %0.4s, %1.16b, %2.16b", acc, x ^ T_LESS_128_, w);
    return acc;
}

/* acc[r][v] += sum over i < n of a[r][i] * b[i][v]; n, the largest multiple of 16 up to k, is returned. */
T_FN int t_dot_most(const int rows, const int vecs, int k, const uint8_t *const *row, const int32_t *b,
                    i32v acc[T_MR][T_NV]) {
    i32v weights[T_NV];
    int i = 0;
    T_UNROLL for (int v = 0; v < vecs; v++) weights[v] = (i32v){0};
    for (; i + 16 <= k; i += 16, b += 4 * T_NR) {
        u32v x[T_MR];
        T_UNROLL for (int r = 0; r < rows; r++) x[r] = t_load_u32(row[r] + i) ^ T_LESS_128_;
#define T_WORD_(q) \
    T_UNROLL for (int v = 0; v < vecs; v++) { \
        const i32v w = t_load_i32(b + q * T_NR + v * 4); \
        T_ARM_("sdot %0.4s, %1.16b, %2.16b", weights[v], T_ONES_, w); \
        T_UNROLL for (int r = 0; r < rows; r++) T_ARM_("sdot %0.4s, %1.16b, %2.4b[" #q "]", acc[r][v], w, x[r]); \
    }
        T_WORD_(0) T_WORD_(1) T_WORD_(2) T_WORD_(3)
#undef T_WORD_
    }
    T_UNROLL for (int r = 0; r < rows; r++)
        T_UNROLL for (int v = 0; v < vecs; v++) acc[r][v] = (i32v)((u32v)acc[r][v] + ((u32v)weights[v] << 7));
    return i;
}
#endif

#endif
