// The device layer (t_device.h) in CUDA, over the runtime API: opening, memory, time.
#include "t_card.h"

#include <pthread.h>
#include <time.h>

extern "C" __global__ void t_probe() {}

// ---- errors ----

static const char *const CONTEXT_LOST = "; the device's context is lost: restart the process";

int t_fail_call(t_device *d, cudaError_t error, int status, const char *what) {
    (void)cudaGetLastError();
    const cudaError_t now = d->stream ? cudaStreamQuery(d->stream) : cudaSuccess;
    (void)cudaGetLastError();
    if (now != cudaSuccess && now != cudaErrorNotReady && now != cudaErrorStreamCaptureUnsupported)
        d->lost = now;
    return t_fail(status, "%.90s: %s (%.80s)%s", what, cudaGetErrorName(error), cudaGetErrorString(error),
                  d->lost ? CONTEXT_LOST : "");
}

int t_check_call(t_device *d, cudaError_t error, const char *what) {
    return error == cudaSuccess ? TORSHC_OK : t_fail_call(d, error, TORSHC_E_DRIVER, what);
}

int t_check_lost(const t_device *d) {
    if (!d->lost)
        return TORSHC_OK;
    return t_fail(TORSHC_E_LAUNCH, "an earlier failure: %s%s", cudaGetErrorName(d->lost), CONTEXT_LOST);
}

bool t_is_captured(t_device *d) {
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    if (!d->own_stream && cudaStreamIsCapturing(d->stream, &capture) != cudaSuccess)
        (void)cudaGetLastError();
    return capture != cudaStreamCaptureStatusNone;
}

// ---- open and close ----

static int find_card(int32_t ordinal) {
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
static void list_archs(char *text, size_t capacity) {
    size_t at = 0;
#ifdef __CUDA_ARCH_LIST__
    static const int archs[] = {__CUDA_ARCH_LIST__};
    for (int arch : archs)
        at += at + 12 < capacity ? (size_t)snprintf(text + at, capacity - at, "sm_%d ", arch / 10) : 0;
#else
    snprintf(text + at, capacity, "others ");
#endif
}

// Whether the card can run the library's code, tried with a kernel that was compiled like all others.
static int check_code(t_device *d) {
    int major = 0, minor = 0;
    char archs[96] = "";
    t_probe<<<1, 1, 0, d->stream>>>();
    const cudaError_t error = cudaGetLastError();
    if (error == cudaSuccess)
        return TORSHC_OK;
    (void)cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, d->ordinal);
    (void)cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, d->ordinal);
    list_archs(archs, sizeof archs);
    return t_fail(TORSHC_E_ARCH, "device %d is sm_%d%d; the library has code for %s(%s)", d->ordinal, major, minor,
                  archs, cudaGetErrorName(error));
}

static int fill_device(t_device *d, void *stream) {
    t_current current(d->ordinal);
    cudaError_t error = cudaFree(nullptr);  // starts the card
    d->own_stream = !stream;
    // Not a non-blocking stream: it has to wait for what callers put into the default one.
    if (error == cudaSuccess && d->own_stream)
        error = cudaStreamCreate(&d->stream);
    if (error != cudaSuccess)
        return t_check_call(d, error, "opening the device");
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
    if (int status = t_check_call(d, error, "page-locked memory"))
        return status;
    // Who asks for blocking launches wants to see which one fails, and graphs would hide that.
    const char *blocking = getenv("CUDA_LAUNCH_BLOCKING");
    d->graphs_allowed = !(blocking && *blocking && *blocking != '0');
    d->target = d->stream;
    return TORSHC_OK;
}

int t_device_open(int32_t ordinal, void *stream, t_device **device) {
    *device = nullptr;
    if (int status = find_card(ordinal))
        return status;
    t_device *d = (t_device *)calloc(1, sizeof *d);
    if (!d)
        return t_fail(TORSHC_E_MEMORY, "no memory for a device");
    d->ordinal = ordinal;
    const int recorded = t_the_program()->recorded;
    d->graph_count = recorded ? recorded : GRAPHS;
    d->graphs = (t_graph *)calloc((size_t)d->graph_count, sizeof *d->graphs);
    if (!d->graphs) {
        free(d);
        return t_fail(TORSHC_E_MEMORY, "no memory for the graphs of a device");
    }
    const int status = fill_device(d, stream);
    if (status)
        t_device_close(d);
    else
        *device = d;
    return status;
}

void t_device_close(t_device *d) {
    if (!d || d->given_up)
        return;
    t_current current(d->ordinal);
    if (d->own_stream && d->stream)  // the caller's may be gone; freeing memory has waited for it
        (void)t_wait_for_stream(d, "closing");
    if (d->given_up)
        return;
    for (int i = 0; i < d->graph_count; i++)
        t_forget(&d->graphs[i]);
    free(d->graphs);
    for (int32_t i = 0; i < d->mark_count; i++)
        (void)cudaEventDestroy(d->marks[i]);
    for (int i = 0; i < SLOTS; i++) {
        if (d->slots[i].done)
            (void)cudaEventDestroy(d->slots[i].done);
        (void)cudaFreeHost(d->slots[i].pinned);
    }
    if (d->turn)
        (void)cudaEventDestroy(d->turn);
    if (d->beside)
        (void)cudaStreamDestroy(d->beside);
    if (d->recorder)
        (void)cudaStreamDestroy(d->recorder);
    if (d->own_stream && d->stream)
        (void)cudaStreamDestroy(d->stream);
    (void)cudaGetLastError();
    free(d->marks);
    free(d);
}

// ---- memory ----

int t_device_alloc(t_device *d, size_t bytes, const char *what, unsigned char **at) {
    t_current current(d->ordinal);
    size_t left = 0, all = 0;
    *at = nullptr;
    if (int status = t_check_lost(d))
        return status;
    const cudaError_t error = cudaMalloc((void **)at, bytes);
    if (error == cudaSuccess)
        return TORSHC_OK;
    *at = nullptr;
    if (error != cudaErrorMemoryAllocation)
        return t_check_call(d, error, "allocating device memory");
    (void)cudaGetLastError();
    (void)cudaMemGetInfo(&left, &all);
    return t_fail(TORSHC_E_MEMORY, "device %d has no memory for %s: asked %zu bytes, free %zu of %zu", d->ordinal, what,
                  bytes, left, all);
}

void t_device_free(t_device *d, unsigned char *at) {
    if (!d || !at || d->given_up)  // freeing waits for the device
        return;
    t_current current(d->ordinal);
    memset(d->known, 0, sizeof d->known);
    (void)cudaFree(at);
    (void)cudaGetLastError();
}

int t_device_share(t_device *, t_device *, unsigned char *) {
    return TORSHC_OK;  // addresses are those of the process
}

int t_device_locate(t_device *d, const torshc_tensor *x, const char *what, int32_t i, t_span *span) {
    span->at = (unsigned char *)x->data + x->byte_offset;
    unsigned char **const known = &d->known[((uintptr_t)span->at / 512 ^ (uintptr_t)span->at / 131072) % KNOWN];
    if (*known == span->at)
        return TORSHC_OK;
    t_current current(d->ordinal);
    cudaPointerAttributes found;
    const cudaError_t error = cudaPointerGetAttributes(&found, span->at);
    (void)cudaGetLastError();
    if (error != cudaSuccess || (found.type != cudaMemoryTypeDevice && found.type != cudaMemoryTypeManaged))
        return t_fail(TORSHC_E_DEVICE, "%s %d says it is on a CUDA device, but its data is not", what, (int)i);
    if (found.type == cudaMemoryTypeDevice && found.device != d->ordinal)
        return t_fail(TORSHC_E_DEVICE, "%s %d has its data on device %d; the model is on device %d", what, (int)i,
                      found.device, d->ordinal);
    *known = span->at;
    return TORSHC_OK;
}

// ---- ranks ----

int32_t t_device_count(void) {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess)
        count = 0;
    (void)cudaGetLastError();
    return count;
}

int t_device_identity(t_device *d, uint8_t identity[16]) {
    cudaDeviceProp found;
    const cudaError_t error = cudaGetDeviceProperties(&found, d->ordinal);
    if (error == cudaSuccess)
        memcpy(identity, &found.uuid, 16);
    return t_check_call(d, error, "asking for the card's identity");
}

int t_device_use(t_device *d) { return (int)cudaSetDevice(d->ordinal); }

void t_device_watch(t_device *d, int (*check)(void *context, double began), void (*end)(void *context), void *context) {
    d->check = check;
    d->end = end;
    d->context = context;
}

// ---- waiting ----

// Seconds that work which is given up has to end. What goes on after them (`stuck`) only the end of the process stops.
static const double ENDS_WITHIN = 1.0;

static double seconds() { return (double)t_now() * 1e-9; }

static void pause_since(double began) {
    const timespec moment = {0, seconds() - began < 0.1 ? 20000 : 1000000};
    nanosleep(&moment, nullptr);
}

static void *end_work(void *device) {
    t_device *d = (t_device *)device;
    d->end(d->context);
    return nullptr;
}

// NCCL waits for recorded runs to go away before it gives up, and these may wait for NCCL.
static void *forget_graphs(void *device) {
    t_device *d = (t_device *)device;
    t_current current(d->ordinal);
    for (int i = 0; i < d->graph_count; i++)
        t_forget(&d->graphs[i]);
    return nullptr;
}

// Work that waits for other ranks in vain. `d` stays for the threads, whatever becomes of them: the job is over.
template <class Query> static void give_up(t_device *d, Query query) {
    static void *(*const parts[])(void *) = {end_work, forget_graphs};
    pthread_t thread;
    if (d->given_up)
        return;
    d->given_up = true;
    for (auto *part : parts)
        if (!t_start_thread(&thread, part, d))
            pthread_detach(thread);
    const double began = seconds();
    while (query() == cudaErrorNotReady && seconds() - began < ENDS_WITHIN)
        pause_since(began);
    d->stuck = query() == cudaErrorNotReady;
    (void)cudaGetLastError();
}

// Polls where somebody has to be asked meanwhile: for a millisecond without a pause, as a run may be that short.
template <class Query> static int poll(t_device *d, const char *what, Query query) {
    const double began = seconds();
    for (;;) {
        const cudaError_t error = query();
        if (error != cudaErrorNotReady)
            return error == cudaSuccess ? TORSHC_OK : t_fail_call(d, error, TORSHC_E_LAUNCH, what);
        (void)cudaGetLastError();
        if (seconds() - began < 1e-3)
            continue;
        if (d->stuck)
            return t_fail(TORSHC_E_RANKS, "an earlier run was given up, and goes on: end all processes");
        if (const int status = d->check(d->context, began)) {
            give_up(d, query);
            return status;
        }
        pause_since(began);
    }
}

int t_wait_for_stream(t_device *d, const char *what) {
    if (d->check)
        return poll(d, what, [=] { return cudaStreamQuery(d->stream); });
    const cudaError_t error = cudaStreamSynchronize(d->stream);
    return error == cudaSuccess ? TORSHC_OK : t_fail_call(d, error, TORSHC_E_LAUNCH, what);
}

int t_wait_for_event(t_device *d, cudaEvent_t event, const char *what) {
    if (d->check)
        return poll(d, what, [=] { return cudaEventQuery(event); });
    const cudaError_t error = cudaEventSynchronize(event);
    return error == cudaSuccess ? TORSHC_OK : t_fail_call(d, error, TORSHC_E_LAUNCH, what);
}

// ---- time ----

int t_device_mark(t_device *d, int32_t index) {
    t_current current(d->ordinal);
    if (index >= d->mark_count) {
        cudaEvent_t *marks = (cudaEvent_t *)realloc(d->marks, (size_t)(index + 1) * sizeof *marks);
        if (!marks)
            return t_fail(TORSHC_E_MEMORY, "no memory for %d marks", (int)index + 1);
        d->marks = marks;
        if (int status = t_check_call(d, cudaEventCreate(&marks[index]), "making an event"))
            return status;
        d->mark_count = index + 1;  // marks are made one after the other
    }
    return t_check_call(d, cudaEventRecord(d->marks[index], d->stream), "recording an event");
}

int t_device_elapsed(t_device *d, int32_t index, uint64_t *ns) {
    t_current current(d->ordinal);
    float milliseconds = 0;
    const cudaError_t error = cudaEventElapsedTime(&milliseconds, d->marks[index], d->marks[index + 1]);
    *ns = (uint64_t)((double)milliseconds * 1e6);
    return t_check_call(d, error, "reading an event");
}
