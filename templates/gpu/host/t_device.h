/* Libraries for a device: what steps call (host.c), and the device layer that t_gpu_host.c stands on, one for each kind
 * of device (t_device.cu, t_copies.cu and t_graphs.cu for CUDA, t_device.mm for Metal).
 *
 * Addresses of the device are `unsigned char *`: what kernels get, and what one may add an offset to. Functions that
 * return `int` return a status of model.h and leave a message by t_fail. All but t_device_free and
 * t_device_share are called with the model's lock held, from any thread; none may leave the thread's current device changed.
 */
#ifndef T_DEVICE_H
#define T_DEVICE_H

#include "t_pool.h"
#include "t_program.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- steps of a run, called by host.c ---- */

/* Puts blocks [0, blocks) of a kernel into a stream and returns the device's own error code; 0 is none. */
typedef int t_launcher(void *const *buf, const int64_t *dim, int64_t blocks, void *stream);

struct t_run {
    /* On the device, like the next three; of a segment there, on the processor. */
    unsigned char *const *in, *const *out;
    unsigned char *weights, *state, *arena;
    unsigned char *scratch; /* of a segment on the processor */
    torshc_model *model;
    torshc_ranks *ranks; /* of a model that several processes share */
    struct t_nccl *nccl; /* and how its cards exchange tensors */
};

/* After the first step that fails the others do nothing. `launcher` is NULL where kernels are found by name. `spans`, on
 * devices whose kernels' arguments are bound, are the bytes of each, -1 for one that is the same as another before it; then
 * 0 where the kernel gets its number of blocks and sizes as one more, else -1. */
void t_launch(const t_run *r, int32_t step, const char *name, t_launcher *launcher, void *const *buf, int32_t buffers,
              const int64_t *dim, int32_t dims, int32_t threads, int64_t blocks, const int64_t *spans);

/* A kernel for the processor: its buffers, with their sizes in bytes, are copied there, and the written ones back. */
void t_fallback(const t_run *r, int32_t step, t_kernel *kernel, void *const *buf, int32_t buffers, const int64_t *bytes,
                const unsigned char *written, const int64_t *dim, int64_t scratch, int64_t tasks);

/* A copy between two places on the device that are apart. */
void t_move(const t_run *r, unsigned char *to, const unsigned char *from, uint64_t bytes);

/* A kernel of a segment that runs on the processor, where its buffers are. */
void t_launch_here(const t_run *r, int32_t step, t_kernel *kernel, void *const *buf, const int64_t *dim,
                   int64_t scratch, int64_t tasks);

/* ---- the device layer ---- */

typedef struct t_device t_device;

typedef struct {
    int32_t step;
    const char *name;
    t_launcher *launcher;
    void *const *buf;
    const int64_t *dim;
    int32_t buffers, dims, threads;
    int64_t blocks;
    const int64_t *spans;
} t_step;

/* Opens card `ordinal`. `stream` is the caller's, or NULL. TORSHC_E_DRIVER: no driver or card; TORSHC_E_DEVICE: no card
 * of that number; TORSHC_E_ARCH: the library has no code for it. *device is NULL on failure. */
int t_device_open(int32_t ordinal, void *stream, t_device **device);

/* Waits for all work first. NULL does nothing. */
void t_device_close(t_device *d);

/* At least 256-byte aligned. TORSHC_E_MEMORY says what (`what`) wanted how much and how much is free. */
int t_device_alloc(t_device *d, size_t bytes, const char *what, unsigned char **at);

/* Waits for all work that may use the memory. NULL does nothing. */
void t_device_free(t_device *d, unsigned char *at);

/* Lets a device use memory of another that is the same card, until it is closed; the last one that does frees it. */
int t_device_share(t_device *d, t_device *owner, unsigned char *at);

/* Where a tensor on the device lies, as kernels see it: sets span->at; TORSHC_E_DEVICE when its data is not there. */
int t_device_locate(t_device *d, const torshc_tensor *x, const char *what, int32_t i, t_span *span);

/* The work of a run, in order: each call puts some into the stream and returns. What goes up to the device was read from
 * `from` when the call returns, what comes down was written to `to` when t_device_finish has returned TORSHC_OK. */
typedef enum { T_UP, T_DOWN, T_ACROSS } t_way;
int t_device_copy(t_device *d, t_way way, unsigned char *to, const unsigned char *from, size_t bytes);
int t_device_launch(t_device *d, const t_step *step);

/* Waits for all work. TORSHC_E_LAUNCH when some of it failed; what has not come down is then dropped. */
int t_device_finish(t_device *d);

/* Waits for all work and forgets what has not come down. */
void t_device_drop(t_device *d);

/* Steps stand between begin and end. Runs of an equal key (the symbols and all addresses) have equal steps, so they may
 * be recorded and replayed: begin sets *replayed when it has put all of them into the stream, and there is then nothing
 * to do but to call end. `key` NULL: nothing is recorded. End gets the status of the steps and returns that of the
 * whole, or T_AGAIN: begin again and repeat the steps, which were recorded but could not be played. */
enum { T_AGAIN = -1 };
int t_device_begin(t_device *d, const int64_t *key, int32_t count, int *replayed);
int t_device_end(t_device *d, int status);

/* Time: mark `index` = 0, 1, ... of a run is put into the stream; after t_device_finish, nanoseconds from mark `index`
 * to the next, which are left as the processor's clock has them where the device does not know better. */
int t_device_mark(t_device *d, int32_t index);
int t_device_elapsed(t_device *d, int32_t index, uint64_t *ns);

/* For models that several processes share, CUDA alone: how many cards there are; what tells a card from all others; makes
 * the card the thread's own; and what is asked again and again while the device's work is waited for, with when that began
 * (t_ranks_now): whether the work is given up, with a message; then `end` ends it, in a thread of its own, as that may take
 * as long as the work. What is not done some seconds later never will be, and nothing waits for the device any more. */
/* Fork gives a stream for work that needs all that was put into the device's before, and that later launches do not wait
 * for until a join; NULL where none can be had, or where `first` is 0 and there was no fork since the last join. A run's
 * end joins too. */
void *t_device_fork(t_device *d, int first);
int t_device_join(t_device *d);
int32_t t_device_count(void);
int t_device_identity(t_device *d, uint8_t identity[16]);
int t_device_use(t_device *d);
void t_device_watch(t_device *d, int (*check)(void *context, double began), void (*end)(void *context), void *context);

/* Between any two places, on the device or the processor, after all other work; waits. */
int t_device_transfer(t_device *d, void *to, const void *from, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
