/* The library of webgpu.h, which is loaded when the first model is opened, the device of all models, and its memory.
 *
 * All models of a library have one device and one queue, so that they may share buffers. Addresses of the device are
 * numbers of ours, ranges of which stand for buffers. What fails on the device is told at the next wait. */
#define _GNU_SOURCE
#include "t_gpu.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct t_functions w;
struct t_gpu g = {.lock = PTHREAD_MUTEX_INITIALIZER, .noting = PTHREAD_MUTEX_INITIALIZER};

/* ---- the library and its device ---- */

static void copy_text(char *to, size_t room, w_text from)
{
    const w_text text = from.data && from.length ? from : (w_text){"no reason is given", SIZE_MAX};
    const size_t length = text.length == SIZE_MAX ? strlen(text.data) : text.length;
    snprintf(to, room, "%.*s", (int)(length < room ? length : room - 1), text.data);
    for (char *c = to; *c; c++)
        *c = (unsigned char)*c < ' ' ? ' ' : *c;
}

void t_gpu_note(w_text message)
{
    pthread_mutex_lock(&g.noting);
    if (!*g.error)
        copy_text(g.error, sizeof g.error, message);
    pthread_mutex_unlock(&g.noting);
}

static void on_failed(const w_device *device, uint32_t type, w_text message, void *user, void *more)
{
    (void)device, (void)type, (void)user, (void)more;
    t_gpu_note(message);
}

static void on_lost(const w_device *device, uint32_t reason, w_text message, void *user, void *more)
{
    (void)device, (void)reason, (void)user, (void)more;
    pthread_mutex_lock(&g.noting);
    copy_text(g.reason, sizeof g.reason, message);
    g.lost = g.device != NULL; /* else there was none yet */
    pthread_mutex_unlock(&g.noting);
}

static void on_made(uint32_t status, void *made, w_text message, void *user, void *more)
{
    (void)more;
    if (status == W_SUCCESS)
        *(void **)user = made;
    else
        t_gpu_note(message);
}

int t_gpu_check(void)
{
    pthread_mutex_lock(&g.noting);
    const int status = g.lost ? t_fail(TORSHC_E_LAUNCH,
                                       "WebGPU's device was lost (%.200s): close the models of this library that are "
                                       "open, and open them again",
                                       g.reason)
                              : TORSHC_OK;
    pthread_mutex_unlock(&g.noting);
    return status;
}

int t_gpu_told(int status, const char *what)
{
    if (!*g.error)
        return TORSHC_OK;
    if (t_gpu_check()) /* all else fails for that */
        return TORSHC_E_LAUNCH;
    t_fail(status, "%s: %.320s", what, g.error);
    *g.error = 0;
    return status;
}

#ifdef __APPLE__
#define W_LIBRARY "libwgpu_native.dylib"
#else
#define W_LIBRARY "libwgpu_native.so"
#endif

static int load_functions(void)
{
    const char *named = getenv("TORSHC_WEBGPU");
    void *library = dlopen(named && *named ? named : W_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return t_fail(TORSHC_E_DRIVER, "no library of webgpu.h: %.200s; TORSHC_WEBGPU names one", dlerror());
#define W_FIND(R, NAME, PARAMETERS)                                                                                    \
    if (!(*(void **)&w.NAME = dlsym(library, "wgpu" #NAME)))                                                           \
        return t_fail(TORSHC_E_DRIVER, "the library of webgpu.h has no wgpu" #NAME);
    W_FUNCTIONS(W_FIND)
    return TORSHC_OK;
}

w_buffer t_gpu_buffer(uint64_t usage, uint64_t bytes)
{
    return w.DeviceCreateBuffer(g.device, &(w_buffer_options){.usage = usage, .size = bytes});
}

static int open_adapter(void)
{
    const w_adapter_options options = {.level = 2, .power = W_FAST};
    g.instance = w.CreateInstance(NULL);
    if (!g.instance)
        return t_fail(TORSHC_E_DRIVER, "WebGPU gives no instance");
    w.InstanceRequestAdapter(g.instance, &options, (w_made){NULL, W_SPONTANEOUS, on_made, &g.adapter, NULL});
    while (!g.adapter && !*g.error)
        w.InstanceProcessEvents(g.instance);
    if (!g.adapter)
        return t_gpu_told(TORSHC_E_DRIVER,
                          "WebGPU finds no adapter: no GPU with a driver (apt install mesa-vulkan-drivers has one for "
                          "processors); its library says");
    if (w.AdapterGetLimits(g.adapter, &g.limits) != W_SUCCESS)
        return t_fail(TORSHC_E_DRIVER, "the adapter of WebGPU does not say its limits");
    return TORSHC_OK;
}

static int open_device(void)
{
    w_limits limits; /* what every adapter has, but for the sizes of buffers */
    memset(&limits, 0xff, sizeof limits);
    limits.next = NULL;
    limits.buffer_bytes = g.limits.buffer_bytes;
    limits.storage_bytes = g.limits.storage_bytes;
    g.subgroups = w.AdapterHasFeature(g.adapter, W_SUBGROUPS)          ? W_SUBGROUPS
                  : w.AdapterHasFeature(g.adapter, W_NATIVE_SUBGROUPS) ? W_NATIVE_SUBGROUPS
                                                                       : 0;
    const w_device_options options = {.features = g.subgroups != 0,
                                      .feature = &g.subgroups,
                                      .limits = &limits,
                                      .lost = {NULL, W_SPONTANEOUS, on_lost, NULL, NULL},
                                      .failed = {NULL, on_failed, NULL, NULL}};
    w.AdapterRequestDevice(g.adapter, &options, (w_made){NULL, W_SPONTANEOUS, on_made, &g.device, NULL});
    while (!g.device && !*g.error)
        w.InstanceProcessEvents(g.instance);
    if (!g.device)
        return t_gpu_told(TORSHC_E_DRIVER, "WebGPU gives no device");
    g.queue = w.DeviceGetQueue(g.device);
    g.sizes = t_gpu_buffer(W_UNIFORM | W_COPY_TO, T_SIZES);
    g.empty = t_gpu_buffer(W_STORAGE, T_BIND * T_BINDINGS);
    return t_gpu_told(TORSHC_E_DRIVER, "WebGPU");
}

/* ---- kernels ---- */

/* The linker names both ends of the section that kernels list themselves in; NULL where none does. */
extern const t_source *const __start_t_kernels[] __attribute__((weak, visibility("hidden")));
extern const t_source *const __stop_t_kernels[] __attribute__((weak, visibility("hidden")));

t_made t_gpu_made(const t_source *const *kernel) { return g.made[kernel - __start_t_kernels]; }

static int is_well(void)
{
    pthread_mutex_lock(&g.noting);
    const int well = !*g.error;
    pthread_mutex_unlock(&g.noting);
    return well;
}

/* The text of a kernel with subgroups, which its functions for these give it, in memory of ours; NULL: as it stands. */
static char *with_subgroups(const t_source *kernel, w_text *text)
{
    const char *const without = g.subgroups ? strstr(kernel->text, "// Without subgroups:\n") : NULL;
    char *made = without ? malloc(strlen(kernel->text) + 20) : NULL;
    if (!made)
        return NULL;
    const char *const with = strstr(without, "/* With subgroups:") + sizeof "/* With subgroups:";
    const char *const enable = g.subgroups == W_SUBGROUPS ? "enable subgroups;\n" : "";
    const int head = (int)(without - kernel->text), tail = (int)(strrchr(with, '*') - with);
    *text = (w_text){made, (size_t)sprintf(made, "%s%.*s%.*s", enable, head, kernel->text, tail, with)};
    return made;
}

static t_made make(const t_source *kernel)
{
    w_text text = {kernel->text, strlen(kernel->text)};
    char *const own = with_subgroups(kernel, &text);
    const w_text name = {kernel->name, strlen(kernel->name)};
    const w_code code = {{NULL, W_WGSL}, text};
    w_module module = w.DeviceCreateShaderModule(g.device, &(w_labelled){.next = &code.chain, .label = name});
    const w_pipeline_options options = {.label = name, .compute = {.module = module, .entry = {"main", 4}}};
    free(own);
    t_made made = {is_well() ? w.DeviceCreateComputePipeline(g.device, &options) : NULL, NULL};
    if (module)
        w.ShaderModuleRelease(module);
    if (made.pipeline && is_well())
        made.layout = w.ComputePipelineGetBindGroupLayout(made.pipeline, 0);
    return made;
}

static void *make_next(void *next)
{
    for (int32_t i; (i = atomic_fetch_add((atomic_int *)next, 1)) < g.kernels;)
        g.made[i] = make(__start_t_kernels[i]);
    return NULL;
}

/* Adapters compile kernels for long, each by itself: as many at a time as there are processors. */
static int make_kernels(void)
{
    pthread_t thread[T_MAKERS];
    atomic_int next = 0;
    int32_t threads = 0;
    g.kernels = (int32_t)(__stop_t_kernels - __start_t_kernels);
    if (!g.kernels)
        return TORSHC_OK;
    if (!(g.made = calloc((size_t)g.kernels, sizeof *g.made)))
        return t_fail(TORSHC_E_MEMORY, "no memory for %d kernels", (int)g.kernels);
    const long here = sysconf(_SC_NPROCESSORS_ONLN);
    while (threads < T_MAKERS && threads + 1 < here && threads + 1 < g.kernels &&
           !pthread_create(&thread[threads], NULL, make_next, &next))
        threads++;
    make_next(&next);
    while (threads)
        pthread_join(thread[--threads], NULL);
    return t_gpu_told(TORSHC_E_ARCH, "a kernel cannot be prepared");
}

/* ---- from the first model to the last ---- */

#define W_DROP(WHAT, RELEASE)                                                                                          \
    if (WHAT)                                                                                                          \
        w.RELEASE(WHAT);                                                                                               \
    WHAT = NULL

static void release(void)
{
    for (int32_t i = 0; i < g.kernels; i++) {
        W_DROP(g.made[i].layout, BindGroupLayoutRelease);
        W_DROP(g.made[i].pipeline, ComputePipelineRelease);
    }
    free(g.made);
    free(g.block);
    g.made = NULL;
    g.block = NULL;
    g.kernels = g.blocks = 0;
    W_DROP(g.sizes, BufferRelease);
    W_DROP(g.empty, BufferRelease);
    W_DROP(g.queue, QueueRelease);
    W_DROP(g.device, DeviceRelease);
    W_DROP(g.adapter, AdapterRelease);
    W_DROP(g.instance, InstanceRelease);
    *g.error = 0;
    g.lost = 0;
}

/* A library that is unloaded must leave nothing behind that could call it: threads, and callbacks of a lost device. */
void t_gpu_close(void)
{
    pthread_mutex_lock(&g.lock);
    if (--g.users == 0 && !g.held)
        release();
    pthread_mutex_unlock(&g.lock);
}

int t_gpu_open(void)
{
    int status = TORSHC_OK;
    pthread_mutex_lock(&g.lock);
    g.users++;
    if (!g.device && !(status = load_functions()) && !(status = open_adapter()) && !(status = open_device()))
        status = make_kernels();
    pthread_mutex_unlock(&g.lock);
    if (status)
        t_gpu_close();
    return status;
}

/* ---- memory: an address of ours has the number of its buffer in the upper bits ---- */

t_block t_gpu_find(const void *at)
{
    const uintptr_t number = ((uintptr_t)at - T_FIRST) / T_STRIDE;
    t_block found = {0, 0, NULL};
    pthread_mutex_lock(&g.lock);
    if (number < g.blocks && (uintptr_t)at - g.block[number].at < g.block[number].bytes)
        found = g.block[number];
    pthread_mutex_unlock(&g.lock);
    return found;
}

/* A place for a buffer: one that was given back, or a new one; NULL: no memory. */
static t_block *find_place(void)
{
    for (size_t i = 0; i < g.blocks; i++)
        if (!g.block[i].buffer)
            return &g.block[i];
    t_block *more = realloc(g.block, (g.blocks + 1) * sizeof *more);
    if (!more)
        return NULL;
    g.block = more;
    more[g.blocks] = (t_block){T_FIRST + g.blocks * T_STRIDE, 0, NULL};
    return &more[g.blocks++];
}

int t_device_alloc(t_device *d, size_t bytes, const char *what, unsigned char **at)
{
    (void)d;
    const size_t whole = bytes < T_BIND ? T_BIND : (bytes + T_BIND - 1) / T_BIND * T_BIND;
    *at = NULL;
    if (whole < bytes || whole > g.limits.buffer_bytes)
        return t_fail(TORSHC_E_MEMORY, "no memory for %s: asked %zu bytes; a buffer of this adapter has %llu at most",
                      what, bytes, (unsigned long long)g.limits.buffer_bytes);
    pthread_mutex_lock(&g.lock);
    t_block *place = find_place();
    w_buffer buffer = place ? t_gpu_buffer(W_STORAGE | W_COPY_FROM | W_COPY_TO, whole) : NULL;
    int status = t_gpu_told(TORSHC_E_MEMORY, what);
    if (!status && !buffer)
        status = t_fail(TORSHC_E_MEMORY, "no memory for %s: asked %zu bytes", what, bytes);
    if (!status) {
        place->buffer = buffer;
        place->bytes = whole;
        *at = (unsigned char *)place->at;
        g.held++;
    }
    pthread_mutex_unlock(&g.lock);
    return status;
}

void t_device_free(t_device *d, unsigned char *at)
{
    if (!d || !at)
        return;
    t_gpu_commit(d);
    pthread_mutex_lock(&g.lock);
    const uintptr_t number = ((uintptr_t)at - T_FIRST) / T_STRIDE;
    if (number < g.blocks && g.block[number].buffer) {
        w.BufferRelease(g.block[number].buffer); /* work that is on its way holds it */
        g.block[number].buffer = NULL;
        g.block[number].bytes = 0;
        g.held--;
    }
    pthread_mutex_unlock(&g.lock);
}

int t_device_share(t_device *d, t_device *owner, unsigned char *at)
{
    (void)d, (void)owner, (void)at; /* one device has them all */
    return TORSHC_OK;
}

void t_device_release(t_device *d, unsigned char *at, int last)
{
    if (last)
        t_device_free(d, at);
}

int t_device_locate(t_device *d, const torshc_tensor *x, const char *what, int32_t i, t_span *span)
{
    (void)d;
    span->at = (unsigned char *)x->data + x->byte_offset;
    const t_block block = t_gpu_find(span->at);
    const uintptr_t offset = (uintptr_t)span->at - block.at;
    if (!block.buffer || span->bytes > block.bytes - offset || offset % T_BIND)
        return t_fail(
            TORSHC_E_DEVICE,
            "%s %d says it is on WebGPU's device, but its data is not in memory of torshc_alloc, at a multiple "
            "of %d bytes",
            what, (int)i, T_BIND);
    return TORSHC_OK;
}
