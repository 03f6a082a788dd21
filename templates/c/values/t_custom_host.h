/* Users' functions as operators of the host. */
#ifndef T_CUSTOM_HOST_H
#define T_CUSTOM_HOST_H

#include "t_custom.h"
#include "t_value.h"

/* Calls a function. `n` are the numbers of operands and results, the results' types, and the attributes. */
int t_custom_run(t_frame *f, torshc_op_function *run, const t_value *const *in, t_value *const *out, const int64_t *n);

#endif
