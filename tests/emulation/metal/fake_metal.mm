// Metal's classes over the emulator, for GNU's Objective-C runtime: what runs t_device.mm itself where there is no Mac.
// Nothing is ever freed. Whoever uses Metal as it may not be used is told so and ends.
//
//     T_FAKE_FAIL=n     the n-th launch, from 0, fails
//     T_FAKE_WIDTH=n    threads of a simdgroup, 32 unless said otherwise
#import <Metal/Metal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "library.h"
#include "mach-o/getsect.h"
#include "mach-o/ldsyms.h"

typedef std::function<bool()> Work;  // whether it succeeds

extern "C" id class_createInstance(Class of, size_t extra);

static void expect(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "fake Metal: %s\n", what);
    abort();
}

static int setting(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text && *text ? atoi(text) : otherwise;
}

static void *kernels()
{
    static void *const opened = t_emulate_open_metallib();
    return opened;
}

@implementation NSObject
+ (id)alloc
{
    return class_createInstance(self, 0);
}
- (id)init
{
    return self;
}
- (BOOL)isEqual:(id)object
{
    return self == object;
}
- (NSUInteger)hash
{
    return (NSUInteger)self;
}
@end

@interface NSAutoreleasePool : NSObject
- (void)drain;
@end
@implementation NSAutoreleasePool
- (void)drain
{
}
@end

@interface FakeString : NSString {
@public
    const char *text;
}
@end

@implementation NSString
+ (instancetype)stringWithUTF8String:(const char *)text
{
    FakeString *made = [[FakeString alloc] init];
    made->text = strdup(text);
    return made;
}
- (const char *)UTF8String
{
    return NULL;
}
- (NSUInteger)length
{
    return 0;
}
@end

@implementation FakeString
- (const char *)UTF8String
{
    return text;
}
- (NSUInteger)length
{
    return strlen(text);
}
@end

static NSString *string(const char *text)
{
    return [NSString stringWithUTF8String:text];
}

@interface FakeArray : NSArray {
@public
    std::vector<id> *items;
}
@end

@implementation NSArray
- (NSUInteger)count
{
    return 0;
}
- (id)objectAtIndex:(NSUInteger)index
{
    expect(index < self.count, "an array is shorter");
    return nil;
}
- (NSUInteger)countByEnumeratingWithState:(NSFastEnumerationState *)state objects:(id[])buffer count:(NSUInteger)length
{
    static unsigned long unchanged;
    NSUInteger given = 0;
    for (; given < length && state->state < self.count; given++)
        buffer[given] = [self objectAtIndex:state->state++];
    state->itemsPtr = buffer;
    state->mutationsPtr = &unchanged;
    return given;
}
@end

@implementation FakeArray
- (NSUInteger)count
{
    return items->size();
}
- (id)objectAtIndex:(NSUInteger)index
{
    expect(index < items->size(), "an array is shorter");
    return (*items)[index];
}
@end

static id array(std::vector<id> items)
{
    FakeArray *made = [[FakeArray alloc] init];
    made->items = new std::vector<id>(items);
    return made;
}

@implementation NSError
- (NSInteger)code
{
    return MTLCommandBufferErrorPageFault;
}
- (NSString *)domain
{
    return string("fake");
}
- (NSString *)localizedDescription
{
    return string("a fault made for a test");
}
@end

@interface FakeBuffer : NSObject <MTLBuffer> {
@public
    NSUInteger length;
    char *bytes;
}
@end
@implementation FakeBuffer
- (id<MTLDevice>)device
{
    return nil;
}
- (NSUInteger)length
{
    return length;
}
- (void *)contents
{
    return bytes;
}
@end

@interface FakeFunction : NSObject <MTLFunction, MTLComputePipelineState> {
@public
    const void *kernel;
    NSString *name;
}
@end
@implementation FakeFunction
- (NSString *)name
{
    return name;
}
- (NSUInteger)maxTotalThreadsPerThreadgroup
{
    return 1024;
}
- (NSUInteger)threadExecutionWidth
{
    return (NSUInteger)setting("T_FAKE_WIDTH", 32);
}
@end

@interface FakeLibrary : NSObject <MTLLibrary>
@end
@implementation FakeLibrary
- (NSArray<NSString *> *)functionNames
{
    std::vector<id> names;
    const auto name = (t_emulate_name_kernel *)dlsym(kernels(), "t_emulate_name");
    for (int i = 0; name && name(i); i++)
        names.push_back(string(name(i)));
    return array(names);
}
- (id<MTLFunction>)newFunctionWithName:(NSString *)functionName
{
    FakeFunction *made = [[FakeFunction alloc] init];
    made->kernel = ((t_emulate_find_kernel *)dlsym(kernels(), "t_emulate_find"))(functionName.UTF8String);
    made->name = functionName;
    return made->kernel ? made : nil;
}
@end

@interface FakeCommands : NSObject <MTLCommandBuffer> {
@public
    std::vector<Work> *work;
    std::deque<FakeCommands *> *queue;  // what was committed and has not run
    bool open, committed, done, failed;
    double begin, end;
}
@end

// Both kinds of encoders.
@interface FakeEncoder : NSObject <MTLComputeCommandEncoder, MTLBlitCommandEncoder> {
@public
    FakeCommands *commands;
    FakeFunction *pipeline;
    void *buffers[31];
    std::string *sizes;
    NSUInteger sizes_at;
    bool ended, blit;
}
@end

@implementation FakeEncoder
- (void)check:(bool)blits
{
    expect(!ended && blit == blits, "an encoder has ended, or is of another kind");
}
- (void)endEncoding
{
    expect(!ended, "endEncoding twice");
    ended = true;
    commands->open = false;
}
- (void)setComputePipelineState:(id<MTLComputePipelineState>)state
{
    [self check:false];
    pipeline = (FakeFunction *)state;
    memset(buffers, 0, sizeof buffers);
    sizes = nullptr;
}
- (void)setBytes:(const void *)bytes length:(NSUInteger)length atIndex:(NSUInteger)index
{
    [self check:false];
    expect(length > 0 && length <= 4096 && index < 31, "setBytes");
    sizes = new std::string((const char *)bytes, length);
    sizes_at = index;
}
- (void)setBuffer:(id<MTLBuffer>)buffer offset:(NSUInteger)offset atIndex:(NSUInteger)index
{
    [self check:false];
    expect(index < 31 && (buffer ? offset < buffer.length : offset == 0), "setBuffer");
    buffers[index] = buffer ? (char *)buffer.contents + offset : nullptr;
}
- (void)dispatchThreadgroups:(MTLSize)groups threadsPerThreadgroup:(MTLSize)threads
{
    [self check:false];
    expect(pipeline && threads.width <= 1024, "dispatchThreadgroups");
    const std::vector<void *> given(buffers, buffers + 31);
    const void *const kernel = pipeline->kernel;
    const std::string *const dims = sizes;
    const NSUInteger dims_at = sizes_at;
    commands->work->push_back([=] {
        static int launches = 0;
        std::vector<void *> all = given;
        if (dims)
            all[dims_at] = (void *)dims->data();
        const uint32_t grid[3] = {(uint32_t)groups.width, 1, 1}, block[3] = {(uint32_t)threads.width, 1, 1};
        const auto dispatch = (t_emulate_dispatch_kernel *)dlsym(kernels(), "t_emulate_dispatch");
        return launches++ != setting("T_FAKE_FAIL", -1) && !dispatch(kernel, all.data(), nullptr, grid, block);
    });
}
- (void)copyFromBuffer:(id<MTLBuffer>)source
          sourceOffset:(NSUInteger)from
              toBuffer:(id<MTLBuffer>)target
     destinationOffset:(NSUInteger)to
                  size:(NSUInteger)size
{
    [self check:true];
    expect((from | to | size) % 4 == 0 && from + size <= source.length && to + size <= target.length, "a copy");
    char *const a = (char *)source.contents + from, *const b = (char *)target.contents + to;
    commands->work->push_back([=] {
        memcpy(b, a, size);
        return true;
    });
}
@end

@implementation FakeCommands
- (id)encoder:(bool)blit
{
    expect(!open && !committed, "an encoder while another one is open, or after the commit");
    FakeEncoder *made = [[FakeEncoder alloc] init];
    made->commands = self;
    made->blit = blit;
    open = true;
    return made;
}
- (id<MTLComputeCommandEncoder>)computeCommandEncoder
{
    return [self encoder:false];
}
- (id<MTLBlitCommandEncoder>)blitCommandEncoder
{
    return [self encoder:true];
}
- (void)commit
{
    expect(!open && !committed, "a commit twice, or with an encoder open");
    committed = true;
    queue->push_back(self);
}
- (void)waitUntilCompleted
{
    static double now = 0;
    expect(committed, "who waits has not committed");
    while (!done) {
        FakeCommands *next = queue->front();
        queue->pop_front();
        next->begin = now;
        for (const Work &each : *next->work)
            next->failed = next->failed || !each();
        next->end = now += 1e-3 * (double)next->work->size();
        next->done = true;
    }
}
- (MTLCommandBufferStatus)status
{
    expect(done, "the status of work that nobody has waited for");
    return failed ? MTLCommandBufferStatusError : MTLCommandBufferStatusCompleted;
}
- (NSError *)error
{
    return failed ? [[NSError alloc] init] : nil;
}
- (CFTimeInterval)GPUStartTime
{
    return begin;
}
- (CFTimeInterval)GPUEndTime
{
    expect(done, "the time of work that nobody has waited for");
    return end;
}
@end

@interface FakeQueue : NSObject <MTLCommandQueue> {
@public
    id<MTLDevice> device;
    std::deque<FakeCommands *> *queue;
}
@end
@implementation FakeQueue
- (id<MTLDevice>)device
{
    return device;
}
- (id<MTLCommandBuffer>)commandBuffer
{
    FakeCommands *made = [[FakeCommands alloc] init];
    made->work = new std::vector<Work>();
    made->queue = queue;
    return made;
}
@end

@interface FakeDevice : NSObject <MTLDevice>
@end
@implementation FakeDevice
- (NSString *)name
{
    return string("Fake GPU");
}
- (uint64_t)registryID
{
    return 7;
}
- (uint64_t)recommendedMaxWorkingSetSize
{
    return 1 << 20;
}
- (NSUInteger)currentAllocatedSize
{
    return 1 << 10;
}
- (NSUInteger)maxBufferLength
{
    return 1 << 20;
}
- (id<MTLCommandQueue>)newCommandQueue
{
    FakeQueue *made = [[FakeQueue alloc] init];
    made->device = self;
    made->queue = new std::deque<FakeCommands *>();
    return made;
}
- (id<MTLBuffer>)newBufferWithLength:(NSUInteger)length options:(MTLResourceOptions)options
{
    expect(length > 0 && length <= self.maxBufferLength && options == MTLResourceStorageModeShared, "newBufferWithLength");
    FakeBuffer *made = [[FakeBuffer alloc] init];
    made->length = length;
    made->bytes = (char *)aligned_alloc(16384, (length + 16383) / 16384 * 16384);
    memset(made->bytes, 0xff, length);
    return made;
}
- (id<MTLLibrary>)newLibraryWithData:(dispatch_data_t)data error:(NSError **)error
{
    expect(data && error, "newLibraryWithData");
    return [[FakeLibrary alloc] init];
}
- (id<MTLComputePipelineState>)newComputePipelineStateWithFunction:(id<MTLFunction>)function error:(NSError **)error
{
    expect(function && error, "newComputePipelineStateWithFunction");
    return (FakeFunction *)function;
}
@end

NSArray<id<MTLDevice>> *MTLCopyAllDevices(void)
{
    static id only = [[FakeDevice alloc] init];
    return array({only});
}

struct mach_header_64 {
    int unused;
};
extern "C" const struct mach_header_64 _mh_dylib_header = {0};

uint8_t *getsectiondata(const struct mach_header_64 *, const char *segment, const char *section, unsigned long *size)
{
    expect(!strcmp(segment, "__TEXT") && !strcmp(section, "__metallib"), "getsectiondata");
    *size = (unsigned long)(t_emulate_metallib_end - t_emulate_metallib);
    return (uint8_t *)t_emulate_metallib;
}

dispatch_data_t dispatch_data_create(const void *, size_t, dispatch_queue_t, dispatch_block_t)
{
    return (dispatch_data_t)[[NSObject alloc] init];
}
