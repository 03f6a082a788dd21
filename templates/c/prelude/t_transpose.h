/* Squares of elements transposed in registers. */
#ifndef T_TRANSPOSE_H
#define T_TRANSPOSE_H

#include "t_shuffle.h"

/* Each round interleaves the halves, {a0 b0 a1 b1 ..}. */
#define T_LOWER_(i, s) ((i) / 2 + (i) % 2 * TORSHC_LANES)
#define T_UPPER_(i, s) ((i) / 2 + (i) % 2 * TORSHC_LANES + TORSHC_LANES / 2)
#define T_DEF_TRANSPOSE(S, T, M) \
    T_FN void t_transpose_##S(S##v x[TORSHC_LANES]) { \
        T_UNROLL for (int round = 1; round < TORSHC_LANES; round *= 2) { \
            S##v y[TORSHC_LANES]; \
            T_UNROLL for (int i = 0; i < TORSHC_LANES / 2; i++) { \
                y[2 * i] = T_SHUFFLE_(T_LOWER_, x[i], x[i + TORSHC_LANES / 2], 0); \
                y[2 * i + 1] = T_SHUFFLE_(T_UPPER_, x[i], x[i + TORSHC_LANES / 2], 0); \
            } \
            T_UNROLL for (int i = 0; i < TORSHC_LANES; i++) x[i] = y[i]; \
        } \
    }
T_EACH(T_DEF_TRANSPOSE)
#undef T_DEF_TRANSPOSE

#endif
