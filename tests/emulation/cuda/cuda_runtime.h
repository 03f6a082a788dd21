// Stands in for CUDA's own header, so that a C++ compiler builds .cu files for the CPU; bin/nvcc calls it and rewrites
// what no header can: launches (t_emulate::configure) and __shared__ (a section of its own in each object).
#pragma once
#define T_EMULATED 1

// The C library's <math.h> without libstdc++'s <cmath> around it and without functions of a dozen more types, which take
// longer to compile than a kernel.
#ifdef __CUDACC__
#undef _GNU_SOURCE
#define _DEFAULT_SOURCE
#endif
#define _GLIBCXX_INCLUDE_NEXT_C_HEADERS
#include <math.h>
#undef _GLIBCXX_INCLUDE_NEXT_C_HEADERS
#define _GLIBCXX_MATH_H 1
#include <string.h>

#include "../warp.h"
#include "cuda_runtime_api.h"

#define __global__
#define __device__
#define __host__
#define __constant__
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __restrict__ __restrict

#include "vectors.h"

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

#define threadIdx (t_emulate::here.thread)
#define blockIdx (t_emulate::here.block)
#define blockDim (t_emulate::here.threads)
#define gridDim (t_emulate::here.blocks)
constexpr int warpSize = t_emulate::warp_threads;

// ---- launches ----

#ifndef T_EMULATE_UNIT  // bin/nvcc names each translation unit
#define T_EMULATE_UNIT "none"
#define T_EMULATE_CODE ""
#endif
#pragma GCC visibility push(hidden)
extern "C" {
extern unsigned char t_emulate_shared_begin[] __asm__("__start_t_shared_" T_EMULATE_UNIT) __attribute__((weak));
extern unsigned char t_emulate_shared_end[] __asm__("__stop_t_shared_" T_EMULATE_UNIT) __attribute__((weak));
}

namespace t_emulate {

struct Launch {
    const char *name;    // of the kernel
    const void *kernel;  // its address
    const char *code;    // what its object was compiled for: "sm_80 compute_90"
    unsigned char *shared_begin, *shared_end;
    dim3 blocks, threads;
    size_t dynamic_bytes;
    cudaStream_t stream;
    bool together = false;  // its blocks run at the same time
    unsigned cluster = 1;   // blocks that read each other's shared memory
};
// Takes `body`, which is freed by `drop`.
cudaError_t launch(const Launch &what, void (*thread)(void *), void *body, void (*drop)(void *));

template <class... P> struct Configured {
    Launch what;
    void (*kernel)(P...);
    cudaError_t operator()(P... arguments) const {
        auto body = [=, kernel = kernel] { kernel(arguments...); };
        typedef decltype(body) Body;
        return launch(what, [](void *b) { (*(Body *)b)(); }, new Body(body), [](void *b) { delete (Body *)b; });
    }
};

template <class... P>
static Configured<P...> configure(const char *name, void (*kernel)(P...), dim3 blocks, dim3 threads, size_t bytes = 0,
                                  cudaStream_t stream = nullptr) {
    const Launch what = {name,   (const void *)kernel, T_EMULATE_CODE, t_emulate_shared_begin, t_emulate_shared_end,
                         blocks, threads,              bytes,          stream};
    return {what, kernel};
}

// A launch of blocks that may wait for each other, with its arguments by address.
struct Together {
    cudaError_t error;
    template <class... P> Together(const Configured<P...> &launch, P... arguments) : error(launch(arguments...)) {}
};
template <class T> T take(void **&arguments) { return *(T *)*arguments++; }
template <class... P>
cudaError_t launch_together(Configured<P...> launch, [[maybe_unused]] void **arguments) {
    launch.what.together = true;
    return Together{launch, take<P>(arguments)...}.error;  // braces: from left to right
}

// A launch of blocks that form clusters of so many.
template <class... P, class... A>
void t_emulate_launch_clusters(const char *name, void (*kernel)(P...), unsigned cluster, unsigned blocks, unsigned threads,
                               size_t bytes, cudaStream_t stream, A... arguments) {
    auto launch = configure(name, kernel, blocks, threads, bytes, stream);
    launch.what.together = true;
    launch.what.cluster = cluster;
    launch(arguments...);
}

}  // namespace t_emulate
using t_emulate::t_emulate_launch_clusters;
#pragma GCC visibility pop

// The name of the kernel is wanted, and what configure() says about this source.
#define cudaLaunchCooperativeKernel(kernel, blocks, threads, arguments, ...) \
    t_emulate::launch_together(t_emulate::configure(#kernel, kernel, blocks, threads, ##__VA_ARGS__), arguments)

template <class T> cudaError_t cudaMalloc(T **pointer, size_t bytes) { return cudaMalloc((void **)pointer, bytes); }
template <class T> cudaError_t cudaMallocHost(T **pointer, size_t bytes) { return cudaMallocHost((void **)pointer, bytes); }
template <class T> cudaError_t cudaHostAlloc(T **pointer, size_t bytes, unsigned flags) {
    return cudaHostAlloc((void **)pointer, bytes, flags);
}
template <class... P> cudaError_t cudaFuncSetAttribute(void (*kernel)(P...), cudaFuncAttribute attribute, int value) {
    return cudaFuncSetAttribute((const void *)kernel, attribute, value);
}
template <class... P> cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, void (*kernel)(P...)) {
    return cudaFuncGetAttributes(attributes, (const void *)kernel);
}
inline cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event) { return cudaStreamWaitEvent(stream, event, 0); }
inline cudaError_t cudaEventRecord(cudaEvent_t event) { return cudaEventRecord(event, nullptr); }
inline cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind) {
    return cudaMemcpyAsync(to, from, bytes, kind, nullptr);
}
inline cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph) { return cudaGraphInstantiate(exec, graph, 0); }

#include "device.h"
#include "tensor.h"
