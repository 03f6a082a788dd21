/* What the device layer needs of WebGPU's C interface, declared here as its binary interface has it (the standard of
 * 2024 and 2025, with string views and futures): the library is found and loaded when a model is opened, so that none is
 * needed to build or to link. Names follow those of webgpu.h, with w_ before them. */
#ifndef T_WEBGPU_H
#define T_WEBGPU_H

#include <stddef.h>
#include <stdint.h>

/* What the library makes: an adapter, a buffer. */
typedef struct w_object *w_object;

typedef struct {
    const char *data;
    size_t length;
} w_text;

typedef struct w_chain {
    const struct w_chain *next;
    uint32_t type;
} w_chain;

/* Subgroups as in the standard, which has kernels enable them, and in wgpu-native, whose kernels have them then. */
enum w_feature { W_NONE, W_SUBGROUPS = 0x12, W_NATIVE_SUBGROUPS = 0x30021 };

/* What is called when something is done: W_CALLBACK(name, what it is told first). */
#define W_CALLBACK(NAME, ...)                                                                                          \
    typedef struct {                                                                                                   \
        const w_chain *next;                                                                                           \
        uint32_t mode;                                                                                                 \
        void (*call)(__VA_ARGS__, w_text message, void *user, void *more);                                             \
        void *user, *more;                                                                                             \
    } NAME
W_CALLBACK(w_made, uint32_t status, void *made);
W_CALLBACK(w_mapped, uint32_t status);
W_CALLBACK(w_lost, const w_object *device, uint32_t reason);

typedef struct {
    const w_chain *next;
    uint32_t level, power, fallback, backend;
    void *surface;
} w_adapter_options;

typedef struct {
    const w_chain *next;
    uint32_t textures[4], groups, groups_and_vertex, bindings, dynamic[2], sampled, samplers;
    uint32_t storage_buffers, storage_textures, uniform_buffers;
    uint64_t uniform_bytes, storage_bytes;
    uint32_t uniform_align, storage_align, vertex_buffers;
    uint64_t buffer_bytes;
    uint32_t vertex[2], variables, colours[2];
    uint32_t shared_bytes, threads, threads_x, threads_y, threads_z, blocks, immediate;
} w_limits;

typedef struct {
    const w_chain *next;
    w_text label;
} w_labelled;

typedef struct {
    w_labelled head;
    size_t features;
    const enum w_feature *feature;
    const w_limits *limits;
    w_labelled queue;
    w_lost lost;
    struct {
        const w_chain *next;
        void (*call)(const w_object *device, uint32_t type, w_text message, void *user, void *more);
        void *user, *more;
    } failed;
} w_device_options;

typedef struct {
    w_labelled head;
    uint64_t usage, size;
    uint32_t mapped;
} w_buffer_options;

typedef struct {
    w_chain chain;
    w_text code;
} w_code;

typedef struct {
    w_labelled head;
    w_object layout;
    struct {
        const w_chain *next;
        w_object module;
        w_text entry;
        size_t constants;
        const void *constant;
    } compute;
} w_pipeline_options;

typedef struct {
    const w_chain *next;
    uint32_t binding;
    w_object buffer;
    uint64_t offset, size;
    void *sampler, *texture;
} w_entry;

typedef struct {
    w_labelled head;
    w_object layout;
    size_t entries;
    const w_entry *entry;
} w_group_options;

enum { W_SPONTANEOUS = 3, W_SUCCESS = 1, W_WGSL = 2, W_FAST = 2, W_READ = 1 };
enum { W_MAP_READ = 1, W_COPY_FROM = 4, W_COPY_TO = 8, W_UNIFORM = 0x40, W_STORAGE = 0x80 };

/* X(result, name after wgpu, parameters); the last is an extension of wgpu-native, and the one before of all others */
#define W_FUNCTIONS(X)                                                                                                 \
    X(w_object, CreateInstance, (const void *))                                                                        \
    X(void, InstanceRequestAdapter, (w_object, const w_adapter_options *, w_made))                                     \
    X(uint32_t, AdapterGetLimits, (w_object, w_limits *))                                                              \
    X(uint32_t, AdapterHasFeature, (w_object, enum w_feature))                                                         \
    X(void, AdapterRequestDevice, (w_object, const w_device_options *, w_made))                                        \
    X(w_object, DeviceGetQueue, (w_object))                                                                            \
    X(w_object, DeviceCreateBuffer, (w_object, const w_buffer_options *))                                              \
    X(w_object, DeviceCreateShaderModule, (w_object, const w_labelled *))                                              \
    X(w_object, DeviceCreateComputePipeline, (w_object, const w_pipeline_options *))                                   \
    X(w_object, ComputePipelineGetBindGroupLayout, (w_object, uint32_t))                                               \
    X(w_object, DeviceCreateBindGroup, (w_object, const w_group_options *))                                            \
    X(w_object, DeviceCreateCommandEncoder, (w_object, const w_labelled *))                                            \
    X(w_object, CommandEncoderBeginComputePass, (w_object, const void *))                                              \
    X(void, ComputePassEncoderSetPipeline, (w_object, w_object))                                                       \
    X(void, ComputePassEncoderSetBindGroup, (w_object, uint32_t, w_object, size_t, const uint32_t *))                  \
    X(void, ComputePassEncoderDispatchWorkgroups, (w_object, uint32_t, uint32_t, uint32_t))                            \
    X(void, ComputePassEncoderEnd, (w_object))                                                                         \
    X(w_object, CommandEncoderFinish, (w_object, const w_labelled *))                                                  \
    X(void, CommandEncoderCopyBufferToBuffer, (w_object, w_object, uint64_t, w_object, uint64_t, uint64_t))            \
    X(void, QueueSubmit, (w_object, size_t, const w_object *))                                                         \
    X(void, QueueWriteBuffer, (w_object, w_object, uint64_t, const void *, size_t))                                    \
    X(void, BufferMapAsync, (w_object, uint64_t, size_t, size_t, w_mapped))                                            \
    X(const void *, BufferGetConstMappedRange, (w_object, size_t, size_t))                                             \
    X(void, BufferUnmap, (w_object))                                                                                   \
    X(void, BufferRelease, (w_object))                                                                                 \
    X(void, ShaderModuleRelease, (w_object))                                                                           \
    X(void, ComputePipelineRelease, (w_object))                                                                        \
    X(void, BindGroupLayoutRelease, (w_object))                                                                        \
    X(void, QueueRelease, (w_object))                                                                                  \
    X(void, DeviceRelease, (w_object))                                                                                 \
    X(void, AdapterRelease, (w_object))                                                                                \
    X(void, InstanceRelease, (w_object))                                                                               \
    X(void, BindGroupRelease, (w_object))                                                                              \
    X(void, CommandEncoderRelease, (w_object))                                                                         \
    X(void, ComputePassEncoderRelease, (w_object))                                                                     \
    X(void, CommandBufferRelease, (w_object))                                                                          \
    X(void, InstanceProcessEvents, (w_object))                                                                         \
    X(uint32_t, DevicePoll, (w_object, uint32_t, const void *))

/* A kernel's name and the text of its module, which may be for devices with subgroups alone. */
typedef struct {
    const char *name, *text;
    int subgroups;
} t_source;

#endif
