/* Values of models whose sizes, strings or sequences are known only at run time: tensors whose memory is counted.
 *
 * A value is empty (ndim < 0) or a compact row-major tensor. Its elements are numbers as everywhere; strings (t_string);
 * or values, each with a count of its own: a sequence has one dimension, an optional one or none of them, a map two, its
 * keys and its values.
 */
#ifndef T_VALUE_H
#define T_VALUE_H

#include "t_pool.h"
#include "t_program.h"

enum { T_VALUE_RANK = 16 };

typedef torshc_string t_string; /* UTF-8, not ended by a zero */

/* Memory that values share; it goes back when the last of them lets it go. */
typedef struct t_block t_block;

typedef struct t_value {
    torshc_dtype dtype;
    int32_t ndim; /* -1: nothing */
    int64_t shape[T_VALUE_RANK];
    void *data;
    t_block *block; /* what holds the data; NULL for the caller's memory and for weights */
} t_value;

/* A run: its values and symbols, and where they come from. */
typedef struct t_frame t_frame;

/* An operator of the host. `in[k]` is NULL where an optional operand is absent; `out[k]` are empty and are filled through
 * t_make or t_share, NULL where they are not needed; `n` are the operator's integers. Returns a status. */
typedef int t_operator(t_frame *f, const t_value *const *in, t_value *const *out, const int64_t *n);

/* Fills an empty value with memory for a shape (not cleared, but for sequences, whose elements start empty). Checks
 * sizes; dimensions below zero are refused. */
int t_make(t_frame *f, t_value *v, torshc_dtype dtype, int32_t ndim, const int64_t *shape);

/* Empties a value. */
void t_drop(t_frame *f, t_value *v);

/* Lets `to`, which is empty, have what `from` has, without a copy. */
int t_share(t_frame *f, t_value *to, const t_value *from);

/* The same elements under another shape of as many. */
int t_view(t_frame *f, t_value *to, const t_value *from, int32_t ndim, const int64_t *shape);

/* Memory for characters; lives until the next run. NULL when there is none, with a message. */
char *t_characters(t_frame *f, int64_t bytes);

/* Memory for the operator that asks, which frees it with t_scratch_free. NULL when there is none, with a message. */
void *t_scratch(t_frame *f, int64_t bytes);
void t_scratch_free(void *memory);

/* The threads of a run, for t_pool_run, which an operator may share work out to; NULL for one. */
t_pool *t_threads(const t_frame *f);

/* Elements of a value, and bytes of one in memory. */
int64_t t_count(const t_value *v);
int64_t t_element_bytes(torshc_dtype dtype);

/* A sequence's, optional's or map's elements. */
static inline t_value *t_values(const t_value *v) { return (t_value *)v->data; }

/* Element i of integers or bools. */
static inline int64_t t_at(const t_value *v, int64_t i) { return t_integer(v->data, i, v->dtype); }

static const torshc_dtype T_I64 = {TORSHC_INT, 64, 1}, T_BOOL = {TORSHC_BOOL, 8, 1};

#endif
