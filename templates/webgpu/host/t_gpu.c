/* The library of webgpu.h, which is loaded when the first model is opened, and the device of all models.
 *
 * All models of a library have one device and one queue, so that they may share buffers. What fails on the device is
 * told at the next wait. */
#define _GNU_SOURCE
#include "t_gpu.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct t_functions w;
struct t_gpu g = {.lock = PTHREAD_MUTEX_INITIALIZER, .noting = PTHREAD_MUTEX_INITIALIZER};

/* ---- what WebGPU says ---- */

void t_gpu_note(w_text message, int lost) {
    const w_text text = message.data && message.length ? message : (w_text){"no reason is given", SIZE_MAX};
    const size_t length = text.length == SIZE_MAX ? strlen(text.data) : text.length;
    pthread_mutex_lock(&g.noting);
    if (!g.lost && (lost || !*g.error)) {
        snprintf(g.error, sizeof g.error, "%.*s", (int)(length < sizeof g.error ? length : sizeof g.error), text.data);
        for (char *c = g.error; *c; c++)
            *c = (unsigned char)*c < ' ' ? ' ' : *c;
    }
    g.lost |= lost;
    pthread_mutex_unlock(&g.noting);
}

/* A call failed, or, where `user` is not NULL, the device is lost. */
static void on_fault(const w_object *device, uint32_t type, w_text message, void *user, void *more) {
    (void)device, (void)type, (void)more;
    t_gpu_note(message, user && g.device); /* else there was none yet */
}

static void on_made(uint32_t status, void *made, w_text message, void *user, void *more) {
    (void)more;
    if (status == W_SUCCESS)
        *(void **)user = made;
    else
        t_gpu_note(message, 0);
}

static int is_well(void) {
    pthread_mutex_lock(&g.noting);
    const int well = !*g.error;
    pthread_mutex_unlock(&g.noting);
    return well;
}

int t_gpu_told(int status, const char *what) {
    if (is_well())
        return TORSHC_OK;
    if (g.lost)
        return t_fail(TORSHC_E_LAUNCH,
                      "WebGPU's device was lost (%.200s): close the models of this library that are open, "
                      "and open them again",
                      g.error);
    t_fail(status, "%s: %.320s", what, g.error);
    t_gpu_forget();
    return status;
}

void t_gpu_forget(void) {
    if (!g.lost)
        *g.error = 0;
}

/* ---- the library and its device ---- */

#ifdef __APPLE__
#define W_LIBRARY "libwgpu_native.dylib"
#else
#define W_LIBRARY "libwgpu_native.so"
#endif

static int load_functions(void) {
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

w_object t_gpu_buffer(uint64_t usage, uint64_t bytes) {
    return w.DeviceCreateBuffer(g.device, &(w_buffer_options){.usage = usage, .size = bytes});
}

static int open_adapter(void) {
    const w_adapter_options options = {.level = 2, .power = W_FAST};
    g.instance = w.CreateInstance(NULL);
    if (!g.instance)
        return t_fail(TORSHC_E_DRIVER, "WebGPU gives no instance");
    w.InstanceRequestAdapter(g.instance, &options, (w_made){NULL, W_SPONTANEOUS, on_made, &g.adapter, NULL});
    while (!g.adapter && is_well())
        w.InstanceProcessEvents(g.instance);
    if (!g.adapter)
        return t_gpu_told(TORSHC_E_DRIVER,
                          "WebGPU finds no adapter: no GPU with a driver (apt install mesa-vulkan-drivers has one for "
                          "processors); its library says");
    if (w.AdapterGetLimits(g.adapter, &g.limits) != W_SUCCESS)
        return t_fail(TORSHC_E_DRIVER, "the adapter of WebGPU does not say its limits");
    return TORSHC_OK;
}

static int open_device(void) {
    w_limits limits; /* what every adapter has, but for the sizes of buffers */
    memset(&limits, 0xff, sizeof limits);
    limits.next = NULL;
    limits.buffer_bytes = g.limits.buffer_bytes;
    limits.storage_bytes = g.limits.storage_bytes;
    const uint32_t native = w.AdapterHasFeature(g.adapter, W_NATIVE_SUBGROUPS);
    g.feature = w.AdapterHasFeature(g.adapter, W_SUBGROUPS) ? W_SUBGROUPS : native ? W_NATIVE_SUBGROUPS : W_NONE;
    const w_device_options options = {.features = g.feature != W_NONE,
                                      .feature = &g.feature,
                                      .limits = &limits,
                                      .lost = {NULL, W_SPONTANEOUS, on_fault, &g, NULL},
                                      .failed = {NULL, on_fault, NULL, NULL}};
    w.AdapterRequestDevice(g.adapter, &options, (w_made){NULL, W_SPONTANEOUS, on_made, &g.device, NULL});
    while (!g.device && is_well())
        w.InstanceProcessEvents(g.instance);
    if (!g.device)
        return t_gpu_told(TORSHC_E_DRIVER, "WebGPU gives no device");
    g.queue = w.DeviceGetQueue(g.device);
    g.sizes = t_gpu_buffer(W_UNIFORM | W_COPY_TO, T_SIZES);
    g.empty = t_gpu_buffer(W_STORAGE, T_BIND * T_BINDINGS);
    return t_gpu_told(TORSHC_E_DRIVER, "WebGPU");
}

/* ---- kernels ---- */

/* The linker names both ends of the section that kernels stand in; NULL where there are none. */
extern const t_source *const __start_t_kernels[] __attribute__((weak, visibility("hidden")));
extern const t_source *const __stop_t_kernels[] __attribute__((weak, visibility("hidden")));

static int by_name(const void *a, const void *b) {
    return strcmp(((const t_made *)a)->source->name, ((const t_made *)b)->source->name);
}

const t_made *t_gpu_made(const char *name) {
    return bsearch(&(t_made){.source = &(t_source){.name = name}}, g.made, g.kernels, sizeof *g.made, by_name);
}

/* Whether the device runs this text of a kernel: not where it lacks subgroups, or has them and another text is for these. */
static int is_for_device(const t_source *kernel) {
    if (kernel->subgroups || !g.feature)
        return !kernel->subgroups || g.feature;
    for (const t_source *const *other = __start_t_kernels; other < __stop_t_kernels; other++)
        if ((*other)->subgroups && !strcmp((*other)->name, kernel->name))
            return 0;
    return 1;
}

/* A kernel's text with what the standard has in front of one that uses subgroups, in memory of ours; NULL for no memory. */
static char *module_of(const t_source *kernel) {
    const char *const enable = kernel->subgroups && g.feature == W_SUBGROUPS ? "enable subgroups;\n" : "";
    char *const made = malloc(strlen(enable) + strlen(kernel->text) + 1);
    if (made)
        sprintf(made, "%s%s", enable, kernel->text);
    return made;
}

static void make(t_made *kernel) {
    char *const text = module_of(kernel->source);
    if (!text) {
        t_gpu_note((w_text){"no memory for its text", SIZE_MAX}, 0);
        return;
    }
    const w_text name = {kernel->source->name, strlen(kernel->source->name)};
    const w_code code = {{NULL, W_WGSL}, {text, strlen(text)}};
    w_object module = w.DeviceCreateShaderModule(g.device, &(w_labelled){.next = &code.chain, .label = name});
    const w_pipeline_options options = {.head.label = name, .compute = {.module = module, .entry = {"main", 4}}};
    free(text);
    kernel->pipeline = is_well() ? w.DeviceCreateComputePipeline(g.device, &options) : NULL;
    if (module)
        w.ShaderModuleRelease(module);
    if (kernel->pipeline && is_well())
        kernel->layout = w.ComputePipelineGetBindGroupLayout(kernel->pipeline, 0);
}

static void make_some(void *const *buf, const int64_t *dim, void *scratch, int64_t begin, int64_t end) {
    (void)buf, (void)dim, (void)scratch;
    for (int64_t i = begin; i < end; i++)
        make(&g.made[i]);
}

/* Adapters compile kernels for long, each by itself: as many at a time as there are processors. */
static int make_kernels(void) {
    const size_t texts = (size_t)(__stop_t_kernels - __start_t_kernels);
    if (!(g.made = calloc(texts + 1, sizeof *g.made)))
        return t_fail(TORSHC_E_MEMORY, "no memory for %zu kernels", texts);
    for (const t_source *const *kernel = __start_t_kernels; kernel < __stop_t_kernels; kernel++)
        if (is_for_device(*kernel))
            g.made[g.kernels++].source = *kernel;
    t_pool *pool = t_pool_create(g.kernels > 1 ? t_usable_processors() : 1);
    t_pool_run(pool, make_some, NULL, NULL, NULL, 0, (int64_t)g.kernels);
    t_pool_destroy(pool);
    qsort(g.made, g.kernels, sizeof *g.made, by_name);
    return t_gpu_told(TORSHC_E_ARCH, "a kernel cannot be prepared");
}

/* ---- from the first model to the last ---- */

#define W_DROP(WHAT, RELEASE)                                                                                          \
    if (WHAT)                                                                                                          \
        w.RELEASE(WHAT);                                                                                               \
    WHAT = NULL

static void release(void) {
    for (size_t i = 0; i < g.kernels; i++) {
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
    g.lost = 0;
    t_gpu_forget();
}

/* A library that is unloaded must leave nothing behind that could call it: threads, and callbacks of a lost device. */
void t_gpu_close(void) {
    pthread_mutex_lock(&g.lock);
    if (--g.users == 0 && !g.held)
        release();
    pthread_mutex_unlock(&g.lock);
}

int t_gpu_open(void) {
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
