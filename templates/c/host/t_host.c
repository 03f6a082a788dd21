/* The interface of model.h over the tables of host.c: opening, checking, memory, running. */
#define _GNU_SOURCE
#include "t_host.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { T_HUGE = 2 << 20 };

#define P (&t_the_program)

struct torshc_model {
    pthread_mutex_t lock; /* held during a run */
    pid_t owner;          /* threads do not survive fork() */
    int threads;
    t_pool *pool;
    t_weights_file weights;
    unsigned char *own;
    size_t own_bytes;
    t_counter *counters;
    t_run with; /* this and the next of a script */
    t_frame *frame;
};

/* ---- memory ---- */

/* Huge pages for large memory: a convolution walks far more 4 KiB pages than a processor remembers. */
static unsigned char *allocate(size_t bytes)
{
    void *memory = NULL;
    const size_t align = bytes >= 2 * T_HUGE ? T_HUGE : T_ALIGN;
    if (posix_memalign(&memory, align, bytes ? bytes : T_ALIGN))
        return NULL;
    if (align == T_HUGE)
        (void)madvise(memory, bytes, MADV_HUGEPAGE);
    return memory;
}

static int grow(torshc_model *m, size_t bytes)
{
    if (m->own && bytes <= m->own_bytes)
        return TORSHC_OK;
    free(m->own);
    m->own_bytes = 0;
    m->own = allocate(bytes);
    if (!m->own)
        return t_fail(TORSHC_E_MEMORY, "no memory for a workspace of %zu bytes", bytes);
    m->own_bytes = bytes;
    return TORSHC_OK;
}

/* ---- open and close ---- */

static size_t workspace_bytes(const torshc_model *m, const int64_t *s)
{
    const size_t behind = P->symbols ? T_ALIGN : 0; /* an empty value may lie at the very end, see t_nothing */
    return t_round_up(P->arena(s)) + (size_t)m->threads * t_round_up(P->scratch(s)) + behind;
}

static int fill_model(torshc_model *m, const torshc_options *options)
{
    int status = t_open_weights(&m->weights, options->weights_path);
    if (status)
        return status;
    const int threads = options->threads ? options->threads : t_usable_processors();
    m->owner = getpid();
    m->counters = calloc((size_t)P->steps + 1, sizeof *m->counters);
    if (!m->counters)
        return t_fail(TORSHC_E_MEMORY, "no memory for %d counters", (int)P->steps);
    const uint64_t was = t_fp_enter(); /* the threads inherit it */
    m->pool = t_pool_create(threads);
    t_fp_leave(was);
    m->threads = t_pool_threads(m->pool);
    if (!P->script)
        return P->symbols ? TORSHC_OK : grow(m, workspace_bytes(m, NULL));
    m->with = (t_run){.weights = m->weights.at, .pool = m->pool, .counters = m->counters, .threads = m->threads};
    m->frame = P->script->open(&m->with, m->weights.at);
    return m->frame ? TORSHC_OK : t_fail(TORSHC_E_MEMORY, "no memory for a frame");
}

int torshc_open(const torshc_options *given, torshc_model **model)
{
    if (!model)
        return t_fail(TORSHC_E_ARGUMENT, "torshc_open: model is NULL");
    *model = NULL;
    torshc_options options;
    int status = t_options(given, &options);
    if (status)
        return status;
    if (options.device || options.stream)
        return t_fail(TORSHC_E_ARGUMENT, "torshc_open: a library for processors has no device %d and no streams",
                      (int)options.device);
    if (!P->cpu())
        return t_fail(TORSHC_E_CPU, "this processor lacks instructions that the library was compiled for");
    torshc_model *m = calloc(1, sizeof *m);
    if (!m)
        return t_fail(TORSHC_E_MEMORY, "no memory for the model");
    pthread_mutex_init(&m->lock, NULL);
    status = fill_model(m, &options);
    if (status) {
        torshc_close(m);
        return status;
    }
    *model = m;
    return TORSHC_OK;
}

void torshc_close(torshc_model *m)
{
    if (!m)
        return;
    if (m->pool && m->owner == getpid())
        t_pool_destroy(m->pool);
    if (m->frame)
        P->script->close(m->frame);
    t_close_weights(&m->weights);
    free(m->own);
    free(m->counters);
    pthread_mutex_destroy(&m->lock);
    free(m);
}

/* ---- runs ---- */

int torshc_workspace_size(const torshc_model *m, const torshc_tensor *inputs, int32_t count, size_t *bytes)
{
    int64_t s[T_SYMBOLS_MAX];
    if (!m || !bytes)
        return t_fail(TORSHC_E_ARGUMENT, "torshc_workspace_size: NULL argument");
    const int status = t_bind(inputs, count, s);
    if (!status)
        *bytes = workspace_bytes(m, s);
    return status;
}

static int check_workspace(const t_span *work, size_t need)
{
    if ((uintptr_t)work->at % T_ALIGN)
        return t_fail(TORSHC_E_ALIGN, "the workspace is not aligned to %d bytes", T_ALIGN);
    if (work->at && work->bytes < need)
        return t_fail(TORSHC_E_WORKSPACE, "the workspace has %llu bytes; this run needs %zu",
                    (unsigned long long)work->bytes, need);
    return TORSHC_OK;
}

static int run_locked(torshc_model *m, const t_span *spans, unsigned char *work, const int64_t *s)
{
    const size_t need = workspace_bytes(m, s);
    const int32_t n = P->inputs + P->outputs;
    unsigned char *at[n + 1];
    int status;
    if (!work && (status = grow(m, need)))
        return status;
    for (int32_t i = 0; i < n; i++)
        at[i] = spans[i].bytes ? spans[i].at : (unsigned char *)(uintptr_t)t_nothing;
    unsigned char *const base = work ? work : m->own;
    const t_run run = {at, at + P->inputs, m->weights.at, base, base + t_round_up(P->arena(s)),
                       t_round_up(P->scratch(s)), m->pool, m->counters, m->threads};
    const uint64_t was = t_fp_enter();
    status = P->run(&run, s);
    t_fp_leave(was);
    return status;
}

static int usable(const torshc_model *m, const char *what)
{
    if (!m)
        return t_fail(TORSHC_E_ARGUMENT, "%s: model is NULL", what);
    if (m->threads > 1 && m->owner != getpid())
        return t_fail(TORSHC_E_FORKED, "the model was opened before fork(); open it again in this process");
    return TORSHC_OK;
}

/* A script's results are its own; they are shown (`shown`), or copied to `outputs`. */
static int run_script(torshc_model *m, const torshc_tensor *inputs, int32_t count, torshc_tensor *shown,
                      const torshc_tensor *outputs, int32_t output_count)
{
    pthread_mutex_lock(&m->lock);
    const uint64_t was = t_fp_enter();
    const int status = P->script->run(m->frame, inputs, count, shown, outputs, output_count);
    t_fp_leave(was);
    pthread_mutex_unlock(&m->lock);
    return status;
}

int torshc_run_sized(torshc_model *m, const torshc_tensor *inputs, int32_t input_count, torshc_tensor *outputs,
                     int32_t output_count)
{
    const int status = usable(m, "torshc_run_sized");
    if (status)
        return status;
    if (!P->script)
        return t_fail(TORSHC_E_UNSUPPORTED,
                      "output shapes are known before a run here: use torshc_output_shape and torshc_run");
    return run_script(m, inputs, input_count, outputs, NULL, output_count);
}

int torshc_run(torshc_model *m, const torshc_tensor *inputs, int32_t input_count, const torshc_tensor *outputs,
               int32_t output_count, void *workspace, size_t bytes)
{
    int64_t s[T_SYMBOLS_MAX];
    int status;
    if ((status = usable(m, "torshc_run")))
        return status;
    if (P->script)
        return run_script(m, inputs, input_count, NULL, outputs, output_count);
    if ((status = t_bind(inputs, input_count, s)) || (status = t_check_outputs(outputs, output_count, s)))
        return status;
    t_span spans[P->inputs + P->outputs + 1];
    for (int32_t i = 0; i < P->inputs; i++)
        if ((status = t_locate(&inputs[i], "input", i, &spans[i])))
            return status;
    for (int32_t i = 0; i < P->outputs; i++)
        if ((status = t_locate(&outputs[i], "output", i, &spans[P->inputs + i])))
            return status;
    const t_span work = {workspace, workspace ? bytes : 0};
    if ((status = t_check_aliases(spans, &work)) || (status = check_workspace(&work, workspace_bytes(m, s))))
        return status;
    pthread_mutex_lock(&m->lock);
    status = run_locked(m, spans, workspace, s);
    pthread_mutex_unlock(&m->lock);
    return status;
}

int torshc_profile(torshc_model *m, int32_t step, uint64_t *calls, uint64_t *nanoseconds)
{
    return t_profile(m ? &m->lock : NULL, m ? m->counters : NULL, step, calls, nanoseconds);
}

/* ---- memory for callers ---- */

int torshc_alloc(torshc_model *m, size_t bytes, void **data)
{
    if (!m || !data)
        return t_fail(TORSHC_E_ARGUMENT, "torshc_alloc: NULL argument");
    *data = allocate(bytes);
    return *data ? TORSHC_OK : t_fail(TORSHC_E_MEMORY, "no memory for %zu bytes", bytes);
}

int torshc_free(torshc_model *m, void *data)
{
    if (!m)
        return t_fail(TORSHC_E_ARGUMENT, "torshc_free: model is NULL");
    free(data);
    return TORSHC_OK;
}

int torshc_copy(torshc_model *m, void *to, const void *from, size_t bytes)
{
    if (!m || (bytes && (!to || !from)))
        return t_fail(TORSHC_E_ARGUMENT, "torshc_copy: NULL argument");
    if (bytes)
        memmove(to, from, bytes);
    return TORSHC_OK;
}

int torshc_synchronize(torshc_model *m)
{
    return m ? TORSHC_OK : t_fail(TORSHC_E_ARGUMENT, "torshc_synchronize: model is NULL");
}
