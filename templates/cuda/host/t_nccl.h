/* NCCL's binary interface, as much of it as exchanges between cards need; and how a model's library uses it. */
#ifndef T_NCCL_H
#define T_NCCL_H

#include "t_program.h"
#include "t_ranks.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- names and numbers of NCCL 2 (from 2.10 on) ---- */

/* Results (ncclResult_t), element types (ncclDataType_t) and operations (ncclRedOp_t). */
enum { T_NCCL_SUCCESS = 0, T_NCCL_IN_PROGRESS = 7 };
enum {
    T_NCCL_UINT8 = 1,
    T_NCCL_INT32 = 2,
    T_NCCL_INT64 = 4,
    T_NCCL_FLOAT16 = 6,
    T_NCCL_FLOAT32 = 7,
    T_NCCL_FLOAT64 = 8,
    T_NCCL_BFLOAT16 = 9
};
enum { T_NCCL_SUM = 0 };

/* ncclUniqueId */
typedef struct {
    char bytes[128];
} t_nccl_id;

/* Functions of the library; a communicator (ncclComm_t) and a stream (cudaStream_t) are pointers. */
typedef struct {
    int (*GetVersion)(int *version);
    int (*GetUniqueId)(t_nccl_id *id);
    int (*CommInitRank)(void **comm, int count, t_nccl_id id, int rank);
    int (*CommDestroy)(void *comm);
    int (*CommAbort)(void *comm);
    int (*CommGetAsyncError)(void *comm, int *result);
    int (*CommCount)(const void *comm, int *count);
    int (*CommUserRank)(const void *comm, int *rank);
    int (*CommCuDevice)(const void *comm, int *device);
    const char *(*GetErrorString)(int result);
    int (*AllReduce)(const void *from, void *to, size_t count, int type, int operation, void *comm, void *stream);
    int (*AllGather)(const void *from, void *to, size_t count, int type, void *comm, void *stream);
    int (*ReduceScatter)(const void *from, void *to, size_t count, int type, int operation, void *comm, void *stream);
    int (*Send)(const void *data, size_t count, int type, int peer, void *comm, void *stream);
    int (*Recv)(void *data, size_t count, int type, int peer, void *comm, void *stream);
} t_nccl_functions;

/* ---- exchanges of a run, put into a stream ---- */

void t_nccl_send(t_ranks_call *call, const void *data, int64_t bytes, int32_t peer, void *stream);
void t_nccl_receive(t_ranks_call *call, void *data, int64_t bytes, int32_t peer, void *stream);
void t_nccl_all_reduce(t_ranks_call *call, const void *from, void *to, int64_t count, torshc_dtype type, void *stream);
void t_nccl_all_gather(t_ranks_call *call, const void *from, void *to, int64_t bytes, void *stream);
void t_nccl_reduce_scatter(t_ranks_call *call, const void *from, void *to, int64_t count, torshc_dtype type,
                           void *stream);

/* What the stream gets next waits for exchanges that were begun before. Those with `later` have a stream of their own. */
void t_nccl_settle(t_ranks_call *call);

/* What t_model.c and t_gpu_host.c call of it. */
extern const t_cards t_nccl_cards;

#ifdef __cplusplus
}
#endif

#endif
