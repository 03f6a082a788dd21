/* Scalar functions on registers, t_<func>_<dtype>(...): one header per group. */
#ifndef T_MATH_H
#define T_MATH_H

#include "t_vec.h"

#include "t_arith.h"
#include "t_integer.h"
#include "t_math_f64.h"

#endif
