/* What the device layer needs of WebGPU's C interface, declared here as its binary interface has it (the standard of
 * 2024 and 2025, with string views and futures): the library is found and loaded when a model is opened, so that none is
 * needed to build or to link. Names follow those of webgpu.h, with w_ before them. */
#ifndef T_WEBGPU_H
#define T_WEBGPU_H

#include <stddef.h>
#include <stdint.h>

typedef struct w_instance *w_instance;
typedef struct w_adapter *w_adapter;
typedef struct w_device *w_device;
typedef struct w_queue *w_queue;
typedef struct w_buffer *w_buffer;
typedef struct w_module *w_module;
typedef struct w_layout *w_layout;
typedef struct w_pipeline_layout *w_pipeline_layout;
typedef struct w_pipeline *w_pipeline;
typedef struct w_group *w_group;
typedef struct w_encoder *w_encoder;
typedef struct w_pass *w_pass;
typedef struct w_commands *w_commands;

typedef struct {
    const char *data;
    size_t length;
} w_text;

typedef struct w_chain {
    const struct w_chain *next;
    uint32_t type;
} w_chain;

typedef struct {
    uint64_t id;
} w_future;

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
W_CALLBACK(w_lost, const w_device *device, uint32_t reason);

typedef struct {
    const w_chain *next;
    void (*call)(const w_device *device, uint32_t type, w_text message, void *user, void *more);
    void *user, *more;
} w_failed;

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
    size_t features;
    const uint32_t *feature;
    const w_limits *limits;
    struct {
        const w_chain *next;
        w_text label;
    } queue;
    w_lost lost;
    w_failed failed;
} w_device_options;

typedef struct {
    const w_chain *next;
    w_text label;
    uint64_t usage, size;
    uint32_t mapped;
} w_buffer_options;

typedef struct {
    const w_chain *next;
    w_text label;
} w_labelled;

typedef struct {
    w_chain chain;
    w_text code;
} w_code;

typedef struct {
    const w_chain *next;
    w_text label;
    w_pipeline_layout layout;
    struct {
        const w_chain *next;
        w_module module;
        w_text entry;
        size_t constants;
        const void *constant;
    } compute;
} w_pipeline_options;

typedef struct {
    const w_chain *next;
    uint32_t binding;
    w_buffer buffer;
    uint64_t offset, size;
    void *sampler, *texture;
} w_entry;

typedef struct {
    const w_chain *next;
    w_text label;
    w_layout layout;
    size_t entries;
    const w_entry *entry;
} w_group_options;

enum { W_SPONTANEOUS = 3, W_SUCCESS = 1, W_WGSL = 2, W_FAST = 2, W_READ = 1 };
enum { W_MAP_READ = 1, W_COPY_FROM = 4, W_COPY_TO = 8, W_UNIFORM = 0x40, W_STORAGE = 0x80 };

/* What the standard calls the feature, which asks kernels to enable it, and what wgpu-native does, whose WGSL has it then. */
enum { W_SUBGROUPS = 0x12, W_NATIVE_SUBGROUPS = 0x30021 };

/* X(result, name after wgpu, parameters); the last is an extension of wgpu-native, and the one before of all others */
#define W_FUNCTIONS(X)                                                                                                 \
    X(w_instance, CreateInstance, (const void *))                                                                      \
    X(w_future, InstanceRequestAdapter, (w_instance, const w_adapter_options *, w_made))                               \
    X(uint32_t, AdapterGetLimits, (w_adapter, w_limits *))                                                             \
    X(uint32_t, AdapterHasFeature, (w_adapter, uint32_t))                                                              \
    X(w_future, AdapterRequestDevice, (w_adapter, const w_device_options *, w_made))                                   \
    X(w_queue, DeviceGetQueue, (w_device))                                                                             \
    X(w_buffer, DeviceCreateBuffer, (w_device, const w_buffer_options *))                                              \
    X(w_module, DeviceCreateShaderModule, (w_device, const w_labelled *))                                              \
    X(w_pipeline, DeviceCreateComputePipeline, (w_device, const w_pipeline_options *))                                 \
    X(w_layout, ComputePipelineGetBindGroupLayout, (w_pipeline, uint32_t))                                             \
    X(w_group, DeviceCreateBindGroup, (w_device, const w_group_options *))                                             \
    X(w_encoder, DeviceCreateCommandEncoder, (w_device, const w_labelled *))                                           \
    X(w_pass, CommandEncoderBeginComputePass, (w_encoder, const void *))                                               \
    X(void, ComputePassEncoderSetPipeline, (w_pass, w_pipeline))                                                       \
    X(void, ComputePassEncoderSetBindGroup, (w_pass, uint32_t, w_group, size_t, const uint32_t *))                     \
    X(void, ComputePassEncoderDispatchWorkgroups, (w_pass, uint32_t, uint32_t, uint32_t))                              \
    X(void, ComputePassEncoderEnd, (w_pass))                                                                           \
    X(w_commands, CommandEncoderFinish, (w_encoder, const w_labelled *))                                               \
    X(void, CommandEncoderCopyBufferToBuffer, (w_encoder, w_buffer, uint64_t, w_buffer, uint64_t, uint64_t))           \
    X(void, QueueSubmit, (w_queue, size_t, const w_commands *))                                                        \
    X(void, QueueWriteBuffer, (w_queue, w_buffer, uint64_t, const void *, size_t))                                     \
    X(w_future, BufferMapAsync, (w_buffer, uint64_t, size_t, size_t, w_mapped))                                        \
    X(const void *, BufferGetConstMappedRange, (w_buffer, size_t, size_t))                                             \
    X(void, BufferUnmap, (w_buffer))                                                                                   \
    X(void, BufferRelease, (w_buffer))                                                                                 \
    X(void, ShaderModuleRelease, (w_module))                                                                           \
    X(void, ComputePipelineRelease, (w_pipeline))                                                                      \
    X(void, BindGroupLayoutRelease, (w_layout))                                                                        \
    X(void, QueueRelease, (w_queue))                                                                                   \
    X(void, DeviceRelease, (w_device))                                                                                 \
    X(void, AdapterRelease, (w_adapter))                                                                               \
    X(void, InstanceRelease, (w_instance))                                                                             \
    X(void, BindGroupRelease, (w_group))                                                                               \
    X(void, CommandEncoderRelease, (w_encoder))                                                                        \
    X(void, ComputePassEncoderRelease, (w_pass))                                                                       \
    X(void, CommandBufferRelease, (w_commands))                                                                        \
    X(void, InstanceProcessEvents, (w_instance))                                                                       \
    X(uint32_t, DevicePoll, (w_device, uint32_t, const void *))

/* A kernel's name and the text of its module. */
typedef struct {
    const char *name, *text;
} t_source;

/* What a kernel's launcher gives the device layer: itself, by its place among the kernels of the library. */
int t_webgpu_launch(void *stream, const t_source *const *kernel);

#endif
