/* The register tile shared by every matrix-like kernel: T_MR rows by T_NV vectors of columns.
 *
 * Rows are read through pointers and never packed; columns come from a panel laid out [k][T_NR].
 * A kernel defines T_MR and T_NV before it includes this.  `rows` and `vecs` are literals at
 * every call, so that all loops but the one over k unroll and the sums live in registers.
 */
#ifndef T_TILE_H
#define T_TILE_H

#include <stdatomic.h>

#include "t_kernel.h"

#define T_NR (T_NV * TORSHC_LANES)

/* What sums are of: f32, or what a kernel says. */
#ifndef T_SUM
#define T_SUM f32
#define T_SUM_TYPE float
#endif
typedef T_SUM_TYPE t_sum;
typedef t_sum t_sumv __attribute__((vector_size(sizeof(t_sum) * TORSHC_LANES)));
#define T_SUM_BITS (8 * (int)sizeof(t_sum))
#define T_SUM_REGISTERS (T_SUM_BITS / 32) /* that a vector takes */
#define T_JOINED_(name, type) t_##name##_##type
#define T_JOINED(name, type) T_JOINED_(name, type)
#define T_OF_SUM(name) T_JOINED(name, T_SUM)

/* Sums that are independent of each other hide the latency of a fused multiply-add, 4 cycles at 2 a cycle.  A tile of
 * fewer sums adds parts of each beside each other.
 *
 * A row's result may not depend on how many rows there are.  So where the tiles of a kernel, of T_FEWEST to T_MOST rows,
 * differ in that, the length of a sum alone says how it is cut: low tiles add contiguous parts beside each other, high
 * ones add the same parts one after another. */
#ifndef T_FEWEST
#define T_FEWEST T_MR
#define T_MOST T_MR
#endif
#define T_CHAINS 8
#define T_CUT 64 /* terms that a sum has at the least that is cut */
/* Steps of a sum between which a tile asks memory for what comes next.  Of four, clang 16 loads all factors first, also where 24 of
 * 32 registers hold sums, and spills 70 vectors. */
#define T_ASKING (TORSHC_LANES == 16 ? 1 : 4)

/* Whether tiles ask for the rows that follow too.  A kernel says so, since clang 16 does not always see that a number in its
 * memory stays 0, and then spills most sums of the loop. */
#ifndef T_ROWS_AHEAD
#define T_ROWS_AHEAD 0
#endif

T_FN int t_tile_ways(const int rows, const int vecs) {
    const int sums = rows * vecs * T_SUM_REGISTERS;
    return sums > T_CHAINS / 2 ? 1 : sums * 2 > T_CHAINS / 2 ? 2 : 4;
}

/* Contiguous parts of a sum: the fewest with which a tile of T_FEWEST rows is as fast as columns come from the cache. */
T_FN int t_tile_parts(const int vecs) {
    const int sums = T_FEWEST * vecs * T_SUM_REGISTERS;
    return sums * TORSHC_LANES >= 64 ? 1 : sums > 1 ? 2 : 4;
}

/* Zero, or what earlier blocks of k left in part[r][T_NR]. */
T_FN void t_tile_open(const int rows, const int vecs, const t_sum *part, t_sumv acc[T_MR][T_NV]) {
    T_UNROLL for (int r = 0; r < rows; r++)
        T_UNROLL for (int v = 0; v < vecs; v++)
            acc[r][v] = part ? T_OF_SUM(load)(part + r * T_NR + v * TORSHC_LANES) : (t_sumv){0};
}

T_FN void t_tile_park(const int rows, const int vecs, t_sum *part, t_sumv acc[T_MR][T_NV]) {
    T_UNROLL for (int r = 0; r < rows; r++)
        T_UNROLL for (int v = 0; v < vecs; v++) T_OF_SUM(store)(part + r * T_NR + v * TORSHC_LANES, acc[r][v]);
}

/* Adds what earlier blocks of k left, whose sums are so no part of a longer chain, which would round as often as it is long. */
T_FN void t_tile_join(const int rows, const int vecs, const t_sum *part, t_sumv acc[T_MR][T_NV]) {
    T_UNROLL for (int r = 0; r < rows; r++)
        T_UNROLL for (int v = 0; v < vecs; v++) acc[r][v] += T_OF_SUM(load)(part + r * T_NR + v * TORSHC_LANES);
}

/* Vector v of columns of a row of a panel of sums' type or i8; of i4, of two rows, whose bytes hold an even row below and the
 * next above. */
T_FN void t_tile_columns(const int bits, const char *b, int v, t_sumv col[2]) {
    if (bits == T_SUM_BITS) {
        col[0] = T_OF_SUM(load)(b + (int)sizeof(t_sum) * v * TORSHC_LANES);
    } else if (bits == 8) {
        col[0] = T_OF_SUM(cast_i8)(t_load_i8(b + v * TORSHC_LANES));
    } else {
        const i32v pair = t_cast_i8_i32(t_load_i8(b + v * TORSHC_LANES));
        col[0] = T_OF_SUM(cast_i32)((i32v)((u32v)pair << 28) >> 28);
        col[1] = T_OF_SUM(cast_i32)(pair >> 4);
    }
}

/* What a tile asks memory for while it sums: the `first`-th of `every` parts of what lies `bytes` behind the columns; and of rows
 * that follow each other, from `behind` elements behind its first one on, `some` at each step.  Nothing where these are 0. */
struct t_ahead {
    int64_t bytes;
    int every, first;
    int64_t behind, some;
};
#define T_NOTHING_AHEAD ((struct t_ahead){0, 0, 0, 0, 0})

/* How many bytes ahead tiles ask that only wait for memory. In a library the one of t_cpu.c, which knows the processor, takes this
 * one's place. */
__attribute__((weak)) atomic_int t_waiting_ahead = 4096;
#define T_WAITING 6 /* rows of such a tile */

/* The same of a tile of `rows`, the nth of `count` by one panel, which is `panel` bytes long.  Each asks for a part of the next
 * panel, at an even pace: lines that are asked for faster than memory gives them stop a core.  A lone tile reads on. */
T_FN struct t_ahead t_tile_ahead(int64_t rows, int64_t nth, int64_t count, int64_t panel) {
    if (count > 1) return (struct t_ahead){panel, (int)count, (int)nth + 1, 0, 0};
    const int bytes = rows > T_WAITING ? 4096 : atomic_load_explicit(&t_waiting_ahead, memory_order_relaxed);
    return (struct t_ahead){bytes, 1, 1, 0, 0};
}

/* Asks for words of a line, into the second cache alone where they are `far`. */
T_FN void t_line_ahead(const int far, const uint32_t *p) {
    if (far) T_FETCH_FAR(p, 0);
    else T_FETCH(p, 0);
}

/* Asks for lines of two panels that are multiplied next, from line `line` on, `count` of each, both times 65,536, and as many
 * from `half` words behind these on, where that is not 0; returns where to go on. */
T_FN int64_t t_panels_ahead(const int far, const uint32_t *next, int64_t panel, int64_t half, int64_t line, int64_t count) {
    for (int64_t i = line >> 16; i < (line + count) >> 16; i++) {
        t_line_ahead(far, next + i * 16);
        t_line_ahead(far, next + panel + i * 16);
        if (half == 0) continue;
        t_line_ahead(far, next + half + i * 16);
        t_line_ahead(far, next + half + panel + i * 16);
    }
    return line + count;
}

/* acc[r][v] += a[r][i] * b[v] of a row of columns; of i4, of two. */
T_FN void t_tile_add(const int bits, const int rows, const int vecs, int i, const t_sum *const *row, const char *b,
                     t_sumv acc[T_MR][T_NV]) {
    const int step = bits == 4 ? 2 : 1;
    t_sumv col[T_NV][2];
    T_UNROLL for (int v = 0; v < vecs; v++) t_tile_columns(bits, b, v, col[v]);
    T_UNROLL for (int j = 0; j < step; j++)
        T_UNROLL for (int r = 0; r < rows; r++) {
            const t_sumv x = T_OF_SUM(splat)(row[r][i + j]);
            T_UNROLL for (int v = 0; v < vecs; v++) acc[r][v] += x * col[v][j];
        }
}

/* acc[r][v] += sum over i < k of a[r][i] * b[i][v]; of i4, k is even. */
T_FN void t_tile_chain(const int bits, const int rows, const int vecs, int k, const t_sum *const *a, const char *b,
                       struct t_ahead ahead, t_sumv acc[T_MR][T_NV]) {
    const int step = bits == 4 ? 2 : 1, size = step * bits / 8 * T_NR; /* rows of b that are read at once, and their bytes */
    const int each = T_ASKING * step;
    const t_sum *row[T_MR];
    int i = 0;
    T_UNROLL for (int r = 0; r < rows; r++) row[r] = a[r];
    if (ahead.every != 0 || ahead.some != 0) {
        /* Lines are asked for whether or not they were before: a test of that in each step is mispredicted too often. */
        const int part = ahead.every == 0 ? 0 : (T_ASKING * size + ahead.every - 1) / ahead.every;
        const char *next = b + ahead.bytes + (int64_t)(ahead.first - 1) * part * (k / each);
        T_ROLLED for (; i + each <= k; i += each, b += T_ASKING * size, next += part) {
            __builtin_prefetch(next, 0, 2);
            T_ROLLED for (int at = 64; at < part; at += 64) __builtin_prefetch(next + at, 0, 2);
            T_UNROLL for (int j = 0; j < T_ASKING; j++) {
                if (T_ROWS_AHEAD) T_FETCH_FAR(row[0], ahead.behind + (i + j * step) * ahead.some);
                t_tile_add(bits, rows, vecs, i + j * step, row, b + j * size, acc);
            }
        }
    }
    for (; i < k; i += step, b += size) t_tile_add(bits, rows, vecs, i, row, b, acc);
}

/* part[w][r][v] += sum over i < k of a[r][w * apart + i * step] * b[w * apart + i * step][v], for all parts at a time. */
T_FN void t_tile_beside(const int bits, const int rows, const int vecs, const int ways, int k, int apart,
                        const int step, const t_sum *const *a, const char *b, t_sumv part[4][T_MR][T_NV]) {
    const int pair = bits == 4 ? 2 : 1;
    const t_sum *row[T_MR];
    T_UNROLL for (int r = 0; r < rows; r++) row[r] = a[r];
    const int size = pair * step * bits / 8 * T_NR; /* bytes of b that are read at once, where parts interleave */
    for (int i = 0; i < k; i += pair, b += size) {
        if (step > 1)
            T_UNROLL for (int at = 0; at < size; at += 64) T_FETCH_FAR(b, 2048 + at);
        T_UNROLL for (int w = 0; w < ways; w++)
            T_UNROLL for (int v = 0; v < vecs; v++) {
                t_sumv col[2];
                t_tile_columns(bits, b + (int64_t)w * apart * (T_NR * bits / 8), v, col);
                T_UNROLL for (int j = 0; j < pair; j++)
                    T_UNROLL for (int r = 0; r < rows; r++)
                        part[w][r][v] += T_OF_SUM(splat)(row[r][w * apart + (i + j) * step]) * col[j];
            }
    }
}

/* acc[r][v] += sum over i < k of a[r][i] * b[i][v]. */
T_FN void t_tile_fma(const int rows, const int vecs, int k, const t_sum *const *a, const t_sum *b, struct t_ahead ahead,
                     t_sumv acc[T_MR][T_NV]) {
    const int most = t_tile_ways(rows, vecs), low = t_tile_ways(T_FEWEST, vecs), high = t_tile_ways(T_MOST, vecs);
    const int alike = low == high; /* all tiles have as many parts, which then interleave */
    const int parts = alike ? low : t_tile_parts(vecs), ways = most < parts ? most : parts, each = k / parts;
    if (parts == 1 || (!alike && k < T_CUT)) {
        t_tile_chain(T_SUM_BITS, rows, vecs, k, a, (const char *)b, ahead, acc);
        return;
    }
    T_UNROLL for (int p = 0; p < parts; p += ways) {
        const int rest = p + ways < parts ? 0 : k - parts * each;
        const t_sum *row[T_MR], *from = b + (int64_t)p * each * T_NR;
        t_sum before[T_MR * T_NR];
        T_UNROLL for (int r = 0; r < rows; r++) row[r] = a[r] + p * each;
        if (p > 0) {
            /* Sums so far wait in memory; in registers a compiler would keep them, and others not. */
            t_tile_park(rows, vecs, before, acc);
            __asm__ volatile("" : : "r"(before) : "memory");
            t_tile_open(rows, vecs, NULL, acc);
        }
        if (ways == 1) {
            t_tile_chain(T_SUM_BITS, rows, vecs, each + rest, row, (const char *)from, ahead, acc);
            if (p > 0)
                T_UNROLL for (int r = 0; r < rows; r++)
                    T_UNROLL for (int v = 0; v < vecs; v++)
                        acc[r][v] += T_OF_SUM(load)(before + r * T_NR + v * TORSHC_LANES);
            continue;
        }
        t_sumv part[4][T_MR][T_NV];
        T_UNROLL for (int w = 0; w < ways; w++) t_tile_open(rows, vecs, NULL, part[w]);
        T_UNROLL for (int r = 0; r < rows; r++)
            T_UNROLL for (int v = 0; v < vecs; v++) part[0][r][v] = acc[r][v];
        t_tile_beside(T_SUM_BITS, rows, vecs, ways, each, alike ? 1 : each, alike ? ways : 1, row, (const char *)from, part);
        T_UNROLL for (int r = 0; r < rows; r++) row[r] += ways * each;
        t_tile_chain(T_SUM_BITS, rows, vecs, rest, row, (const char *)(from + (int64_t)ways * each * T_NR), ahead, part[ways - 1]);
        t_tile_open(rows, vecs, p > 0 ? before : NULL, acc);
        T_UNROLL for (int w = 0; w < ways; w++)
            T_UNROLL for (int r = 0; r < rows; r++)
                T_UNROLL for (int v = 0; v < vecs; v++)
                    acc[r][v] = p + w > 0 ? acc[r][v] + part[w][r][v] : part[w][r][v];
    }
}

/* acc[r][v] += scale[w][v] * sum over i < k of a[r][w * block + i] * b[w * block + i][v] for each of `ways` blocks. */
T_FN void t_tile_blocks(const int bits, const int rows, const int vecs, const int ways, int k, int block,
                        const t_sum *const *a, const int8_t *b, const t_sum *scale, t_sumv acc[T_MR][T_NV]) {
    t_sumv sum[4][T_MR][T_NV];
    T_UNROLL for (int w = 0; w < ways; w++) t_tile_open(rows, vecs, NULL, sum[w]);
    t_tile_beside(bits, rows, vecs, ways, k, block, 1, a, (const char *)b, sum);
    T_UNROLL for (int w = 0; w < ways; w++)
        T_UNROLL for (int v = 0; v < vecs; v++) {
            const t_sumv factor = T_OF_SUM(load)(scale + w * T_NR + v * TORSHC_LANES);
            T_UNROLL for (int r = 0; r < rows; r++) acc[r][v] += sum[w][r][v] * factor;
        }
}

/* acc[r][v] += sum over i < k of a[r][i] * (b[i][v] * scale[i / block][v]), b of 8 or 4 bits.  The blocks are the parts
 * of the sum. */
T_FN void t_tile_fma_scaled(const int bits, const int rows, const int vecs, int k, int block, const t_sum *const *a,
                            const int8_t *b, const t_sum *scale, t_sumv acc[T_MR][T_NV]) {
    const int ways = t_tile_ways(rows, vecs);
    for (int i = 0, some; i < k; i += some * block) {
        const t_sum *row[T_MR];
        const int8_t *from = b + (int64_t)i * T_NR * bits / 8;
        T_UNROLL for (int r = 0; r < rows; r++) row[r] = a[r] + i;
        some = i + ways * block <= k ? ways : 1;
        if (some > 1)
            t_tile_blocks(bits, rows, vecs, ways, block, block, row, from, scale, acc);
        else
            t_tile_blocks(bits, rows, vecs, 1, k - i < block ? k - i : block, block, row, from, scale, acc);
        scale += some * T_NR;
    }
}

/* A panel's rows of b of 8 or 4 bits as numbers of the sums' type; of i4, k is even. */
T_FN void t_tile_widen(const int bits, int k, const int8_t *b, t_sum *out) {
    const int step = bits == 4 ? 2 : 1;
    for (int i = 0; i < k; i += step, b += step * bits / 8 * T_NR, out += step * T_NR)
        T_UNROLL for (int v = 0; v < T_NV; v++) {
            t_sumv col[2];
            t_tile_columns(bits, (const char *)b, v, col);
            T_UNROLL for (int j = 0; j < step; j++) T_OF_SUM(store)(out + j * T_NR + v * TORSHC_LANES, col[j]);
        }
}

/* `total` cut in `parts` near-equal pieces: start of piece i; the first total % parts are one longer. */
T_FN int64_t t_cut(int64_t total, int64_t parts, int64_t i) {
    return i * (total / parts) + t_imin(i, total % parts);
}

#endif
