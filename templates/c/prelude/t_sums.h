/* What joins the lanes of several registers at once: their sums, or the largest or the least of each. */
#ifndef T_SUMS_H
#define T_SUMS_H

#include "t_arith.h"

/* What JOIN makes of the lanes of as many registers as a register has lanes, in the same order: lane i is that of x[i]. A
 * step joins the halves of groups of s lanes, those of two registers side by side. A kernel defines what it calls. */
#define T_LOW_OF_(i, s) ((i) / (s) * (s) + (i) % ((s) / 2) + ((i) % (s) < (s) / 2 ? 0 : TORSHC_LANES))
#define T_HIGH_OF_(i, s) (T_LOW_OF_(i, s) + (s) / 2)
#define T_JOIN_HALVES_(JOIN, x, s) \
    T_UNROLL for (int i = 0; i < s / 2; i++) \
        x[i] = JOIN(T_SHUFFLE_(T_LOW_OF_, x[i], x[i + s / 2], s), T_SHUFFLE_(T_HIGH_OF_, x[i], x[i + s / 2], s))
#if TORSHC_LANES > 8
#define T_FROM_16_(JOIN, x) T_JOIN_HALVES_(JOIN, x, 16); T_JOIN_HALVES_(JOIN, x, 8);
#elif TORSHC_LANES > 4
#define T_FROM_16_(JOIN, x) T_JOIN_HALVES_(JOIN, x, 8);
#else
#define T_FROM_16_(JOIN, x)
#endif
#define T_DEF_JOINED(NAME, JOIN) \
    T_FN f32v NAME(f32v x[TORSHC_LANES]) { \
        T_FROM_16_(JOIN, x) T_JOIN_HALVES_(JOIN, x, 4); T_JOIN_HALVES_(JOIN, x, 2); \
        return x[0]; \
    }
#define T_ADD_(a, b) (a) + (b)
#define T_ROWS_ADD T_DEF_JOINED(t_hadd_rows_f32, T_ADD_)
#define T_ROWS_MAX T_DEF_JOINED(t_hmax_rows_f32, t_max_f32)
#define T_ROWS_MIN T_DEF_JOINED(t_hmin_rows_f32, t_min_f32)

#endif
