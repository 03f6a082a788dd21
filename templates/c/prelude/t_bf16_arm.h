/* Products of bf16 by Arm's instructions, which add two products to each of four sums (bfdot) or four to each of 2 x 2 sums
 * of two rows and two columns (bfmmla), as one after the other of two would.
 *
 * The two products of a pair are added first, and their sum is then.  Sums are rounded to odd: what is not exact gets the one
 * of its two neighbours whose last bit is 1.  Numbers below 2^-126, read or made, are zeros of their sign.  Processors with
 * EBF16 do otherwise only where a program asks them to.
 */
#ifndef T_BF16_ARM_H
#define T_BF16_ARM_H

#include "t_arm.h"
#include "t_tile.h"

#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC) && TORSHC_LANES == 4
T_FN f32v t_pair_(f32v acc, u32v x, u32v w) {
    T_ARM_("bfdot %0.4s, %1.8h, %2.8h", acc, w, x);
    return acc;
}

/* acc[r][v] += sum over i < n of a[r][i] * b[i][v]; n, the largest multiple of 4 up to k, is returned. */
T_FN int t_bf16_most(const int rows, const int vecs, int k, const uint16_t *a, int64_t a_row, const uint32_t *b,
                     int64_t panel, f32v acc[T_MR][T_NV]) {
    f32v square[T_MR / 2 + 1][T_NV][2];
    int i = 0;
    T_UNROLL for (int p = 0; p < rows / 2; p++)
        T_UNROLL for (int v = 0; v < vecs; v++) {
            square[p][v][0] = (f32v)T_SQUARES_ROW_(0, acc[2 * p][v], acc[2 * p + 1][v]);
            square[p][v][1] = (f32v)T_SQUARES_ROW_(1, acc[2 * p][v], acc[2 * p + 1][v]);
        }
    for (; i + 4 <= k; i += 4, b += 32) {
        t_two_rows x[T_MR / 2 + 1];
        T_UNROLL for (int p = 0; p < rows / 2; p++)
            x[p] = t_rows_of_8(a + 2 * p * a_row + i, a + (2 * p + 1) * a_row + i);
        if (rows % 2) x[rows / 2] = t_rows_of_8(a + (rows - 1) * a_row + i, a + (rows - 1) * a_row + i);
        T_UNROLL for (int v = 0; v < vecs; v++) {
            const u32v w0 = t_bf16_columns(b, panel, v), w1 = t_bf16_columns(b + 16, panel, v);
            const u32v low = T_SHUFFLE_(T_LOWER_, w0, w1, TORSHC_LANES), high = T_SHUFFLE_(T_UPPER_, w0, w1, TORSHC_LANES);
            T_UNROLL for (int p = 0; p < rows / 2; p++) {
                T_ARM_("bfmmla %0.4s, %1.8h, %2.8h", square[p][v][0], x[p], low);
                T_ARM_("bfmmla %0.4s, %1.8h, %2.8h", square[p][v][1], x[p], high);
            }
            if (rows % 2) {
                T_ARM_("bfdot %0.4s, %1.8h, %2.2h[0]", acc[rows - 1][v], w0, x[rows / 2]);
                T_ARM_("bfdot %0.4s, %1.8h, %2.2h[1]", acc[rows - 1][v], w1, x[rows / 2]);
            }
        }
    }
    T_UNROLL for (int p = 0; p < rows / 2; p++)
        T_UNROLL for (int v = 0; v < vecs; v++) {
            acc[2 * p][v] = (f32v)T_SQUARES_ROW_(0, square[p][v][0], square[p][v][1]);
            acc[2 * p + 1][v] = (f32v)T_SQUARES_ROW_(1, square[p][v][0], square[p][v][1]);
        }
    return i;
}
#else
/* Numbers below 2^-126 as zeros. */
T_FN f32v t_flush_(f32v x) {
    const u32v w = (u32v)x;
    return (f32v)(w & ((u32v)((w & 0x7f800000) != 0) | 0x80000000));
}

/* x + y rounded to odd: where the nearest is even, what it lost says on which side the odd neighbour is. */
T_FN f32v t_add_odd_(f32v x, f32v y) {
    const f32v sum = x + y, part = sum - x, lost = (x - (sum - part)) + (y - part);
    const u32v w = (u32v)sum, finite = (u32v)((w & 0x7f800000) != 0x7f800000);
    const u32v moves = finite & (u32v)(lost != 0) & ~w & 1, inwards = ((u32v)lost ^ w) >> 31;
    return t_flush_((f32v)(w + moves - (moves & inwards) * 2));
}

static __attribute__((noinline, unused)) f32v t_pair_(f32v acc, u32v x, u32v w) {
    const f32v even = t_flush_(t_flush_((f32v)(x << 16)) * t_flush_((f32v)(w << 16)));
    const f32v odd = t_flush_(t_flush_((f32v)(x & 0xffff0000)) * t_flush_((f32v)(w & 0xffff0000)));
    return t_add_odd_(acc, t_add_odd_(even, odd));
}
#endif

#endif
