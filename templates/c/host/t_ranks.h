/* Exchanges between the processes that share a model, for kernels and host.c. */
#ifndef T_RANKS_H
#define T_RANKS_H

#include "model.h"

enum { T_RANKS_MESSAGE = 200 };

/* A step that exchanges tensors: with whom, and what went wrong. */
typedef struct {
    torshc_ranks *ranks;
    int32_t status;
    char message[T_RANKS_MESSAGE];
} t_ranks_call;

void t_ranks_send(t_ranks_call *call, const void *data, int64_t bytes, int32_t peer, int32_t tag);
void t_ranks_receive(t_ranks_call *call, void *data, int64_t bytes, int32_t peer, int32_t tag);
void t_ranks_all_reduce(t_ranks_call *call, const void *from, void *to, int64_t count, torshc_dtype type);
void t_ranks_all_gather(t_ranks_call *call, const void *from, void *to, int64_t bytes);

#endif
