/* Lanes of a register moved along, for running sums: T_MOVED_UP(fill, v, s) is v with every lane s places further, and
 * the first s lanes of `fill`; T_MOVED_DOWN moves the other way.  `s` is a constant. */
#ifndef T_SCAN_H
#define T_SCAN_H

#include "t_vec.h"

#define T_UP_(i, s) ((i) < (s) ? (i) : TORSHC_LANES + (i) - (s))
#define T_DOWN_(i, s) ((i) + (s) < TORSHC_LANES ? TORSHC_LANES + (i) + (s) : (i))
#define T_MOVED_UP(fill, v, s) T_MOVED_(T_UP_, fill, v, s)
#define T_MOVED_DOWN(fill, v, s) T_MOVED_(T_DOWN_, fill, v, s)

#define T_PICK4_(W, s, i) W(i, s), W((i) + 1, s), W((i) + 2, s), W((i) + 3, s)
#if TORSHC_LANES == 1
#define T_PICK_(W, s) W(0, s)
#elif TORSHC_LANES == 4
#define T_PICK_(W, s) T_PICK4_(W, s, 0)
#elif TORSHC_LANES == 8
#define T_PICK_(W, s) T_PICK4_(W, s, 0), T_PICK4_(W, s, 4)
#else
#define T_PICK_(W, s) T_PICK4_(W, s, 0), T_PICK4_(W, s, 4), T_PICK4_(W, s, 8), T_PICK4_(W, s, 12)
#endif

#ifdef __has_builtin
#if __has_builtin(__builtin_shufflevector)
#define T_MOVED_(W, fill, v, s) __builtin_shufflevector(fill, v, T_PICK_(W, s))
#endif
#endif
#ifndef T_MOVED_ /* gcc below 12 */
#define T_MOVED_(W, fill, v, s) \
    ({ \
        const int from_[] = {T_PICK_(W, s)}; \
        __typeof__(v) a_ = (fill), b_ = (v), r_; \
        for (int i_ = 0; i_ < TORSHC_LANES; i_++) \
            r_[i_] = from_[i_] < TORSHC_LANES ? a_[from_[i_]] : b_[from_[i_] - TORSHC_LANES]; \
        r_; \
    })
#endif

#endif
