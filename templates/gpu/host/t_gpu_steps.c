/* The steps of a run: kernels and copies on the device, and kernels on the processor in between. */
#define _GNU_SOURCE
#include "t_gpu_model.h"

#include <stdlib.h>

#define P (t_the_program())

static void mark(torshc_model *m, int32_t step) {
#ifdef TORSHC_PROFILE
    m->status = t_device_mark(m->device, m->marks);
    m->marked[m->marks++] = (t_marked){step, t_now()};
#else
    (void)m;
    (void)step;
#endif
}

void t_launch(const t_run *r, int32_t step, const char *name, t_launcher *launcher, void *const *buf, int32_t buffers,
              const int64_t *dim, int32_t dims, int32_t threads, int64_t blocks, const int64_t *spans) {
    torshc_model *m = r->model;
    if (m->status || blocks <= 0)
        return;
    if (blocks > INT32_MAX) {
        t_fail(TORSHC_E_SIZE, "step %d (%s) has %lld blocks; at most 2^31 - 1", (int)step, name, (long long)blocks);
        m->status = t_at_step(step, TORSHC_E_SIZE);
        return;
    }
    mark(m, step);
    const t_step launch = {step, name, launcher, buf, dim, buffers, dims, threads, blocks, spans};
    if (!m->status)
        m->status = t_device_launch(m->device, &launch);
    if (m->status)
        t_at_step(step, m->status);
}

void t_move(const t_run *r, unsigned char *to, const unsigned char *from, uint64_t bytes) {
    torshc_model *m = r->model;
    if (!m->status && bytes)
        m->status = t_device_copy(m->device, T_ACROSS, to, from, (size_t)bytes);
}

#ifdef TORSHC_PROFILE
int t_count_steps(torshc_model *m) {
    int status = t_device_mark(m->device, m->marks);
    m->marked[m->marks].at = t_now();
    if (status || (status = t_device_finish(m->device)))
        return status;
    for (int32_t i = 0; i < m->marks; i++) {
        uint64_t ns = m->marked[i + 1].at - m->marked[i].at;
        if ((status = t_device_elapsed(m->device, i, &ns)))
            return status;
        m->head.counters[m->marked[i].step].calls++;
        m->head.counters[m->marked[i].step].ns += ns;
    }
    return TORSHC_OK;
}
#endif

/* ---- steps on the processor ---- */

void t_launch_here(const t_run *r, int32_t step, t_kernel *kernel, void *const *buf, const int64_t *dim,
                   int64_t scratch, int64_t tasks) {
    torshc_model *m = r->model;
    if (tasks <= 0)
        return;
#ifdef TORSHC_PROFILE
    const uint64_t began = t_now();
#else
    (void)step;
#endif
    t_pool_run(m->head.pool, kernel, buf, dim, scratch ? r->scratch : NULL, t_round_up(scratch), tasks);
#ifdef TORSHC_PROFILE
    m->head.counters[step].calls++;
    m->head.counters[step].ns += t_now() - began;
#endif
}

static int grow_host(t_memory *block, size_t bytes) {
    void *memory = NULL;
    if (bytes <= block->bytes)
        return TORSHC_OK;
    free(block->at);
    *block = (t_memory){NULL, 0};
    if (posix_memalign(&memory, T_ALIGN, bytes))
        return t_fail(TORSHC_E_MEMORY, "no memory for %zu bytes of steps on the processor", bytes);
    *block = (t_memory){memory, bytes};
    return TORSHC_OK;
}

/* A buffer on the device with all memory around it that others of the same step touch too, and where that lies here. */
typedef struct {
    unsigned char *from, *to, *host;
    int written;
} t_range;

/* Buffers that share memory on the device share it here: ranges that overlap become the same larger range. */
static void join(t_range *ranges, int32_t count) {
    for (int changed = 1; changed;) {
        changed = 0;
        for (int32_t i = 0; i < count; i++)
            for (int32_t j = 0; j < i; j++) {
                t_range *a = &ranges[i], *b = &ranges[j];
                const int apart = a->to <= b->from || b->to <= a->from;
                if (apart || (a->from == b->from && a->to == b->to && a->written == b->written))
                    continue;
                a->from = b->from = a->from < b->from ? a->from : b->from;
                a->to = b->to = a->to > b->to ? a->to : b->to;
                a->written = b->written = a->written | b->written;
                changed = 1;
            }
    }
}

/* Gives each range its place here and fetches it; ranges of weights are here already. */
static int fetch(torshc_model *m, const t_run *r, t_range *ranges, int32_t count, int64_t scratch) {
    size_t bytes = (size_t)m->head.threads * t_round_up(scratch);
    int status;
    for (int32_t i = 0; i < count; i++)
        bytes += t_round_up(ranges[i].to - ranges[i].from) + T_ALIGN;
    if ((status = grow_host(&m->host, bytes)))
        return status;
    unsigned char *at = m->host.at + (size_t)m->head.threads * t_round_up(scratch);
    for (int32_t i = 0; i < count; i++) {
        t_range *range = &ranges[i];
        int32_t first = 0;
        while (ranges[first].from != range->from)
            first++;
        if (P->weights_bytes && range->from >= r->weights && range->from < r->weights + P->weights_bytes)
            range->host = m->head.weights->file.at + (range->from - r->weights);
        else if (first < i)
            range->host = ranges[first].host;
        else {
            range->host = at + (uintptr_t)range->from % T_ALIGN;
            at += t_round_up(range->to - range->from) + T_ALIGN;
            if ((status =
                     t_device_copy(m->device, T_DOWN, range->host, range->from, (size_t)(range->to - range->from))))
                return status;
        }
    }
    return t_device_finish(m->device);
}

static int return_written(torshc_model *m, const t_range *ranges, int32_t count) {
    for (int32_t i = 0; i < count; i++) {
        const t_range *range = &ranges[i];
        int32_t first = 0;
        while (ranges[first].from != range->from)
            first++;
        if (first < i || !range->written)
            continue;
        const int status = t_device_copy(m->device, T_UP, range->from, range->host, (size_t)(range->to - range->from));
        if (status)
            return status;
    }
    return TORSHC_OK;
}

void t_fallback(const t_run *r, int32_t step, t_kernel *kernel, void *const *buf, int32_t buffers, const int64_t *bytes,
                const unsigned char *written, const int64_t *dim, int64_t scratch, int64_t tasks) {
    torshc_model *m = r->model;
    t_range ranges[buffers + 1];
    void *here[buffers + 1];
    if (m->status || tasks <= 0)
        return;
    mark(m, step);
    for (int32_t i = 0; i < buffers; i++)
        ranges[i] = (t_range){buf[i], (unsigned char *)buf[i] + bytes[i], NULL, written[i]};
    join(ranges, buffers);
    if (m->status || (m->status = fetch(m, r, ranges, buffers, scratch)))
        return;
    for (int32_t i = 0; i < buffers; i++)
        here[i] = ranges[i].host + ((unsigned char *)buf[i] - ranges[i].from);
    t_pool_run(m->head.pool, kernel, here, dim, scratch ? m->host.at : NULL, t_round_up(scratch), tasks);
    m->status = return_written(m, ranges, buffers);
}
