/* The register tile shared by every matrix-like kernel: T_MR rows by T_NV vectors of columns.
 *
 * Rows are read through pointers and never packed; columns come from a panel laid out [k][T_NR].
 * A kernel defines T_MR and T_NV before it includes this.  `rows` and `vecs` are literals at
 * every call, so that all loops but the one over k unroll and the sums live in registers.
 */
#ifndef T_TILE_H
#define T_TILE_H

#include "t_kernel.h"

#define T_NR (T_NV * TORSHC_LANES)

/* Sums that are independent of each other hide the latency of a fused multiply-add, 4 cycles at
 * 2 a cycle.  A tile of fewer sums adds `ways` interleaved parts of k apart. */
#define T_CHAINS 8

/* Vector v of columns of row k of a panel of floats, i8 or i4.  A byte of i4 holds an even row below and the next
 * above. */
T_FN f32v t_tile_column(const int bits, const char *b, int k, int v) {
    if (bits == 32) return t_load_f32(b + (int)sizeof(float) * (k * T_NR + v * TORSHC_LANES));
    if (bits == 8) return t_cast_i8_f32(t_load_i8(b + k * T_NR + v * TORSHC_LANES));
    const i32v pair = t_cast_i8_i32(t_load_i8(b + k / 2 * T_NR + v * TORSHC_LANES));
    return t_cast_i32_f32((k % 2 ? pair : (i32v)((u32v)pair << 28)) >> (k % 2 ? 4 : 28));
}

/* With i4, k is even. */
T_FN void t_tile_sum_(const int bits, const int rows, const int vecs, int k, const float *const *a, const char *b,
                      const f32v *scale, f32v acc[T_MR][T_NV]) {
    const int step = bits == 4 ? 2 : 1; /* rows that are read at once */
    const int ways = rows * vecs > T_CHAINS / 2 ? 1 : rows * vecs * 2 > T_CHAINS / 2 ? 2 : 4;
    const float *row[T_MR];
    T_UNROLL for (int r = 0; r < rows; r++) row[r] = a[r];
    int i = 0;
    if (ways > 1) {
        f32v part[4][T_MR][T_NV];
        T_UNROLL for (int w = 0; w < ways; w++)
            T_UNROLL for (int r = 0; r < rows; r++)
                T_UNROLL for (int v = 0; v < vecs; v++) part[w][r][v] = (f32v){0};
        for (; i + ways <= k; i += ways, b += ways * bits / 8 * T_NR)
            T_UNROLL for (int w = 0; w < ways; w++)
                T_UNROLL for (int v = 0; v < vecs; v++) {
                    const f32v col = t_tile_column(bits, b, w, v);
                    T_UNROLL for (int r = 0; r < rows; r++) part[w][r][v] += t_splat_f32(row[r][i + w]) * col;
                }
        T_UNROLL for (int w = 0; w < ways; w++)
            T_UNROLL for (int r = 0; r < rows; r++)
                T_UNROLL for (int v = 0; v < vecs; v++) acc[r][v] += scale ? part[w][r][v] * scale[v] : part[w][r][v];
    }
    for (; i < k; i += step, b += step * bits / 8 * T_NR)
        T_UNROLL for (int j = 0; j < step; j++) {
            f32v col[T_NV];
            T_UNROLL for (int v = 0; v < vecs; v++)
                col[v] = scale ? t_tile_column(bits, b, j, v) * scale[v] : t_tile_column(bits, b, j, v);
            T_UNROLL for (int r = 0; r < rows; r++) {
                const f32v x = t_splat_f32(row[r][i + j]);
                T_UNROLL for (int v = 0; v < vecs; v++) acc[r][v] += x * col[v];
            }
        }
}

/* acc[r][v] += sum over i < k of a[r][i] * b[i][v]. */
T_FN void t_tile_fma(const int rows, const int vecs, int k, const float *const *a, const float *b,
                     f32v acc[T_MR][T_NV]) {
    t_tile_sum_(32, rows, vecs, k, a, (const char *)b, NULL, acc);
}

/* acc[r][v] += sum over i < k of a[r][i] * (b[i][v] * scale[v]), b of 8 or 4 bits. */
T_FN void t_tile_fma_scaled(const int bits, const int rows, const int vecs, int k, const float *const *a,
                            const int8_t *b, const f32v *scale, f32v acc[T_MR][T_NV]) {
    t_tile_sum_(bits, rows, vecs, k, a, (const char *)b, scale, acc);
}

/* Zero, or what earlier blocks of k left in part[r][T_NR]. */
T_FN void t_tile_open(const int rows, const int vecs, const float *part, f32v acc[T_MR][T_NV]) {
    T_UNROLL for (int r = 0; r < rows; r++)
        T_UNROLL for (int v = 0; v < vecs; v++)
            acc[r][v] = part ? t_load_f32(part + r * T_NR + v * TORSHC_LANES) : (f32v){0};
}

T_FN void t_tile_park(const int rows, const int vecs, float *part, f32v acc[T_MR][T_NV]) {
    T_UNROLL for (int r = 0; r < rows; r++)
        T_UNROLL for (int v = 0; v < vecs; v++) t_store_f32(part + r * T_NR + v * TORSHC_LANES, acc[r][v]);
}

/* `total` cut in `parts` near-equal pieces: start of piece i; the first total % parts are one longer. */
T_FN int64_t t_cut(int64_t total, int64_t parts, int64_t i) {
    return i * (total / parts) + t_imin(i, total % parts);
}

#endif
