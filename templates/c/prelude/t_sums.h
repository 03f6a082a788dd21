/* Sums over the lanes of several registers at once. */
#ifndef T_SUMS_H
#define T_SUMS_H

#include "t_arith.h"

/* The sums over the lanes of as many registers as a register has lanes, in the same order: lane i is that of x[i]. A step
 * adds the halves of groups of s lanes, those of two registers side by side. */
#define T_LOW_OF_(i, s) ((i) / (s) * (s) + (i) % ((s) / 2) + ((i) % (s) < (s) / 2 ? 0 : TORSHC_LANES))
#define T_HIGH_OF_(i, s) (T_LOW_OF_(i, s) + (s) / 2)
#define T_ADD_HALVES_(x, s) \
    T_UNROLL for (int i = 0; i < s / 2; i++) \
        x[i] = T_SHUFFLE_(T_LOW_OF_, x[i], x[i + s / 2], s) + T_SHUFFLE_(T_HIGH_OF_, x[i], x[i + s / 2], s)
T_FN f32v t_hsums_f32(f32v x[TORSHC_LANES]) {
#if TORSHC_LANES > 8
    T_ADD_HALVES_(x, 16);
#endif
#if TORSHC_LANES > 4
    T_ADD_HALVES_(x, 8);
#endif
#if TORSHC_LANES > 2
    T_ADD_HALVES_(x, 4);
    T_ADD_HALVES_(x, 2);
#endif
    return x[0];
}

#endif
