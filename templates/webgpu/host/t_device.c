/* The device layer (t_device.h) over a library of webgpu.h: the stream of work, memory, copies, steps and time.
 *
 * Addresses of the device are numbers of ours, ranges of which stand for buffers: the upper bits have the number of the
 * buffer, and all are above those of the processor. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "t_gpu.h"

struct t_device {
    w_object encoder, pass; /* being filled, and what is open in it */
    uint32_t used;          /* of g.sizes by what is in the encoder */
    char last[48];          /* the kernel that was launched last */
};

int t_device_open(int32_t ordinal, void *stream, t_device **device) {
    *device = NULL;
    if (ordinal)
        return t_fail(TORSHC_E_DEVICE, "there is no device %d of WebGPU, only device 0", (int)ordinal);
    if (stream)
        return t_fail(TORSHC_E_ARGUMENT, "WebGPU has no streams");
    const int status = t_gpu_open();
    if (status)
        return status;
    if ((*device = calloc(1, sizeof **device)))
        return TORSHC_OK;
    t_gpu_close();
    return t_fail(TORSHC_E_MEMORY, "no memory for a device");
}

/* ---- the stream of work ---- */

static void end_pass(t_device *d) {
    if (d->pass) {
        w.ComputePassEncoderEnd(d->pass);
        w.ComputePassEncoderRelease(d->pass);
    }
    d->pass = NULL;
}

/* Ends what is encoded, and gives it to the queue unless it is not wanted. */
static void end_commands(t_device *d, int wanted) {
    end_pass(d);
    if (d->encoder) {
        w_object commands = wanted && !g.lost ? w.CommandEncoderFinish(d->encoder, NULL) : NULL;
        if (commands) {
            w.QueueSubmit(g.queue, 1, &commands);
            w.CommandBufferRelease(commands);
        }
        w.CommandEncoderRelease(d->encoder);
    }
    d->encoder = NULL;
    d->used = 0;
}

static void commit(t_device *d) { end_commands(d, 1); }

static w_object encoder(t_device *d) {
    if (!d->encoder)
        d->encoder = w.DeviceCreateCommandEncoder(g.device, NULL);
    return d->encoder;
}

int t_device_finish(t_device *d) {
    char what[80];
    commit(d);
    w.DevicePoll(g.device, 1, NULL);
    snprintf(what, sizeof what, "WebGPU%s%s", *d->last ? ", at or before kernel " : "", d->last);
    return t_gpu_told(TORSHC_E_LAUNCH, what);
}

void t_device_drop(t_device *d) {
    end_commands(d, 0);
    w.DevicePoll(g.device, 1, NULL);
    t_gpu_forget();
}

void t_device_close(t_device *d) {
    if (!d)
        return;
    t_device_drop(d);
    free(d);
    t_gpu_close();
}

/* ---- memory ---- */

/* What is left of a buffer from an address on; NULL: the address is in none. */
typedef struct {
    w_object buffer;
    uint64_t offset, rest;
} t_place;

enum { NUMBER = 40 };
static const uintptr_t FIRST = (uintptr_t)1 << 62;

static t_place find(const void *at) {
    const uintptr_t place = (uintptr_t)at - FIRST, number = place >> NUMBER;
    const uint64_t offset = place - (number << NUMBER);
    t_place found = {NULL, 0, 0};
    pthread_mutex_lock(&g.lock);
    if (number < g.blocks && offset < g.block[number].bytes)
        found = (t_place){g.block[number].buffer, offset, g.block[number].bytes - offset};
    pthread_mutex_unlock(&g.lock);
    return found;
}

/* Holds a buffer by a number: one that was given back, or a new one. NULL: no memory. */
static unsigned char *hold(w_object buffer, size_t bytes) {
    size_t number = 0;
    while (number < g.blocks && g.block[number].buffer)
        number++;
    t_block *more = number < g.blocks ? g.block : realloc(g.block, (number + 1) * sizeof *more);
    if (!more)
        return NULL;
    g.block = more;
    g.blocks += number == g.blocks;
    g.block[number] = (t_block){buffer, bytes};
    g.held++;
    return (unsigned char *)(FIRST + (number << NUMBER));
}

int t_device_alloc(t_device *d, size_t bytes, const char *what, unsigned char **at) {
    (void)d;
    const size_t whole = bytes < T_BIND ? T_BIND : (bytes + T_BIND - 1) / T_BIND * T_BIND;
    const int fits = bytes <= whole && whole <= g.limits.buffer_bytes;
    *at = NULL;
    pthread_mutex_lock(&g.lock);
    w_object buffer = fits ? t_gpu_buffer(W_STORAGE | W_COPY_FROM | W_COPY_TO, whole) : NULL;
    int status = t_gpu_told(TORSHC_E_MEMORY, what);
    if (!status && !(buffer && (*at = hold(buffer, whole))))
        status = t_fail(TORSHC_E_MEMORY, "no memory for %s: asked %zu bytes; a buffer of this adapter has %llu at most",
                        what, bytes, (unsigned long long)g.limits.buffer_bytes);
    if (status && buffer)
        w.BufferRelease(buffer);
    pthread_mutex_unlock(&g.lock);
    return status;
}

void t_device_free(t_device *d, unsigned char *at) {
    if (!d || !at)
        return;
    commit(d);
    const uintptr_t number = ((uintptr_t)at - FIRST) >> NUMBER;
    pthread_mutex_lock(&g.lock);
    if (number < g.blocks && g.block[number].buffer) {
        w.BufferRelease(g.block[number].buffer); /* work that is on its way holds it */
        g.block[number] = (t_block){NULL, 0};
        g.held--;
    }
    pthread_mutex_unlock(&g.lock);
}

int t_device_share(t_device *d, t_device *owner, unsigned char *at) {
    (void)d, (void)owner, (void)at; /* one device has them all */
    return TORSHC_OK;
}

int t_device_locate(t_device *d, const torshc_tensor *x, const char *what, int32_t i, t_span *span) {
    (void)d;
    span->at = (unsigned char *)x->data + x->byte_offset;
    const t_place place = find(span->at);
    if (!place.buffer || span->bytes > place.rest || place.offset % T_BIND)
        return t_fail(TORSHC_E_DEVICE,
                      "%s %d says it is on WebGPU's device, but its data is not in memory of torshc_alloc, "
                      "at a multiple of %d bytes",
                      what, (int)i, T_BIND);
    return TORSHC_OK;
}

/* ---- copies ---- */

static void on_mapped(uint32_t status, w_text message, void *user, void *more) {
    (void)more;
    *(int *)user = status == W_SUCCESS ? 1 : -1;
    if (status != W_SUCCESS)
        t_gpu_note(message, 0);
}

/* Reads from a buffer; waits. */
static int read_back(t_device *d, unsigned char *to, const t_place *place, size_t bytes) {
    const size_t first = place->offset % T_COPY, whole = (first + bytes + T_COPY - 1) / T_COPY * T_COPY;
    int done = 0;
    w_object here = t_gpu_buffer(W_MAP_READ | W_COPY_TO, whole);
    if (!here)
        return t_fail(TORSHC_E_MEMORY, "no memory to read %zu bytes from the device", bytes);
    end_pass(d);
    w.CommandEncoderCopyBufferToBuffer(encoder(d), place->buffer, place->offset - first, here, 0, whole);
    commit(d);
    w.BufferMapAsync(here, W_READ, 0, whole, (w_mapped){NULL, W_SPONTANEOUS, on_mapped, &done, NULL});
    while (!done)
        w.DevicePoll(g.device, 1, NULL);
    const unsigned char *from = done > 0 ? w.BufferGetConstMappedRange(here, 0, whole) : NULL;
    if (from)
        memcpy(to, from + first, bytes);
    w.BufferUnmap(here);
    w.BufferRelease(here);
    const int status = t_device_finish(d);
    return status || from ? status : t_fail(TORSHC_E_LAUNCH, "WebGPU cannot read memory of the device");
}

/* Writes less than whole words of a buffer, or what is on the device too: with the rest of the words, which it reads. */
static int write_within(t_device *d, const t_place *to, const unsigned char *from, size_t bytes) {
    const t_place source = find(from);
    const size_t first = to->offset % T_COPY, whole = (first + bytes + T_COPY - 1) / T_COPY * T_COPY;
    const t_place words = {to->buffer, to->offset - first, whole};
    unsigned char *kept = malloc(whole);
    if (!kept)
        return t_fail(TORSHC_E_MEMORY, "no memory to copy %zu bytes", bytes);
    int status = read_back(d, kept, &words, whole);
    if (!status && source.buffer)
        status = read_back(d, kept + first, &source, bytes);
    else if (!status)
        memcpy(kept + first, from, bytes);
    if (!status)
        w.QueueWriteBuffer(g.queue, words.buffer, words.offset, kept, whole);
    free(kept);
    return status;
}

/* Addresses say by themselves which way it is. */
int t_device_copy(t_device *d, t_way way, unsigned char *to, const unsigned char *from, size_t bytes) {
    (void)way;
    const t_place a = find(from);
    t_place b = find(to);
    if (!bytes)
        return TORSHC_OK;
    if (!a.buffer && !b.buffer)
        return t_fail(TORSHC_E_DEVICE, "neither end of a copy is on WebGPU's device");
    if (!b.buffer)
        return read_back(d, to, &a, bytes);
    if (a.buffer && a.buffer != b.buffer && !((a.offset | b.offset | bytes) % T_COPY)) {
        end_pass(d);
        w.CommandEncoderCopyBufferToBuffer(encoder(d), a.buffer, a.offset, b.buffer, b.offset, bytes);
        return TORSHC_OK;
    }
    commit(d);
    const size_t body = a.buffer || b.offset % T_COPY ? 0 : bytes / T_COPY * T_COPY;
    if (body)
        w.QueueWriteBuffer(g.queue, b.buffer, b.offset, from, body);
    b.offset += body;
    return body == bytes ? TORSHC_OK : write_within(d, &b, from + body, bytes - body);
}

int t_device_transfer(t_device *d, void *to, const void *from, size_t bytes) {
    const int status = t_device_copy(d, T_ACROSS, to, from, bytes);
    return status ? status : t_device_finish(d);
}

/* ---- steps ---- */

/* The sizes that a kernel gets, after its number of blocks, in a place of their own. */
static int give_sizes(t_device *d, const t_step *step, w_entry *entry) {
    int32_t words[(step->dims + 4) / 4 * 4];
    memset(words, 0, sizeof words);
    words[0] = (int32_t)step->blocks;
    for (int32_t i = 0; i < step->dims; i++) {
        if (step->dim[i] < INT32_MIN || step->dim[i] > INT32_MAX)
            return t_fail(TORSHC_E_SIZE, "step %d (%.40s): size %d is %lld, which 32 bits do not hold", (int)step->step,
                          step->name, (int)i, (long long)step->dim[i]);
        words[i + 1] = (int32_t)step->dim[i];
    }
    const uint32_t whole = (uint32_t)((sizeof words + T_BIND - 1) / T_BIND * T_BIND);
    if (d->used + whole > T_SIZES)
        commit(d);
    w.QueueWriteBuffer(g.queue, g.sizes, d->used, words, sizeof words);
    *entry = (w_entry){.binding = (uint32_t)step->buffers, .buffer = g.sizes, .offset = d->used, .size = sizeof words};
    d->used += whole;
    return TORSHC_OK;
}

/* Binds what kernels see from an address on, as far as a binding may reach; an empty tensor, which is never read, to
 * memory of ours. */
static int bind(const t_step *step, int32_t i, w_entry *entry) {
    const t_place place = find(step->buf[i]);
    const uint64_t need = (uint64_t)step->spans[i], size = (need + T_COPY - 1) / T_COPY * T_COPY;
    const uint64_t most = g.limits.storage_bytes / T_COPY * T_COPY;
    if (place.buffer && need > most)
        return t_fail(TORSHC_E_SIZE, "step %d (%.40s): argument %d has %llu bytes; this adapter binds %llu at most",
                      (int)step->step, step->name, (int)i, (unsigned long long)need, (unsigned long long)most);
    const uint64_t reach = size < T_COPY ? T_COPY : size > place.rest ? place.rest : size;
    *entry = place.buffer
                 ? (w_entry){.binding = (uint32_t)i, .buffer = place.buffer, .offset = place.offset, .size = reach}
                 : (w_entry){.binding = (uint32_t)i, .buffer = g.empty, .offset = T_BIND * (uint64_t)i, .size = T_BIND};
    return TORSHC_OK;
}

int t_device_launch(t_device *d, const t_step *step) {
    w_entry entry[step->buffers + 1];
    const t_made *made = t_gpu_made(step->name);
    int status;
    size_t count = 0;
    for (int32_t i = 0; i < step->buffers; i++)
        if (step->spans[i] >= 0 && (status = bind(step, i, &entry[count++])))
            return status;
    if (step->spans[step->buffers] >= 0 && (status = give_sizes(d, step, &entry[count++])))
        return status;
    w_object group =
        w.DeviceCreateBindGroup(g.device, &(w_group_options){.layout = made->layout, .entries = count, .entry = entry});
    if (!d->pass)
        d->pass = w.CommandEncoderBeginComputePass(encoder(d), NULL);
    if (!group || !d->pass)
        return (status = t_gpu_told(TORSHC_E_LAUNCH, step->name)) ? status : TORSHC_E_LAUNCH;
    const uint32_t x = (uint32_t)(step->blocks < T_BLOCKS ? step->blocks : T_BLOCKS);
    w.ComputePassEncoderSetPipeline(d->pass, made->pipeline);
    w.ComputePassEncoderSetBindGroup(d->pass, 0, group, 0, NULL);
    w.ComputePassEncoderDispatchWorkgroups(d->pass, x, (uint32_t)((step->blocks + x - 1) / x), 1);
    w.BindGroupRelease(group);
    snprintf(d->last, sizeof d->last, "%.40s", step->name);
    return TORSHC_OK;
}

/* Encoding is cheap, so runs are not recorded. wgpu-native ends the process where a lost device is given work. */
int t_device_begin(t_device *d, const int64_t *key, int32_t count, int *replayed) {
    (void)d, (void)key, (void)count;
    *replayed = 0;
    return g.lost ? t_gpu_told(TORSHC_E_LAUNCH, "WebGPU") : TORSHC_OK;
}

int t_device_end(t_device *d, int status) {
    if (status)
        t_device_drop(d);
    else
        commit(d);
    return status;
}

/* ---- time: a mark waits for what is before it ---- */

int t_device_mark(t_device *d, int32_t index) {
    (void)index;
    return t_device_finish(d);
}

int t_device_elapsed(t_device *d, int32_t index, uint64_t *ns) {
    (void)d, (void)index, (void)ns; /* as the processor's clock has it */
    return TORSHC_OK;
}
