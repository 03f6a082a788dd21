/* Bytes looked up in a table of what stands for each of the 256. */
#ifndef T_TABLE_H
#define T_TABLE_H

#include "t_kernel.h"

#if TORSHC_LANES == 16 && defined(__AVX512BW__)
#define T_BYTES 64
#elif TORSHC_LANES == 8 && defined(__AVX2__)
#define T_BYTES 32
#endif

#ifdef T_BYTES
typedef uint8_t t_bytes __attribute__((vector_size(T_BYTES)));
typedef int8_t t_signs __attribute__((vector_size(T_BYTES)));

/* Bytes of a row of 16, which stands in each sixteen bytes.  By name, as compilers' builtins for it differ. */
T_FN t_bytes t_pick_of_16(t_bytes row, t_bytes at) {
    t_bytes picked;
    __asm__("vpshufb %2, %1, %0" : "=v"(picked) : "v"(row), "v"(at));
    return picked;
}

/* Looks up whole vectors of n bytes, and returns how many bytes these have: the low four bits choose in all 16 rows of the
 * table, and each of the others one of two rows. */
T_FN int64_t t_lookup_vectors(uint8_t *to, const uint8_t *from, const uint8_t *table, int64_t n) {
    t_bytes rows[16], x;
    for (int k = 0; k < 16; k++)
        for (int part = 0; part < T_BYTES; part += 16) __builtin_memcpy((uint8_t *)&rows[k] + part, table + 16 * k, 16);
    int64_t i = 0;
    for (; i + T_BYTES <= n; i += T_BYTES) {
        __builtin_memcpy(&x, from + i, sizeof x);
        t_bytes picked[16];
        T_UNROLL for (int k = 0; k < 16; k++) picked[k] = t_pick_of_16(rows[k], x & 15);
        T_UNROLL for (int bit = 4; bit < 8; bit++) {
            const t_bytes is_set = (t_bytes)((t_signs)(x << (7 - bit)) < 0);
            T_UNROLL for (int k = 0; k < 128 >> bit; k++)
                picked[k] = (picked[2 * k] & ~is_set) | (picked[2 * k + 1] & is_set);
        }
        __builtin_memcpy(to + i, picked, sizeof x);
    }
    return i;
}
#else
T_FN int64_t t_lookup_vectors(uint8_t *to, const uint8_t *from, const uint8_t *table, int64_t n) {
    (void)to, (void)from, (void)table, (void)n;
    return 0;
}
#endif

/* Puts what the table holds for each of n bytes; `to` may be `from`. */
T_FN void t_lookup(void *to, const void *from, const void *table, int64_t n) {
    const uint8_t *x = from, *results = table;
    for (int64_t i = t_lookup_vectors(to, x, results, n); i < n; i++) {
        uint32_t result = results[x[i]];
        __asm__("" : "+r"(result)); /* Compilers would make a vector of bytes of it, one insertion after the other. */
        ((uint8_t *)to)[i] = (uint8_t)result;
    }
}

#endif
