/* Asking for memory that is read once and in order, as weights of few rows are: a processor alone looks less far ahead. */
#ifndef T_AHEAD_H
#define T_AHEAD_H

#include "t_kernel.h"

/* Asks for what lies `bytes` behind p.  A Xeon with products of f16 is asked twice, since its second cache waits for more
 * lines at once than its first: a thread reads weights of bf16 at 16.1 GB/s then, 14.8 without. */
T_FN void t_ask_ahead(const void *p, const int bytes) {
#ifdef __AVX512FP16__
    T_FETCH_FAR((const char *)p, bytes);
    T_FETCH((const char *)p, bytes / 4);
#else
    T_FETCH((const char *)p, bytes);
#endif
}

#endif
