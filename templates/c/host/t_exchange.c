/* Weights of an open model, and others in their place while it runs.
 *
 * Weights are counted: a run keeps those that it began with, whatever is exchanged meanwhile. What a context has it gives
 * back when its next run finds newer ones.
 */
#include "t_model.h"

#include <stdlib.h>

#define P (t_the_program())

void t_drop_weights(t_weights *weights)
{
    if (!weights || atomic_fetch_sub(&weights->users, 1) != 1)
        return;
    t_close_weights(&weights->file);
    free(weights);
}

void t_take_weights(t_model *head)
{
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

static t_weights *make(void)
{
    t_weights *weights = calloc(1, sizeof *weights);
    if (weights)
        weights->users = 1;
    else
        (void)t_fail(TORSHC_E_MEMORY, "no memory for the weights");
    return weights;
}

int t_first_weights(t_shared *shared, const char *path)
{
    t_weights *weights = make();
    if (!weights)
        return TORSHC_E_MEMORY;
    shared->weights = weights;
    return t_open_weights(&weights->file, path);
}

/* The weights of all runs that begin from now on. */
static void exchange(t_model *head, t_weights *weights)
{
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

static int check_exchangeable(void)
{
    const char *why = P->device != TORSHC_CPU ? "this library is for a GPU"
                      : P->script             ? "the model's sizes or steps are known only at run time"
                      : P->embedded           ? "the weights are inside this library"
                      : !P->weights_bytes     ? "the model has no weights"
                                              : NULL;
    return why ? t_fail(TORSHC_E_UNSUPPORTED, "torshc_set_weights: %s; compile it with the new weights", why)
               : TORSHC_OK;
}

int torshc_set_weights(torshc_model *m, const char *path)
{
    int status = t_check_alive(m, "torshc_set_weights");
    if (status || (status = check_exchangeable()))
        return status;
    t_weights *weights = make();
    if (!weights)
        return TORSHC_E_MEMORY;
    status = t_open_weights(&weights->file, path);
    if (status)
        t_drop_weights(weights);
    else
        exchange((t_model *)m, weights);
    return status;
}
