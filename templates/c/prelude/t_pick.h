/* Elements picked from rows of memory by tables of offsets. */
#ifndef T_PICK_H
#define T_PICK_H

#include "t_kernel.h"

/* Lanes of a register in the order that another says. */
T_FN f32v t_permute_f32(f32v v, i32v at) {
#ifndef __clang__
    return __builtin_shuffle(v, at);
#elif TORSHC_LANES == 16 && defined(__AVX512F__)
    return (f32v)__builtin_ia32_permvarsf512(v, at);
#elif TORSHC_LANES == 8 && defined(__AVX2__)
    return (f32v)__builtin_ia32_permvarsf256(v, at);
#else
    f32v r;
    for (int i = 0; i < TORSHC_LANES; i++) r[i] = v[at[i]];
    return r;
#endif
}

/* Fills the table up to whole vectors, and finds for each of these a window of `span` elements that holds all it picks:
 * where it starts, and what of it each lane takes.  1 if there is one for each vector.  No window reaches beyond what
 * the table names. */
T_COLD_FN int t_windows(int64_t *table, int64_t *starts, int32_t *steps, int64_t size, int64_t span) {
    int64_t least = table[0], most = table[0];
    for (int64_t i = 1; i < size; i++) least = t_imin(least, table[i]), most = t_imax(most, table[i]);
    for (int64_t i = size; i % TORSHC_LANES; i++) table[i] = table[size - 1];
    if (most - least < span - 1) return 0;
    for (int64_t at = 0; at < size; at += TORSHC_LANES) {
        int64_t start = most - (span - 1);
        for (int i = 0; i < TORSHC_LANES; i++) start = t_imin(start, table[at + i]);
        for (int i = 0; i < TORSHC_LANES; i++) {
            if (table[at + i] - start >= span) return 0;
            steps[at + i] = (int32_t)(table[at + i] - start);
        }
        starts[at / TORSHC_LANES] = start;
    }
    return 1;
}

/* How many columns, in whole vectors from the first on, take the same of their windows as the first vector does. */
T_COLD_FN int64_t t_alike(const int32_t *steps, int64_t size) {
    int64_t count = 0;
    while (count + TORSHC_LANES <= size && !__builtin_memcmp(steps, steps + count, 4 * TORSHC_LANES)) count += TORSHC_LANES;
    return count;
}

/* How near to each other the elements lie that a vector picks: in a window of half as many lanes, of as many, or apart.
 * A load of half a vector crosses fewer lines of memory. */
enum { T_FAR, T_NEAR, T_NEARER };
#if TORSHC_LANES >= 8 && defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
typedef float t_halff32v __attribute__((vector_size(2 * TORSHC_LANES)));
#define T_ASIS_(i, s) (i)
T_FN f32v t_loadfirst_f32_(const void *p) {
    t_halff32v h;
    __builtin_memcpy(&h, p, sizeof h);
    return __builtin_shufflevector(h, (t_halff32v){0}, T_PICK_(T_ASIS_, 0));
}
#define T_LOAD_NEAR_(p, near) ((near) == T_NEARER ? t_loadfirst_f32_(p) : t_load_f32(p))
#endif
#endif
#ifdef T_LOAD_NEAR_
#define T_NEAREST T_NEARER
#else
#define T_NEAREST T_NEAR
#define T_LOAD_NEAR_(p, near) t_load_f32(p)
#endif

/* A window's elements in the order that a table says: of 4 bytes as they are, of fewer through these. */
#define T_DEF_PICK4(S, T) \
    T_FN S##v t_pick_##S(const T *p, i32v steps, int near) { \
        (void)near; \
        return (S##v)t_permute_f32(T_LOAD_NEAR_(p, near), steps); \
    }
#define T_DEF_PICK(S, T) \
    T_FN S##v t_pick_##S(const T *p, i32v steps, int near) { \
        (void)near; \
        return T_CONV((i32v)t_permute_f32((f32v)T_CONV(t_load_##S(p), i32), steps), S); \
    }
#define T_DEF_PICK_FAR(S, T) \
    T_FN S##v t_pick_##S(const T *p, i32v steps, int near) { \
        (void)near; \
        return t_gather_##S(p, T_CONV(steps, i64)); \
    }
T_DEF_PICK4(f32, float) T_DEF_PICK4(i32, int32_t) T_DEF_PICK4(u32, uint32_t)
T_DEF_PICK(i8, int8_t) T_DEF_PICK(u8, uint8_t) T_DEF_PICK(i16, int16_t) T_DEF_PICK(u16, uint16_t)
T_DEF_PICK_FAR(f64, double) T_DEF_PICK_FAR(i64, int64_t) T_DEF_PICK_FAR(u64, uint64_t)
#undef T_DEF_PICK4
#undef T_DEF_PICK
#undef T_DEF_PICK_FAR

/* Which of `count` places the row with the key wanted[n] is kept at: it is moved to place n, in exchange for what is there.
 * 1 if it has to be made.  Keys are `parts` numbers; places before n are taken, and those of later rows stay if they can. */
T_FN int t_is_key_(const int64_t *a, const int64_t *b, int parts) {
    for (int i = 0; i < parts; i++)
        if (a[i] != b[i]) return 0;
    return 1;
}
T_COLD_FN int t_keep(void **rows, int64_t *keys, const int64_t *wanted, int n, int count, int parts) {
    int found = -1, is_new = 0;
    for (int i = n; i < count && found < 0; i++)
        if (t_is_key_(keys + i * parts, wanted + n * parts, parts)) found = i;
    for (int i = n; i < count && found < 0; i++) {
        int is_free = 1;
        for (int j = n + 1; j < count; j++) is_free &= !t_is_key_(keys + i * parts, wanted + j * parts, parts);
        if (is_free) found = i, is_new = 1;
    }
    if (found < 0) found = n, is_new = 1;
    void *const row = rows[found];
    rows[found] = rows[n], rows[n] = row;
    for (int i = 0; i < parts; i++) {
        keys[found * parts + i] = keys[n * parts + i];
        keys[n * parts + i] = wanted[n * parts + i];
    }
    return is_new;
}

#endif
