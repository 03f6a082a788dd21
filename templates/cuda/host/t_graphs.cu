// Steps of the device layer in CUDA, and graphs of them.
#include "t_card.h"

#if CUDART_VERSION < 12000
#define cudaGraphInstantiate cudaGraphInstantiateWithFlags
#endif

// Blocks that wait for each other have to run at the same time, for which the card, or a part of it (MIG, MPS), is too
// small.
static int fail_room(t_device *d, const t_step *step, const char *what) {
    int units = 0;
    (void)cudaGetLastError();
    (void)cudaDeviceGetAttribute(&units, cudaDevAttrMultiProcessorCount, d->ordinal);
    return t_fail(TORSHC_E_LAUNCH,
                  "%.90s: its %lld blocks wait for each other and do not fit on the %d multiprocessors "
                  "of device %d; compile for small cards too, with sm_87 among those of --arch",
                  what, (long long)step->blocks, units, d->ordinal);
}

int t_device_launch(t_device *d, const t_step *step) {
    t_current current(d->ordinal);
    char what[90];
    const cudaError_t error = (cudaError_t)step->launcher(step->buf, step->dim, step->blocks, d->target);
    if (error == cudaSuccess)
        return TORSHC_OK;
    snprintf(what, sizeof what, "step %d (%.40s)", (int)step->step, step->name);
    if (error == cudaErrorCooperativeLaunchTooLarge)
        return fail_room(d, step, what);
    return t_fail_call(d, error, TORSHC_E_LAUNCH, what);
}

// ---- work beside the steps ----

static bool open_beside(t_device *d) {
    if (!d->beside && cudaStreamCreateWithFlags(&d->beside, cudaStreamNonBlocking) != cudaSuccess)
        d->beside = nullptr;
    if (!d->turn && cudaEventCreateWithFlags(&d->turn, cudaEventDisableTiming) != cudaSuccess)
        d->turn = nullptr;
    return d->beside && d->turn;
}

static cudaError_t wait_for(t_device *d, cudaStream_t waits, cudaStream_t other) {
    const cudaError_t error = cudaEventRecord(d->turn, other);
    return error == cudaSuccess ? cudaStreamWaitEvent(waits, d->turn, 0) : error;
}

void *t_device_fork(t_device *d, int first) {
    if (!first && !d->forked)
        return nullptr;
    t_current current(d->ordinal);
    if (!open_beside(d) || wait_for(d, d->beside, d->target) != cudaSuccess) {
        (void)cudaGetLastError();
        return nullptr;
    }
    d->forked = true;
    return d->beside;
}

int t_device_join(t_device *d) {
    if (!d->forked)
        return TORSHC_OK;
    t_current current(d->ordinal);
    d->forked = false;
    return t_check_call(d, wait_for(d, d->target, d->beside), "waiting for exchanges");
}

void t_forget(t_graph *graph) {
    if (graph->exec)
        (void)cudaGraphExecDestroy(graph->exec);
    if (graph->source)
        (void)cudaGraphDestroy(graph->source);
    free(graph->key);
    *graph = t_graph();
}

// The graph of a key; a new one takes the place of the one used least recently.
static t_graph *find_graph(t_device *d, const int64_t *key, int32_t count) {
    t_graph *oldest = &d->graphs[0];
    d->clock++;
    for (int i = 0; i < d->graph_count; i++) {
        t_graph *graph = &d->graphs[i];
        if (graph->key && graph->count == count && !memcmp(graph->key, key, (size_t)count * sizeof *key)) {
            graph->used = d->clock;
            return graph;
        }
        if (graph->used < oldest->used)
            oldest = graph;
    }
    t_forget(oldest);
    oldest->key = (int64_t *)malloc((size_t)count * sizeof *key);
    if (oldest->key) {
        memcpy(oldest->key, key, (size_t)count * sizeof *key);
        oldest->count = count;
        oldest->used = d->clock;
    }
    return nullptr;  // recorded when it comes again
}

int t_device_begin(t_device *d, const int64_t *key, int32_t count, int *replayed) {
    t_current current(d->ordinal);
    (void)cudaGetLastError();
    d->target = d->stream;
    d->recording = nullptr;
    if (int status = t_check_lost(d))
        return status;
    if (!key || !d->graphs_allowed || t_is_captured(d))
        return TORSHC_OK;
    t_graph *graph = find_graph(d, key, count);
    if (!graph || graph->unfit)
        return TORSHC_OK;
    if (graph->exec) {
        const cudaError_t error = cudaGraphLaunch(graph->exec, d->stream);
        *replayed = error == cudaSuccess;
        return *replayed ? TORSHC_OK : t_fail_call(d, error, TORSHC_E_LAUNCH, "replaying a run");
    }
    if (cudaStreamBeginCapture(d->recorder, cudaStreamCaptureModeThreadLocal) != cudaSuccess) {
        (void)cudaGetLastError();
        graph->unfit = true;
        return TORSHC_OK;
    }
    d->recording = graph;
    d->target = d->recorder;
    return TORSHC_OK;
}

int t_device_end(t_device *d, int status) {
    t_current current(d->ordinal);
    t_graph *graph = d->recording;
    cudaGraph_t recorded = nullptr;
    if (const int joined = t_device_join(d))
        status = status ? status : joined;
    d->target = d->stream;
    d->recording = nullptr;
    if (!graph)
        return status;
    cudaError_t error = cudaStreamEndCapture(d->recorder, &recorded);
    const bool chose = d->whole;
    if (chose)  // what was recorded last is a part of this
        recorded = d->whole;
    d->whole = nullptr;
    if (error == cudaSuccess && !status)
        error = cudaGraphInstantiate(&graph->exec, recorded, 0);
    if (chose)
        graph->source = recorded;
    else if (recorded)
        (void)cudaGraphDestroy(recorded);
    (void)cudaGetLastError();
    if (error == cudaSuccess && !status)
        error = cudaGraphLaunch(graph->exec, d->stream);
    if (error == cudaSuccess && !status)
        return TORSHC_OK;
    if (graph->exec)
        (void)cudaGraphExecDestroy(graph->exec);
    (void)cudaGetLastError();
    graph->exec = nullptr;
    graph->unfit = true;
    d->chooses = d->chooses && !chose;  // runs to come have other keys, and are recorded without a choice
    return T_AGAIN;
}
