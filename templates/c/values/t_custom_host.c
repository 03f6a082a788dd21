/* Calls of users' functions that decide the sizes of their results in the run. */
#include "t_custom_host.h"

#include <stdio.h>

/* What a call knows beside its torshc_op, which comes first, so that one is the other. */
typedef struct {
    torshc_op op;
    t_frame *f;
    t_value *const *out;
    t_value *spare;             /* of outputs that nobody reads */
    const int64_t *const *type; /* code, bits, rank and dimensions, -1 for those that the run decides */
    int status;                 /* of what the frame refused */
} t_custom_call;

static t_value *value_of(t_custom_call *call, int32_t k) { return call->out[k] ? call->out[k] : &call->spare[k]; }

static int make(torshc_op *op, int32_t k, const int64_t *shape) {
    t_custom_call *call = (t_custom_call *)op;
    if (k < 0 || k >= op->output_count)
        return torshc_op_fail(op, "there is no output %d", (int)k);
    const int64_t *type = call->type[k];
    const torshc_dtype dtype = {(uint8_t)type[0], (uint8_t)type[1], 1};
    for (int64_t d = 0; d < type[2]; d++)
        if (type[3 + d] >= 0 && shape[d] != type[3 + d])
            return torshc_op_fail(op, "output %d has size %lld along dimension %d, and was declared with %lld", (int)k,
                                  (long long)shape[d], (int)d, (long long)type[3 + d]);
    t_value *v = value_of(call, k);
    t_drop(call->f, v);
    if ((call->status = t_make(call->f, v, dtype, (int32_t)type[2], shape)))
        return call->status;
    op->outputs[k] = t_custom_tensor(v->data, TORSHC_CPU, dtype.code, dtype.bits, v->ndim, v->shape);
    return TORSHC_OK;
}

static char *text(torshc_op *op, int64_t bytes) {
    char *found = t_characters(((t_custom_call *)op)->f, bytes);
    if (!found)
        ((t_custom_call *)op)->status = TORSHC_E_MEMORY;
    return found;
}

static int run_call(t_custom_call *call, torshc_op_function *run) {
    torshc_op *op = &call->op;
    const int status = run(op);
    if (status && call->status)
        return call->status;
    if (status && op->message[0])
        return t_fail(TORSHC_E_VALUE, "%s", op->message);
    if (status)
        return t_fail(TORSHC_E_VALUE, "its function returned status %d", status);
    for (int32_t k = 0; k < op->output_count; k++)
        if (value_of(call, k)->ndim < 0)
            return t_fail(TORSHC_E_VALUE, "its function did not call torshc_op_make() for output %d", (int)k);
    return TORSHC_OK;
}

int t_custom_run(t_frame *f, torshc_op_function *run, const t_value *const *in, t_value *const *out, const int64_t *n) {
    const int32_t ins = (int32_t)n[0], outs = (int32_t)n[1];
    const size_t bytes =
        (size_t)(ins + outs) * sizeof(torshc_tensor) + (size_t)outs * (sizeof(t_value) + sizeof(void *));
    torshc_tensor *inputs = t_scratch(f, (int64_t)bytes);
    if (!inputs)
        return TORSHC_E_MEMORY;
    torshc_tensor *outputs = inputs + ins;
    t_value *spare = (t_value *)(outputs + outs);
    const int64_t **type = (const int64_t **)(spare + outs);
    torshc_op_attribute attributes[T_ATTRIBUTES_MAX];
    t_custom_call call = {.f = f, .out = out, .spare = spare, .type = type};
    for (int32_t k = 0; k < ins; k++)
        inputs[k] = in[k] ? t_custom_tensor(in[k]->data, TORSHC_CPU, in[k]->dtype.code, in[k]->dtype.bits, in[k]->ndim,
                                            in[k]->shape)
                          : t_custom_tensor(NULL, TORSHC_CPU, 0, 0, -1, NULL);
    n += 2;
    for (int32_t k = 0; k < outs; k++, n += 3 + n[2]) {
        outputs[k] = t_custom_tensor(NULL, TORSHC_CPU, (int32_t)n[0], (int32_t)n[1], -1, NULL);
        spare[k] = (t_value){.ndim = -1};
        type[k] = n;
    }
    call.op = (torshc_op){.version = TORSHC_OP_VERSION,
                          .input_count = ins,
                          .output_count = outs,
                          .inputs = inputs,
                          .outputs = outputs,
                          .attribute_count = t_read_attributes(n, attributes),
                          .attributes = attributes,
                          .end = 1,
                          .tasks = 1,
                          .make = make,
                          .text = text};
    const int status = run_call(&call, run);
    for (int32_t k = 0; k < outs; k++)
        t_drop(f, &spare[k]);
    t_scratch_free(inputs);
    return status;
}
