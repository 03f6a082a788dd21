#include "torshc_op.h"

#include <math.h>

int bessel_j0(torshc_op *op)
{
    const float *x = op->inputs[0].data;
    float *y = op->outputs[0].data;
    const int64_t size = torshc_op_count(&op->inputs[0]);
    const int64_t first = size * op->begin / op->tasks, last = size * op->end / op->tasks;
    for (int64_t i = first; i < last; i++)
        y[i] = (float)j0(x[i]);
    return 0;
}

int bessel_j1(torshc_op *op)
{
    const float *x = op->inputs[0].data;
    float *y = op->outputs[0].data;
    const int64_t size = torshc_op_count(&op->inputs[0]);
    const int64_t first = size * op->begin / op->tasks, last = size * op->end / op->tasks;
    for (int64_t i = first; i < last; i++)
        y[i] = (float)j1(x[i]);
    return 0;
}
