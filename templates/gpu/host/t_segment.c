/* Segments and values of a script in a library for a device: values lie on the processor, and have a copy on the device
 * once a segment there has read or written them. */
#include "t_frame.h"
#include "t_gpu_model.h"

#define P (t_the_program())

static size_t bytes_of(const t_value *v) { return (size_t)(t_count(v) * t_element_bytes(v->dtype)); }

/* ---- values ---- */

/* Memory on the device for what a block holds. */
static int reserve(t_frame *f, t_block *block) {
    if (block->copy)
        return TORSHC_OK;
    return t_device_alloc(f->with->model->device, block->bytes ? block->bytes : T_ALIGN, "a value", &block->copy);
}

/* Where a segment on the device reads a value: a constant among the weights there, another in its block's copy. */
static int send(t_frame *f, const t_value *v, unsigned char **at) {
    t_block *block = v->block;
    if (!block && bytes_of(v)) {
        *at = f->with->weights + ((unsigned char *)v->data - f->weights);
        return TORSHC_OK;
    }
    if (!block) {
        *at = f->with->model->arena.at; /* an empty tensor, which is never read */
        return TORSHC_OK;
    }
    T_TRY(reserve(f, block));
    *at = block->copy;
    if (block->newest != T_HERE)
        return TORSHC_OK;
    T_TRY(t_device_copy(f->with->model->device, T_UP, block->copy, v->data, bytes_of(v)));
    block->newest = T_BOTH;
    return TORSHC_OK;
}

int t_fetch(t_frame *f, const t_value *v) {
    t_block *block = v->block;
    torshc_model *m = f->with->model;
    if (v->ndim < 0)
        return TORSHC_OK;
    for (int64_t i = 0; t_is_nested(v->dtype) && i < t_count(v); i++)
        T_TRY(t_fetch(f, &t_values(v)[i]));
    if (!block || block->newest != T_AWAY)
        return TORSHC_OK;
    T_TRY(t_device_copy(m->device, T_DOWN, v->data, block->copy, bytes_of(v)));
    T_TRY(t_device_finish(m->device));
    block->newest = T_BOTH;
    return TORSHC_OK;
}

t_pool *t_threads(const t_frame *f) { return f->with->model->head.pool; }

int t_find(t_frame *f, const torshc_tensor *x, const char *what, int32_t i, t_span *span) {
    return t_locate_on(f->with->model, x, what, i, span);
}

int t_borrow(t_frame *f, t_value *v, const torshc_tensor *x, unsigned char *at) {
    const size_t bytes = bytes_of(v);
    if (!bytes)
        return TORSHC_OK;
    v->block = t_take(f, bytes); /* for its copy; the elements stay with the caller */
    if (!v->block)
        return TORSHC_E_MEMORY;
    if (x->device.type != P->device)
        return TORSHC_OK;
    T_TRY(reserve(f, v->block));
    T_TRY(t_device_copy(f->with->model->device, T_ACROSS, v->block->copy, at, bytes));
    v->data = v->block->data;
    v->block->newest = T_AWAY;
    return TORSHC_OK;
}

int t_deliver(t_frame *f, const t_value *v, const torshc_tensor *x, unsigned char *at) {
    torshc_model *m = f->with->model;
    const int is_away = v->block && v->block->newest != T_HERE;
    if (x->device.type == P->device && is_away)
        return t_device_copy(m->device, T_ACROSS, at, v->block->copy, bytes_of(v));
    if (x->device.type == P->device)
        return t_device_copy(m->device, T_UP, at, v->data, bytes_of(v));
    T_TRY(t_fetch(f, v));
    memcpy(at, v->data, bytes_of(v));
    return TORSHC_OK;
}

void t_free_copy(t_frame *f, unsigned char *copy) { t_device_free(f->with->model->device, copy); }

/* ---- segments ---- */

static int run_here(t_frame *f, const t_program *segment, const int32_t *in, const int32_t *out) {
    torshc_model *m = f->with->model;
    const size_t arena = t_round_up(segment->arena(f->symbols)), scratch = t_round_up(segment->scratch(f->symbols));
    unsigned char **at = f->at;
    for (int32_t k = 0; k < segment->inputs; k++) {
        T_TRY(t_fetch(f, &f->slot[in[k]]));
        at[k] = f->slot[in[k]].data;
    }
    for (int32_t k = 0; k < segment->outputs; k++)
        at[segment->inputs + k] = f->slot[out[k]].data;
    T_TRY(t_grow_work(f, arena + (size_t)m->head.threads * scratch + T_ALIGN)); /* see t_nothing */
    const t_run run = {at, at + segment->inputs, f->weights, NULL, f->work, f->work + arena, m, NULL, NULL};
    return segment->run(&run, f->symbols);
}

static int run_away(t_frame *f, const t_program *segment, const int32_t *in, const int32_t *out) {
    torshc_model *m = f->with->model;
    unsigned char **at = f->at;
    int replayed = 0;
    T_TRY(t_grow(m, &m->arena, t_round_up(segment->arena(f->symbols)), "intermediate values"));
    for (int32_t k = 0; k < segment->inputs; k++)
        T_TRY(send(f, &f->slot[in[k]], &at[k]));
    for (int32_t k = 0; k < segment->outputs; k++) {
        t_block *block = f->slot[out[k]].block;
        T_TRY(reserve(f, block));
        block->newest = T_AWAY;
        at[segment->inputs + k] = block->copy;
    }
    const t_run run = {at, at + segment->inputs, f->with->weights, NULL, m->arena.at, NULL, m, NULL, NULL};
    m->marks = 0;
    T_TRY(m->status = t_device_begin(m->device, NULL, 0, &replayed));
    segment->run(&run, f->symbols);
    T_TRY(t_device_end(m->device, m->status));
#ifdef TORSHC_PROFILE
    return t_count_steps(m);
#else
    return TORSHC_OK;
#endif
}

int t_run_segment(t_frame *f, const t_program *segment, const int32_t *in, const int32_t *out) {
    return (segment->device == TORSHC_CPU ? run_here : run_away)(f, segment, in, out);
}
