// The device layer (t_device.h) in Objective-C++ over Metal; compiled with automatic reference counting.
//
// All memory is shared with the processor, so that an address of the device is one of the processor, and a copy between
// the two is a memcpy once the work before it is done. Kernels lie in the library's section __TEXT,__metallib.
#include "t_device.h"

#import <Foundation/Foundation.h>
#import <Metal/Metal.h>
#include <dispatch/dispatch.h>
#include <mach-o/getsect.h>
#include <mach-o/ldsyms.h>
#include <stdlib.h>

#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <vector>

// Threads of a simdgroup, which kernels rely on; what memory is a multiple of; command buffers that may be on their way.
static const NSUInteger SIMD_WIDTH = 32;
static const size_t PAGE = 16384, MOST_SENT = 64;

namespace {

// A command buffer that was committed, with the steps in it.
struct Batch {
    id<MTLCommandBuffer> commands;
    int32_t first = -1, last = -1;
    std::string name;  // of the last kernel
};

struct Place {
    id<MTLBuffer> buffer;  // nil: in none
    NSUInteger offset;
};

}  // namespace

struct t_device {
    int ordinal = 0;
    bool blocking = false;  // a command buffer for each step, and wait for it
    bool running = false;   // between begin and end
    id<MTLDevice> device;
    id<MTLCommandQueue> queue;
    std::map<std::string, id<MTLComputePipelineState>> pipelines;
    std::mutex lock;                            // of `memory`, which is freed without the model's lock
    std::map<uintptr_t, id<MTLBuffer>> memory;  // by the address where it begins
    Batch open;                                 // being filled
    id<MTLComputeCommandEncoder> encoder;       // of `open`
    std::deque<Batch> sent;
    std::vector<id<MTLCommandBuffer>> marks;  // the first one behind each, if any
};

static const char *text_of(NSError *error) {
    const char *text = error.localizedDescription.UTF8String;
    return text ? text : "no reason is given";
}

// ---- the stream of work ----

// Waits until at most `keep` command buffers are on their way.
static int settle(t_device *d, size_t keep) {
    int status = TORSHC_OK;
    while (d->sent.size() > keep) {
        const Batch batch = d->sent.front();
        d->sent.pop_front();
        [batch.commands waitUntilCompleted];
        if (status || batch.commands.status != MTLCommandBufferStatusError)
            continue;
        NSError *error = batch.commands.error;
        status = error.code == MTLCommandBufferErrorOutOfMemory ? TORSHC_E_MEMORY : TORSHC_E_LAUNCH;
        if (batch.first == batch.last)
            t_at_step(batch.last,
                      t_fail(status, "step %d (%.40s): %.160s", (int)batch.last, batch.name.c_str(), text_of(error)));
        else
            t_fail(status, "one of steps %d to %d (TORSHC_METAL_BLOCKING=1 shows which): %.160s", (int)batch.first,
                   (int)batch.last, text_of(error));
    }
    return status;
}

static void end_encoder(t_device *d) {
    [d->encoder endEncoding];
    d->encoder = nil;
}

static int commit(t_device *d) {
    end_encoder(d);
    if (!d->open.commands)
        return TORSHC_OK;
    [d->open.commands commit];
    if (!d->marks.empty() && !d->marks.back())
        d->marks.back() = d->open.commands;
    d->sent.push_back(d->open);
    d->open = Batch();
    return settle(d, d->blocking ? 0 : MOST_SENT);
}

static int finish(t_device *d) {
    const int status = commit(d), late = settle(d, 0);
    return status ? status : late;
}

static void abandon(t_device *d) {
    end_encoder(d);
    d->open = Batch();
}

static int open_commands(t_device *d) {
    if (!d->open.commands)
        d->open.commands = [d->queue commandBuffer];
    return d->open.commands ? TORSHC_OK : t_fail(TORSHC_E_DRIVER, "Metal returned no command buffer");
}

static int open_encoder(t_device *d) {
    if (d->encoder)
        return TORSHC_OK;
    const int status = open_commands(d);
    if (!status)
        d->encoder = [d->open.commands computeCommandEncoder];
    return status || d->encoder ? status : t_fail(TORSHC_E_DRIVER, "Metal returned no encoder");
}

// ---- open and close ----

static int add_pipeline(t_device *d, id<MTLLibrary> library, NSString *name) {
    NSError *error = nil;
    id<MTLFunction> function = [library newFunctionWithName:name];
    id<MTLComputePipelineState> made = nil;
    if (function)
        made = [d->device newComputePipelineStateWithFunction:function error:&error];
    if (!made)
        return t_fail(TORSHC_E_ARCH, "kernel %.40s cannot be prepared for %.60s: %.160s", name.UTF8String,
                      d->device.name.UTF8String, text_of(error));
    if (made.threadExecutionWidth != SIMD_WIDTH)
        return t_fail(TORSHC_E_ARCH, "%.60s runs %d threads at a time; the library's kernels are for %d",
                      d->device.name.UTF8String, (int)made.threadExecutionWidth, (int)SIMD_WIDTH);
    d->pipelines[name.UTF8String] = made;
    return TORSHC_OK;
}

// All kernels of the library; there are none when every step runs on the processor.
static int load_kernels(t_device *d) {
    unsigned long size = 0;
    NSError *error = nil;
    const uint8_t *bytes = getsectiondata(&_mh_dylib_header, "__TEXT", "__metallib", &size);
    if (!bytes)
        return TORSHC_OK;
    dispatch_data_t data = dispatch_data_create(bytes, size, nil, DISPATCH_DATA_DESTRUCTOR_DEFAULT);
    id<MTLLibrary> library = [d->device newLibraryWithData:data error:&error];
    if (!library)
        return t_fail(TORSHC_E_ARCH, "%.60s cannot load the library's kernels: %.160s", d->device.name.UTF8String,
                      text_of(error));
    for (NSString *name in library.functionNames)
        if (int status = add_pipeline(d, library, name))
            return status;
    return TORSHC_OK;
}

// Not MTLCreateSystemDefaultDevice: it gives none to programs without a screen unless they link CoreGraphics.
static int find_device(t_device *d) {
    NSArray<id<MTLDevice>> *devices = MTLCopyAllDevices();
    if (devices.count == 0)
        return t_fail(TORSHC_E_DRIVER, "no Metal device was found");
    if (d->ordinal < 0 || (NSUInteger)d->ordinal >= devices.count)
        return t_fail(TORSHC_E_DEVICE, "there is no device %d; devices 0 to %d exist", d->ordinal,
                      (int)devices.count - 1);
    d->device = [devices objectAtIndex:(NSUInteger)d->ordinal];
    return TORSHC_OK;
}

static int fill_device(t_device *d, void *stream) {
    if (int status = find_device(d))
        return status;
    d->queue = stream ? (__bridge id<MTLCommandQueue>)stream : [d->device newCommandQueue];
    if (!d->queue)
        return t_fail(TORSHC_E_DRIVER, "Metal returned no command queue");
    if (d->queue.device.registryID != d->device.registryID)
        return t_fail(TORSHC_E_DEVICE, "the command queue is of another device than %d", d->ordinal);
    const char *blocking = getenv("TORSHC_METAL_BLOCKING");
    d->blocking = blocking && *blocking && *blocking != '0';
    return load_kernels(d);
}

int t_device_open(int32_t ordinal, void *stream, t_device **device) {
    @autoreleasepool {
        t_device *d = new t_device();
        d->ordinal = ordinal;
        const int status = fill_device(d, stream);
        *device = status ? nullptr : d;
        if (status)
            delete d;
        return status;
    }
}

void t_device_close(t_device *d) {
    if (!d)
        return;
    t_device_drop(d);
    @autoreleasepool {
        delete d;
    }
}

// ---- memory ----

// Which buffer an address is in, if any.
static Place find(t_device *d, const void *at) {
    const std::lock_guard<std::mutex> guard(d->lock);
    const uintptr_t address = (uintptr_t)at;
    auto next = d->memory.upper_bound(address);
    if (next == d->memory.begin())
        return {nil, 0};
    --next;
    const NSUInteger offset = address - next->first;
    return offset < next->second.length ? Place{next->second, offset} : Place{nil, 0};
}

int t_device_alloc(t_device *d, size_t bytes, const char *what, unsigned char **at) {
    @autoreleasepool {
        // Whole pages are aligned like pages.
        const size_t whole = bytes < PAGE ? PAGE : (bytes + PAGE - 1) / PAGE * PAGE;
        id<MTLBuffer> buffer = nil;
        *at = nullptr;
        if (bytes <= whole && whole <= d->device.maxBufferLength)
            buffer = [d->device newBufferWithLength:whole options:MTLResourceStorageModeShared];
        if (!buffer) {
            const uint64_t all = d->device.recommendedMaxWorkingSetSize, used = d->device.currentAllocatedSize;
            return t_fail(TORSHC_E_MEMORY,
                          "device %d has no memory for %s: asked %zu bytes, free %llu of %llu, %llu at most",
                          d->ordinal, what, bytes, (unsigned long long)(used < all ? all - used : 0),
                          (unsigned long long)all, (unsigned long long)d->device.maxBufferLength);
        }
        *at = (unsigned char *)buffer.contents;
        const std::lock_guard<std::mutex> guard(d->lock);
        d->memory[(uintptr_t)*at] = buffer;
        return TORSHC_OK;
    }
}

// Command buffers hold what they use until they are done.
void t_device_free(t_device *d, unsigned char *at) {
    if (!d || !at)
        return;
    @autoreleasepool {
        const std::lock_guard<std::mutex> guard(d->lock);
        d->memory.erase((uintptr_t)at);
    }
}

// Each device holds the buffer, which ends with the last of them.
int t_device_share(t_device *d, t_device *owner, unsigned char *at) {
    @autoreleasepool {
        const Place place = find(owner, at);
        if (!place.buffer)
            return t_fail(TORSHC_E_DEVICE, "the weights are not in memory of device %d", d->ordinal);
        const std::lock_guard<std::mutex> guard(d->lock);
        d->memory[(uintptr_t)at] = place.buffer;
        return TORSHC_OK;
    }
}

int t_device_locate(t_device *d, const torshc_tensor *x, const char *what, int32_t i, t_span *span) {
    span->at = (unsigned char *)x->data + x->byte_offset;
    const Place place = find(d, span->at);
    if (!place.buffer || span->bytes > place.buffer.length - place.offset)
        return t_fail(TORSHC_E_DEVICE,
                      "%s %d says it is on a Metal device, but its data is not in memory of torshc_alloc", what,
                      (int)i);
    return TORSHC_OK;
}

// ---- copies ----

// Between any two places once the work before is done.
static int move(t_device *d, void *to, const void *from, size_t bytes) {
    @autoreleasepool {
        const int status = finish(d);
        if (!status)
            memcpy(to, from, bytes);
        return status;
    }
}

int t_device_transfer(t_device *d, void *to, const void *from, size_t bytes) { return move(d, to, from, bytes); }

int t_device_copy(t_device *d, t_way way, unsigned char *to, const unsigned char *from, size_t bytes) {
    if (way != T_ACROSS)
        return move(d, to, from, bytes);
    @autoreleasepool {
        const Place a = find(d, from), b = find(d, to);
        if (!a.buffer || !b.buffer)
            return t_fail(TORSHC_E_DEVICE, "a copy on the device of data that is not on it");
        if ((a.offset | b.offset | bytes) % 4)  // which the device's own copies on macOS cannot do
            return move(d, to, from, bytes);
        end_encoder(d);
        if (int status = open_commands(d))
            return status;
        id<MTLBlitCommandEncoder> blit = [d->open.commands blitCommandEncoder];
        if (!blit)
            return t_fail(TORSHC_E_DRIVER, "Metal returned no encoder");
        [blit copyFromBuffer:a.buffer sourceOffset:a.offset toBuffer:b.buffer destinationOffset:b.offset size:bytes];
        [blit endEncoding];
        return d->running ? TORSHC_OK : commit(d);
    }
}

int t_device_finish(t_device *d) {
    @autoreleasepool {
        return finish(d);
    }
}

void t_device_drop(t_device *d) {
    @autoreleasepool {
        abandon(d);
        d->running = false;
        for (const Batch &batch : d->sent)
            [batch.commands waitUntilCompleted];
        d->sent.clear();
    }
}

// ---- steps ----

static int encode(t_device *d, const t_step *step, id<MTLComputePipelineState> pipeline) {
    if (int status = open_encoder(d))
        return status;
    [d->encoder setComputePipelineState:pipeline];
    for (int32_t i = 0; i < step->buffers; i++) {
        const Place place = find(d, step->buf[i]);  // in none: an empty tensor, which is never read
        [d->encoder setBuffer:place.buffer offset:place.offset atIndex:(NSUInteger)i];
    }
    if (step->dims)
        [d->encoder setBytes:step->dim
                      length:(NSUInteger)step->dims * sizeof *step->dim
                     atIndex:(NSUInteger)step->buffers];
    [d->encoder dispatchThreadgroups:MTLSizeMake((NSUInteger)step->blocks, 1, 1)
               threadsPerThreadgroup:MTLSizeMake((NSUInteger)step->threads, 1, 1)];
    d->open.last = step->step;
    d->open.name = step->name;
    if (d->open.first < 0)
        d->open.first = step->step;
    return d->blocking ? commit(d) : TORSHC_OK;
}

int t_device_launch(t_device *d, const t_step *step) {
    @autoreleasepool {
        const auto found = d->pipelines.find(step->name);
        if (found == d->pipelines.end())
            return t_fail(TORSHC_E_ARCH, "step %d: the library has no kernel %.40s", (int)step->step, step->name);
        if ((NSUInteger)step->threads > found->second.maxTotalThreadsPerThreadgroup)
            return t_fail(TORSHC_E_ARCH, "step %d (%.40s) has %d threads a block; %.60s runs %d of this kernel",
                          (int)step->step, step->name, (int)step->threads, d->device.name.UTF8String,
                          (int)found->second.maxTotalThreadsPerThreadgroup);
        return encode(d, step, found->second);
    }
}

// Encoding is cheap, so runs are not recorded.
int t_device_begin(t_device *d, const int64_t *key, int32_t count, int *replayed) {
    (void)key;
    (void)count;
    *replayed = 0;
    d->running = true;
    return TORSHC_OK;
}

int t_device_end(t_device *d, int status) {
    @autoreleasepool {
        d->running = false;
        if (!status)
            return commit(d);
        abandon(d);
        return status;
    }
}

// ---- time ----

// What comes behind a mark is in a command buffer of its own, which knows when it ran.
int t_device_mark(t_device *d, int32_t index) {
    @autoreleasepool {
        const int status = commit(d);
        d->marks.resize((size_t)index);  // marks are made one after the other
        d->marks.push_back(nil);
        return status;
    }
}

int t_device_elapsed(t_device *d, int32_t index, uint64_t *ns) {
    @autoreleasepool {
        const id<MTLCommandBuffer> commands = d->marks[(size_t)index];
        if (commands)  // else a step on the processor
            *ns = (uint64_t)((commands.GPUEndTime - commands.GPUStartTime) * 1e9);
        return TORSHC_OK;
    }
}
