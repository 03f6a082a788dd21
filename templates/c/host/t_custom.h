/* What generated code does around a function of a user's operator (torshc_op.h). */
#ifndef T_CUSTOM_H
#define T_CUSTOM_H

#include <string.h>

#include "torshc_op.h"

enum { T_ATTRIBUTES_MAX = 32 };

/* What a function says went wrong, from whichever thread is first; the host program looks at it behind the launch. */
typedef struct {
    int32_t status;
    char message[TORSHC_OP_MESSAGE];
} t_fault;

/* Attributes as words: how many there are, then of each its kind, count and number of words, and these. Returns how many
 * there are. */
static inline int32_t t_read_attributes(const int64_t *n, torshc_op_attribute *to) {
    const int32_t count = (int32_t)*n++;
    for (int32_t k = 0; k < count; k++, n += 3 + n[2]) {
        to[k].kind = (int32_t)n[0];
        to[k].count = n[1];
        to[k].ints = n[0] == TORSHC_OP_INTS ? n + 3 : NULL;
        to[k].floats = n[0] == TORSHC_OP_FLOATS ? (const double *)(const void *)(n + 3) : NULL;
        to[k].text = n[0] == TORSHC_OP_TEXTS ? (const char *)(const void *)(n + 3) : NULL;
    }
    return count;
}

static inline torshc_tensor t_custom_tensor(void *data, int32_t device, int32_t code, int32_t bits, int32_t ndim,
                                            const int64_t *shape) {
    torshc_tensor x;
    memset(&x, 0, sizeof x);
    x.data = data;
    x.device.type = device;
    x.ndim = ndim;
    x.dtype.code = (uint8_t)code;
    x.dtype.bits = (uint8_t)bits;
    x.dtype.lanes = 1;
    x.shape = (int64_t *)(uintptr_t)shape;
    return x;
}

static inline void t_note_fault(t_fault *fault, int status, const torshc_op *op) {
    int32_t none = 0;
    if (!status)
        return;
    if (__atomic_compare_exchange_n(&fault->status, &none, -1, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
        memcpy(fault->message, op->message, sizeof fault->message);
        if (!fault->message[0])
            snprintf(fault->message, sizeof fault->message, "its function returned status %d", status);
        __atomic_store_n(&fault->status, status, __ATOMIC_RELEASE);
    }
}

#endif
