// The device layer (t_device.h) over the emulator: stands in for t_device.mm, call by call. Work is put off until
// somebody waits for it, as on a device, so that whoever forgets to wait gets what was there before.
//
//     T_EMULATE_DEVICES=n   how many devices there are, 1 unless said otherwise
//     T_EMULATE_MEMORY=n    bytes that each has
#include "t_device.h"

#include <stdlib.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "library.h"

namespace {

constexpr size_t page = 16384;
constexpr int most_buffers = 31;

long long setting(const char *name, long long otherwise)
{
    const char *text = getenv(name);
    return text && *text ? atoll(text) : otherwise;
}

// The kernels, loaded once for all models; runs of the emulator take turns.
struct Kernels {
    std::mutex turn;
    void *library = t_emulate_open_metallib();
    t_emulate_find_kernel *find = nullptr;
    t_emulate_dispatch_kernel *dispatch = nullptr;
    Kernels()
    {
        if (!library)
            return;
        find = (t_emulate_find_kernel *)dlsym(library, "t_emulate_find");
        dispatch = (t_emulate_dispatch_kernel *)dlsym(library, "t_emulate_dispatch");
    }
    ~Kernels()
    {
        if (library)
            dlclose(library);
    }
};
Kernels kernels;

}  // namespace

struct Memory {
    size_t bytes = 0;
    std::shared_ptr<void> held;
};

struct t_device {
    int ordinal = 0;
    std::mutex lock;  // of `memory`
    std::map<const unsigned char *, Memory> memory;
    size_t used = 0;
    std::vector<std::function<int()>> work;
    bool running = false;
    std::vector<uint64_t> marks;
};

static int finish(t_device *d)
{
    int status = TORSHC_OK;
    for (const auto &each : d->work)
        if (!status)
            status = each();
    d->work.clear();
    return status;
}

int t_device_open(int32_t ordinal, void *stream, t_device **device)
{
    const long long count = setting("T_EMULATE_DEVICES", 1);
    *device = nullptr;
    if (count <= 0)
        return t_fail(TORSHC_E_DRIVER, "no Metal device was found");
    if (ordinal < 0 || ordinal >= count)
        return t_fail(TORSHC_E_DEVICE, "there is no device %d; devices 0 to %d exist", (int)ordinal, (int)count - 1);
    if (stream)
        return t_fail(TORSHC_E_ARGUMENT, "the emulator has no command queues");
    *device = new t_device();
    (*device)->ordinal = ordinal;
    return TORSHC_OK;
}

void t_device_close(t_device *d)
{
    if (!d)
        return;
    delete d;
}

// ---- memory ----

// Bytes from an address to the end of the memory that it is in; 0: in none.
static size_t room(t_device *d, const void *at)
{
    const std::lock_guard<std::mutex> guard(d->lock);
    auto next = d->memory.upper_bound((const unsigned char *)at);
    if (next == d->memory.begin())
        return 0;
    --next;
    const size_t offset = (size_t)((const unsigned char *)at - next->first);
    return offset < next->second.bytes ? next->second.bytes - offset : 0;
}

int t_device_alloc(t_device *d, size_t bytes, const char *what, unsigned char **at)
{
    const std::lock_guard<std::mutex> guard(d->lock);
    const size_t all = (size_t)setting("T_EMULATE_MEMORY", 8ll << 30), left = d->used < all ? all - d->used : 0;
    void *memory = nullptr;
    *at = nullptr;
    if (bytes > left || posix_memalign(&memory, page, bytes ? bytes : 1))
        return t_fail(TORSHC_E_MEMORY, "device %d has no memory for %s: asked %zu bytes, free %zu of %zu", d->ordinal, what,
                      bytes, left, all);
    memset(memory, 0xff, bytes);
    *at = (unsigned char *)memory;
    d->memory[*at] = {bytes ? bytes : 1, {memory, free}};
    d->used += bytes;
    return TORSHC_OK;
}

void t_device_free(t_device *d, unsigned char *at)
{
    if (!d || !at)
        return;
    (void)finish(d);
    const std::lock_guard<std::mutex> guard(d->lock);
    const auto found = d->memory.find(at);
    if (found == d->memory.end())
        abort();
    d->used -= found->second.bytes;
    d->memory.erase(found);
}

int t_device_share(t_device *d, t_device *owner, unsigned char *at)
{
    const std::lock_guard<std::mutex> first(owner->lock), second(d->lock);
    d->memory[at] = owner->memory.at(at);
    d->used += d->memory[at].bytes;
    return TORSHC_OK;
}

int t_device_locate(t_device *d, const torshc_tensor *x, const char *what, int32_t i, t_span *span)
{
    span->at = (unsigned char *)x->data + x->byte_offset;
    if (room(d, span->at) < (span->bytes ? span->bytes : 1))
        return t_fail(TORSHC_E_DEVICE, "%s %d says it is on a Metal device, but its data is not in memory of torshc_alloc",
                      what, (int)i);
    return TORSHC_OK;
}

// ---- copies ----

int t_device_transfer(t_device *d, void *to, const void *from, size_t bytes)
{
    const int status = finish(d);
    if (!status)
        memcpy(to, from, bytes);
    return status;
}

int t_device_copy(t_device *d, t_way way, unsigned char *to, const unsigned char *from, size_t bytes)
{
    if (way != T_ACROSS)
        return t_device_transfer(d, to, from, bytes);
    if (room(d, to) < bytes || room(d, from) < bytes)
        return t_fail(TORSHC_E_DEVICE, "a copy on the device of data that is not on it");
    d->work.push_back([=] {
        memcpy(to, from, bytes);
        return (int)TORSHC_OK;
    });
    return d->running ? TORSHC_OK : finish(d);
}

int t_device_finish(t_device *d)
{
    return finish(d);
}

void t_device_drop(t_device *d)
{
    d->running = false;
    d->work.clear();
}

// ---- steps ----

int t_device_launch(t_device *d, const t_step *step)
{
    const void *kernel = kernels.find ? kernels.find(step->name) : nullptr;
    if (!kernel)
        return t_fail(TORSHC_E_ARCH, "step %d: the library has no kernel %.40s", (int)step->step, step->name);
    if (step->buffers + (step->dims > 0) > most_buffers)
        return t_fail(TORSHC_E_ARCH, "step %d has %d buffers", (int)step->step, (int)step->buffers);
    std::vector<void *> buffers;
    for (int32_t i = 0; i < step->buffers; i++)  // in no memory: an empty tensor
        buffers.push_back(room(d, step->buf[i]) ? step->buf[i] : nullptr);
    const std::vector<int64_t> dims(step->dim, step->dim + step->dims);
    const uint32_t blocks[3] = {(uint32_t)step->blocks, 1, 1}, threads[3] = {(uint32_t)step->threads, 1, 1};
    const int number = step->step;
    const std::string name = step->name;
    d->work.push_back([=] {
        const std::lock_guard<std::mutex> guard(kernels.turn);
        std::vector<void *> all = buffers;
        all.push_back((void *)dims.data());
        all.resize(most_buffers);
        const int status = kernels.dispatch(kernel, all.data(), nullptr, blocks, threads);
        return status ? t_fail(TORSHC_E_LAUNCH, "step %d (%s): the grid is not possible", number, name.c_str()) : TORSHC_OK;
    });
    return TORSHC_OK;
}

int t_device_begin(t_device *d, const int64_t *key, int32_t count, int *replayed)
{
    (void)key;
    (void)count;
    *replayed = 0;
    d->running = true;
    return TORSHC_OK;
}

int t_device_end(t_device *d, int status)
{
    d->running = false;
    if (status)
        d->work.clear();
    return status;
}

// ---- time ----

int t_device_mark(t_device *d, int32_t index)
{
    const int status = finish(d);
    d->marks.resize((size_t)index);
    d->marks.push_back(t_now());
    return status;
}

int t_device_elapsed(t_device *d, int32_t index, uint64_t *ns)
{
    *ns = d->marks[(size_t)index + 1] - d->marks[(size_t)index];
    return TORSHC_OK;
}
