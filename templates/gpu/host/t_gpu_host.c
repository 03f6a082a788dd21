/* What libraries for a device do in their own way: memory, and runs over t_device.h. */
#include "t_gpu_model.h"

#include <stdlib.h>

enum { T_ALIGN_STAGED = 256 };

#define P (t_the_program())

const size_t t_model_bytes = sizeof(torshc_model);

/* ---- memory ---- */

/* The old block goes before the new one comes, as both together may be too large; if the new one does not fit, the old
 * one comes back. */
int t_grow(torshc_model *m, t_memory *block, size_t bytes, const char *what) {
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

/* The weights on the device, for a model and all its contexts; those here stay for steps on the processor. */
static int upload_weights(torshc_model *m, const torshc_model *of) {
    t_shared *shared = m->head.shared;
    int status;
    if (!P->used_bytes)
        return TORSHC_OK;
    if (of) {
        if (!(status = t_device_share(m->device, of->device, shared->there)))
            m->weights = shared->there;
        return status;
    }
    if ((status = t_device_alloc(m->device, (size_t)P->used_bytes, "the weights", &m->weights)) ||
        (status = t_device_copy(m->device, T_UP, m->weights, m->head.weights->file.at, (size_t)P->used_bytes)) ||
        (status = t_device_finish(m->device)))
        return status;
    shared->there = m->weights;
    return TORSHC_OK;
}

int t_fill_model(torshc_model *m, const torshc_model *of, const torshc_options *options, const t_run **with) {
    m->ordinal = options->device;
    m->streamed = options->stream != NULL;
    m->marked = calloc((size_t)P->steps + 1, sizeof *m->marked);
    m->key = calloc((size_t)P->symbols + (size_t)P->inputs + (size_t)P->outputs + 3, sizeof *m->key);
    if (!m->marked || !m->key)
        return t_fail(TORSHC_E_MEMORY, "no memory for the marks of %d steps", (int)P->steps);
    int status;
    if (P->cards && m->ordinal < 0 && (status = P->cards->choose(options->ranks, &m->ordinal)))
        return status;
    if (P->cards)
        m->head.shared->ordinal = m->ordinal;
    if ((status = t_device_open(m->ordinal, options->stream, &m->device)) || (status = upload_weights(m, of)))
        return status;
    if (P->cards && (status = P->cards->join(m, options)))
        return status;
    if (P->chooser && (status = P->chooser->open(m)))
        return status;
    m->with = (t_run){.weights = m->weights, .model = m};
    *with = &m->with;
    if (P->script || P->symbols || P->forms)
        return TORSHC_OK;
    return t_grow(m, &m->arena, t_workspace_bytes(m, NULL), "intermediate values");
}

void t_empty_model(torshc_model *m, int last) {
    t_device_free(m->device, m->staging.at);
    t_device_free(m->device, m->arena.at);
    t_device_free(m->device, last ? m->weights : NULL);
    t_device_free(m->device, m->head.states);
    if (P->chooser)
        P->chooser->close(m);
    t_device_close(m->device);
    if (P->cards)
        P->cards->leave(m);
    free(m->host.at);
    free(m->marked);
    free(m->key);
}

/* ---- states ---- */

static int copy_states(torshc_model *m, t_way way, unsigned char *to, const unsigned char *from, size_t bytes) {
    int status = t_device_copy(m->device, way, to, from, bytes);
    if (!status)
        status = t_device_finish(m->device);
    if (status)
        t_device_drop(m->device);
    return status;
}

int t_keep_states(torshc_model *m, unsigned char *first) {
    int status = t_device_alloc(m->device, (size_t)P->state_bytes, "the states", &m->head.states);
    if (!status)
        status = t_write_states(m, 0, first, (size_t)P->state_bytes);
    free(first);
    return status;
}

int t_read_states(torshc_model *m, uint64_t offset, void *to, size_t bytes) {
    return copy_states(m, T_DOWN, to, m->head.states + offset, bytes);
}

int t_write_states(torshc_model *m, uint64_t offset, const void *from, size_t bytes) {
    return copy_states(m, T_UP, m->head.states + offset, from, bytes);
}

/* ---- runs ---- */

size_t t_workspace_bytes(const torshc_model *m, const int64_t *s) {
    (void)m;
    return t_round_up(P->arena(s));
}

/* A run in progress: inputs, then outputs. */
typedef struct {
    int32_t count;
    const torshc_tensor *const *tensor;
    const t_span *span;
    unsigned char **at;   /* where kernels find each on the device */
    unsigned char *arena; /* the caller's workspace, or our own */
} t_call;

static int is_on_device(const torshc_tensor *x) { return x->device.type == P->device; }

/* Whether kernels use a copy of a tensor on the device: it is not there, or not aligned as kernels want it. */
static int is_staged(const t_call *call, int32_t i) {
    return !is_on_device(call->tensor[i]) || (uintptr_t)call->span[i].at % T_ALIGN_DEVICE;
}

int t_locate_on(torshc_model *m, const torshc_tensor *x, const char *what, int32_t i, t_span *span) {
    const int status = t_locate(x, what, i, span);
    if (status || !is_on_device(x))
        return status;
    if (x->device.id != m->ordinal)
        return t_fail(TORSHC_E_DEVICE, "%s %d is on device %d; the model is on device %d", what, (int)i,
                      (int)x->device.id, (int)m->ordinal);
    return span->bytes ? t_device_locate(m->device, x, what, i, span) : TORSHC_OK;
}

/* The caller's workspace has to be on the device. */
static int locate_workspace(torshc_model *m, t_span *work) {
    const torshc_tensor memory = {work->at, {P->device, m->ordinal}, 0, {TORSHC_UINT, 8, 1}, NULL, NULL, 0};
    return t_device_locate(m->device, &memory, "workspace", 0, work);
}

/* Where each tensor lies on the device. Copies lie at places that only shapes decide, so that recorded runs stay of
 * use when host arrays move. */
static int place_tensors(torshc_model *m, t_call *call) {
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
static int stage(torshc_model *m, const t_call *call, int32_t begin, int32_t end, int out) {
    int status = TORSHC_OK;
    for (int32_t i = begin; i < end && !status; i++) {
        const int here = !is_on_device(call->tensor[i]);
        const t_span *span = &call->span[i];
        if (!span->bytes || !is_staged(call, i))
            continue;
        if (out)
            status = t_device_copy(m->device, here ? T_DOWN : T_ACROSS, span->at, call->at[i], span->bytes);
        else
            status = t_device_copy(m->device, here ? T_UP : T_ACROSS, call->at[i], span->at, span->bytes);
    }
    return status;
}

static int run_steps(torshc_model *m, const t_call *call, const int64_t *s) {
    const t_run run = {call->at, call->at + P->inputs,  m->weights, m->head.states, call->arena, NULL,
                       m,        m->head.shared->ranks, m->nccl};
    int64_t *key = m->key;
    int32_t k = 0;
    for (int32_t i = 0; i < P->symbols; i++)
        key[k++] = s[i];
    if (P->forms)
        key[k++] = s[P->form];
    if (P->chooser)
        key[k++] = P->chooser->cases(m);
    for (int32_t i = 0; i < call->count; i++) /* aligned, but where there is nothing */
        key[k++] = (int64_t)((uintptr_t)call->at[i] | (uintptr_t)is_on_device(call->tensor[i]));
    key[k++] = (int64_t)(uintptr_t)call->arena;
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
        if (!replayed && (status = m->choice ? P->chooser->run(m, &run) : P->run(&run, s)) && !m->status)
            m->status = status;
        status = t_device_end(m->device, m->status);
    } while (status == T_AGAIN);
    m->head.elsewhere = m->choice && P->chooser->cases(m);
    return status;
}

static int run_call(torshc_model *m, t_call *call, const int64_t *s) {
    int status = place_tensors(m, call);
    if (status)
        return status;
    if (!(status = stage(m, call, 0, P->inputs, 0)) && !(status = run_steps(m, call, s)))
        status = stage(m, call, P->inputs, call->count, 1);
#ifdef TORSHC_PROFILE
    if (!status)
        status = t_count_steps(m);
#else
    int waits = !m->streamed;
    for (int32_t i = 0; i < call->count; i++)
        waits |= !is_on_device(call->tensor[i]);
    if (!status && waits)
        status = t_device_finish(m->device);
#endif
    if (status)
        t_device_drop(m->device);
    return status;
}

int t_run_on(torshc_model *m, t_span *work) {
    const t_model *head = &m->head;
    size_t need = t_workspace_bytes(m, head->symbols);
    int status = TORSHC_OK;
    if (P->chooser) {
        const size_t most = P->chooser->find(m, head->tensor, work->at ? work->bytes : SIZE_MAX);
        need = most > need ? most : need;
    }
    if (!work->at)
        status = t_grow(m, &m->arena, need, "intermediate values");
    else if (need)
        status = locate_workspace(m, work);
    if (status)
        return status;
    t_call call = {P->inputs + P->outputs, head->tensor, head->span, head->at, work->at ? work->at : m->arena.at};
    return run_call(m, &call, head->symbols);
}

int t_end_script(torshc_model *m, int status) {
    if (!status)
        status = t_device_finish(m->device);
    if (status)
        t_device_drop(m->device);
    return status;
}

/* ---- memory for callers ---- */

int torshc_alloc(torshc_model *m, size_t bytes, void **data) {
    unsigned char *at = NULL;
    int status = t_check_alive(m, "torshc_alloc");
    if (status)
        return status;
    if (!data)
        return t_fail(TORSHC_E_ARGUMENT, "torshc_alloc: data is NULL");
    pthread_mutex_lock(&m->head.lock);
    status = t_device_alloc(m->device, bytes ? bytes : 1, "the caller", &at);
    pthread_mutex_unlock(&m->head.lock);
    *data = at;
    return status;
}

int torshc_free(torshc_model *m, void *data) {
    const int status = t_check_alive(m, "torshc_free");
    if (!status)
        t_device_free(m->device, data);
    return status;
}

int torshc_copy(torshc_model *m, void *to, const void *from, size_t bytes) {
    int status = t_check_alive(m, "torshc_copy");
    if (status || !bytes)
        return status;
    if (!to || !from)
        return t_fail(TORSHC_E_ARGUMENT, "torshc_copy: NULL argument");
    pthread_mutex_lock(&m->head.lock);
    status = t_device_transfer(m->device, to, from, bytes);
    pthread_mutex_unlock(&m->head.lock);
    return status;
}

int torshc_synchronize(torshc_model *m) {
    int status = t_check_alive(m, "torshc_synchronize");
    if (status)
        return status;
    pthread_mutex_lock(&m->head.lock);
    status = t_device_finish(m->device);
    pthread_mutex_unlock(&m->head.lock);
    return status;
}
