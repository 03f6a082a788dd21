/* The steps of a run on the processor, for host.c and t_host.c. */
#ifndef T_HOST_H
#define T_HOST_H

#include "t_pool.h"
#include "t_program.h"

/* All that a run may touch. */
struct t_run {
    unsigned char *const *in, *const *out;
    unsigned char *weights, *state, *arena, *scratch;
    size_t scratch_stride;
    t_pool *pool;
    t_counter *counters;
    int threads;
    torshc_ranks *ranks; /* of a model that several processes share */
    t_begun *begun;      /* and what it exchanges meanwhile */
    int looking;         /* for the first result with a NaN */
};

/* One kernel over tasks [0, tasks). `scratch`: bytes that it wants for itself in each thread. */
static inline void t_launch(const t_run *r, int32_t step, t_kernel *kernel, void *const *buf, const int64_t *dim,
                            int64_t scratch, int64_t tasks) {
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

#endif
