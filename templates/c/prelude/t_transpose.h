/* Squares of elements transposed in registers. */
#ifndef T_TRANSPOSE_H
#define T_TRANSPOSE_H

#include "t_shuffle.h"

/* Shuffles that cross no border of 16 bytes are the cheapest: lines as many as such a part has elements, e, are interleaved
 * within parts, {a0 b0 a1 b1 ..} of each, as often as turns squares of e x e; with e = TORSHC_LANES within whole vectors. Then
 * parts change places, s lines apart. */
#define T_LOWER_(i, e) ((i) - ((i) % (e) + 1) / 2 + (i) % 2 * TORSHC_LANES)
#define T_UPPER_(i, e) (T_LOWER_(i, e) + (e) / 2)
#define T_STAYS_(i, s) ((i) & (s) ? TORSHC_LANES + (i) - (s) : (i))
#define T_COMES_(i, s) ((i) & (s) ? TORSHC_LANES + (i) : ((i) + (s)) % (2 * TORSHC_LANES))
#define T_CHANGE_PLACES_(S, s) \
    T_UNROLL for (int i = 0; i < TORSHC_LANES; i++) { \
        if ((s) < TORSHC_LANES && (i & (s)) == 0) { \
            const S##v a = x[i], b = x[i + (s)]; \
            x[i] = T_SHUFFLE_(T_STAYS_, a, b, s); \
            x[i + (s)] = T_SHUFFLE_(T_COMES_, a, b, s); \
        } \
    }
#define T_DEF_TRANSPOSE(S, T, M) \
    T_FN void t_transpose_##S(S##v x[TORSHC_LANES]) { \
        enum { E = 16 / sizeof(T) < TORSHC_LANES ? 16 / sizeof(T) : TORSHC_LANES, HALF = E > 1 ? E / 2 : 1 }; \
        T_UNROLL for (int round = 1; round < E; round *= 2) { \
            S##v y[TORSHC_LANES]; \
            T_UNROLL for (int i = 0; i < TORSHC_LANES / 2; i++) { \
                const int from = i / HALF * E + i % HALF; \
                y[2 * i] = T_SHUFFLE_(T_LOWER_, x[from], x[from + HALF], E); \
                y[2 * i + 1] = T_SHUFFLE_(T_UPPER_, x[from], x[from + HALF], E); \
            } \
            T_UNROLL for (int i = 0; i < TORSHC_LANES; i++) x[i] = y[i]; \
        } \
        T_CHANGE_PLACES_(S, E) \
        T_CHANGE_PLACES_(S, 2 * E) \
        T_CHANGE_PLACES_(S, 4 * E) \
    }
T_EACH(T_DEF_TRANSPOSE)
#undef T_DEF_TRANSPOSE

#endif
