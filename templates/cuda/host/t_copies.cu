// Copies of the device layer in CUDA.
#include "t_card.h"

// Waits for a slot and gives a download to whom it belongs.
static int settle(t_device *d, t_slot *slot) {
    if (!slot->busy)
        return TORSHC_OK;
    const int status = t_wait_for_event(d, slot->done, "a kernel or copy of this run");
    slot->busy = false;
    if (status)
        return status;
    if (slot->to)
        memcpy(slot->to, slot->pinned, slot->bytes);
    return TORSHC_OK;
}

static int check_staging(t_device *d) {
    if (int status = t_check_lost(d))
        return status;
    if (t_is_captured(d))
        return t_fail(TORSHC_E_ARGUMENT, "the stream is being captured, which needs all tensors on the device");
    return TORSHC_OK;
}

// One piece, of at most SLOT_BYTES, up (`to` is on the device) or down.
static int move_piece(t_device *d, unsigned char *to, const unsigned char *from, size_t bytes, bool up) {
    t_slot *slot = &d->slots[d->next++ % SLOTS];
    if (int status = settle(d, slot))
        return status;
    if (up)
        memcpy(slot->pinned, from, bytes);
    cudaError_t error = up ? cudaMemcpyAsync(to, slot->pinned, bytes, cudaMemcpyHostToDevice, d->stream)
                           : cudaMemcpyAsync(slot->pinned, from, bytes, cudaMemcpyDeviceToHost, d->stream);
    if (error == cudaSuccess)
        error = cudaEventRecord(slot->done, d->stream);
    if (int status = t_check_call(d, error, up ? "copying to the device" : "copying from the device"))
        return status;
    slot->busy = true;
    slot->to = up ? nullptr : to;
    slot->bytes = bytes;
    return TORSHC_OK;
}

static int move(t_device *d, unsigned char *to, const unsigned char *from, size_t bytes, bool up) {
    int status = check_staging(d);
    for (size_t at = 0; at < bytes && !status; at += SLOT_BYTES)
        status = move_piece(d, to + at, from + at, bytes - at < SLOT_BYTES ? bytes - at : SLOT_BYTES, up);
    return status;
}

int t_device_copy(t_device *d, t_way way, unsigned char *to, const unsigned char *from, size_t bytes) {
    t_current current(d->ordinal);
    if (way != T_ACROSS)
        return move(d, to, from, bytes, way == T_UP);
    if (int status = t_check_lost(d))
        return status;
    const cudaError_t error = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, d->target);
    return t_check_call(d, error, "copying on the device");
}

int t_device_transfer(t_device *d, void *to, const void *from, size_t bytes) {
    t_current current(d->ordinal);
    if (int status = t_device_finish(d))
        return status;
    cudaError_t error = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, d->stream);
    if (error != cudaSuccess)
        return t_check_call(d, error, "copying");
    return t_wait_for_stream(d, "copying");
}

void t_device_drop(t_device *d) {
    t_current current(d->ordinal);
    if (!t_is_captured(d) && !d->given_up)
        (void)cudaStreamSynchronize(d->stream);
    (void)cudaGetLastError();
    for (int i = 0; i < SLOTS; i++)
        d->slots[i].busy = false;
}

int t_device_finish(t_device *d) {
    t_current current(d->ordinal);
    int status = check_staging(d);
    if (!status)
        status = t_wait_for_stream(d, "a kernel of this run (CUDA_LAUNCH_BLOCKING=1 shows which)");
    for (int i = 0; i < SLOTS && !status; i++)
        status = settle(d, &d->slots[(d->next + (unsigned)i) % SLOTS]);
    if (status)
        t_device_drop(d);
    return status;
}
