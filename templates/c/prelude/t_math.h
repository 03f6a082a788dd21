/* Scalar functions on registers, t_<func>_<dtype>(...). Kernels hold those that are formulas themselves. */
#ifndef T_MATH_H
#define T_MATH_H

#include "t_vec.h"

#include "t_arith.h"
#include "t_integer.h"

#endif
