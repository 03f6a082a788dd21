// State and helpers of the emulated runtime: memory and kernels are in runtime.cpp, streams, graphs and events in
// streams.cpp. Whoever calls a function here holds `api_lock`.
#pragma once
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <type_traits>
#include <utility>
#include <vector>

#include "cuda_runtime.h"

#pragma GCC visibility push(hidden)

// A piece of work in a stream: done once it returns true. Most do at their first try.
struct Work {
    std::function<bool()> go;
    template <class F, class = std::enable_if_t<std::is_void_v<std::invoke_result_t<F &>>>>
    Work(F f) : go([f]() mutable { f(); return true; }) {}
    explicit Work(std::function<bool()> f) : go(std::move(f)) {}
};

namespace t_emulate {
void enqueue(CUstream_st *stream, bool (*go)(void *), void *context);
}

struct CUgraph_st {
    std::vector<Work> work;
    std::set<cudaGraphConditionalHandle> handles;      // values on which conditional nodes of it depend
    std::vector<std::unique_ptr<CUgraph_st>> bodies;   // of these nodes
    std::vector<cudaGraph_t> shown;                    // the last node's, as its parameters say
    bool owned = true;                                 // whoever asked for the capture destroys it
    CUstream_st *origin = nullptr;
    cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
    bool valid = true;
};
struct CUgraphExec_st {
    std::vector<Work> work;
};
struct CUstream_st {
    // First, so that a library that knows the place alone, as the stand-in of NCCL does, can put work into the stream.
    void (*enqueue)(CUstream_st *stream, bool (*go)(void *), void *context) = t_emulate::enqueue;
    bool blocking = true;           // waits for the default stream, and it for this
    CUgraph_st *capture = nullptr;  // what records
    std::deque<Work> work;
    uint64_t queued = 0, finished = 0;
};
struct CUevent_st {
    bool timed = true, recorded = false;
    CUstream_st *stream = nullptr;
    uint64_t number = 0;            // finished when the stream has finished so much
    CUgraph_st *capture = nullptr;  // recorded while this was captured
    std::shared_ptr<double> time = std::make_shared<double>(0.0);  // milliseconds
};

namespace t_emulate {

extern std::recursive_mutex api_lock;
typedef std::lock_guard<std::recursive_mutex> Lock;
extern CUstream_st default_stream;
extern std::set<CUstream_st *> streams;

cudaError_t give(cudaError_t error);  // notes an error for cudaGetLastError
cudaError_t no_device();              // what is wrong when there is no card
int driver();                         // its version, as 13000

CUstream_st *find(cudaStream_t stream);  // null for one that is not there
void drain(CUstream_st *stream);         // runs what is in the stream
void drain_blocking();                   // what the default stream waits for
void drain_all();
void push(CUstream_st *stream, Work work);

// Calls that wait or allocate spoil what is being recorded, unless the mode is relaxed.
cudaError_t forbid_while_capturing();

}  // namespace t_emulate

#pragma GCC visibility pop
