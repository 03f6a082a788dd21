/* Index arithmetic of the scalar prelude over arrays; compiled with T_INDEX as int and as int64_t. */
#include "t_scalar.h"

#define OVER(NAME) \
    void NAME(const t_index *a, const t_index *b, t_index *to, int64_t n); \
    void NAME(const t_index *a, const t_index *b, t_index *to, int64_t n) { \
        for (int64_t i = 0; i < n; i++) to[i] = t_##NAME(a[i], b[i]); \
    }
OVER(idiv)
OVER(imod)
OVER(iquot)
OVER(imin)
OVER(imax)
