/* Weights of an open model, and others in their place while it runs.
 *
 * Weights are counted: a run keeps those that it began with, whatever is exchanged meanwhile. What a context has it gives
 * back when its next run finds newer ones.
 */
#include "t_model.h"

#include <stdio.h>
#include <stdlib.h>

#define P (t_the_program())

void t_drop_weights(t_weights *weights) {
    if (!weights || atomic_fetch_sub(&weights->users, 1) != 1)
        return;
    t_close_weights(&weights->file);
    free(weights);
}

void t_take_weights(t_model *head) {
    t_shared *shared = head->shared;
    /* Those that it has cannot be freed and come again at the same address. */
    if (atomic_load_explicit(&shared->weights, memory_order_acquire) == head->weights)
        return;
    t_drop_weights(head->weights);
    pthread_mutex_lock(&shared->lock);
    head->weights = atomic_load(&shared->weights);
    atomic_fetch_add(&head->weights->users, 1);
    pthread_mutex_unlock(&shared->lock);
}

static t_weights *make(void) {
    t_weights *weights = calloc(1, sizeof *weights);
    if (weights)
        weights->users = 1;
    else
        (void)t_fail(TORSHC_E_MEMORY, "no memory for the weights");
    return weights;
}

int t_first_weights(t_shared *shared, const char *path) {
    t_weights *weights = make();
    if (!weights)
        return TORSHC_E_MEMORY;
    shared->weights = weights;
    return t_open_weights(&weights->file, path);
}

/* The weights of all runs that begin from now on. */
static void exchange(t_model *head, t_weights *weights) {
    t_shared *shared = head->shared;
    pthread_mutex_lock(&shared->lock);
    t_weights *had = atomic_exchange(&shared->weights, weights);
    pthread_mutex_unlock(&shared->lock);
    t_drop_weights(had);
    if (!pthread_mutex_trylock(&head->lock)) { /* an idle model does not keep the old ones until its next run */
        t_take_weights(head);
        pthread_mutex_unlock(&head->lock);
    }
}

static int check_exchangeable(void) {
    if (P->state_count)
        return t_fail(TORSHC_E_UNSUPPORTED,
                      "torshc_set_weights: the library trains its weights: load others with torshc_state_load");
    const char *why = P->device != TORSHC_CPU ? "this library is for a GPU"
                      : P->script             ? "the model's sizes or steps are known only at run time"
                      : P->embedded           ? "the weights are inside this library"
                      : !P->weights_bytes     ? "the model has no weights"
                                              : NULL;
    return why ? t_fail(TORSHC_E_UNSUPPORTED, "torshc_set_weights: %s; compile it with the new weights", why)
               : TORSHC_OK;
}

int torshc_set_weights(torshc_model *m, const char *path) {
    int status = t_check_alive(m, "torshc_set_weights");
    if (status || (status = check_exchangeable()))
        return status;
    t_weights *weights = make();
    if (!weights)
        return TORSHC_E_MEMORY;
    status = t_open_weights(&weights->file, path);
    if (status)
        t_drop_weights(weights);
    else {
        t_shared *shared = ((t_model *)m)->shared;
        pthread_mutex_lock(&shared->exchanging);
        exchange((t_model *)m, weights);
        pthread_mutex_unlock(&shared->exchanging);
    }
    return status;
}

/* ---- by name ---- */

static const t_named *find(const char *name) {
    for (int32_t i = 0; i < P->named_count; i++)
        if (!strcmp(P->named[i].port.name, name))
            return &P->named[i];
    return NULL;
}

static int check_tensor(const torshc_tensor *x, const t_named *named, int32_t number) {
    int status = t_check_form(x, &named->port, "tensor", number);
    t_span span;
    if (!status && x->device.type != TORSHC_CPU)
        return t_fail(TORSHC_E_DEVICE, "tensor %d is not in the processor's memory", (int)number);
    for (int32_t d = 0; !status && d < x->ndim; d++)
        if (x->shape[d] != named->port.dims[d])
            return t_fail(TORSHC_E_SHAPE, "tensor %d, dimension %d is %lld; expected %lld", (int)number, (int)d,
                          (long long)x->shape[d], (long long)named->port.dims[d]);
    return status ? status : t_locate(x, "tensor", number, &span);
}

/* Puts the weight's name before the message. */
static int fail_at(const char *name, int status) {
    char message[512];
    snprintf(message, sizeof message, "%s", torshc_last_error());
    return t_fail(status, "torshc_set_tensors: weight %.200s: %s", name, message);
}

static int check_named(const torshc_named_tensor *tensors, size_t count, size_t k) {
    const char *name = tensors[k].name;
    if (!name || !tensors[k].tensor)
        return t_fail(TORSHC_E_NULL, "torshc_set_tensors: tensor %zu has no %s", k, name ? "tensor" : "name");
    const t_named *named = find(name);
    if (!named)
        return t_fail(TORSHC_E_NAME, "torshc_set_tensors: the model has no weight %.200s", name);
    for (size_t i = k + 1; i < count; i++)
        if (tensors[i].name && !strcmp(tensors[i].name, name))
            return t_fail(TORSHC_E_ARGUMENT, "torshc_set_tensors: weight %.200s is given twice", name);
    if (named->why)
        return t_fail(TORSHC_E_UNSUPPORTED,
                      "torshc_set_tensors: weight %.200s is not in the library as it is: %s; exchange it with torshc "
                      "weights, or compile the model with it",
                      name, named->why);
    const int status = check_tensor(tensors[k].tensor, named, (int32_t)k);
    return status ? fail_at(name, status) : TORSHC_OK;
}

static inline void copy_element(unsigned char *to, const unsigned char *from, size_t size) {
    switch (size) { /* sizes that the compiler knows */
    case 2:
        memcpy(to, from, 2);
        return;
    case 4:
        memcpy(to, from, 4);
        return;
    default:
        memcpy(to, from, 8);
    }
}

/* The loops of a copy: the innermost by itself, those around it as one count with carries. */
static void copy_elements(const t_copy *copy, const unsigned char *from, unsigned char *to, size_t size) {
    static const t_loop once = {1, 0, 0};
    const t_loop *loop = &P->loops[copy->first], *inner = copy->loops ? &loop[copy->loops - 1] : &once;
    int64_t round[T_LOOPS_MAX] = {0}, at = copy->from, place = copy->to;
    for (;;) {
        for (int64_t i = 0; i < inner->count; i++)
            copy_element(to + (size_t)(place + i * inner->to) * size, from + (size_t)(at + i * inner->from) * size,
                         size);
        int32_t k = copy->loops - 2;
        for (; k >= 0; k--) {
            at += loop[k].from;
            place += loop[k].to;
            if (++round[k] < loop[k].count)
                break;
            at -= loop[k].count * loop[k].from;
            place -= loop[k].count * loop[k].to;
            round[k] = 0;
        }
        if (k < 0)
            return;
    }
}

static void put(const torshc_named_tensor *given, unsigned char *weights) {
    const t_named *named = find(given->name);
    const unsigned char *from = (const unsigned char *)given->tensor->data + given->tensor->byte_offset;
    for (int32_t i = 0; i < named->copies; i++)
        copy_elements(&P->copies[named->first + i], from, weights, named->port.dtype.bits / 8);
}

/* From the newest weights, which nobody else exchanges meanwhile. */
static int exchange_tensors(t_model *head, const torshc_named_tensor *tensors, size_t count) {
    t_weights *weights = make(), *had;
    int status = weights ? TORSHC_OK : TORSHC_E_MEMORY;
    pthread_mutex_lock(&head->shared->exchanging);
    had = atomic_load(&head->shared->weights);
    if (!status && !(status = t_copy_weights(&weights->file, &had->file))) {
        for (size_t k = 0; k < count; k++)
            put(&tensors[k], weights->file.at);
        t_keep_weights(&weights->file);
        exchange(head, weights);
    }
    pthread_mutex_unlock(&head->shared->exchanging);
    if (status)
        t_drop_weights(weights);
    return status;
}

int torshc_set_tensors(torshc_model *m, const torshc_named_tensor *tensors, size_t count) {
    int status = t_check_alive(m, "torshc_set_tensors");
    if (status)
        return status;
    if (!P->named_count)
        return t_fail(TORSHC_E_UNSUPPORTED,
                      "torshc_set_tensors: the library was compiled without --named-weights, or has no weights");
    if (count && !tensors)
        return t_fail(TORSHC_E_ARGUMENT, "torshc_set_tensors: tensors is NULL");
    for (size_t k = 0; k < count; k++)
        if ((status = check_named(tensors, count, k)))
            return status;
    return count ? exchange_tensors((t_model *)m, tensors, count) : TORSHC_OK;
}
