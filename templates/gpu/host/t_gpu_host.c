/* The interface of model.h for libraries whose kernels run on a device: the tables of host.c over t_device.h. */
#define _GNU_SOURCE
#include "t_gpu_model.h"

#include <stdlib.h>
#include <unistd.h>

enum { T_ALIGN_STAGED = 256 };

#define P (&t_the_program)

/* ---- memory ---- */

/* The old block goes before the new one comes, as both together may be too large; if the new one does not fit, the old
 * one comes back. */
int t_grow(torshc_model *m, t_memory *block, size_t bytes, const char *what)
{
    if (bytes <= block->bytes)
        return TORSHC_OK;
    const size_t was = block->bytes;
    t_device_free(m->device, block->at);
    *block = (t_memory){NULL, 0};
    const int status = t_device_alloc(m->device, bytes, what, &block->at);
    if (!status)
        block->bytes = bytes;
    else if (was && !t_device_alloc(m->device, was, what, &block->at))
        block->bytes = was;
    return status;
}

/* ---- open and close ---- */

/* Whether the processor has kernels to run, or other work between those of the device. */
static int works_here(void)
{
    return P->fallbacks || P->script;
}

static int open_weights(torshc_model *m, const char *path)
{
    int status = t_open_weights(&m->file, path);
    if (status || !P->weights_bytes)
        return status;
    if ((status = t_device_alloc(m->device, (size_t)P->weights_bytes, "the weights", &m->weights)) ||
        (status = t_device_upload(m->device, m->weights, m->file.at, (size_t)P->weights_bytes)) ||
        (status = t_device_finish(m->device)))
        return status;
    if (!works_here()) /* nothing reads them here any more */
        t_close_weights(&m->file);
    return TORSHC_OK;
}

static int fill_model(torshc_model *m, const torshc_options *options)
{
    m->owner = getpid();
    m->ordinal = options->device;
    m->streamed = options->stream != NULL;
    m->counters = calloc((size_t)P->steps + 1, sizeof *m->counters);
    m->marked = calloc((size_t)P->steps + 1, sizeof *m->marked);
    if (!m->counters || !m->marked)
        return t_fail(TORSHC_E_MEMORY, "no memory for %d counters", (int)P->steps);
    if (works_here()) {
        const uint64_t was = t_fp_enter(); /* the threads inherit it */
        m->pool = t_pool_create(options->threads ? options->threads : t_usable_processors());
        t_fp_leave(was);
    }
    m->threads = t_pool_threads(m->pool);
    int status = t_device_open(options->device, options->stream, &m->device);
    if (!status)
        status = open_weights(m, options->weights_path);
    if (!status && P->script) {
        m->with = (t_run){.weights = m->weights, .model = m};
        m->frame = P->script->open(&m->with, m->file.at);
        return m->frame ? TORSHC_OK : t_fail(TORSHC_E_MEMORY, "no memory for a frame");
    }
    if (status || P->symbols)
        return status;
    return t_grow(m, &m->arena, t_round_up(P->arena(NULL)), "intermediate values");
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
    if (m->frame)
        P->script->close(m->frame);
    if (m->owner == getpid()) { /* in a child of fork() the device is the parent's */
        t_pool_destroy(m->pool);
        t_device_free(m->device, m->staging.at);
        t_device_free(m->device, m->arena.at);
        t_device_free(m->device, m->weights);
        t_device_close(m->device);
    }
    t_close_weights(&m->file);
    free(m->host.at);
    free(m->marked);
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
        *bytes = t_round_up(P->arena(s));
    return status;
}

/* A run in progress: inputs, then outputs. */
typedef struct {
    int32_t count;
    const torshc_tensor **tensor;
    t_span *span;
    unsigned char **at; /* where kernels find each on the device */
    t_span work;
    int host; /* some tensor is on the processor */
} t_call;

/* Whether kernels use a copy of a tensor on the device: it is not there, or not aligned as kernels want it. */
static int is_staged(const t_call *call, int32_t i)
{
    return call->tensor[i]->device.type != P->device || (uintptr_t)call->span[i].at % T_ALIGN_DEVICE;
}

int t_locate_on(torshc_model *m, const torshc_tensor *x, const char *what, int32_t i, t_span *span)
{
    const int status = t_locate(x, what, i, span);
    if (status || x->device.type != P->device)
        return status;
    if (x->device.id != m->ordinal)
        return t_fail(TORSHC_E_DEVICE, "%s %d is on device %d; the model is on device %d", what, (int)i,
                      (int)x->device.id, (int)m->ordinal);
    return span->bytes ? t_device_locate(m->device, x, what, i, span) : TORSHC_OK;
}

static int locate(torshc_model *m, t_call *call, int32_t i)
{
    const int is_input = i < P->inputs;
    call->host |= call->tensor[i]->device.type != P->device;
    return t_locate_on(m, call->tensor[i], is_input ? "input" : "output", is_input ? i : i - P->inputs, &call->span[i]);
}

static int check_workspace(torshc_model *m, t_span *work, size_t need)
{
    const torshc_tensor memory = {work->at, {P->device, m->ordinal}, 0, {TORSHC_UINT, 8, 1}, NULL, NULL, 0};
    if (!work->at)
        return TORSHC_OK;
    if ((uintptr_t)work->at % T_ALIGN)
        return t_fail(TORSHC_E_ALIGN, "the workspace is not aligned to %d bytes", T_ALIGN);
    if (work->bytes < need)
        return t_fail(TORSHC_E_WORKSPACE, "the workspace has %llu bytes; this run needs %zu",
                      (unsigned long long)work->bytes, need);
    return need ? t_device_locate(m->device, &memory, "workspace", 0, work) : TORSHC_OK;
}

/* Where each tensor lies on the device. Copies lie at places that only shapes decide, so that recorded runs stay of
 * use when host arrays move. */
static int place_tensors(torshc_model *m, t_call *call)
{
    size_t bytes = 0;
    for (int32_t i = 0; i < call->count; i++)
        if (is_staged(call, i))
            bytes += (call->span[i].bytes + T_ALIGN_STAGED - 1) / T_ALIGN_STAGED * T_ALIGN_STAGED;
    const int status = t_grow(m, &m->staging, bytes, "copies of inputs and outputs");
    if (status)
        return status;
    unsigned char *next = m->staging.at;
    for (int32_t i = 0; i < call->count; i++) {
        call->at[i] = is_staged(call, i) ? next : call->span[i].at;
        if (is_staged(call, i))
            next += (call->span[i].bytes + T_ALIGN_STAGED - 1) / T_ALIGN_STAGED * T_ALIGN_STAGED;
    }
    return TORSHC_OK;
}

/* Copies of inputs to the device before the steps, of outputs from it after them. */
static int stage(torshc_model *m, const t_call *call, int32_t begin, int32_t end, int out)
{
    int status = TORSHC_OK;
    for (int32_t i = begin; i < end && !status; i++) {
        const int here = call->tensor[i]->device.type != P->device;
        const t_span *span = &call->span[i];
        if (!span->bytes || !is_staged(call, i))
            continue;
        if (out)
            status = (here ? t_device_download : t_device_copy)(m->device, span->at, call->at[i], span->bytes);
        else
            status = (here ? t_device_upload : t_device_copy)(m->device, call->at[i], span->at, span->bytes);
    }
    return status;
}

static int run_steps(torshc_model *m, const t_call *call, const int64_t *s)
{
    unsigned char *const arena = call->work.at ? call->work.at : m->arena.at;
    const t_run run = {call->at, call->at + P->inputs, m->weights, arena, NULL, m};
    int64_t key[P->symbols + call->count + 1];
    int32_t k = 0;
    for (int32_t i = 0; i < P->symbols; i++)
        key[k++] = s[i];
    for (int32_t i = 0; i < call->count; i++)
        key[k++] = (int64_t)(uintptr_t)call->at[i];
    key[k++] = (int64_t)(uintptr_t)arena;
#ifdef TORSHC_PROFILE
    const int recorded = 0;
#else
    const int recorded = !P->fallbacks;
#endif
    int status;
    do {
        int replayed = 0;
        m->marks = 0;
        if ((m->status = t_device_begin(m->device, recorded ? key : NULL, k, &replayed)))
            return m->status;
        if (!replayed)
            P->run(&run, s);
        status = t_device_end(m->device, m->status);
    } while (status == T_AGAIN);
    return status;
}

static int run_locked(torshc_model *m, t_call *call, const int64_t *s)
{
    int status = TORSHC_OK;
    for (int32_t i = 0; i < call->count && !status; i++)
        status = locate(m, call, i);
    if (status || (status = t_check_aliases(call->span, &call->work)) ||
        (status = check_workspace(m, &call->work, t_round_up(P->arena(s)))) ||
        (!call->work.at && (status = t_grow(m, &m->arena, t_round_up(P->arena(s)), "intermediate values"))) ||
        (status = place_tensors(m, call)))
        return status;
    if (!(status = stage(m, call, 0, P->inputs, 0)) && !(status = run_steps(m, call, s)))
        status = stage(m, call, P->inputs, call->count, 1);
#ifdef TORSHC_PROFILE
    if (!status)
        status = t_count_steps(m);
#else
    if (!status && (call->host || !m->streamed))
        status = t_device_finish(m->device);
#endif
    if (status)
        t_device_drop(m->device);
    return status;
}

static int check_alive(const torshc_model *m, const char *what)
{
    if (!m)
        return t_fail(TORSHC_E_ARGUMENT, "%s: model is NULL", what);
    if (m->owner != getpid())
        return t_fail(TORSHC_E_FORKED, "the model was opened before fork(); open it again in this process");
    return TORSHC_OK;
}

/* A script's results are its own; they are shown (`shown`), or copied to `outputs`. */
static int run_script(torshc_model *m, const torshc_tensor *inputs, int32_t count, torshc_tensor *shown,
                      const torshc_tensor *outputs, int32_t output_count)
{
    const uint64_t was = t_fp_enter();
    pthread_mutex_lock(&m->lock);
    int status = P->script->run(m->frame, inputs, count, shown, outputs, output_count);
    if (!status)
        status = t_device_finish(m->device);
    if (status)
        t_device_drop(m->device);
    pthread_mutex_unlock(&m->lock);
    t_fp_leave(was);
    return status;
}

int torshc_run_sized(torshc_model *m, const torshc_tensor *inputs, int32_t input_count, torshc_tensor *outputs,
                     int32_t output_count)
{
    const int status = check_alive(m, "torshc_run_sized");
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
    if ((status = check_alive(m, "torshc_run")))
        return status;
    if (P->script)
        return run_script(m, inputs, input_count, NULL, outputs, output_count);
    if ((status = t_bind(inputs, input_count, s)) ||
        (status = t_check_outputs(outputs, output_count, s)))
        return status;
    const int32_t n = P->inputs + P->outputs;
    const torshc_tensor *tensor[n + 1];
    unsigned char *at[n + 1];
    t_span span[n + 1];
    for (int32_t i = 0; i < n; i++)
        tensor[i] = i < P->inputs ? &inputs[i] : &outputs[i - P->inputs];
    t_call call = {n, tensor, span, at, {workspace, workspace ? bytes : 0}, 0};
    const uint64_t was = t_fp_enter();
    pthread_mutex_lock(&m->lock);
    status = run_locked(m, &call, s);
    pthread_mutex_unlock(&m->lock);
    t_fp_leave(was);
    return status;
}

int torshc_profile(torshc_model *m, int32_t step, uint64_t *calls, uint64_t *nanoseconds)
{
    return t_profile(m ? &m->lock : NULL, m ? m->counters : NULL, step, calls, nanoseconds);
}

/* ---- memory for callers ---- */

int torshc_alloc(torshc_model *m, size_t bytes, void **data)
{
    unsigned char *at = NULL;
    int status = check_alive(m, "torshc_alloc");
    if (status)
        return status;
    if (!data)
        return t_fail(TORSHC_E_ARGUMENT, "torshc_alloc: data is NULL");
    pthread_mutex_lock(&m->lock);
    status = t_device_alloc(m->device, bytes ? bytes : 1, "the caller", &at);
    pthread_mutex_unlock(&m->lock);
    *data = at;
    return status;
}

int torshc_free(torshc_model *m, void *data)
{
    const int status = check_alive(m, "torshc_free");
    if (!status)
        t_device_free(m->device, data);
    return status;
}

int torshc_copy(torshc_model *m, void *to, const void *from, size_t bytes)
{
    int status = check_alive(m, "torshc_copy");
    if (status || !bytes)
        return status;
    if (!to || !from)
        return t_fail(TORSHC_E_ARGUMENT, "torshc_copy: NULL argument");
    pthread_mutex_lock(&m->lock);
    status = t_device_transfer(m->device, to, from, bytes);
    pthread_mutex_unlock(&m->lock);
    return status;
}

int torshc_synchronize(torshc_model *m)
{
    int status = check_alive(m, "torshc_synchronize");
    if (status)
        return status;
    pthread_mutex_lock(&m->lock);
    status = t_device_finish(m->device);
    pthread_mutex_unlock(&m->lock);
    return status;
}
