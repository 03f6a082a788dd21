/* What the host program of a script calls; see t_value.h for values. */
#ifndef T_FRAME_H
#define T_FRAME_H

#include "t_host.h"
#include "t_value.h"
#include "t_value.h"

/* Characters that live until the next run. */
typedef struct t_chunk {
    struct t_chunk *next;
    int64_t bytes, used;
    char data[];
} t_chunk;

struct t_frame {
    t_run run;
    t_value *slot;
    t_block *free; /* blocks that nobody uses, for the next that is not larger */
    size_t kept;   /* their bytes */
    t_chunk *text;
    unsigned char *work; /* arena and scratch of a segment */
    size_t work_bytes;
    torshc_tensor *results; /* elements of sequences among the results, and shapes */
    size_t results_count;
};

/* What t_value.c holds of memory that nobody uses. */
void t_free_values(t_frame *f);
void t_free_text(t_frame *f, t_chunk *kept);

#define T_TRY(call)                                                                                                    \
    do {                                                                                                               \
        const int t_status = (call);                                                                                   \
        if (t_status)                                                                                                  \
            return t_status;                                                                                           \
    } while (0)

/* Runs a segment: its inputs must have the shapes that its kernels were made for, its outputs are filled. */
int t_call(t_frame *f, const t_program *segment, const int32_t *in, const int32_t *out);

/* Runs an operator of the host; a slot of -1 is absent. */
int t_operate(t_frame *f, int32_t node, t_operator *run, int32_t ins, const int32_t *in, int32_t outs, const int32_t *out,
              const int64_t *n);

/* A dimension (T_DIM), or an element of integers (T_ELEMENT, T_CLAMPED), of what a slot holds. */
int t_bind_value(t_frame *f, int32_t slot, int32_t position, int kind, int64_t *symbol);

/* The one element of a slot. */
int t_truth(t_frame *f, int32_t slot, int *yes);
int t_scalar(t_frame *f, int32_t slot, int64_t *value);

/* A slot shares what another holds; slots are emptied. */
int t_set(t_frame *f, int32_t to, int32_t from);
void t_clear(t_frame *f, int32_t count, const int32_t *slots);

/* Loops: the number of the round and its condition, which is true; the states' next values; results of the rounds are
 * gathered and at last joined along a new first dimension. */
int t_set_round(t_frame *f, int32_t number, int32_t going, int64_t i);
int t_turn(t_frame *f, int32_t count, const int32_t *states, const int32_t *next);
int t_begin(t_frame *f, int32_t many);
int t_append(t_frame *f, int32_t many, int32_t each);
int t_stack(t_frame *f, int32_t joined, int32_t many, const t_port *kind, const int64_t *dims);

/* For t_script. */
t_frame *t_frame_open(const t_run *with);
void t_frame_close(t_frame *f);
int t_frame_run(t_frame *f, const torshc_tensor *inputs, int64_t *s);
int t_frame_results(t_frame *f, torshc_tensor *outputs);
int t_frame_copy(t_frame *f, const torshc_tensor *outputs);

#endif
