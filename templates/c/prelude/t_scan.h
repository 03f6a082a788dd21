/* Lanes of a register moved along, for running sums: T_MOVED_UP(fill, v, s) is v with every lane s places further, and
 * the first s lanes of `fill`; T_MOVED_DOWN moves the other way.  `s` is a constant. */
#ifndef T_SCAN_H
#define T_SCAN_H

#include "t_shuffle.h"

#define T_UP_(i, s) ((i) < (s) ? (i) : TORSHC_LANES + (i) - (s))
#define T_DOWN_(i, s) ((i) + (s) < TORSHC_LANES ? TORSHC_LANES + (i) + (s) : (i))
#define T_MOVED_UP(fill, v, s) T_SHUFFLE_(T_UP_, fill, v, s)
#define T_MOVED_DOWN(fill, v, s) T_SHUFFLE_(T_DOWN_, fill, v, s)

#endif
