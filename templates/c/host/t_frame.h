/* What the host program of a script calls; see t_value.h for values. */
#ifndef T_FRAME_H
#define T_FRAME_H

#include "t_program.h"
#include "t_value.h"

/* Characters that live until the next run. */
typedef struct t_chunk {
    struct t_chunk *next;
    int64_t bytes, used;
    char data[];
} t_chunk;

/* Memory of values. In a library for a device a block may have a copy there: what a segment on the device writes stays
 * there until the processor reads it, and what it has read need not be sent again. */
enum { T_HERE, T_AWAY, T_BOTH }; /* which of the two is up to date */

struct t_block {
    int64_t users;
    size_t bytes;        /* of data */
    int64_t values;      /* how many of them the data are; 0 for numbers and strings */
    t_block *next;       /* in the list of free blocks */
    unsigned char *copy; /* memory for it on the device, or NULL */
    int newest;
    _Alignas(64) unsigned char data[];
};

struct t_frame {
    const t_run *with;      /* the host's: what its segments run with */
    unsigned char *weights; /* on the processor */
    int64_t *symbols;
    const t_script *script; /* of the form that a run takes; its constants are in their slots */
    int32_t slots;
    t_value *slot;
    /* Arrays of a step, which grow with the model, so that no stack holds them. */
    unsigned char **at;    /* of a segment: inputs, then outputs */
    const t_value **given; /* of an operator */
    t_value **made;
    t_value *held; /* next states of a loop; constants while slots are emptied */
    t_span *spans; /* of the caller's tensors */
    t_block *free; /* blocks that are not in use, for the next that is not larger */
    size_t kept;   /* their bytes */
    t_chunk *text;
    unsigned char *work; /* arena and scratch of a segment on the processor */
    size_t work_bytes;
    torshc_tensor *results; /* elements of sequences among the results, and shapes */
    size_t results_count;
};

/* t_value.c: a block for one user, NULL with a message when there is no memory; what it holds that is not in use. */
t_block *t_take(t_frame *f, size_t bytes);
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
int t_operate(t_frame *f, int32_t node, t_operator *run, int32_t ins, const int32_t *in, int32_t outs,
              const int32_t *out, const int64_t *n);

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

/* For t_script. A run checks its arguments; its results are shown (`shown`), or copied to `outputs`. */
t_frame *t_frame_open(const t_run *with, unsigned char *weights);
void t_frame_close(t_frame *f);
const int64_t *t_frame_sizes(const t_frame *f);
int t_frame_run(t_frame *f, const torshc_tensor *inputs, int32_t input_count, torshc_tensor *shown,
                const torshc_tensor *outputs, int32_t output_count);

/* Takes the memory of a result from the run, as torshc_keep; NULL where the run or others have it too. */
void *t_frame_keep(t_frame *f, int32_t output);

/* Gives f->work at least that many bytes. */
int t_grow_work(t_frame *f, size_t bytes);

/* ---- t_segment.c, one for processors and one for devices: where segments run, and where values lie ---- */

/* Runs the kernels of a segment over values of the right types and shapes. */
int t_run_segment(t_frame *f, const t_program *segment, const int32_t *in, const int32_t *out);

/* Where a caller's tensor lies, as t_locate. */
int t_find(t_frame *f, const torshc_tensor *x, const char *what, int32_t i, t_span *span);

/* Lets an empty value be a caller's tensor of numbers, which lies at `at`. */
int t_borrow(t_frame *f, t_value *v, const torshc_tensor *x, unsigned char *at);

/* Brings a value to the processor, where operators of the host read it, and all that it holds. */
int t_fetch(t_frame *f, const t_value *v);

/* Copies a value of numbers to a caller's tensor, which lies at `at`. */
int t_deliver(t_frame *f, const t_value *v, const torshc_tensor *x, unsigned char *at);

/* Frees the copy of a block on the device; NULL does nothing. */
void t_free_copy(t_frame *f, unsigned char *copy);

#endif
