/* The device that all models of a library share: the library of webgpu.h, one device and queue. */
#ifndef T_GPU_H
#define T_GPU_H

#include <pthread.h>

#include "t_device.h"
#include "t_webgpu.h"

/* Alignment of bindings and of copies; bytes of all sizes of a batch; what a dispatch takes along one dimension; bindings
 * of a kernel that may be empty. */
enum { T_BIND = 256, T_COPY = 4, T_SIZES = 1 << 16, T_BLOCKS = 65535, T_BINDINGS = 64 };

#define W_MEMBER(R, NAME, PARAMETERS) R(*NAME) PARAMETERS;
struct t_functions {
    W_FUNCTIONS(W_MEMBER)
};
extern struct t_functions w;

typedef struct {
    w_object buffer;
    size_t bytes;
} t_block;

typedef struct {
    const t_source *source;
    w_object pipeline, layout;
} t_made;

/* Opened by the first model, and kept until none is open and no buffer is left. */
struct t_gpu {
    pthread_mutex_t lock;
    int32_t users;
    w_object instance, adapter, device, queue;
    w_limits limits;
    enum w_feature feature; /* subgroups, if any */
    w_object sizes, empty;  /* sizes that kernels get; what empty tensors are bound to */
    t_block *block;         /* by their numbers; without a buffer where that was given back */
    size_t blocks, held;
    t_made *made; /* of each kernel of the library, by their names */
    size_t kernels;
    pthread_mutex_t noting; /* of what follows */
    char error[400];        /* the first since it was last told; why the device was lost */
    int32_t lost;
};
extern struct t_gpu g;

/* A user more, and one less. */
int t_gpu_open(void);
void t_gpu_close(void);

w_object t_gpu_buffer(uint64_t usage, uint64_t bytes);

/* The pipeline of a kernel, which the library has. */
const t_made *t_gpu_made(const char *name);

/* Notes an error, or that the device is lost; tells by `status` what went wrong since it was last asked; forgets it. */
void t_gpu_note(w_text message, int lost);
int t_gpu_told(int status, const char *what);
void t_gpu_forget(void);

#endif
