/* The frame of a script: slots with values, and the steps between the segments. */
#define _GNU_SOURCE
#include "t_frame.h"

#include <stdlib.h>

#define P (t_the_program())

enum { T_ROUNDS = 8, T_OMITTED = 8 };

/* ---- steps ---- */

int t_grow_work(t_frame *f, size_t bytes) {
    if (f->work && bytes <= f->work_bytes)
        return TORSHC_OK;
    free(f->work);
    f->work = NULL;
    void *memory = NULL;
    if (posix_memalign(&memory, T_ALIGN, bytes ? bytes : T_ALIGN))
        return t_fail(TORSHC_E_MEMORY, "no memory for a workspace of %zu bytes", bytes);
    f->work = memory;
    f->work_bytes = bytes;
    return TORSHC_OK;
}

static int is_of(const t_value *v, const t_port *port, const int64_t *s) {
    int same = v->dtype.code == port->dtype.code && v->dtype.bits == port->dtype.bits && v->ndim == port->ndim;
    for (int32_t d = 0; same && d < v->ndim; d++)
        same = v->shape[d] == t_dim(port, d, s);
    return same;
}

int t_call(t_frame *f, const t_program *segment, const int32_t *in, const int32_t *out) {
    int64_t dims[T_RANK_MAX];
    T_TRY(segment->fits(f->symbols));
    T_TRY(segment->holds(f->symbols));
    if (segment->sizes)
        segment->sizes(f->symbols);
    for (int32_t k = 0; k < segment->inputs; k++)
        if (!is_of(&f->slot[in[k]], &segment->input[k], f->symbols))
            return t_fail(TORSHC_E_SHAPE, "a value does not have the type or shape that its readers were compiled for");
    for (int32_t k = 0; k < segment->outputs; k++) {
        const t_port *port = &segment->output[k];
        t_drop(f, &f->slot[out[k]]);
        for (int32_t d = 0; d < port->ndim; d++)
            dims[d] = t_dim(port, d, f->symbols);
        T_TRY(t_make(f, &f->slot[out[k]], port->dtype, port->ndim, dims));
    }
    return t_run_segment(f, segment, in, out);
}

int t_operate(t_frame *f, int32_t node, t_operator *run, int32_t ins, const int32_t *in, int32_t outs,
              const int32_t *out, const int64_t *n) {
    /* Operands and results that a model leaves out at the end are absent, too. */
    const t_value **given = f->given;
    t_value **made = f->made;
    for (int32_t k = 0; k < ins + T_OMITTED; k++) {
        given[k] = k >= ins || in[k] < 0 ? NULL : &f->slot[in[k]];
        if (given[k])
            T_TRY(t_fetch(f, given[k]));
    }
    for (int32_t k = 0; k < outs + T_OMITTED; k++) {
        made[k] = k >= outs || out[k] < 0 ? NULL : &f->slot[out[k]];
        if (made[k])
            t_drop(f, made[k]);
    }
    const int status = run(f, given, made, n);
    return status ? t_fail_in(node, status) : TORSHC_OK;
}

int t_bind_value(t_frame *f, int32_t slot, int32_t position, int kind, int64_t *symbol) {
    const t_value *v = &f->slot[slot];
    const int64_t most = INT32_MAX;
    if (position >= (kind == T_DIM ? v->ndim : t_count(v)))
        return t_fail(TORSHC_E_SHAPE, "a value does not have the rank that its readers were compiled for");
    if (kind != T_DIM)
        T_TRY(t_fetch(f, v));
    *symbol = kind == T_DIM ? v->shape[position] : t_at(v, position);
    if (kind == T_CLAMPED)
        *symbol = *symbol < -most ? -most : *symbol > most ? most : *symbol;
    if (*symbol < -most || *symbol > most)
        return t_fail(TORSHC_E_SIZE, "the run computes a size of %lld", (long long)*symbol);
    return TORSHC_OK;
}

int t_scalar(t_frame *f, int32_t slot, int64_t *value) {
    if (t_count(&f->slot[slot]) != 1)
        return t_fail(TORSHC_E_SHAPE, "a condition or a number of iterations has %lld elements; expected 1",
                      (long long)t_count(&f->slot[slot]));
    T_TRY(t_fetch(f, &f->slot[slot]));
    *value = t_at(&f->slot[slot], 0);
    return TORSHC_OK;
}

int t_truth(t_frame *f, int32_t slot, int *yes) {
    int64_t value = 0;
    T_TRY(t_scalar(f, slot, &value));
    *yes = value != 0;
    return TORSHC_OK;
}

int t_set(t_frame *f, int32_t to, int32_t from) {
    if (to == from)
        return TORSHC_OK;
    t_drop(f, &f->slot[to]);
    return t_share(f, &f->slot[to], &f->slot[from]);
}

void t_clear(t_frame *f, int32_t count, const int32_t *slots) {
    for (int32_t k = 0; k < count; k++)
        t_drop(f, &f->slot[slots[k]]);
}

/* ---- loops ---- */

int t_set_round(t_frame *f, int32_t number, int32_t going, int64_t i) {
    t_drop(f, &f->slot[number]);
    t_drop(f, &f->slot[going]);
    T_TRY(t_make(f, &f->slot[number], T_I64, 0, NULL));
    T_TRY(t_make(f, &f->slot[going], T_BOOL, 0, NULL));
    *(int64_t *)f->slot[number].data = i;
    *(uint8_t *)f->slot[going].data = 1;
    return TORSHC_OK;
}

int t_turn(t_frame *f, int32_t count, const int32_t *states, const int32_t *next) {
    t_value *held = f->held;
    for (int32_t k = 0; k < count; k++)
        t_share(f, &held[k], &f->slot[next[k]]);
    for (int32_t k = 0; k < count; k++) {
        t_drop(f, &f->slot[states[k]]);
        f->slot[states[k]] = held[k];
    }
    return TORSHC_OK;
}

int t_begin(t_frame *f, int32_t many) {
    static const torshc_dtype sequence = {TORSHC_SEQUENCE, 0, 1};
    t_drop(f, &f->slot[many]);
    T_TRY(t_make(f, &f->slot[many], sequence, 1, (const int64_t[]){T_ROUNDS}));
    f->slot[many].shape[0] = 0; /* the block has room for more */
    return TORSHC_OK;
}

int t_append(t_frame *f, int32_t many, int32_t each) {
    t_value *list = &f->slot[many];
    const int64_t n = list->shape[0];
    if (n >= T_ROUNDS && !(n & (n - 1))) { /* full: there is room for T_ROUNDS, and twice as many each time */
        t_value wider;
        T_TRY(t_make(f, &wider, list->dtype, 1, (const int64_t[]){2 * n}));
        memcpy(wider.data, list->data, sizeof(t_value) * (size_t)n);
        for (int64_t i = 0; i < n; i++)
            t_values(list)[i] = (t_value){.ndim = -1};
        t_drop(f, list);
        *list = wider;
    }
    list->shape[0] = n + 1;
    return t_share(f, &t_values(list)[n], &f->slot[each]);
}

int t_stack(t_frame *f, int32_t joined, int32_t many, const t_port *kind, const int64_t *dims) {
    const t_value *list = &f->slot[many], *first = t_values(list);
    t_value *out = &f->slot[joined];
    int64_t shape[T_VALUE_RANK] = {list->shape[0]};
    t_drop(f, out);
    for (int32_t d = 1; d < kind->ndim && d < T_VALUE_RANK; d++) /* without a round, what the model says */
        shape[d] = shape[0] && first->ndim == kind->ndim - 1 ? first->shape[d - 1] : dims[d] < 0 ? 0 : dims[d];
    T_TRY(t_make(f, out, kind->dtype, kind->ndim, shape));
    T_TRY(t_fetch(f, list));
    const size_t each = (size_t)(shape[0] ? t_count(out) / shape[0] * t_element_bytes(kind->dtype) : 0);
    for (int64_t i = 0; i < shape[0]; i++) {
        const t_value *v = &first[i];
        if (v->ndim != kind->ndim - 1 || memcmp(v->shape, shape + 1, sizeof *shape * (size_t)v->ndim))
            return t_fail(TORSHC_E_SHAPE, "the results of a loop's iterations have different shapes");
        memcpy((char *)out->data + (size_t)i * each, v->data, each);
    }
    return TORSHC_OK;
}

/* ---- values from outside, and to it ---- */

static int constant(t_frame *f, const t_constant *c) {
    t_value *v = &f->slot[c->slot];
    unsigned char *at = f->weights ? f->weights + c->offset : NULL; /* of empty constants alone there is no file */
    if (c->dtype.code != TORSHC_STRING) {
        *v = (t_value){.dtype = c->dtype, .ndim = c->ndim, .data = at};
        memcpy(v->shape, c->dims, sizeof *c->dims * (size_t)c->ndim);
        return TORSHC_OK;
    }
    /* Strings: where each ends, then their characters. */
    T_TRY(t_make(f, v, c->dtype, c->ndim, c->dims));
    const int64_t count = t_count(v);
    const int64_t *ends = (const int64_t *)(const void *)at;
    for (int64_t i = 0; i < count; i++) {
        const int64_t begin = i ? ends[i - 1] : 0;
        ((t_string *)v->data)[i] = (t_string){(const char *)(ends + count) + begin, ends[i] - begin};
    }
    return TORSHC_OK;
}

/* Zeros for `count` elements, and for one where there are none. */
static void *zeros(int32_t count, size_t each) { return calloc((size_t)count + 1, each); }

static int32_t larger(int32_t a, int32_t b) { return a > b ? a : b; }

/* Arrays for the scripts of all forms. */
static int allocate_arrays(t_frame *f) {
    int32_t operands = 0, held = 0, ports = 0;
    for (int32_t k = 0; k < (P->scripts ? P->forms : 1); k++) {
        const t_script *script = P->scripts ? P->scripts[k] : P->script;
        operands = larger(operands, script->operands);
        held = larger(held, larger(script->states, script->constants));
        ports = larger(ports, script->ports);
        f->slots = larger(f->slots, script->slots);
    }
    operands += T_OMITTED;
    f->slot = zeros(f->slots, sizeof *f->slot);
    f->symbols = zeros(P->places, sizeof *f->symbols);
    f->at = zeros(ports, sizeof *f->at);
    f->given = zeros(operands, sizeof *f->given);
    f->made = zeros(operands, sizeof *f->made);
    f->held = zeros(held, sizeof *f->held);
    f->spans = zeros(P->inputs + P->outputs, sizeof *f->spans);
    return !f->slot || !f->symbols || !f->at || !f->given || !f->made || !f->held || !f->spans;
}

/* Has a run take a script: the slots hold its constants, and nothing else. */
static int take_script(t_frame *f, const t_script *script) {
    f->script = NULL;
    for (int32_t k = 0; k < f->slots; k++)
        t_drop(f, &f->slot[k]);
    for (int32_t k = 0; k < script->constants; k++)
        T_TRY(constant(f, &script->constant[k]));
    f->script = script;
    return TORSHC_OK;
}

t_frame *t_frame_open(const t_run *with, unsigned char *weights) {
    t_frame *f = calloc(1, sizeof *f);
    if (!f)
        return NULL;
    f->with = with;
    f->weights = weights;
    const int lacks = allocate_arrays(f);
    for (int32_t k = 0; f->slot && k < f->slots; k++)
        f->slot[k].ndim = -1;
    if (!lacks && !take_script(f, P->script))
        return f;
    t_frame_close(f);
    return NULL;
}

void t_frame_close(t_frame *f) {
    if (!f)
        return;
    for (int32_t k = 0; f->slot && k < f->slots; k++)
        t_drop(f, &f->slot[k]);
    t_free_values(f);
    free(f->slot);
    free(f->symbols);
    free(f->at);
    free(f->given);
    free(f->made);
    free(f->held);
    free(f->spans);
    free(f->work);
    free(f->results);
    free(f);
}

/* A caller's tensor as a value that borrows its memory. */
static int borrow(t_frame *f, t_value *v, const torshc_tensor *x, unsigned char *at) {
    if (x->ndim > T_VALUE_RANK)
        return t_fail(TORSHC_E_RANK, "an input has too many dimensions: %d", (int)x->ndim);
    if (t_is_nested(x->dtype)) {
        T_TRY(t_make(f, v, x->dtype, x->ndim, x->shape));
        const torshc_tensor *inner = (const torshc_tensor *)(const void *)at;
        for (int64_t i = 0; i < t_count(v); i++) {
            unsigned char *const data = inner[i].data;
            T_TRY(borrow(f, &t_values(v)[i], &inner[i], data ? data + inner[i].byte_offset : NULL));
        }
        return TORSHC_OK;
    }
    *v = (t_value){.dtype = x->dtype, .ndim = x->ndim, .data = at ? at : (void *)(uintptr_t)t_nothing};
    if (x->ndim) /* a scalar's shape may be NULL */
        memcpy(v->shape, x->shape, sizeof *x->shape * (size_t)x->ndim);
    return x->dtype.code == TORSHC_STRING ? TORSHC_OK : t_borrow(f, v, x, at);
}

/* Empties the slots of the run before, but for constants. */
static void reset(t_frame *f) {
    const t_script *script = f->script;
    t_value *held = f->held;
    for (int32_t k = 0; k < script->constants; k++) {
        held[k] = f->slot[script->constant[k].slot];
        f->slot[script->constant[k].slot] = (t_value){.ndim = -1};
    }
    for (int32_t k = 0; k < script->slots; k++)
        t_drop(f, &f->slot[k]);
    for (int32_t k = 0; k < script->constants; k++)
        f->slot[script->constant[k].slot] = held[k];
    t_free_text(f, f->text);
}

static size_t tensors_in(const t_value *v) {
    size_t count = 0;
    if (t_is_nested(v->dtype))
        for (int64_t i = 0; i < t_count(v); i++)
            count += 1 + tensors_in(&t_values(v)[i]);
    return count;
}

static void show(const t_value *v, torshc_tensor *x, torshc_tensor **room) {
    *x = (torshc_tensor){.data = v->data, .device = {TORSHC_CPU, 0}, .ndim = v->ndim, .dtype = v->dtype};
    x->shape = (int64_t *)(uintptr_t)v->shape;
    if (!t_is_nested(v->dtype))
        return;
    torshc_tensor *inner = *room;
    *room += t_count(v);
    x->data = inner;
    for (int64_t i = 0; i < t_count(v); i++)
        show(&t_values(v)[i], &inner[i], room);
}

static int show_results(t_frame *f, torshc_tensor *outputs) {
    size_t count = 1;
    for (int32_t k = 0; k < P->outputs; k++) {
        T_TRY(t_fetch(f, &f->slot[f->script->output[k]]));
        count += tensors_in(&f->slot[f->script->output[k]]);
    }
    if (count > f->results_count) {
        free(f->results);
        f->results_count = 0;
        f->results = calloc(count, sizeof *f->results);
        if (!f->results)
            return t_fail(TORSHC_E_MEMORY, "no memory for %zu tensors", count);
        f->results_count = count;
    }
    torshc_tensor *room = f->results;
    for (int32_t k = 0; k < P->outputs; k++)
        show(&f->slot[f->script->output[k]], &outputs[k], &room);
    return TORSHC_OK;
}

static int copy_results(t_frame *f, const torshc_tensor *outputs, const t_span *spans) {
    for (int32_t k = 0; k < P->outputs; k++) {
        const t_value *v = &f->slot[f->script->output[k]];
        const torshc_tensor *x = &outputs[k];
        if (v->dtype.code >= TORSHC_STRING)
            return t_fail(TORSHC_E_DTYPE, "output %d has strings or tensors as elements: use torshc_run_sized", (int)k);
        if (x->ndim != v->ndim || (v->ndim && memcmp(x->shape, v->shape, sizeof *v->shape * (size_t)v->ndim)))
            return t_fail(TORSHC_E_SHAPE, "output %d has another shape than this run gives it: use torshc_run_sized",
                          (int)k);
    }
    for (int32_t k = 0; k < P->outputs; k++)
        if (spans[k].bytes)
            T_TRY(t_deliver(f, &f->slot[f->script->output[k]], &outputs[k], spans[k].at));
    return TORSHC_OK;
}

void *t_frame_keep(t_frame *f, int32_t output) {
    t_value *v = f->script ? &f->slot[f->script->output[output]] : NULL; /* none where a run found no memory for it */
    t_block *block = v ? v->block : NULL;
    if (!block || block->users != 1 || t_is_nested(v->dtype) || v->dtype.code == TORSHC_STRING || !t_count(v))
        return NULL;
    v->block = NULL; /* the slot shows it until the next run, as memory of the caller's */
    return block;
}

/* ---- the run ---- */

/* What the caller passes, and where it lies: inputs, then outputs where it gives them. */
static int check(t_frame *f, const torshc_tensor *inputs, const torshc_tensor *shown, const torshc_tensor *outputs,
                 int32_t output_count, t_span *spans) {
    static const t_span nothing;
    for (int32_t i = 0; i < P->inputs; i++) {
        T_TRY(t_check_elements(&inputs[i], &P->input[i], i));
        T_TRY(t_find(f, &inputs[i], "input", i, &spans[i]));
    }
    if (output_count != P->outputs)
        return t_fail(TORSHC_E_COUNT, "%d outputs; expected %d", (int)output_count, (int)P->outputs);
    if (output_count && !shown && !outputs)
        return t_fail(TORSHC_E_ARGUMENT, "outputs is NULL");
    for (int32_t i = 0; outputs && i < P->outputs; i++) {
        T_TRY(t_check_form(&outputs[i], &P->output[i], "output", i));
        T_TRY(t_find(f, &outputs[i], "output", i, &spans[P->inputs + i]));
    }
    return outputs ? t_check_aliases(spans, &nothing) : TORSHC_OK;
}

/* The steps of the form that the run has taken. */
static int run_steps(t_frame *f, const torshc_tensor *inputs) {
    const t_script *script = P->forms ? P->scripts[f->symbols[P->form]] : P->script;
    if (script == f->script)
        reset(f);
    else
        T_TRY(take_script(f, script));
    for (int32_t k = 0; k < P->inputs; k++)
        T_TRY(borrow(f, &f->slot[script->input[k]], &inputs[k], f->spans[k].at));
    return script->steps(f, f->symbols);
}

/* The same of a form in which the run begins again, as it gave no result yet. */
static int run_again(t_frame *f, int form, const torshc_tensor *inputs) {
    T_TRY(t_take_form(form, inputs, P->inputs, f->symbols));
    return run_steps(f, inputs);
}

const int64_t *t_frame_sizes(const t_frame *f) { return f->symbols; }

int t_frame_run(t_frame *f, const torshc_tensor *inputs, int32_t input_count, torshc_tensor *shown,
                const torshc_tensor *outputs, int32_t output_count) {
    t_span *spans = f->spans;
    memset(f->symbols, 0, sizeof *f->symbols * (size_t)P->places);
    T_TRY(t_bind(inputs, input_count, f->symbols));
    T_TRY(check(f, inputs, shown, outputs, output_count, spans));
    t_pass_guards(inputs, f->symbols);
    int status = run_steps(f, inputs);
    const int64_t taken = P->forms ? f->symbols[P->form] : 0;
    if (status == TORSHC_E_SHAPE && taken && taken != P->loose) /* sizes of the run itself do not fit the variant */
        status = run_again(f, 0, inputs);
    if (status == TORSHC_E_SHAPE && P->loose && taken != P->loose) { /* nor the fast form */
        const int is_one = t_is_one();
        if ((status = run_again(f, P->loose, inputs)) && !is_one)
            status = run_again(f, 0, inputs);
    }
    T_TRY(status);
    return shown ? show_results(f, shown) : copy_results(f, outputs, spans + P->inputs);
}
