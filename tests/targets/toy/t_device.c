/* The device layer of the toy: memory of its own, and work that is done at once. */
#include "t_device.h"

#include <stdlib.h>
#include <string.h>

struct t_device {
    int32_t open;
};

int t_device_open(int32_t ordinal, void *stream, t_device **device)
{
    *device = NULL;
    if (ordinal || stream)
        return t_fail(TORSHC_E_DEVICE, "there is one toy, number 0, and it has no streams");
    *device = calloc(1, sizeof **device);
    return *device ? TORSHC_OK : t_fail(TORSHC_E_MEMORY, "no memory for the toy");
}

void t_device_close(t_device *d) { free(d); }

int t_device_alloc(t_device *d, size_t bytes, const char *what, unsigned char **at)
{
    void *memory = NULL;
    (void)d;
    if (posix_memalign(&memory, 256, bytes ? bytes : 1))
        return t_fail(TORSHC_E_MEMORY, "the toy has no memory for %s: %zu bytes", what, bytes);
    *at = memory;
    return TORSHC_OK;
}

void t_device_free(t_device *d, unsigned char *at)
{
    (void)d;
    free(at);
}

int t_device_share(t_device *d, t_device *owner, unsigned char *at)
{
    (void)d, (void)owner, (void)at;
    return TORSHC_OK;
}

int t_device_locate(t_device *d, const torshc_tensor *x, const char *what, int32_t i, t_span *span)
{
    (void)d, (void)what, (void)i;
    span->at = (unsigned char *)x->data + x->byte_offset;
    return TORSHC_OK;
}

int t_device_transfer(t_device *d, void *to, const void *from, size_t bytes)
{
    (void)d;
    memcpy(to, from, bytes);
    return TORSHC_OK;
}

int t_device_copy(t_device *d, t_way way, unsigned char *to, const unsigned char *from, size_t bytes)
{
    (void)way;
    return t_device_transfer(d, to, from, bytes);
}

int t_device_launch(t_device *d, const t_step *step)
{
    (void)d;
    if (step->launcher(step->buf, step->dim, step->blocks, NULL))
        return t_fail(TORSHC_E_LAUNCH, "%s failed", step->name);
    return TORSHC_OK;
}

int t_device_begin(t_device *d, const int64_t *key, int32_t count, int *replayed)
{
    (void)d, (void)key, (void)count;
    *replayed = 0;
    return TORSHC_OK;
}

int t_device_end(t_device *d, int status)
{
    (void)d;
    return status;
}

int t_device_finish(t_device *d)
{
    (void)d;
    return TORSHC_OK;
}

void t_device_drop(t_device *d) { (void)d; }

int t_device_mark(t_device *d, int32_t index)
{
    (void)d, (void)index;
    return TORSHC_OK;
}

int t_device_elapsed(t_device *d, int32_t index, uint64_t *ns)
{
    (void)d, (void)index;
    *ns = 1;
    return TORSHC_OK;
}
