// The device layer (t_device.h) in CUDA, over the runtime API.
#include "t_device.h"

#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>

#if CUDART_VERSION < 12000
#define cudaGraphInstantiate cudaGraphInstantiateWithFlags
#endif

// Host data goes through page-locked memory in pieces, so that copying a piece and moving the one before overlap.
// Graphs are of runs whose symbols and addresses came before.
enum { SLOTS = 8, GRAPHS = 8 };
static const size_t SLOT_BYTES = size_t(1) << 20;

namespace {

struct Slot {
    unsigned char *pinned;
    cudaEvent_t done;   // recorded behind the slot's copy
    bool busy;          // `done` has not been waited for
    unsigned char *to;  // of a download: where the data goes
    size_t bytes;
};

struct Graph {
    int64_t *key;
    int32_t count;
    cudaGraphExec_t exec;  // NULL: the key was seen once
    bool unfit;            // recording failed
    uint64_t used;
};

// Makes a card current for as long as it lives.
struct Current {
    int was = -1;
    explicit Current(int ordinal)
    {
        if (cudaGetDevice(&was) != cudaSuccess || was == ordinal)
            was = -1;
        else
            cudaSetDevice(ordinal);
    }
    ~Current()
    {
        if (was >= 0)
            cudaSetDevice(was);
    }
};

}  // namespace

extern "C" __global__ void t_probe() {}

struct t_device {
    int ordinal;
    bool own_stream;  // and not the caller's
    cudaStream_t stream;
    cudaStream_t recorder;  // never used by anybody else, whatever other threads do meanwhile
    cudaStream_t target;    // where launches go: `stream` or `recorder`
    Slot slots[SLOTS];
    unsigned next;
    Graph graphs[GRAPHS];
    Graph *recording;
    bool graphs_allowed;
    uint64_t clock;
    cudaEvent_t *marks;
    int32_t mark_count;
    cudaError_t lost;  // an error that only a new process mends
};

// ---- errors ----

static const char *const CONTEXT_LOST = "; the device's context is lost: restart the process";

// The status and message of a failed call; `what` says what it was for.
static int fail_status(t_device *d, cudaError_t error, int status, const char *what)
{
    (void)cudaGetLastError();
    const cudaError_t now = d->stream ? cudaStreamQuery(d->stream) : cudaSuccess;
    (void)cudaGetLastError();
    if (now != cudaSuccess && now != cudaErrorNotReady && now != cudaErrorStreamCaptureUnsupported)
        d->lost = now;
    return t_fail(status, "%.90s: %s (%.80s)%s", what, cudaGetErrorName(error), cudaGetErrorString(error),
                  d->lost ? CONTEXT_LOST : "");
}

static int check_call(t_device *d, cudaError_t error, const char *what)
{
    return error == cudaSuccess ? TORSHC_OK : fail_status(d, error, TORSHC_E_DRIVER, what);
}

static int check_lost(const t_device *d)
{
    return d->lost ? t_fail(TORSHC_E_LAUNCH, "an earlier failure: %s%s", cudaGetErrorName(d->lost), CONTEXT_LOST) : TORSHC_OK;
}

// ---- open and close ----

static int find_card(int32_t ordinal)
{
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    (void)cudaGetLastError();
    if (error != cudaSuccess || count == 0)
        return t_fail(TORSHC_E_DRIVER, "no CUDA card can be used: %s",
                      error == cudaSuccess ? "none is there" : cudaGetErrorString(error));
    if (ordinal < 0 || ordinal >= count)
        return t_fail(TORSHC_E_DEVICE, "there is no device %d; devices 0 to %d exist", (int)ordinal, count - 1);
    return TORSHC_OK;
}

// What the library was compiled for, as "sm_80 sm_90 "; the compiler says 800,900.
static void list_archs(char *text, size_t room)
{
    size_t at = 0;
#ifdef __CUDA_ARCH_LIST__
    static const int archs[] = {__CUDA_ARCH_LIST__};
    for (int arch : archs)
        at += at + 12 < room ? (size_t)snprintf(text + at, room - at, "sm_%d ", arch / 10) : 0;
#else
    snprintf(text + at, room, "others ");
#endif
}

// Whether the card can run the library's code, tried with a kernel that was compiled like all others.
static int check_code(t_device *d)
{
    int major = 0, minor = 0;
    char archs[96] = "";
    t_probe<<<1, 1, 0, d->stream>>>();
    const cudaError_t error = cudaGetLastError();
    if (error == cudaSuccess)
        return TORSHC_OK;
    (void)cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, d->ordinal);
    (void)cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, d->ordinal);
    list_archs(archs, sizeof archs);
    return t_fail(TORSHC_E_ARCH, "device %d is sm_%d%d; the library has code for %s(%s)", d->ordinal, major, minor, archs,
                  cudaGetErrorName(error));
}

static int fill_device(t_device *d, void *stream)
{
    Current current(d->ordinal);
    cudaError_t error = cudaFree(nullptr);  // starts the card
    d->own_stream = !stream;
    // Not a non-blocking stream: it has to wait for what callers put into the default one.
    if (error == cudaSuccess && d->own_stream)
        error = cudaStreamCreate(&d->stream);
    if (error != cudaSuccess)
        return check_call(d, error, "opening the device");
    if (stream)
        d->stream = (cudaStream_t)stream;
    if (int status = check_code(d))
        return status;
    for (int i = 0; i < SLOTS && error == cudaSuccess; i++) {
        error = cudaHostAlloc((void **)&d->slots[i].pinned, SLOT_BYTES, cudaHostAllocDefault);
        if (error == cudaSuccess)
            error = cudaEventCreateWithFlags(&d->slots[i].done, cudaEventDisableTiming);
    }
    if (error == cudaSuccess)
        error = cudaStreamCreateWithFlags(&d->recorder, cudaStreamNonBlocking);
    if (int status = check_call(d, error, "page-locked memory"))
        return status;
    // Who asks for blocking launches wants to see which one fails, and graphs would hide that.
    const char *blocking = getenv("CUDA_LAUNCH_BLOCKING");
    d->graphs_allowed = !(blocking && *blocking && *blocking != '0');
    d->target = d->stream;
    return TORSHC_OK;
}

int t_device_open(int32_t ordinal, void *stream, t_device **device)
{
    *device = nullptr;
    if (int status = find_card(ordinal))
        return status;
    t_device *d = (t_device *)calloc(1, sizeof *d);
    if (!d)
        return t_fail(TORSHC_E_MEMORY, "no memory for a device");
    d->ordinal = ordinal;
    const int status = fill_device(d, stream);
    if (status)
        t_device_close(d);
    else
        *device = d;
    return status;
}

static void forget(Graph *graph)
{
    if (graph->exec)
        (void)cudaGraphExecDestroy(graph->exec);
    free(graph->key);
    *graph = Graph();
}

void t_device_close(t_device *d)
{
    if (!d)
        return;
    Current current(d->ordinal);
    if (d->own_stream && d->stream)  // the caller's may be gone; freeing memory has waited for it
        (void)cudaStreamSynchronize(d->stream);
    for (int i = 0; i < GRAPHS; i++)
        forget(&d->graphs[i]);
    for (int32_t i = 0; i < d->mark_count; i++)
        (void)cudaEventDestroy(d->marks[i]);
    for (int i = 0; i < SLOTS; i++) {
        if (d->slots[i].done)
            (void)cudaEventDestroy(d->slots[i].done);
        (void)cudaFreeHost(d->slots[i].pinned);
    }
    if (d->recorder)
        (void)cudaStreamDestroy(d->recorder);
    if (d->own_stream && d->stream)
        (void)cudaStreamDestroy(d->stream);
    (void)cudaGetLastError();
    free(d->marks);
    free(d);
}

// ---- memory ----

int t_device_alloc(t_device *d, size_t bytes, const char *what, unsigned char **at)
{
    Current current(d->ordinal);
    size_t left = 0, all = 0;
    *at = nullptr;
    if (int status = check_lost(d))
        return status;
    const cudaError_t error = cudaMalloc((void **)at, bytes);
    if (error == cudaSuccess)
        return TORSHC_OK;
    *at = nullptr;
    if (error != cudaErrorMemoryAllocation)
        return check_call(d, error, "allocating device memory");
    (void)cudaGetLastError();
    (void)cudaMemGetInfo(&left, &all);
    return t_fail(TORSHC_E_MEMORY, "device %d has no memory for %s: asked %zu bytes, free %zu of %zu", d->ordinal, what,
                  bytes, left, all);
}

void t_device_free(t_device *d, unsigned char *at)
{
    if (!d || !at)
        return;
    Current current(d->ordinal);
    (void)cudaFree(at);
    (void)cudaGetLastError();
}

int t_device_locate(t_device *d, const torshc_tensor *x, const char *what, int32_t i, t_span *span)
{
    Current current(d->ordinal);
    cudaPointerAttributes found;
    span->at = (unsigned char *)x->data + x->byte_offset;
    const cudaError_t error = cudaPointerGetAttributes(&found, span->at);
    (void)cudaGetLastError();
    if (error != cudaSuccess || (found.type != cudaMemoryTypeDevice && found.type != cudaMemoryTypeManaged))
        return t_fail(TORSHC_E_DEVICE, "%s %d says it is on a CUDA device, but its data is not", what, (int)i);
    if (found.type == cudaMemoryTypeDevice && found.device != d->ordinal)
        return t_fail(TORSHC_E_DEVICE, "%s %d has its data on device %d; the model is on device %d", what, (int)i,
                      found.device, d->ordinal);
    return TORSHC_OK;
}

// ---- copies ----

// Waits for a slot and gives a download to whom it belongs.
static int settle(t_device *d, Slot *slot)
{
    if (!slot->busy)
        return TORSHC_OK;
    const cudaError_t error = cudaEventSynchronize(slot->done);
    slot->busy = false;
    if (error != cudaSuccess)
        return fail_status(d, error, TORSHC_E_LAUNCH, "a kernel or copy of this run");
    if (slot->to)
        memcpy(slot->to, slot->pinned, slot->bytes);
    return TORSHC_OK;
}

// Whether the caller records what is put into its stream.
static bool is_captured(t_device *d)
{
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    if (!d->own_stream && cudaStreamIsCapturing(d->stream, &capture) != cudaSuccess)
        (void)cudaGetLastError();
    return capture != cudaStreamCaptureStatusNone;
}

static int check_staging(t_device *d)
{
    if (int status = check_lost(d))
        return status;
    if (is_captured(d))
        return t_fail(TORSHC_E_ARGUMENT, "the stream is being captured, which needs all tensors on the device");
    return TORSHC_OK;
}

// One piece, of at most SLOT_BYTES, up (`to` is on the device) or down.
static int move_piece(t_device *d, unsigned char *to, const unsigned char *from, size_t bytes, bool up)
{
    Slot *slot = &d->slots[d->next++ % SLOTS];
    if (int status = settle(d, slot))
        return status;
    if (up)
        memcpy(slot->pinned, from, bytes);
    cudaError_t error = up ? cudaMemcpyAsync(to, slot->pinned, bytes, cudaMemcpyHostToDevice, d->stream)
                           : cudaMemcpyAsync(slot->pinned, from, bytes, cudaMemcpyDeviceToHost, d->stream);
    if (error == cudaSuccess)
        error = cudaEventRecord(slot->done, d->stream);
    if (int status = check_call(d, error, up ? "copying to the device" : "copying from the device"))
        return status;
    slot->busy = true;
    slot->to = up ? nullptr : to;
    slot->bytes = bytes;
    return TORSHC_OK;
}

static int move(t_device *d, unsigned char *to, const unsigned char *from, size_t bytes, bool up)
{
    Current current(d->ordinal);
    int status = check_staging(d);
    for (size_t at = 0; at < bytes && !status; at += SLOT_BYTES)
        status = move_piece(d, to + at, from + at, bytes - at < SLOT_BYTES ? bytes - at : SLOT_BYTES, up);
    return status;
}

int t_device_upload(t_device *d, unsigned char *to, const unsigned char *from, size_t bytes)
{
    return move(d, to, from, bytes, true);
}

int t_device_download(t_device *d, unsigned char *to, const unsigned char *from, size_t bytes)
{
    return move(d, to, from, bytes, false);
}

int t_device_copy(t_device *d, unsigned char *to, const unsigned char *from, size_t bytes)
{
    Current current(d->ordinal);
    if (int status = check_lost(d))
        return status;
    return check_call(d, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, d->target), "copying on the device");
}

int t_device_transfer(t_device *d, void *to, const void *from, size_t bytes)
{
    Current current(d->ordinal);
    if (int status = t_device_finish(d))
        return status;
    cudaError_t error = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, d->stream);
    if (error == cudaSuccess)
        error = cudaStreamSynchronize(d->stream);
    return check_call(d, error, "copying");
}

void t_device_drop(t_device *d)
{
    Current current(d->ordinal);
    if (!is_captured(d))
        (void)cudaStreamSynchronize(d->stream);
    (void)cudaGetLastError();
    for (int i = 0; i < SLOTS; i++)
        d->slots[i].busy = false;
}

int t_device_finish(t_device *d)
{
    Current current(d->ordinal);
    int status = check_staging(d);
    const cudaError_t error = status ? cudaSuccess : cudaStreamSynchronize(d->stream);
    if (error != cudaSuccess)
        status = fail_status(d, error, TORSHC_E_LAUNCH, "a kernel of this run (CUDA_LAUNCH_BLOCKING=1 tells which)");
    for (int i = 0; i < SLOTS && !status; i++)
        status = settle(d, &d->slots[(d->next + (unsigned)i) % SLOTS]);
    if (status)
        t_device_drop(d);
    return status;
}

// ---- steps ----

// Blocks that wait for each other have to run at the same time, for which the card is too small, or a part of it (MIG, MPS).
static int fail_room(t_device *d, const t_step *step, const char *what)
{
    int units = 0;
    (void)cudaGetLastError();
    (void)cudaDeviceGetAttribute(&units, cudaDevAttrMultiProcessorCount, d->ordinal);
    return t_fail(TORSHC_E_LAUNCH, "%.90s: its %lld blocks wait for each other and do not fit on the %d multiprocessors "
                  "of device %d; compile for small cards too, with sm_87 among those of --arch",
                  what, (long long)step->blocks, units, d->ordinal);
}

int t_device_launch(t_device *d, const t_step *step)
{
    Current current(d->ordinal);
    char what[90];
    const cudaError_t error = (cudaError_t)step->launcher(step->buf, step->dim, step->blocks, d->target);
    if (error == cudaSuccess)
        return TORSHC_OK;
    snprintf(what, sizeof what, "step %d (%.40s)", (int)step->step, step->name);
    if (error == cudaErrorCooperativeLaunchTooLarge)
        return fail_room(d, step, what);
    return fail_status(d, error, TORSHC_E_LAUNCH, what);
}

// The graph of a key; a new one takes the place of the one used least recently.
static Graph *find_graph(t_device *d, const int64_t *key, int32_t count)
{
    Graph *oldest = &d->graphs[0];
    d->clock++;
    for (int i = 0; i < GRAPHS; i++) {
        Graph *graph = &d->graphs[i];
        if (graph->key && graph->count == count && !memcmp(graph->key, key, (size_t)count * sizeof *key)) {
            graph->used = d->clock;
            return graph;
        }
        if (graph->used < oldest->used)
            oldest = graph;
    }
    forget(oldest);
    oldest->key = (int64_t *)malloc((size_t)count * sizeof *key);
    if (oldest->key) {
        memcpy(oldest->key, key, (size_t)count * sizeof *key);
        oldest->count = count;
        oldest->used = d->clock;
    }
    return nullptr;  // recorded when it comes again
}

int t_device_begin(t_device *d, const int64_t *key, int32_t count, int *replayed)
{
    Current current(d->ordinal);
    (void)cudaGetLastError();
    d->target = d->stream;
    d->recording = nullptr;
    if (int status = check_lost(d))
        return status;
    if (!key || !d->graphs_allowed || is_captured(d))
        return TORSHC_OK;
    Graph *graph = find_graph(d, key, count);
    if (!graph || graph->unfit)
        return TORSHC_OK;
    if (graph->exec) {
        const cudaError_t error = cudaGraphLaunch(graph->exec, d->stream);
        *replayed = error == cudaSuccess;
        return *replayed ? TORSHC_OK : fail_status(d, error, TORSHC_E_LAUNCH, "replaying a run");
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

int t_device_end(t_device *d, int status)
{
    Current current(d->ordinal);
    Graph *graph = d->recording;
    cudaGraph_t recorded = nullptr;
    d->target = d->stream;
    d->recording = nullptr;
    if (!graph)
        return status;
    cudaError_t error = cudaStreamEndCapture(d->recorder, &recorded);
    if (error == cudaSuccess && !status)
        error = cudaGraphInstantiate(&graph->exec, recorded, 0);
    if (recorded)
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
    return T_AGAIN;
}

// ---- time ----

int t_device_mark(t_device *d, int32_t index)
{
    Current current(d->ordinal);
    if (index >= d->mark_count) {
        cudaEvent_t *marks = (cudaEvent_t *)realloc(d->marks, (size_t)(index + 1) * sizeof *marks);
        if (!marks)
            return t_fail(TORSHC_E_MEMORY, "no memory for %d marks", (int)index + 1);
        d->marks = marks;
        if (int status = check_call(d, cudaEventCreate(&marks[index]), "making an event"))
            return status;
        d->mark_count = index + 1;  // marks are made one after the other
    }
    return check_call(d, cudaEventRecord(d->marks[index], d->stream), "recording an event");
}

int t_device_elapsed(t_device *d, int32_t index, uint64_t *ns)
{
    Current current(d->ordinal);
    float milliseconds = 0;
    const cudaError_t error = cudaEventElapsedTime(&milliseconds, d->marks[index], d->marks[index + 1]);
    *ns = (uint64_t)((double)milliseconds * 1e6);
    return check_call(d, error, "reading an event");
}
