/* Factors of products of bf16 by tiles that only a run knows, put into tiles [16][32] of a left factor and into panels of
 * 16 words of two k of a right one (t_bf16_amx.h). */
#ifndef T_BF16_PACK_H
#define T_BF16_PACK_H

#include "t_transpose.h"

/* TORSHC_LANES words of two elements, zeros from element `count` on. */
T_FN u32v t_bf16_words_(const uint16_t *p, int64_t count) {
    uint16_t some[2 * TORSHC_LANES] = {0};
    if (count >= 2 * TORSHC_LANES) return t_load_u32(p);
    for (int i = 0; i < count; i++) some[i] = p[i];
    return t_load_u32(some);
}

/* 16 columns of a right factor, each of which is a row of `from`: a panel of `depth` k, up to a multiple of 32.  Columns from
 * `columns` on are zeros. */
static __attribute__((unused)) void t_bf16_turn_rows(const uint16_t *from, int64_t row, int64_t columns, int depth,
                                                     uint32_t *panel) {
    for (int n = 0; n < 16; n += TORSHC_LANES)
        for (int k = 0; k < (depth + 31) / 32 * 16; k += TORSHC_LANES) {
            u32v x[TORSHC_LANES];
            T_UNROLL for (int i = 0; i < TORSHC_LANES; i++)
                x[i] = n + i < columns ? t_bf16_words_(from + (n + i) * row + 2 * k, depth - 2 * k) : (u32v){0};
            t_transpose_u32(x);
            T_UNROLL for (int i = 0; i < TORSHC_LANES; i++) t_store_u32(panel + (k + i) * 16 + n, x[i]);
        }
}

/* 16 rows of a left factor, each of which is a column of `from`: the tile of 32 k at its rows, zeros from k `count` and row
 * `rows` on. */
static __attribute__((unused)) void t_bf16_turn_columns(const uint16_t *from, int64_t row, int64_t rows, int64_t count,
                                                        uint16_t *tile) {
    for (int m = 0; m < 16; m += TORSHC_LANES)
        for (int k = 0; k < 16; k += TORSHC_LANES) {
            u32v x[TORSHC_LANES];
            T_UNROLL for (int i = 0; i < TORSHC_LANES; i++) {
                const int64_t even = 2 * (k + i);
                x[i] = even < count ? T_CONV(t_loadn_u16(from + even * row + m, rows - m), u32) : (u32v){0};
                if (even + 1 < count) x[i] |= T_CONV(t_loadn_u16(from + (even + 1) * row + m, rows - m), u32) << 16;
            }
            t_transpose_u32(x);
            T_UNROLL for (int i = 0; i < TORSHC_LANES; i++) t_store_u32(tile + (m + i) * 32 + 2 * k, x[i]);
        }
}

/* Floats, none of them subnormal, rounded to bf16, the nearest, ties to even, as floats. */
T_FN f32v t_bf16_round(f32v x) {
#ifdef T_ENCODE_NORMAL_BF16
    return (f32v)(T_CONV(T_ENCODE_NORMAL_BF16(x), u32) << 16);
#else
    const u32v w = (u32v)x, nan = (u32v)(x != x);
    return (f32v)(((w + 0x7fff + (w >> 16 & 1)) & 0xffff0000 & ~nan) | (nan & 0x7fc00000));
#endif
}

#endif
