/* An open model of a library for a device: what t_gpu_host.c and t_gpu_steps.c share. */
#ifndef T_GPU_MODEL_H
#define T_GPU_MODEL_H

#include <pthread.h>
#include <sys/types.h>

#include "t_device.h"

/* Memory that grows. */
typedef struct {
    unsigned char *at;
    size_t bytes;
} t_memory;

struct torshc_model {
    pthread_mutex_t lock; /* held during a run */
    pid_t owner;          /* neither threads nor devices survive fork() */
    int32_t ordinal;
    int streamed; /* the caller gave a stream */
    t_device *device;
    t_weights_file file; /* the weights on the processor, which fallbacks read */
    unsigned char *weights;
    t_memory arena, staging;
    int status; /* of the steps of the run in progress */

    t_run with; /* this and the next of a script */
    t_frame *frame;

    t_pool *pool; /* this and the next two for steps on the processor */
    t_memory host;
    int threads;

    t_counter *counters; /* this and the next two for profiling */
    int32_t *marked;     /* the step after each mark */
    int32_t marks;
};

/* Where a caller's tensor lies, checked; TORSHC_E_DEVICE when it is on another device than the model. */
int t_locate_on(torshc_model *m, const torshc_tensor *x, const char *what, int32_t i, t_span *span);

/* Makes memory on the device at least so large; what it held is lost then. */
int t_grow(torshc_model *m, t_memory *memory, size_t bytes, const char *what);

#ifdef TORSHC_PROFILE
/* Waits, and adds the time of the steps since the first mark to the counters. */
int t_count_steps(torshc_model *m);
#endif

/* Data on the device is aligned as kernels want it. */
enum { T_ALIGN_DEVICE = 16 };

#endif
