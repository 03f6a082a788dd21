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

#if TORSHC_LANES == 16 && defined(__AVX512BF16__)
/* Words of two floats rounded to bf16, the nearest, ties to even, the first one below; of none subnormal. */
T_FN u32v t_bf16_pair(f32v first, f32v second) {
    u32v beside;
    typedef uint16_t halves __attribute__((vector_size(64)));
    __asm__("vcvtne2ps2bf16 %1, %2, %0" : "=v"(beside) : "v"(first), "v"(second));
    return (u32v)__builtin_shufflevector((halves)beside, (halves)beside, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23,
                                         8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}
#else
T_FN u32v t_bf16_bits_(f32v x) {
    const u32v w = (u32v)x, nan = (u32v)(x != x);
    return ((w + 0x7fff + (w >> 16 & 1)) >> 16 & ~nan) | (nan & 0x7fc0);
}
T_FN u32v t_bf16_pair(f32v first, f32v second) { return t_bf16_bits_(first) | t_bf16_bits_(second) << 16; }
#endif

#endif
