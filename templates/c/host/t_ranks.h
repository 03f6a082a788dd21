/* Exchanges between the processes that share a model, for kernels and host.c. */
#ifndef T_RANKS_H
#define T_RANKS_H

#include "model.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { T_RANKS_MESSAGE = 200 };

/* NCCL's communicator, on cards: t_nccl.c. */
typedef struct t_nccl t_nccl;

/* Exchanges that a run has begun: t_program.h. */
typedef struct t_begun t_begun;

/* A step that exchanges tensors: with whom, and what went wrong. */
typedef struct {
    torshc_ranks *ranks;
    t_nccl *nccl;   /* NULL on processors */
    t_begun *begun; /* of a run on processors: what it waits for later; NULL waits at once */
    int32_t later;  /* other steps come before it is waited for */
    int32_t status;
    char message[T_RANKS_MESSAGE];
} t_ranks_call;

void t_ranks_send(t_ranks_call *call, const void *data, int64_t bytes, int32_t peer, int32_t tag);
void t_ranks_receive(t_ranks_call *call, void *data, int64_t bytes, int32_t peer, int32_t tag);
void t_ranks_all_reduce(t_ranks_call *call, const void *from, void *to, int64_t count, torshc_dtype type);
void t_ranks_all_gather(t_ranks_call *call, const void *from, void *to, int64_t bytes);
void t_ranks_reduce_scatter(t_ranks_call *call, const void *from, void *to, int64_t count, torshc_dtype type);

/* Waits for what was begun: sums, and what was gathered and scattered. */
void t_ranks_settle(t_ranks_call *call);

/* Lets them go on for a moment, as MPI may do nothing while nobody calls it. */
void t_ranks_go_on(torshc_ranks *ranks, t_begun *begun);

/* Waits for them where their run has failed. */
void t_ranks_drop(torshc_ranks *ranks, t_begun *begun);

/* As t_ranks_all_gather, of memory of the host outside of a run; a status, with a message. */
int t_ranks_gather(torshc_ranks *ranks, const void *own, void *all, int64_t bytes);

/* Notes what failed, and that there can be no other run. */
void t_ranks_fail(t_ranks_call *call, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Notes that an exchange was not done in time, with the ranks that do not answer; `peer` is whom it was with, -1 for all. */
void t_ranks_late(t_ranks_call *call, int32_t peer);

/* A process that has ended; -1 where none is known to have. */
int32_t t_ranks_lost(const torshc_ranks *ranks);

/* Leaves the processor to others, who may be the processes that are waited for; after a while it sleeps in between. */
void t_ranks_pause(double began);

/* Seconds of a clock that only goes forward. */
double t_ranks_now(void);

#ifdef __cplusplus
}
#endif

#endif
