/* What a generated host program (host.c) and the support code (t_host.c) know of each other.
 *
 * host.c holds what is special about one model, as tables and small functions of its symbolic dimensions s[0..];
 * t_host.c holds the interface of model.h, the checks and the memory, equal for all models.
 */
#ifndef T_HOST_H
#define T_HOST_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include "model.h"
#include "t_pool.h"

enum { T_RANK_MAX = 64, T_SYMBOLS_MAX = 256, T_ALIGN = 64 };

/* No buffer is larger: the address space of today's processors. */
#define T_BYTES_MAX (INT64_C(1) << 47)

/* Sizes of symbolic models are first computed in 128 bits, so that an overflow is seen instead of happening. */
typedef __int128 t_wide;

/* Integer functions of host expressions. Division rounds down and by zero gives 0, as when the model was compiled. */
static inline t_wide t_imin(t_wide a, t_wide b) { return a < b ? a : b; }
static inline t_wide t_imax(t_wide a, t_wide b) { return a > b ? a : b; }
static inline t_wide t_idiv(t_wide a, t_wide b) { return b ? a / b - (a % b && (a < 0) != (b < 0)) : 0; }
static inline t_wide t_imod(t_wide a, t_wide b) { return a - b * t_idiv(a, b); }

typedef struct {
    torshc_dtype dtype;
    int32_t ndim;
    const int64_t *dims; /* -1: symbolic */
} t_port;

/* Symbol k is dimension `dim` of input `input`. */
typedef struct {
    int32_t input, dim;
    int64_t min, max;
} t_symbol;

typedef struct {
    uint64_t calls, ns;
} t_counter;

/* All that a run may touch. */
typedef struct {
    unsigned char *const *in, *const *out;
    unsigned char *weights, *arena, *scratch;
    size_t scratch_stride;
    t_pool *pool;
    t_counter *counters;
} t_run;

typedef struct {
    int32_t inputs, outputs, symbols, steps, device;
    const t_port *input, *output;
    const t_symbol *symbol;
    uint64_t weights_bytes, weights_id;  /* payload, without the footer */
    const unsigned char *embedded;       /* weights inside the library, or NULL */
    int (*cpu)(void);                    /* does this processor have the instructions? */
    int (*fits)(const int64_t *s);       /* status: is every size of a run in 0 .. T_BYTES_MAX? */
    int (*holds)(const int64_t *s);      /* do the constraints hold? */
    void (*input_dims)(int32_t index, const int64_t *s, int64_t *d);
    void (*output_dims)(int32_t index, const int64_t *s, int64_t *d);
    int64_t (*arena)(const int64_t *s);   /* bytes */
    int64_t (*scratch)(const int64_t *s); /* bytes a thread */
    void (*run)(const t_run *r, const int64_t *s);
} t_program;

extern const t_program t_the_program;

/* Where a tensor's data lies. */
typedef struct {
    unsigned char *at;
    uint64_t bytes;
} t_span;

/* t_cpu.c: whether this processor has a feature, by LLVM's name. */
int t_cpu_has(const char *name);

/* t_check.c. All return a status and leave a message when it is not TORSHC_OK. */
int t_fail(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));
int t_size(t_wide size);
int t_bind(const torshc_tensor *inputs, int32_t count, int64_t *s);
int t_check_outputs(const torshc_tensor *outputs, int32_t count, const int64_t *s);
int t_locate(const torshc_tensor *x, const char *what, int32_t i, t_span *span);
int t_check_aliases(const t_span *spans, const t_span *work);

static inline uint64_t t_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* One kernel over tasks [0, tasks). `scratch`: bytes that it wants for itself in each thread. */
static inline void t_launch(const t_run *r, int32_t step, t_kernel *kernel, void *const *buf, const int64_t *dim,
                            int64_t scratch, int64_t tasks)
{
    if (tasks <= 0)
        return;
#ifdef TORSHC_PROFILE
    const uint64_t began = t_now();
#else
    (void)step;
#endif
    t_pool_run(r->pool, kernel, buf, dim, scratch ? r->scratch : NULL, scratch ? r->scratch_stride : 0, tasks);
#ifdef TORSHC_PROFILE
    r->counters[step].calls++;
    r->counters[step].ns += t_now() - began;
#endif
}

static inline void t_copy(const t_run *r, int32_t step, unsigned char *to, const unsigned char *from, int64_t bytes)
{
    if (bytes <= 0)
        return;
#ifdef TORSHC_PROFILE
    const uint64_t began = t_now();
#else
    (void)step;
    (void)r;
#endif
    memcpy(to, from, (size_t)bytes);
#ifdef TORSHC_PROFILE
    r->counters[step].calls++;
    r->counters[step].ns += t_now() - began;
#endif
}

#endif
