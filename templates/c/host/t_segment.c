/* Segments and values of a script in a library for processors: all of it is here. */
#include "t_frame.h"
#include "t_host.h"

int t_run_segment(t_frame *f, const t_program *segment, const int32_t *in, const int32_t *out) {
    t_run run = *f->with;
    const size_t arena = t_round_up(segment->arena(f->symbols)), scratch = t_round_up(segment->scratch(f->symbols));
    unsigned char **at = f->at;
    for (int32_t k = 0; k < segment->inputs; k++)
        at[k] = f->slot[in[k]].data;
    for (int32_t k = 0; k < segment->outputs; k++)
        at[segment->inputs + k] = f->slot[out[k]].data;
    T_TRY(t_grow_work(f, arena + (size_t)run.threads * scratch + T_ALIGN)); /* see t_nothing */
    run.in = at;
    run.out = at + segment->inputs;
    run.arena = f->work;
    run.scratch = f->work + arena;
    run.scratch_stride = scratch;
    return segment->run(&run, f->symbols);
}

t_pool *t_threads(const t_frame *f) { return f->with->pool; }

int t_find(t_frame *f, const torshc_tensor *x, const char *what, int32_t i, t_span *span) {
    (void)f;
    return t_locate(x, what, i, span);
}

int t_borrow(t_frame *f, t_value *v, const torshc_tensor *x, unsigned char *at) {
    (void)f, (void)v, (void)x, (void)at;
    return TORSHC_OK;
}

int t_fetch(t_frame *f, const t_value *v) {
    (void)f, (void)v;
    return TORSHC_OK;
}

int t_deliver(t_frame *f, const t_value *v, const torshc_tensor *x, unsigned char *at) {
    (void)f, (void)x;
    memcpy(at, v->data, (size_t)(t_count(v) * t_element_bytes(v->dtype)));
    return TORSHC_OK;
}

void t_free_copy(t_frame *f, unsigned char *copy) { (void)f, (void)copy; }
