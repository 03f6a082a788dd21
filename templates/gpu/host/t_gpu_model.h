/* An open model of a library for a device: what t_gpu_host.c and t_gpu_steps.c share. */
#ifndef T_GPU_MODEL_H
#define T_GPU_MODEL_H

#include "t_device.h"
#include "t_model.h"

/* Memory that grows. */
typedef struct {
    unsigned char *at;
    size_t bytes;
} t_memory;

/* A mark: the step after it, and when the processor made it. */
typedef struct {
    int32_t step;
    uint64_t at;
} t_marked;

struct torshc_model {
    t_model head;
    int32_t ordinal;
    int streamed; /* the caller gave a stream */
    t_device *device;
    unsigned char *weights; /* on the device */
    t_memory arena, staging;
    t_memory host;    /* on the processor, for steps that run there */
    int status;       /* of the steps of the run in progress */
    t_run with;       /* of a script */
    int64_t *key;     /* what tells a run from others: its symbols and where its tensors lie */
    t_marked *marked; /* this and the next for profiling */
    int32_t marks;
    struct t_nccl *nccl; /* of a model that several processes share on cards */
    t_choice *choice;    /* of a model whose card takes forms by what is in its memory */
};

/* Makes memory on the device at least so large; what it held is lost then. */
int t_grow(torshc_model *m, t_memory *memory, size_t bytes, const char *what);

#ifdef TORSHC_PROFILE
/* Waits, and adds the time of the steps since the first mark to the counters. */
int t_count_steps(torshc_model *m);
#endif

/* Data on the device is aligned as kernels want it. */
enum { T_ALIGN_DEVICE = 16 };

#endif
