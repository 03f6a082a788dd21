// CUDA's runtime interface on the CPU: errors, devices, memory, kernels. Device memory is host memory, filled with 0xff
// when allocated; what is behind its end is checked when it is freed.
//
// Failures are provoked by the environment: T_EMULATE_DEVICES=N (0: no card, -1: no driver), T_EMULATE_ARCH=70 (the
// card's compute capability, 90 if not told), T_EMULATE_MEMORY=bytes (of the card), T_EMULATE_UNITS=N (multiprocessors),
// T_EMULATE_DRIVER=12020 (the driver's version).
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <map>
#include <string>

#include "state.h"

namespace t_emulate {

std::recursive_mutex api_lock;
static thread_local cudaError_t last_error;

cudaError_t give(cudaError_t error) {
    if (error != cudaSuccess && error != cudaErrorNotReady) last_error = error;
    return error;
}

namespace {

struct Memory {
    size_t bytes;
    cudaMemoryType type;
    int device;
};

thread_local int current_device;
std::map<const unsigned char *, Memory> memory;
std::map<const void *, int> dynamic_limits;  // of kernels that asked for more
size_t memory_used;

constexpr size_t guard_bytes = 256, shared_limit = 48 << 10;
constexpr int unit_threads = 2048, unit_blocks = 32;  // at the same time on a multiprocessor
constexpr size_t unit_shared = most_dynamic + 1024, block_shared = 1024;  // bytes of it, and those taken for each block
constexpr unsigned char guard_byte = 0xa5;

long long setting(const char *name, long long otherwise) {
    const char *text = getenv(name);
    return text && *text ? atoll(text) : otherwise;
}
int devices() { return (int)setting("T_EMULATE_DEVICES", 1); }
int arch() { return (int)setting("T_EMULATE_ARCH", 90); }
int units() { return (int)setting("T_EMULATE_UNITS", 132); }
size_t memory_total() { return (size_t)setting("T_EMULATE_MEMORY", 8ll << 30); }

}  // namespace

int driver() { return (int)setting("T_EMULATE_DRIVER", CUDART_VERSION); }

cudaError_t no_device() {
    return devices() > 0 ? cudaSuccess : devices() < 0 ? cudaErrorInsufficientDriver : cudaErrorNoDevice;
}

namespace {

const Memory *find(const void *pointer, const unsigned char **begin = nullptr) {
    auto it = memory.upper_bound((const unsigned char *)pointer);
    if (it == memory.begin()) return nullptr;
    --it;
    if (begin) *begin = it->first;
    return (const unsigned char *)pointer < it->first + std::max<size_t>(it->second.bytes, 1) ? &it->second : nullptr;
}
cudaMemoryType type_of(const void *pointer) {
    const Memory *found = find(pointer);
    return found ? found->type : cudaMemoryTypeUnregistered;
}

cudaError_t allocate(void **pointer, size_t bytes, cudaMemoryType type) {
    if (const cudaError_t error = no_device()) return error;
    if (const cudaError_t error = forbid_while_capturing()) return error;
    *pointer = nullptr;
    if (!bytes) return cudaSuccess;
    const bool device = type == cudaMemoryTypeDevice;
    if (device && (memory_used > memory_total() || bytes > memory_total() - memory_used)) return cudaErrorMemoryAllocation;
    void *at;
    if (posix_memalign(&at, 256, bytes + guard_bytes)) return cudaErrorMemoryAllocation;
    memset(at, 0xff, bytes);
    memset((unsigned char *)at + bytes, guard_byte, guard_bytes);
    forbid((unsigned char *)at + bytes, guard_bytes);
    memory[(unsigned char *)at] = {bytes, type, current_device};
    if (device) memory_used += bytes;
    *pointer = at;
    return cudaSuccess;
}

cudaError_t release(void *pointer, bool device) {
    if (!pointer) return cudaSuccess;
    const auto it = memory.find((unsigned char *)pointer);
    if (it == memory.end() || (it->second.type == cudaMemoryTypeDevice) != device) return cudaErrorInvalidValue;
    drain_all();
    const unsigned char *guard = it->first + it->second.bytes;
    allow(guard, guard_bytes);
    for (size_t i = 0; i < guard_bytes; ++i)
        if (guard[i] != guard_byte) fail("written %zu bytes behind the end of memory of %zu bytes", i, it->second.bytes);
    if (device) memory_used -= it->second.bytes;
    memory.erase(it);
    free(pointer);
    return cudaSuccess;
}

// Whether [at, at + bytes) is memory of the side that a copy names.
bool on_side(const void *at, size_t bytes, bool device) {
    const unsigned char *begin = nullptr;
    const Memory *found = find(at, &begin);
    if (!device) return !found || found->type != cudaMemoryTypeDevice;
    return found && found->type == cudaMemoryTypeDevice && (const unsigned char *)at + bytes <= begin + found->bytes;
}
cudaError_t check_copy(const void *to, const void *from, size_t bytes, cudaMemcpyKind kind) {
    if (const cudaError_t error = no_device()) return error;
    if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault) return cudaErrorInvalidMemcpyDirection;
    if (!bytes) return cudaSuccess;
    const bool to_device = kind == cudaMemcpyDefault ? type_of(to) == cudaMemoryTypeDevice : kind & 1;
    const bool from_device = kind == cudaMemcpyDefault ? type_of(from) == cudaMemoryTypeDevice : kind & 2;
    return on_side(to, bytes, to_device) && on_side(from, bytes, from_device) ? cudaSuccess : cudaErrorInvalidValue;
}

// Whether an object for "sm_80 sm_90a compute_90" has code for the card.
bool has_code(const char *code) {
    const std::string all = code;
    bool any = false;
    for (size_t at = 0; at < all.size();) {
        const size_t end = std::min(all.find(' ', at), all.size());
        const std::string one = all.substr(at, end - at);
        at = end + 1;
        const size_t digits = one.find('_') + 1;
        const int number = atoi(one.c_str() + digits);
        const bool exact = !one.empty() && one.back() == 'a', binary = one[0] == 's';
        any = true;
        if (exact ? number == arch() : number <= arch() && (!binary || number / 10 == arch() / 10)) return true;
    }
    return !any;
}

cudaError_t check_launch(const Launch &what) {
    if (const cudaError_t error = no_device()) return error;
    if (!has_code(what.code)) return cudaErrorNoKernelImageForDevice;
    const dim3 &b = what.blocks, &t = what.threads;
    if (!b.x || !b.y || !b.z || !t.x || !t.y || !t.z) return cudaErrorInvalidConfiguration;
    if (b.x > 0x7fffffffu || b.y > 65535 || b.z > 65535) return cudaErrorInvalidConfiguration;
    if (t.x > 1024 || t.y > 1024 || t.z > 64 || t.x * t.y * t.z > most_threads) return cudaErrorInvalidConfiguration;
    const size_t fixed = (size_t)(what.shared_end - what.shared_begin);
    if (fixed > shared_limit) fail("%s: %zu bytes of static shared memory; ptxas allows %zu", what.name, fixed, shared_limit);
    const auto it = dynamic_limits.find(what.kernel);
    const size_t limit = it == dynamic_limits.end() ? shared_limit - fixed : (size_t)it->second;
    if (what.dynamic_bytes > limit || what.dynamic_bytes + fixed > most_dynamic) return cudaErrorInvalidValue;
    return cudaSuccess;
}

// Whether all blocks have room at the same time; registers are not counted.
bool fits_together(const Launch &what) {
    const size_t threads = (size_t)what.threads.x * what.threads.y * what.threads.z;
    const size_t shared = (size_t)(what.shared_end - what.shared_begin) + what.dynamic_bytes + block_shared;
    const size_t each = std::min({(size_t)unit_blocks, unit_threads / threads, unit_shared / shared});
    return (size_t)what.blocks.x * what.blocks.y * what.blocks.z <= each * (size_t)units();
}

struct Name {
    cudaError_t error;
    const char *name, *text;
};
const Name names[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver", "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorNoKernelImageForDevice, "cudaErrorNoKernelImageForDevice", "no kernel image is available for execution on the device"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorCooperativeLaunchTooLarge, "cudaErrorCooperativeLaunchTooLarge", "too many blocks in cooperative launch"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated", "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureUnmatched, "cudaErrorStreamCaptureUnmatched", "the capture was not begun in this stream"},
};

}  // namespace

cudaError_t launch(const Launch &what, void (*thread)(void *), void *body, void (*drop)(void *)) {
    Lock lock(api_lock);
    const std::shared_ptr<void> owned(body, drop);
    if (const cudaError_t error = check_launch(what)) return give(error);
    if (what.together && what.cluster == 1 && !fits_together(what)) return give(cudaErrorCooperativeLaunchTooLarge);
    CUstream_st *stream = find(what.stream);
    if (!stream) return give(cudaErrorInvalidResourceHandle);
    push(stream, [=] {
        const dim3 &b = what.blocks, &t = what.threads;
        Grid grid = {{b.x, b.y, b.z}, {t.x, t.y, t.z}, what.shared_begin, what.shared_end, what.dynamic_bytes, thread, owned.get()};
        grid.together = what.together;
        grid.cluster = what.cluster;
        run(grid);
    });
    return cudaSuccess;
}

}  // namespace t_emulate

using namespace t_emulate;

extern "C" {

// ---- errors, devices ----

cudaError_t cudaGetLastError(void) {
    const cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}
cudaError_t cudaPeekAtLastError(void) { return last_error; }

const char *cudaGetErrorName(cudaError_t error) {
    for (const Name &n : names)
        if (n.error == error) return n.name;
    return "unrecognized error code";
}
const char *cudaGetErrorString(cudaError_t error) {
    for (const Name &n : names)
        if (n.error == error) return n.text;
    return "unrecognized error code";
}

cudaError_t cudaDriverGetVersion(int *version) {
    *version = devices() < 0 ? 0 : driver();
    return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int *version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count) {
    *count = std::max(devices(), 0);
    return give(no_device());
}
cudaError_t cudaGetDevice(int *device) {
    *device = current_device;
    return give(no_device());
}
cudaError_t cudaSetDevice(int device) {
    if (const cudaError_t error = no_device()) return give(error);
    if (device < 0 || device >= devices()) return give(cudaErrorInvalidDevice);
    current_device = device;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device) {
    if (const cudaError_t error = no_device()) return give(error);
    if (device < 0 || device >= devices()) return give(cudaErrorInvalidDevice);
    *p = {};
    snprintf(p->name, sizeof p->name, "Emulated");
    snprintf(p->uuid.bytes, sizeof p->uuid.bytes, "card %d", device);
    p->totalGlobalMem = memory_total();
    p->sharedMemPerBlock = shared_limit;
    p->sharedMemPerBlockOptin = most_dynamic;
    p->sharedMemPerMultiprocessor = unit_shared;
    p->totalConstMem = 64 << 10;
    p->regsPerBlock = p->regsPerMultiprocessor = 65536;
    p->warpSize = warp_threads;
    p->maxThreadsPerBlock = p->maxThreadsDim[0] = p->maxThreadsDim[1] = most_threads;
    p->maxThreadsDim[2] = 64;
    p->maxGridSize[0] = 0x7fffffff;
    p->maxGridSize[1] = p->maxGridSize[2] = 65535;
    p->major = arch() / 10;
    p->minor = arch() % 10;
    p->multiProcessorCount = units();
    p->maxThreadsPerMultiProcessor = unit_threads;
    p->l2CacheSize = 50 << 20;
    p->memoryBusWidth = 5120;
    p->asyncEngineCount = p->concurrentKernels = p->unifiedAddressing = 1;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device) {
    cudaDeviceProp p;
    if (const cudaError_t error = cudaGetDeviceProperties(&p, device)) return error;
    switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock: *value = p.maxThreadsPerBlock; return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = (int)p.sharedMemPerBlock; return cudaSuccess;
    case cudaDevAttrWarpSize: *value = p.warpSize; return cudaSuccess;
    case cudaDevAttrClockRate: *value = 1000000; return cudaSuccess;
    case cudaDevAttrMultiProcessorCount: *value = p.multiProcessorCount; return cudaSuccess;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = p.maxThreadsPerMultiProcessor; return cudaSuccess;
    case cudaDevAttrL2CacheSize: *value = p.l2CacheSize; return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor: *value = p.major; return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor: *value = p.minor; return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = (int)p.sharedMemPerMultiprocessor; return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = (int)p.sharedMemPerBlockOptin; return cudaSuccess;
    }
    return give(cudaErrorInvalidValue);
}

cudaError_t cudaDeviceSynchronize(void) {
    Lock lock(api_lock);
    if (const cudaError_t error = no_device()) return give(error);
    if (const cudaError_t error = forbid_while_capturing()) return give(error);
    drain_all();
    return cudaSuccess;
}
cudaError_t cudaDeviceReset(void) { return cudaDeviceSynchronize(); }

// ---- memory ----

cudaError_t cudaMemGetInfo(size_t *free, size_t *total) {
    Lock lock(api_lock);
    *total = memory_total();
    *free = *total - std::min(memory_used, *total);
    return give(no_device());
}
cudaError_t cudaMalloc(void **pointer, size_t bytes) {
    Lock lock(api_lock);
    return give(allocate(pointer, bytes, cudaMemoryTypeDevice));
}
cudaError_t cudaMallocManaged(void **pointer, size_t bytes, unsigned) {
    Lock lock(api_lock);
    return give(allocate(pointer, bytes, cudaMemoryTypeHost));
}
cudaError_t cudaFree(void *pointer) {
    Lock lock(api_lock);
    return give(release(pointer, true));
}
cudaError_t cudaHostAlloc(void **pointer, size_t bytes, unsigned) {
    Lock lock(api_lock);
    return give(allocate(pointer, bytes, cudaMemoryTypeHost));
}
cudaError_t cudaMallocHost(void **pointer, size_t bytes) { return cudaHostAlloc(pointer, bytes, 0); }
cudaError_t cudaFreeHost(void *pointer) {
    Lock lock(api_lock);
    return give(release(pointer, false));
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *attributes, const void *pointer) {
    Lock lock(api_lock);
    if (const cudaError_t error = no_device()) return give(error);
    const Memory *found = find(pointer);
    const cudaMemoryType type = type_of(pointer);
    void *const at = const_cast<void *>(pointer);
    *attributes = {type, found ? found->device : -2, found ? at : nullptr, type == cudaMemoryTypeHost ? at : nullptr};
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind) {
    Lock lock(api_lock);
    if (const cudaError_t error = check_copy(to, from, bytes, kind)) return give(error);
    if (const cudaError_t error = forbid_while_capturing()) return give(error);
    drain_blocking();
    memmove(to, from, bytes);
    return cudaSuccess;
}
// Memory that is not pinned is read before the call returns, and written before it returns.
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind, cudaStream_t handle) {
    Lock lock(api_lock);
    if (const cudaError_t error = check_copy(to, from, bytes, kind)) return give(error);
    CUstream_st *stream = find(handle);
    if (!stream) return give(cudaErrorInvalidResourceHandle);
    const bool pageable = type_of(to) == cudaMemoryTypeUnregistered || type_of(from) == cudaMemoryTypeUnregistered;
    push(stream, [=] { memmove(to, from, bytes); });
    if (pageable && !stream->capture) drain(stream);
    return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void *to, int byte, size_t bytes, cudaStream_t handle) {
    Lock lock(api_lock);
    if (const cudaError_t error = no_device()) return give(error);
    CUstream_st *stream = find(handle);
    if (!stream) return give(cudaErrorInvalidResourceHandle);
    if (bytes && !on_side(to, bytes, true)) return give(cudaErrorInvalidValue);
    push(stream, [=] { memset(to, byte, bytes); });
    return cudaSuccess;
}
cudaError_t cudaMemset(void *to, int byte, size_t bytes) { return cudaMemsetAsync(to, byte, bytes, nullptr); }

// ---- kernels ----

cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute attribute, int value) {
    Lock lock(api_lock);
    if (const cudaError_t error = no_device()) return give(error);
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
    if (value < 0 || (size_t)value > most_dynamic) return give(cudaErrorInvalidValue);
    dynamic_limits[kernel] = value;
    return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, const void *) {
    *attributes = {};
    attributes->maxThreadsPerBlock = most_threads;
    attributes->numRegs = 32;
    attributes->ptxVersion = attributes->binaryVersion = arch();
    attributes->maxDynamicSharedSizeBytes = (int)shared_limit;
    return give(no_device());
}

}  // extern "C"
