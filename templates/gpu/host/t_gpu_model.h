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
} t_block;

struct torshc_model {
    pthread_mutex_t lock; /* held during a run */
    pid_t owner;          /* neither threads nor devices survive fork() */
    int32_t ordinal;
    int streamed; /* the caller gave a stream */
    t_device *device;
    t_weights_file file; /* the weights on the processor, which fallbacks read */
    unsigned char *weights;
    t_block arena, staging;
    int status; /* of the steps of the run in progress */

    t_pool *pool; /* this and the next two for fallbacks */
    t_block host;
    int threads;

    t_counter *counters; /* this and the next two for profiling */
    int32_t *marked;     /* the step after each mark */
    int32_t marks;
};

#endif
