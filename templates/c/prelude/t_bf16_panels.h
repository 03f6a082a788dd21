/* Panels of weights of bf16, [ceil(N / 16)][K / 2][16] words of two k, and their products with floats.
 *
 * The first tile of rows makes halves floats, by a shift or a mask, and keeps these for the others, which t_tile_chain multiplies:
 * what is made and stored while a tile multiplies takes little time.  Sums have one order in both: k after k.
 */
#ifndef T_BF16_PANELS_H
#define T_BF16_PANELS_H

#include "t_ahead.h"
#include "t_tile.h"

#define T_PER (16 / TORSHC_LANES) /* vectors of a panel */
#define T_FEW 4                    /* rows that only wait for their weights */
#define T_AHEAD (T_NV == T_PER ? 8192 : 4096 * T_PER / T_NV) /* bytes of a panel, as measured: farther where the next one follows at once */

/* Words of the columns from `n` on, of panels that are `panel` words long. */
T_FN const uint32_t *t_bf16_words(const uint32_t *b, int64_t panel, int64_t n) { return b + n / 16 * panel + n % 16; }

/* acc[r][v] += sum over i < k of a[r][i] * b[i][v], b from column n on; where it `keeps` b, as floats [k][T_NR] in `floats` too. */
T_FN void t_bf16_fma(const int rows, const int vecs, const int keeps, int k, const float *const *a, const uint32_t *b, int64_t panel,
                     int64_t n, float *floats, f32v acc[T_MR][T_NV]) {
    const uint32_t *from[T_NV];
    T_UNROLL for (int v = 0; v < vecs; v++) from[v] = t_bf16_words(b, panel, n + v * TORSHC_LANES);
    for (int i = 0, at = 0; i < k; i += 2, at += 16) {
        if (rows <= T_FEW || !keeps)
            T_UNROLL for (int v = 0; v < vecs; v += T_PER) t_ask_ahead(from[v] + at, T_AHEAD, 1);
        T_UNROLL for (int odd = 0; odd < 2; odd++) {
            f32v col[T_NV];
            if (i + odd == k) break;
            T_UNROLL for (int v = 0; v < vecs; v++) {
                const u32v words = (u32v)t_load_i32(from[v] + at);
                col[v] = (f32v)(odd ? words & 0xffff0000 : words << 16);
                if (keeps) t_store_f32(floats + (i + odd) * T_NR + v * TORSHC_LANES, col[v]);
            }
            T_UNROLL for (int r = 0; r < rows; r++) {
                const f32v x = t_splat_f32(a[r][i + odd]);
                T_UNROLL for (int v = 0; v < vecs; v++) acc[r][v] += x * col[v];
            }
        }
    }
}

/* What tiles ask memory for while they sum, at an even pace: `lines` of words from `next` on, of each panel of their columns.  A
 * tile begins with line `from`, and asks for `some` every T_SPAN steps. */
struct t_words_ahead {
    const uint32_t *next;
    int64_t lines, from, some;
};
#define T_SPAN 32

/* The same, spread over `count` tiles, of sums of k terms. */
T_FN struct t_words_ahead t_words_ahead(const uint32_t *next, int64_t lines, int64_t count, int k) {
    const int64_t spans = count * ((k + T_SPAN - 1) / T_SPAN);
    return (struct t_words_ahead){next, lines, 0, spans > 0 ? (lines + spans - 1) / spans : 0};
}

/* acc[r][v] += sum over i < k of a[r][i] * floats[i][v]. */
T_FN void t_bf16_chain(const int rows, const int vecs, int k, const float *const *a, const float *floats, int64_t panel,
                       struct t_words_ahead *ahead, f32v acc[T_MR][T_NV]) {
    for (int i = 0; i < k; i += T_SPAN) {
        const float *row[T_MR];
        const int64_t to = t_imin(ahead->from + ahead->some, ahead->lines);
        for (; ahead->from < to; ahead->from++)
            T_UNROLL for (int v = 0; v < (T_NR + 15) / 16; v++) __builtin_prefetch(ahead->next + v * panel + ahead->from * 16, 0, 2);
        T_UNROLL for (int r = 0; r < rows; r++) row[r] = a[r] + i;
        t_tile_chain(T_SUM_BITS, rows, vecs, k - i < T_SPAN ? k - i : T_SPAN, row, (const char *)(floats + i * T_NR), T_NOTHING_AHEAD, acc);
    }
}

#endif
