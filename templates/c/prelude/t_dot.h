/* The register tile of products of bytes: T_MR rows of u8 by T_NV vectors of columns of i8, summed in i32, exactly.
 *
 * A panel is laid out [ceil(k / 4)][T_NR] in words: four i8 that follow each other along k.  Bytes beyond k are 0.
 * The names are those of t_tile.h, with t_dot for t_tile.
 *
 * Intrinsics are here and, for conversions of f16, in t_vec.h: four products and their sum are one instruction on many
 * processors, and neither clang nor gcc finds it in vector code.  Those of Arm are in t_dot_arm.h.  All ways give the same
 * numbers.
 */
#ifndef T_DOT_H
#define T_DOT_H

#include "t_tile.h"

#if defined(__ARM_FEATURE_DOTPROD) && TORSHC_LANES == 4
#include "t_dot_arm.h"
#else
typedef int16_t t_halves __attribute__((vector_size(4 * TORSHC_LANES)));
typedef char t_bytes __attribute__((vector_size(4 * TORSHC_LANES)));

/* clang's builtins, as immintrin.h takes longer to read than most kernels to compile; which type of integers the vectors have
 * that they take depends on its version, and it converts them. */
#if defined(__x86_64__) && defined(__clang__)
#define T_DPBUSD512_(acc, x, w) (i32v)__builtin_ia32_vpdpbusd512(acc, (i32v)(x), w)
#define T_DPBUSD256_(acc, x, w) (i32v)__builtin_ia32_vpdpbusd256(acc, (i32v)(x), w)
#define T_DPBUSD256_VEX_ T_DPBUSD256_
#define T_MADD512_(a, b) (i32v)__builtin_ia32_pmaddwd512((t_halves)(a), (t_halves)(b))
#define T_MADD256_(a, b) (i32v)__builtin_ia32_pmaddwd256((t_halves)(a), (t_halves)(b))
#define T_MADD128_(a, b) (i32v)__builtin_ia32_pmaddwd128((t_halves)(a), (t_halves)(b))
#define T_PAIR_BYTES512_(x, w) (t_halves)__builtin_ia32_pmaddubsw512((t_bytes)(x), (t_bytes)(w))
#define T_PAIR_BYTES256_(x, w) (t_halves)__builtin_ia32_pmaddubsw256((t_bytes)(x), (t_bytes)(w))
#define T_PAIR_BYTES128_(x, w) (t_halves)__builtin_ia32_pmaddubsw128((t_bytes)(x), (t_bytes)(w))
#elif defined(__x86_64__) && TORSHC_LANES >= 4
#include <immintrin.h>
#define T_DPBUSD512_(acc, x, w) (i32v)_mm512_dpbusd_epi32((__m512i)(acc), (__m512i)(x), (__m512i)(w))
#define T_DPBUSD256_(acc, x, w) (i32v)_mm256_dpbusd_epi32((__m256i)(acc), (__m256i)(x), (__m256i)(w))
#define T_DPBUSD256_VEX_(acc, x, w) (i32v)_mm256_dpbusd_avx_epi32((__m256i)(acc), (__m256i)(x), (__m256i)(w))
#define T_MADD512_(a, b) (i32v)_mm512_madd_epi16((__m512i)(a), (__m512i)(b))
#define T_MADD256_(a, b) (i32v)_mm256_madd_epi16((__m256i)(a), (__m256i)(b))
#define T_MADD128_(a, b) (i32v)_mm_madd_epi16((__m128i)(a), (__m128i)(b))
#define T_PAIR_BYTES512_(x, w) (t_halves)_mm512_maddubs_epi16((__m512i)(x), (__m512i)(w))
#define T_PAIR_BYTES256_(x, w) (t_halves)_mm256_maddubs_epi16((__m256i)(x), (__m256i)(w))
#define T_PAIR_BYTES128_(x, w) (t_halves)_mm_maddubs_epi16((__m128i)(x), (__m128i)(w))
#endif

#if TORSHC_LANES == 16 && defined(__AVX512VNNI__)
#define T_DOT4_ T_DPBUSD512_
#elif TORSHC_LANES == 8 && defined(__AVX512VNNI__) && defined(__AVX512VL__)
#define T_DOT4_ T_DPBUSD256_
#elif TORSHC_LANES == 8 && defined(__AVXVNNI__)
#define T_DOT4_ T_DPBUSD256_VEX_
#elif TORSHC_LANES == 16 && defined(__AVX512BW__)
#define T_MADD_ T_MADD512_
#elif TORSHC_LANES == 8 && defined(__AVX2__)
#define T_MADD_ T_MADD256_
#elif TORSHC_LANES == 4 && defined(__SSE2__)
#define T_MADD_ T_MADD128_
#else
/* Both signed halves of each word multiplied, and the products added. */
T_FN i32v T_MADD_(u32v a, u32v b) {
    return ((i32v)(a << 16) >> 16) * ((i32v)(b << 16) >> 16) + ((i32v)a >> 16) * ((i32v)b >> 16);
}
#endif

/* Sums of two products of bytes that follow each other, of x (u8) and w (i8), which saturate at 16 bits. */
#if TORSHC_LANES == 16 && defined(__AVX512BW__)
#define T_PAIR_BYTES_ T_PAIR_BYTES512_
#elif TORSHC_LANES == 8 && defined(__AVX2__)
#define T_PAIR_BYTES_ T_PAIR_BYTES256_
#elif TORSHC_LANES == 4 && defined(__SSSE3__)
#define T_PAIR_BYTES_ T_PAIR_BYTES128_
#endif

/* acc + sum over j < 4 of byte j of x (u8) times byte j of w (i8). */
T_FN i32v t_dot4(i32v acc, u32v x, i32v w) {
#if defined(T_DOT4_)
    return T_DOT4_(acc, x, w);
#elif defined(T_SEVEN_BITS) && defined(T_PAIR_BYTES_) /* two products with weights of 7 bits fit into 16 */
    return acc + T_MADD_(T_PAIR_BYTES_(x, w), (t_halves){0} + 1);
#else
    const u32v odd = (u32v)((t_halves)w >> 8), even = (u32v)((t_halves)((u32v)w << 8 & 0xff00ff00) >> 8);
    return acc + T_MADD_(x & 0x00ff00ff, even) + T_MADD_(x >> 8 & 0x00ff00ff, odd);
#endif
}
#endif

/* Four bytes of a row, or the last `count`, in every lane. */
T_FN u32v t_quad(const uint8_t *p, const int count) {
    uint32_t x = 0;
    __builtin_memcpy(&x, p, (size_t)count);
    return t_splat_u32(x);
}

/* acc[r][v] += sum over i < k of a[r][i] * b[i][v].  Of `ahead`, what is asked for in rows of words. */
T_FN void t_dot_fma(const int rows, const int vecs, int k, const uint8_t *const *a, const int32_t *b, struct t_ahead ahead,
                    i32v acc[T_MR][T_NV]) {
    const int ways = rows * vecs > T_CHAINS / 2 ? 1 : rows * vecs * 2 > T_CHAINS / 2 ? 2 : 4;
    const uint8_t *row[T_MR];
    T_UNROLL for (int r = 0; r < rows; r++) row[r] = a[r];
    int i = 0, wait = ahead.first;
#ifdef T_DOT_ARM_H
    if (rows > 1) {
        i = t_dot_most(rows, vecs, k, row, b, acc);
        b += i / 4 * T_NR;
    }
#endif
    if (ways > 1) {
        i32v part[4][T_MR][T_NV];
        T_UNROLL for (int w = 0; w < ways; w++)
            T_UNROLL for (int r = 0; r < rows; r++)
                T_UNROLL for (int v = 0; v < vecs; v++) part[w][r][v] = (i32v){0};
        for (; i + 4 * ways <= k; i += 4 * ways, b += ways * T_NR)
            T_UNROLL for (int w = 0; w < ways; w++)
                T_UNROLL for (int v = 0; v < vecs; v++) {
                    const i32v col = t_load_i32(b + w * T_NR + v * TORSHC_LANES);
                    T_UNROLL for (int r = 0; r < rows; r++)
                        part[w][r][v] = t_dot4(part[w][r][v], t_quad(row[r] + i + 4 * w, 4), col);
                }
        T_UNROLL for (int w = 0; w < ways; w++)
            T_UNROLL for (int r = 0; r < rows; r++)
                T_UNROLL for (int v = 0; v < vecs; v++) acc[r][v] += part[w][r][v];
    }
    T_ROLLED for (; i + 4 <= k; i += 4, b += T_NR) { /* steps of a k that clang knows would have their sums in memory */
        i32v col[T_NV];
        if (!(__builtin_constant_p(ahead.every) && ahead.every == 0) && --wait == 0) {
            T_UNROLL for (int v = 0; v < vecs; v++) __builtin_prefetch((const char *)(b + v * TORSHC_LANES) + ahead.bytes, 0, 2);
            wait = ahead.every;
        }
        T_UNROLL for (int v = 0; v < vecs; v++) col[v] = t_load_i32(b + v * TORSHC_LANES);
        T_UNROLL for (int r = 0; r < rows; r++) {
            const u32v x = t_quad(row[r] + i, 4);
            T_UNROLL for (int v = 0; v < vecs; v++) acc[r][v] = t_dot4(acc[r][v], x, col[v]);
        }
    }
    if (i < k) {
        T_UNROLL for (int r = 0; r < rows; r++) {
            const u32v x = k - i == 3 ? t_quad(row[r] + i, 3) : k - i == 2 ? t_quad(row[r] + i, 2) : t_quad(row[r] + i, 1);
            T_UNROLL for (int v = 0; v < vecs; v++) acc[r][v] = t_dot4(acc[r][v], x, t_load_i32(b + v * TORSHC_LANES));
        }
    }
}

T_FN void t_dot_open(const int rows, const int vecs, i32v acc[T_MR][T_NV]) {
    T_UNROLL for (int r = 0; r < rows; r++)
        T_UNROLL for (int v = 0; v < vecs; v++) acc[r][v] = (i32v){0};
}

T_FN void t_dot_park(const int rows, const int vecs, int32_t *part, i32v acc[T_MR][T_NV]) {
    T_UNROLL for (int r = 0; r < rows; r++)
        T_UNROLL for (int v = 0; v < vecs; v++) t_store_i32(part + r * T_NR + v * TORSHC_LANES, acc[r][v]);
}

#endif
