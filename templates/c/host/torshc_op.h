/* The C interface of operators that users write, version 1: what torshc gives a function that computes one.
 *
 * The function is declared in Python (`ops.kernel`), which says where its file is and what types its results have:
 *
 *     #include "torshc_op.h"
 *
 *     int scaled(torshc_op *op)
 *     {
 *         const float *x = op->inputs[0].data;
 *         float *y = op->outputs[0].data;
 *         const int64_t size = torshc_op_count(&op->inputs[0]), first = size * op->begin / op->tasks;
 *         const int64_t last = size * op->end / op->tasks;
 *         for (int64_t i = first; i < last; i++)
 *             y[i] = x[i] * (float)op->attributes[0].floats[0];
 *         return 0;
 *     }
 *
 * Tensors have the layout of DLTensor, as in model.h. All are compact and row-major (`strides` is NULL, `byte_offset` 0),
 * aligned to their element, and none overlaps a result. bool is a byte, 0 or 1; f16 and bf16 are 16 bits; types of fewer
 * than 8 bits take a byte for each element; strings are of type torshc_string. An operand that a node leaves out has
 * `ndim` -1 and no data.
 *
 * There are two kinds. The sizes of an operator in the plan are known before the function is called: all its outputs have
 * memory, and it computes the tasks from `begin` to `end` of `tasks`. Several threads may call it at once, with other
 * ranges, and a result must not depend on how tasks are split. An operator of the host decides its sizes in the run: one
 * thread calls it, and it gets the memory of each output by torshc_op_make(). Outputs that nobody reads have memory, too.
 *
 * Contexts of a model call the function at the same time, so it keeps nothing between calls. It returns 0, or what
 * torshc_op_fail() gives; then the run ends with TORSHC_E_VALUE and the message.
 *
 * With CUDA, tensors and scratch lie on the card. The function is `extern "C"`, is called once for all tasks, and puts its
 * work into `stream`; it neither waits nor allocates, as the calls of a run may be recorded in a graph and repeated. It
 * returns 0 or an error of CUDA's.
 */
#ifndef TORSHC_OP_H
#define TORSHC_OP_H

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

#include "model.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TORSHC_OP_VERSION 1
#define TORSHC_OP_MESSAGE 192

/* An attribute of the node, or its default: `count` integers (0 or 1 of a bool), or floats; of text the bytes, which a
 * zero ends. Several texts follow each other, each ended by a zero; `count` is then their number. */
enum { TORSHC_OP_INTS = 1, TORSHC_OP_FLOATS = 2, TORSHC_OP_TEXTS = 3 };

typedef struct torshc_op_attribute {
    int32_t kind;
    int64_t count;
    const int64_t *ints;
    const double *floats;
    const char *text;
} torshc_op_attribute;

typedef struct torshc_op torshc_op;
struct torshc_op {
    int32_t version; /* TORSHC_OP_VERSION of torshc; a later one has more fields at the end */
    int32_t input_count, output_count, attribute_count;
    const torshc_tensor *inputs;
    torshc_tensor *outputs;
    const torshc_op_attribute *attributes; /* in the order of the declaration */
    int64_t begin, end, tasks;
    void *scratch; /* of this thread, aligned to 64 bytes; NULL where the declaration asks for none */
    int64_t scratch_bytes;
    void *stream;                    /* cudaStream_t; NULL on the processor */
    char message[TORSHC_OP_MESSAGE]; /* of torshc_op_fail() */
    /* Of operators of the host; NULL in the plan. */
    int (*make)(torshc_op *op, int32_t output, const int64_t *shape);
    char *(*text)(torshc_op *op, int64_t bytes);
    void *host;
};

typedef int torshc_op_function(torshc_op *op);

/* Number of elements; 1 for a scalar. */
static inline int64_t torshc_op_count(const torshc_tensor *x) {
    int64_t count = 1;
    for (int32_t d = 0; d < x->ndim; d++)
        count *= x->shape[d];
    return count;
}

/* Gives an output of an operator of the host its sizes, as many as the declaration says it has dimensions, and memory,
 * which is not cleared. Returns 0 or a status, which the function returns in turn. */
static inline int torshc_op_make(torshc_op *op, int32_t output, const int64_t *shape) {
    return op->make(op, output, shape);
}

/* Memory for the characters of an output of strings; it lives as long as the results do. NULL when there is none. */
static inline char *torshc_op_text(torshc_op *op, int64_t bytes) { return op->text(op, bytes); }

#if defined(__GNUC__)
__attribute__((format(printf, 2, 3), unused))
#endif
/* Leaves a message, and gives the status to return. */
static int torshc_op_fail(torshc_op *op, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(op->message, sizeof op->message, format, arguments);
    va_end(arguments);
    return TORSHC_E_VALUE;
}

#ifdef __cplusplus
}
#endif

#endif
