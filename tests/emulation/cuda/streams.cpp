// Streams, graphs and events of the emulated runtime. Work that is put into a stream runs late, when something waits for
// it, so that a missing wait shows; recorded work runs when its graph is launched.
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "state.h"

namespace t_emulate {

CUstream_st default_stream;
std::set<CUstream_st *> streams = {&default_stream};

namespace {
std::vector<std::unique_ptr<CUstream_st>> retired;  // events may still name them
std::set<CUevent_st *> events;
constexpr double patience = 100e3;  // milliseconds for what other processes do

double now() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

}  // namespace

CUstream_st *find(cudaStream_t stream) {
    if (!stream || stream == cudaStreamLegacy || stream == cudaStreamPerThread) return &default_stream;
    return streams.count(stream) ? stream : nullptr;
}

static void drain(CUstream_st *stream, uint64_t until) {
    while (stream->finished < until) {
        if (stream->work.empty()) return;  // it is under way, and has come here to wait
        const double began = now();
        Work work = std::move(stream->work.front());
        stream->work.pop_front();
        while (!work.go()) {
            if (now() - began > patience) fail("work in a stream waits for another process in vain");
            usleep(100);
        }
        ++stream->finished;
    }
}
// Tries the next piece of work once.
static void attempt(CUstream_st *stream) {
    Work work = std::move(stream->work.front());
    stream->work.pop_front();
    if (work.go()) ++stream->finished;
    else stream->work.push_front(std::move(work));
}
void enqueue(CUstream_st *stream, bool (*go)(void *), void *context) {
    Lock lock(api_lock);
    push(stream, Work(std::function<bool()>([=] { return go(context); })));
}
void drain(CUstream_st *stream) { drain(stream, stream->queued); }

void drain_blocking() {
    for (CUstream_st *stream : streams)
        if (stream->blocking) drain(stream);
}
void drain_all() {
    for (CUstream_st *stream : streams) drain(stream);
}

void push(CUstream_st *stream, Work work) {
    if (stream->capture) {
        stream->capture->work.push_back(std::move(work));
        return;
    }
    if (stream == &default_stream) drain_blocking();
    else if (stream->blocking) drain(&default_stream);
    stream->work.push_back(std::move(work));
    ++stream->queued;
}

cudaError_t forbid_while_capturing() {
    cudaError_t error = cudaSuccess;
    for (CUstream_st *stream : streams) {
        if (!stream->capture || stream->capture->mode == cudaStreamCaptureModeRelaxed) continue;
        stream->capture->valid = false;
        error = cudaErrorStreamCaptureUnsupported;
    }
    return error;
}

}  // namespace t_emulate

using namespace t_emulate;

extern "C" {

// ---- streams ----

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
    Lock lock(api_lock);
    if (const cudaError_t error = no_device()) return give(error);
    *stream = new CUstream_st;
    (*stream)->blocking = !(flags & cudaStreamNonBlocking);
    streams.insert(*stream);
    return cudaSuccess;
}
cudaError_t cudaStreamCreate(cudaStream_t *stream) { return cudaStreamCreateWithFlags(stream, 0); }
cudaError_t cudaStreamDestroy(cudaStream_t handle) {
    Lock lock(api_lock);
    CUstream_st *stream = find(handle);
    if (!stream || stream == &default_stream) return give(cudaErrorInvalidResourceHandle);
    drain(stream);
    streams.erase(stream);
    retired.emplace_back(stream);
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
    Lock lock(api_lock);
    CUstream_st *stream = find(handle);
    if (!stream) return give(cudaErrorInvalidResourceHandle);
    if (stream->capture) {
        stream->capture->valid = false;
        return give(cudaErrorStreamCaptureUnsupported);
    }
    drain(stream);
    return cudaSuccess;
}
// Each query finishes one piece of work, so that polling ends.
cudaError_t cudaStreamQuery(cudaStream_t handle) {
    Lock lock(api_lock);
    CUstream_st *stream = find(handle);
    if (!stream) return give(cudaErrorInvalidResourceHandle);
    if (stream->finished < stream->queued) attempt(stream);
    return stream->finished < stream->queued ? cudaErrorNotReady : cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned) {
    Lock lock(api_lock);
    CUstream_st *stream = find(handle);
    if (!stream || !events.count(event)) return give(cudaErrorInvalidResourceHandle);
    if (event->capture) {  // the stream joins what is being recorded
        stream->capture = event->capture;
        return cudaSuccess;
    }
    if (!event->recorded) return cudaSuccess;
    push(stream, [other = event->stream, number = event->number] { drain(other, number); });
    return cudaSuccess;
}

// ---- graphs ----

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus *status) {
    Lock lock(api_lock);
    CUstream_st *stream = find(handle);
    if (!stream) return give(cudaErrorInvalidResourceHandle);
    *status = !stream->capture          ? cudaStreamCaptureStatusNone
              : stream->capture->valid ? cudaStreamCaptureStatusActive
                                       : cudaStreamCaptureStatusInvalidated;
    return cudaSuccess;
}
static cudaError_t begin(cudaStream_t handle, cudaGraph_t graph, bool owned, cudaStreamCaptureMode mode) {
    CUstream_st *stream = find(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    if (stream == &default_stream || stream->capture) return cudaErrorStreamCaptureUnsupported;
    stream->capture = owned ? new CUgraph_st : graph;
    stream->capture->origin = stream;
    stream->capture->mode = mode;
    stream->capture->owned = owned;
    return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
    Lock lock(api_lock);
    return give(begin(handle, nullptr, true, mode));
}
// Work is in order, so that what is captured is behind all that the graph has.
cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t handle, cudaGraph_t graph, const cudaGraphNode_t *,
                                          const cudaGraphEdgeData *, size_t, cudaStreamCaptureMode mode) {
    Lock lock(api_lock);
    return give(graph ? begin(handle, graph, false, mode) : cudaErrorInvalidValue);
}
cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t *graph) {
    Lock lock(api_lock);
    CUstream_st *stream = find(handle);
    if (!stream || !stream->capture || stream->capture->origin != stream) return give(cudaErrorStreamCaptureUnmatched);
    CUgraph_st *const captured = stream->capture;
    for (CUstream_st *other : streams)
        if (other->capture == captured) other->capture = nullptr;
    for (CUevent_st *event : events)
        if (event->capture == captured) event->capture = nullptr;
    *graph = captured->valid ? captured : nullptr;
    if (captured->valid) return cudaSuccess;
    if (captured->owned) delete captured;
    return give(cudaErrorStreamCaptureInvalidated);
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode *mode) {
    static thread_local cudaStreamCaptureMode current = cudaStreamCaptureModeGlobal;
    std::swap(current, *mode);
    return cudaSuccess;
}
// Nodes are numbered from 1.
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count) {
    Lock lock(api_lock);
    if (!graph || !count) return give(cudaErrorInvalidValue);
    for (size_t i = 0; nodes && i < *count; ++i) nodes[i] = (cudaGraphNode_t)(i < graph->work.size() ? i + 1 : 0);
    *count = graph->work.size();
    return cudaSuccess;
}
cudaError_t cudaGraphConditionalHandleCreate(cudaGraphConditionalHandle *handle, cudaGraph_t graph, unsigned value,
                                             unsigned flags) {
    Lock lock(api_lock);
    if (!graph || flags || driver() < 12040) return give(graph ? cudaErrorNotSupported : cudaErrorInvalidValue);
    *handle = (cudaGraphConditionalHandle)(uintptr_t)new unsigned(value);
    graph->handles.insert(*handle);
    return cudaSuccess;
}
// Whether the value is not 0 is asked when the node's turn comes. The graph has to outlive what is made of it.
cudaError_t cudaGraphAddNode(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *behind,
                             const cudaGraphEdgeData *, size_t count, cudaGraphNodeParams *params) {
    Lock lock(api_lock);
    if (!graph || !params || params->type != cudaGraphNodeTypeConditional) return give(cudaErrorInvalidValue);
    cudaConditionalNodeParams &c = params->conditional;
    if (c.type != cudaGraphCondTypeIf || c.size != 1 || !graph->handles.count(c.handle)) return give(cudaErrorInvalidValue);
    for (size_t i = 0; i < count; ++i)
        if (!behind[i] || (size_t)behind[i] > graph->work.size()) return give(cudaErrorInvalidValue);
    CUgraph_st *const body = new CUgraph_st;
    graph->bodies.emplace_back(body);
    graph->shown = {body};
    c.phGraph_out = graph->shown.data();
    graph->work.push_back([body, value = (const unsigned *)(uintptr_t)c.handle] {
        if (!*value) return;
        for (Work work : body->work)
            if (!work.go()) fail("work in a conditional node waits for another process");
    });
    *node = (cudaGraphNode_t)graph->work.size();
    return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long) {
    Lock lock(api_lock);
    if (!graph) return give(cudaErrorInvalidValue);
    *exec = new CUgraphExec_st{graph->work};
    return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t handle) {
    Lock lock(api_lock);
    CUstream_st *stream = find(handle);
    if (!exec || !stream) return give(cudaErrorInvalidResourceHandle);
    for (const Work &work : exec->work) push(stream, work);
    return cudaSuccess;
}
cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t) { return give(exec ? cudaSuccess : cudaErrorInvalidValue); }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    delete exec;
    return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    drain_all();  // work that is under way may be its bodies'
    for (cudaGraphConditionalHandle handle : graph->handles) delete (unsigned *)(uintptr_t)handle;
    delete graph;
    return cudaSuccess;
}

// ---- events ----

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
    Lock lock(api_lock);
    if (const cudaError_t error = no_device()) return give(error);
    *event = new CUevent_st;
    (*event)->timed = !(flags & cudaEventDisableTiming);
    events.insert(*event);
    return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t *event) { return cudaEventCreateWithFlags(event, 0); }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle) {
    Lock lock(api_lock);
    CUstream_st *stream = find(handle);
    if (!stream || !events.count(event)) return give(cudaErrorInvalidResourceHandle);
    event->capture = stream->capture;
    if (stream->capture) return cudaSuccess;
    push(stream, [time = event->time] { *time = now(); });
    event->recorded = true;
    event->stream = stream;
    event->number = stream->queued;
    return cudaSuccess;
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) { return cudaEventRecord(event, stream); }
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    Lock lock(api_lock);
    if (!events.count(event)) return give(cudaErrorInvalidResourceHandle);
    if (event->recorded) drain(event->stream, event->number);
    return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
    Lock lock(api_lock);
    if (!events.count(event)) return give(cudaErrorInvalidResourceHandle);
    if (!event->recorded || event->stream->finished >= event->number) return cudaSuccess;
    attempt(event->stream);
    return event->stream->finished >= event->number ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t from, cudaEvent_t to) {
    Lock lock(api_lock);
    for (cudaEvent_t event : {from, to}) {
        if (!events.count(event) || !event->timed || !event->recorded) return give(cudaErrorInvalidResourceHandle);
        if (event->stream->finished < event->number) return cudaErrorNotReady;
    }
    *milliseconds = (float)(*to->time - *from->time);
    return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
    Lock lock(api_lock);
    if (!events.erase(event)) return give(cudaErrorInvalidResourceHandle);
    delete event;
    return cudaSuccess;
}

}  // extern "C"
