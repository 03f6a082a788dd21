/* The register tile of products of bf16 by vectors: T_MR rows by T_NV vectors of columns, summed in f32.
 *
 * Panels of 16 columns hold words of two k.  With T_BF16_DOT or T_BF16_MMLA, one of which a kernel defines, an instruction adds both
 * products of a word (AVX512-BF16: the odd k first; numbers below 2^-126 are zeros; of Arm t_bf16_arm.h says how), and rows are
 * read as they lie.
 */
#ifndef T_HALF_VECTORS_H
#define T_HALF_VECTORS_H

#include "t_bf16_panels.h"

#define T_BLOCK 1024 /* terms of a sum that are added in one go, as those of f32 are */

/* Asks for what few rows read soon. A single one of a Zen 4 is slower by a fifth where both caches are asked. */
T_FN void t_bf16_ahead(const int rows, const int vecs, const uint32_t *b, int64_t panel) {
    if (rows <= T_FEW)
        T_UNROLL for (int v = 0; v < vecs; v += T_PER) t_ask_ahead(b + v / T_PER * panel, T_AHEAD, rows > 1);
}

/* Words of vector v of columns of a group of panels. */
T_FN u32v t_bf16_columns(const uint32_t *b, int64_t panel, const int v) {
    return t_load_u32(b + v / T_PER * panel + v % T_PER * TORSHC_LANES);
}

#ifdef T_BF16_MMLA
#include "t_bf16_arm.h"
#elif defined(__AVX512BF16__) && TORSHC_LANES == 16
/* Not by its intrinsic, whose type of halves clang 15 and 16 cannot convert to and fall over. */
T_FN f32v t_pair_(f32v acc, u32v x, u32v w) {
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(acc) : "v"(x), "v"(w));
    return acc;
}
#else
T_FN f32v t_pair_(f32v acc, u32v x, u32v w) {
    acc += (f32v)(x & 0xffff0000) * (f32v)(w & 0xffff0000);
    return acc + (f32v)(x << 16) * (f32v)(w << 16);
}
#endif

/* Elements of row `row` of a block of rows, from place `at` of its `depth` on; zeros where there are none. */
T_FN void t_bf16_put(const uint16_t *a, int count, int at, int depth, int64_t row, uint16_t *out) {
    out += row * depth + at;
    for (int i = 0; i < count; i += TORSHC_LANES)
        t_storen_u16(out + i, a ? t_loadn_u16(a + i, count - i) : (u16v){0}, count - i);
}

/* Two elements of a row in every lane, or the last `count`. */
T_FN u32v t_bf16_pair(const uint16_t *p, const int count) {
    uint32_t x = 0;
    __builtin_memcpy(&x, p, (size_t)count * 2);
    return t_splat_u32(x);
}

/* acc[r][v] += sum over i < k of a[r][i] * b[i][v]. */
T_FN void t_bf16_block(const int rows, const int vecs, int k, const uint16_t *a, int64_t a_row, const uint32_t *b,
                       int64_t panel, f32v acc[T_MR][T_NV]) {
    int i = 0;
#if defined(T_BF16_MMLA) && defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
    i = t_bf16_most(rows, vecs, k, a, a_row, b, panel, acc);
    b += i / 2 * 16;
#endif
    for (; i + 2 <= k; i += 2, b += 16) {
        u32v col[T_NV];
        t_bf16_ahead(rows, vecs, b, panel);
        T_UNROLL for (int v = 0; v < vecs; v++) col[v] = t_bf16_columns(b, panel, v);
        T_UNROLL for (int r = 0; r < rows; r++) {
            const u32v x = t_bf16_pair(a + r * a_row + i, 2);
            T_UNROLL for (int v = 0; v < vecs; v++) acc[r][v] = t_pair_(acc[r][v], x, col[v]);
        }
    }
    if (i < k)
        T_UNROLL for (int r = 0; r < rows; r++) {
            const u32v x = t_bf16_pair(a + r * a_row + i, 1);
            T_UNROLL for (int v = 0; v < vecs; v++) acc[r][v] = t_pair_(acc[r][v], x, t_bf16_columns(b, panel, v));
        }
}

/* sums[r][v] = sum over i < k of a[r][i] * b[i][v], those of T_BLOCK terms added up: a chain rounds as often as it is long. */
T_FN void t_bf16_sums(const int rows, const int vecs, int k, const uint16_t *a, int64_t a_row, const uint32_t *b,
                      int64_t panel, float *sums) {
    for (int i = 0; i < k; i += T_BLOCK) {
        f32v acc[T_MR][T_NV];
        t_tile_open(rows, vecs, NULL, acc);
        t_bf16_block(rows, vecs, k - i < T_BLOCK ? k - i : T_BLOCK, a + i, a_row, b + i / 2 * 16, panel, acc);
        if (i > 0) t_tile_join(rows, vecs, sums, acc);
        t_tile_park(rows, vecs, sums, acc);
        /* They wait in memory; in registers a compiler would keep them, and others not. */
        __asm__ volatile("" : : "r"(sums) : "memory");
    }
}

#endif
