/* An open model: what t_model.c does for every kind of library, and what each kind does in its own way (t_host.c for
 * processors, t_gpu_host.c over a device layer). */
#ifndef T_MODEL_H
#define T_MODEL_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "t_pool.h"
#include "t_program.h"

/* Weights on the processor, for all contexts that have not taken newer ones. Who drops them last closes them. */
typedef struct {
    t_weights_file file;
    atomic_int users;
} t_weights;

/* t_observe.c: what runs of a model see. */
typedef struct t_observer t_observer;

/* What a model and its contexts have in common. Who closes last frees it. A run writes nothing here, so that contexts do
 * not take cache lines from each other. */
typedef struct {
    _Atomic(t_weights *) weights; /* the newest; one of their users is this */
    pthread_mutex_t lock;         /* held while the newest are put there or taken */
    pthread_mutex_t exchanging;   /* held while others are made of the newest */
    unsigned char *there;         /* on the device */
    t_observer *observer;         /* NULL where nobody asked for a profile */
    torshc_ranks *ranks;          /* the processes that share the model; NULL for one that is whole */
    char failure[200];            /* what the first run said that failed on this rank */
    int32_t ordinal;              /* which device */
    atomic_int users;
} t_shared;

/* What every `struct torshc_model` begins with. A context is one too. */
typedef struct {
    pthread_mutex_t lock; /* held during a run */
    pid_t owner;          /* who opened it */
    t_shared *shared;
    t_weights *weights; /* those of the run in progress, or of the last one */
    t_pool *pool;       /* NULL for one thread, and where the processor has no kernels */
    int threads;
    t_counter *counters; /* one for each step */
    uint64_t *ran;       /* how many runs took each form of the model */
    uint64_t *missed;    /* how many a form was for whose values were others; behind `ran` */
    int elsewhere;       /* the card chose the form of the last run, and counts it */
    /* Arrays of a run, within its lock; they grow with the model, so no stack holds them. */
    int64_t *symbols; /* and sizes behind them */
    t_span *span;     /* inputs, then outputs */
    const torshc_tensor **tensor;
    unsigned char **at;
    pthread_mutex_t asking; /* held while a caller asks for sizes, which does not wait for a run */
    int64_t *asked;         /* its symbols */
    t_frame *frame;         /* of a script */
    unsigned char *states;  /* of a model that trains: what runs keep for the next, where its kernels are */
} t_model;

/* ---- t_model.c ---- */

/* TORSHC_E_ARGUMENT for NULL, TORSHC_E_FORKED where another process opened the model. Comes before any lock, which a
 * thread of that process may have held when it forked. */
int t_check_alive(const torshc_model *m, const char *what);

/* A run with everything checked, whichever function the program called. */
int t_run_checked(torshc_model *m, const torshc_tensor *inputs, int32_t input_count, const torshc_tensor *outputs,
                  int32_t output_count, void *workspace, size_t bytes);

/* ---- t_exchange.c ---- */

/* Reads the weights of a model that is opened. */
int t_first_weights(t_shared *shared, const char *path);

/* Takes the newest weights for this context, and drops those that it had; within its lock. */
void t_take_weights(t_model *head);

/* Drops weights; NULL does nothing. */
void t_drop_weights(t_weights *weights);

/* ---- t_observe.c ---- */

/* What notes the runs of a model, in files whose names begin with `path`, or with what the environment says where that is
 * NULL; NULL for nothing. */
t_observer *t_observe(const char *path);

/* Notes a run with these sizes and inputs, and when it began. */
void t_note_run(t_observer *o, const int64_t *s, uint64_t began, const torshc_tensor *inputs);

/* Writes the file; NULL does nothing. */
void t_end_observing(t_observer *o);

/* ---- what each kind does ---- */

/* Size of its `struct torshc_model`. */
extern const size_t t_model_bytes;

/* Completes a model whose head is filled, all else zeros; `of` is the model that it is a context of, or NULL. `with` is
 * what the steps of a script are given, NULL without one. After a failure t_empty_model follows as well. */
int t_fill_model(torshc_model *m, const torshc_model *of, const torshc_options *options, const t_run **with);

/* Frees what is not in the head. The pool is gone by then; `last`: nobody else uses what is shared. */
void t_empty_model(torshc_model *m, int last);

/* Keeps the states of a model that trains, as a block of malloc has them at first, which is its own from then on. */
int t_keep_states(torshc_model *m, unsigned char *first);

/* Copies from and to the states, `offset` bytes from their start; within the model's lock. */
int t_read_states(torshc_model *m, uint64_t offset, void *to, size_t bytes);
int t_write_states(torshc_model *m, uint64_t offset, const void *from, size_t bytes);

/* Workspace of a run. */
size_t t_workspace_bytes(const torshc_model *m, const int64_t *s);

/* Where a caller's tensor lies, checked; TORSHC_E_DEVICE where the model cannot use it. */
int t_locate_on(torshc_model *m, const torshc_tensor *x, const char *what, int32_t i, t_span *span);

/* A run over the arrays in the head, in the caller's workspace or, where `work` has no address, its own. */
int t_run_on(torshc_model *m, t_span *work);

/* Waits for what the steps of a script have begun, or drops it after a failure. Returns the script's status, or its
 * own. */
int t_end_script(torshc_model *m, int status);

#endif
