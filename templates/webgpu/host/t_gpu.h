/* The device that all models of a library share: the library of webgpu.h, one device and queue, and its memory. */
#ifndef T_GPU_H
#define T_GPU_H

#include <pthread.h>

#include "t_device.h"
#include "t_webgpu.h"

/* Alignment of bindings and of copies; bytes of all sizes of a batch; what a dispatch takes along one dimension; bindings
 * of a kernel; threads that make pipelines. */
enum { T_BIND = 256, T_COPY = 4, T_SIZES = 1 << 16, T_BLOCKS = 65535, T_BINDINGS = 64, T_MAKERS = 15 };

/* Where the first buffer's addresses begin, above all of the processor's; how far those of two buffers are apart. */
#define T_FIRST ((uintptr_t)1 << 62)
#define T_STRIDE ((uintptr_t)1 << 40)

#define W_MEMBER(R, NAME, PARAMETERS) R(*NAME) PARAMETERS;
struct t_functions {
    W_FUNCTIONS(W_MEMBER)
};
extern struct t_functions w;

typedef struct {
    uintptr_t at; /* its address of ours */
    size_t bytes;
    w_buffer buffer;
} t_block;

typedef struct {
    w_pipeline pipeline;
    w_layout layout;
} t_made;

/* Opened by the first model, and kept until none is open and no buffer is left. */
struct t_gpu {
    pthread_mutex_t lock;
    int32_t users;
    w_instance instance;
    w_adapter adapter;
    w_device device;
    w_queue queue;
    w_limits limits;
    uint32_t subgroups;    /* the feature's number; 0 without */
    w_buffer sizes, empty; /* sizes that kernels get; what empty tensors are bound to */
    t_block *block;        /* by its number; without a buffer where that was given back */
    size_t blocks, held;
    t_made *made; /* of each kernel of the library, in their order */
    int32_t kernels;
    pthread_mutex_t noting; /* of what follows */
    char error[400];        /* the first since it was last told */
    char reason[200];       /* why the device was lost */
    int32_t lost;
};
extern struct t_gpu g;

/* A user more, and one less. */
int t_gpu_open(void);
void t_gpu_close(void);

w_buffer t_gpu_buffer(uint64_t usage, uint64_t bytes);

/* The pipeline of a kernel, by its place in t_kernels. */
t_made t_gpu_made(const t_source *const *kernel);

/* Notes an error of WebGPU; tells what went wrong since this was last asked, by `status`. */
void t_gpu_note(w_text message);
int t_gpu_told(int status, const char *what);

/* Whether the device is there still; wgpu-native ends the process where a lost one is given work. */
int t_gpu_check(void);

/* The block that an address is in, if any. */
t_block t_gpu_find(const void *at);

/* Gives the queue all that is encoded. */
void t_gpu_commit(t_device *d);

#endif
