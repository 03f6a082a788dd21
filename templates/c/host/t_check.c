/* Messages, and the checks that come before every run. */
#include "t_program.h"

#include <stdarg.h>
#include <stdio.h>

#define P (t_the_program())

/* ---- messages ---- */

static _Thread_local char t_message[512];
static const torshc_fault t_nowhere = {-1, -1, -1, 0, 0};
static _Thread_local torshc_fault t_fault = {-1, -1, -1, 0, 0};

int t_fail(int status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(t_message, sizeof t_message, format, arguments);
    va_end(arguments);
    t_fault = t_nowhere;
    return status;
}

int t_at_step(int32_t step, int status) {
    t_fault.step = step;
    return status;
}

int t_fail_in(int32_t node, int status) {
    char message[sizeof t_message];
    memcpy(message, t_message, sizeof message);
    t_fail(status, "node %d: %.*s", (int)node, (int)sizeof message - 24, message);
    t_fault.node = node;
    return status;
}

int t_has_nan_f32(const void *at, int64_t count) {
    const float *x = at;
    for (int64_t i = 0; i < count; i++)
        if (x[i] != x[i])
            return 1;
    return 0;
}

int t_has_nan_f64(const void *at, int64_t count) {
    const double *x = at;
    for (int64_t i = 0; i < count; i++)
        if (x[i] != x[i])
            return 1;
    return 0;
}

/* ---- sizes ---- */

/* What compilers call for a quotient of t_wide. Their runtime library has it too, which Zig compiles whole for its sake. */
t_wide __divti3(t_wide a, t_wide b);
t_wide __divti3(t_wide a, t_wide b) {
    __extension__ typedef unsigned __int128 magnitude;
    const magnitude n = a < 0 ? -(magnitude)a : (magnitude)a, d = b < 0 ? -(magnitude)b : (magnitude)b;
    magnitude quotient = 0, rest = 0;
    if (!((n | d) >> 64))
        quotient = (uint64_t)n / (uint64_t)d;
    else
        for (int bit = 127; bit >= 0; bit--) {
            rest = rest << 1 | (n >> bit & 1);
            if (rest >= d) {
                rest -= d;
                quotient |= (magnitude)1 << bit;
            }
        }
    return (t_wide)((a < 0) != (b < 0) ? -quotient : quotient);
}

/* A value that is shown; sizes are far smaller. */
static int64_t shown(t_wide value) {
    return value > INT64_MAX ? INT64_MAX : value < INT64_MIN ? INT64_MIN : (int64_t)value;
}

int t_demand(int32_t condition, const char *equation, t_wide left, t_wide right) {
    if (left == right)
        return TORSHC_OK;
    t_fail(TORSHC_E_SHAPE, "the shapes do not fit together: %s does not hold, %lld is not %lld", equation,
           (long long)shown(left), (long long)shown(right));
    t_fault.condition = condition;
    t_fault.left = shown(left);
    t_fault.right = shown(right);
    return TORSHC_E_SHAPE;
}

int t_require(int32_t condition, const char *what, t_wide holds) {
    if (holds)
        return TORSHC_OK;
    t_fail(TORSHC_E_SHAPE, "the shapes do not fit together: %s does not hold", what);
    t_fault.condition = condition;
    t_fault.right = 1;
    return TORSHC_E_SHAPE;
}

void torshc_last_fault(torshc_fault *fault) {
    if (fault)
        *fault = t_fault;
}

const char *torshc_last_error(void) { return t_message; }

const char *torshc_status_text(int status) {
    static const char *const text[] = {"ok",
                                       "bad argument",
                                       "wrong number of tensors",
                                       "null pointer in a tensor",
                                       "wrong element type",
                                       "wrong rank",
                                       "wrong shape",
                                       "not compact row-major",
                                       "misaligned memory",
                                       "overlapping buffers",
                                       "wrong device",
                                       "workspace too small",
                                       "out of memory",
                                       "shapes too large",
                                       "weights file unreadable or damaged",
                                       "processor lacks instructions",
                                       "model was opened before fork()",
                                       "compiled without profiling",
                                       "no driver or card",
                                       "card older than the library",
                                       "a kernel failed",
                                       "contents of an operand that are not possible",
                                       "no weight of this name",
                                       "weights or state file of another model or build",
                                       "state file unreadable or damaged",
                                       "other processes of the model do not answer"};
    return status >= 0 && status < (int)(sizeof text / sizeof *text) ? text[status] : "unknown status";
}

int torshc_abi_version(void) { return TORSHC_ABI_VERSION; }

int t_sizes(const t_wide *size, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (size[i] < 0)
            return t_fail(TORSHC_E_SHAPE, "inputs of these shapes give a dimension below zero");
        if (size[i] > (t_wide)T_BYTES_MAX)
            return t_fail(TORSHC_E_SIZE, "inputs of these shapes need more than 2^47 bytes");
    }
    return TORSHC_OK;
}

/* ---- checks ---- */

/* Types of fewer than 8 bits take a byte an element. */
static int t_tensor_bytes(torshc_dtype dtype) {
    if (t_is_nested(dtype))
        return sizeof(torshc_tensor);
    return (dtype.bits + 7) / 8;
}

/* Element i of integers of this type; beyond 64 bits signed it is the largest. */
int64_t t_integer(const void *data, int64_t i, torshc_dtype dtype) {
    const int is_signed = dtype.code == TORSHC_INT;
    switch (dtype.bits) {
    case 64:
        return is_signed || ((const int64_t *)data)[i] >= 0 ? ((const int64_t *)data)[i] : INT64_MAX;
    case 32:
        return is_signed ? ((const int32_t *)data)[i] : (int64_t)((const uint32_t *)data)[i];
    case 16:
        return is_signed ? ((const int16_t *)data)[i] : ((const uint16_t *)data)[i];
    default:
        return is_signed ? ((const int8_t *)data)[i] : ((const uint8_t *)data)[i];
    }
}

/* Options with defaults for what was not given; earlier versions of them ended before `device`,
 * `profile_path` and `ranks`. */
int t_options(const torshc_options *given, torshc_options *options) {
    memset(options, 0, sizeof *options);
    if (!given)
        return TORSHC_OK;
    static const size_t sizes[] = {sizeof *given, offsetof(torshc_options, device),
                                   offsetof(torshc_options, profile_path), offsetof(torshc_options, ranks),
                                   offsetof(torshc_options, nccl_path)};
    int known = 0;
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        known |= given->size == sizes[k];
    if (!known || given->flags)
        return t_fail(TORSHC_E_ARGUMENT, "torshc_open: options of another version (size %u, flags %u)", given->size,
                      given->flags);
    memcpy(options, given, given->size);
    if (options->threads < 0 || options->threads > T_THREADS_MAX)
        return t_fail(TORSHC_E_ARGUMENT, "torshc_open: %d threads; expected 0 to %d", (int)options->threads,
                      T_THREADS_MAX);
    return TORSHC_OK;
}

/* Device, type, rank: what needs no symbols. */
int t_check_form(const torshc_tensor *x, const t_port *port, const char *what, int32_t i) {
    if (x->device.type != P->device && x->device.type != TORSHC_CPU)
        return t_fail(TORSHC_E_DEVICE, "%s %d is on device type %d; expected %d", what, (int)i, (int)x->device.type,
                      (int)P->device);
    if (x->dtype.code != port->dtype.code || x->dtype.bits != port->dtype.bits || x->dtype.lanes != 1)
        return t_fail(TORSHC_E_DTYPE, "%s %d has type code %d, %d bits, %d lanes; expected code %d, %d bits, 1 lane",
                      what, (int)i, x->dtype.code, x->dtype.bits, x->dtype.lanes, port->dtype.code, port->dtype.bits);
    if (x->ndim != port->ndim && (port->ndim >= 0 || x->ndim < 0))
        return t_fail(TORSHC_E_RANK, "%s %d has %d dimensions; expected %d", what, (int)i, (int)x->ndim,
                      (int)port->ndim);
    if (x->ndim && !x->shape)
        return t_fail(TORSHC_E_NULL, "%s %d has no shape", what, (int)i);
    return TORSHC_OK;
}

static int check_shape(const torshc_tensor *x, const t_port *port, const int64_t *s, const char *what, int32_t i) {
    for (int32_t d = 0; d < x->ndim; d++) {
        const int64_t want = t_dim(port, d, s);
        if (x->shape[d] != want || x->shape[d] < 0)
            return t_fail(TORSHC_E_SHAPE, "%s %d, dimension %d is %lld; expected %lld", what, (int)i, (int)d,
                          (long long)x->shape[d], (long long)want);
    }
    return TORSHC_OK;
}

static int check_strides(const torshc_tensor *x, const char *what, int32_t i) {
    int64_t compact = 1;
    for (int32_t d = 0; d < x->ndim; d++)
        if (x->shape[d] == 0)
            return TORSHC_OK;
    for (int32_t d = x->ndim - 1; x->strides && d >= 0; d--) {
        if (x->shape[d] != 1 && x->strides[d] != compact)
            return t_fail(TORSHC_E_STRIDES, "%s %d, dimension %d has stride %lld; expected %lld (compact row-major)",
                          what, (int)i, (int)d, (long long)x->strides[d], (long long)compact);
        compact *= x->shape[d];
    }
    return TORSHC_OK;
}

/* Bytes of a shape. Empty dimensions count as 1 for the limit, so that a product over some of the dimensions never
 * overflows either. */
static int extent(const torshc_tensor *x, const char *what, int32_t i, uint64_t *bytes) {
    uint64_t limit = t_tensor_bytes(x->dtype);
    int empty = 0;
    for (int32_t d = 0; d < x->ndim; d++) {
        empty |= x->shape[d] == 0;
        if (x->shape[d] > 0 && (__builtin_mul_overflow(limit, (uint64_t)x->shape[d], &limit) || limit > T_BYTES_MAX))
            return t_fail(TORSHC_E_SIZE, "%s %d is larger than 2^47 bytes", what, (int)i);
    }
    *bytes = empty ? 0 : limit;
    return TORSHC_OK;
}

/* Element `symbol->dim` of a small integer tensor, which says a size, a position or similar. */
static int read_element(const torshc_tensor *x, const t_symbol *symbol, int64_t *value) {
    int64_t count = 1;
    for (int32_t d = 0; d < x->ndim; d++)
        count *= x->shape[d] > 0 && x->shape[d] <= T_ELEMENTS_MAX ? x->shape[d] : 0;
    if (symbol->dim >= count)
        return t_fail(TORSHC_E_SHAPE, "input %d has another shape than the model's", (int)symbol->input);
    if (x->device.type != TORSHC_CPU)
        return t_fail(TORSHC_E_DEVICE, "input %d holds sizes: pass it in the processor's memory", (int)symbol->input);
    if (!x->data)
        return t_fail(TORSHC_E_NULL, "input %d holds sizes and has no data", (int)symbol->input);
    *value = t_integer((const unsigned char *)x->data + x->byte_offset, symbol->dim, x->dtype);
    if (symbol->kind == T_CLAMPED)
        *value = *value < symbol->min ? symbol->min : *value > symbol->max ? symbol->max : *value;
    return TORSHC_OK;
}

int64_t t_count_nonzero(const torshc_tensor *x) {
    int64_t count = 1, found = 0;
    for (int32_t d = 0; d < x->ndim; d++)
        if (x->shape[d] <= 0 || __builtin_mul_overflow(count, x->shape[d], &count) || count > T_BYTES_MAX)
            return 0; /* nothing, or refused by its shape */
    const unsigned char *at = (const unsigned char *)x->data + x->byte_offset;
    if (x->device.type != TORSHC_CPU || !x->data || check_strides(x, "input", 0) ||
        (uintptr_t)at % t_tensor_bytes(x->dtype))
        return count; /* nothing is left out, and what is wrong is said later */
    switch (t_tensor_bytes(x->dtype)) {
    case 8:
        for (int64_t k = 0; k < count; k++)
            found += ((const int64_t *)(const void *)at)[k] != 0;
        return found;
    case 4:
        for (int64_t k = 0; k < count; k++)
            found += ((const int32_t *)(const void *)at)[k] != 0;
        return found;
    default:
        for (int64_t k = 0; k < count; k++)
            found += t_integer(at, k, x->dtype) != 0;
        return found;
    }
}

/* Do shapes and sizes fit the form of the model that the symbols name? */
static int check_sizes(const torshc_tensor *inputs, int32_t count, int64_t *s) {
    uint64_t bytes;
    int status = P->fits(s); /* before any size is computed in 64 bits */
    if (status)
        return status;
    if (P->sizes)
        P->sizes(s);
    for (int32_t i = 0; i < count; i++)
        if ((status = check_shape(&inputs[i], &P->input[i], s, "input", i)) ||
            (status = extent(&inputs[i], "input", i, &bytes)))
            return status;
    return P->holds(s);
}

int t_take_form(int form, const torshc_tensor *inputs, int32_t count, int64_t *s) {
    s[P->form] = form;
    return check_sizes(inputs, count, s);
}

int t_is_guarded(const int64_t *s) {
    for (int32_t k = 0; k < P->guard_count; k++)
        if (P->guard[k].form == s[P->form])
            return 1;
    return 0;
}

static uint64_t bytes_of(const torshc_tensor *x) {
    return (uint64_t)t_tensor_bytes(x->dtype) * (uint64_t)t_elements(x);
}

int64_t t_elements(const torshc_tensor *x) {
    int64_t count = 1;
    for (int32_t d = 0; d < x->ndim; d++)
        count *= x->shape[d];
    return count;
}

/* Nobody waits for a card to tell what is in its memory. An array is one number throughout where it is equal to itself an
 * element further on. */
int t_is_throughout(const torshc_tensor *x, int64_t *value) {
    const unsigned char *at = (const unsigned char *)x->data + x->byte_offset;
    const size_t bytes = (size_t)bytes_of(x), size = (size_t)t_tensor_bytes(x->dtype);
    if (x->device.type != TORSHC_CPU || !bytes)
        return 0;
    *value = t_integer(at, 0, x->dtype);
    if (x->dtype.code == TORSHC_UINT && x->dtype.bits == 64 && *value == INT64_MAX)
        return 0; /* or larger */
    return !memcmp(at, at + size, bytes - size);
}

t_held t_guard_holds(const t_guard *guard, const torshc_tensor *x) {
    int64_t value;
    if (x->device.type != TORSHC_CPU && bytes_of(x))
        return T_UNSEEN;
    return t_is_throughout(x, &value) ? (value == guard->value ? T_HELD : T_MISSED) : bytes_of(x) ? T_MISSED : T_HELD;
}

static int guards_hold(const torshc_tensor *inputs, int64_t form) {
    for (int32_t k = 0; k < P->guard_count; k++)
        if (P->guard[k].form == form && t_guard_holds(&P->guard[k], &inputs[P->guard[k].input]) != T_HELD)
            return 0;
    return 1;
}

void t_pass_guards(const torshc_tensor *inputs, int64_t *s) {
    if (!P->guard_count)
        return;
    while (s[P->form] && s[P->form] != P->loose && !guards_hold(inputs, s[P->form]))
        s[P->form] = P->variant(s, (int32_t)s[P->form]);
}

int t_is_one(void) { return t_fault.left == 1 || t_fault.right == 1; }

/* Binds the symbols to the inputs' dimensions, and to elements that are sizes, and checks every shape. Where sizes do not
 * fit the fast form of a model, but its loose one, they are for that; where they fit a variant of it, for the variant.
 * Values that this takes for granted are another matter: t_pass_guards(). */
int t_bind(const torshc_tensor *inputs, int32_t count, int64_t *s) {
    int status;
    if (count != P->inputs)
        return t_fail(TORSHC_E_COUNT, "%d inputs; expected %d", (int)count, (int)P->inputs);
    if (count && !inputs)
        return t_fail(TORSHC_E_ARGUMENT, "inputs is NULL");
    for (int32_t i = 0; i < count; i++)
        if ((status = t_check_form(&inputs[i], &P->input[i], "input", i)))
            return status;
    for (int32_t k = 0; k < P->symbols; k++) {
        const t_symbol *symbol = &P->symbol[k];
        const int is_dim = symbol->kind == T_DIM;
        if (is_dim)
            s[k] = inputs[symbol->input].shape[symbol->dim];
        else if (symbol->kind == T_COUNT)
            s[k] = t_count_nonzero(&inputs[symbol->input]);
        else if ((status = read_element(&inputs[symbol->input], symbol, &s[k])))
            return status;
        if (s[k] < symbol->min || s[k] > symbol->max)
            return t_fail(TORSHC_E_SHAPE, "input %d, %s %d is %lld; expected %lld to %lld", (int)symbol->input,
                          is_dim ? "dimension" : "element", (int)symbol->dim, (long long)s[k], (long long)symbol->min,
                          (long long)symbol->max);
    }
    if (!P->forms)
        return check_sizes(inputs, count, s);
    if (!(status = t_take_form(0, inputs, count, s))) {
        if (P->variant)
            s[P->form] = P->variant(s, 0);
        return status;
    }
    const int is_one = t_is_one();
    if (!P->loose || !(status = t_take_form(P->loose, inputs, count, s)) || is_one)
        return status;
    return t_take_form(0, inputs, count, s);
}

/* What a tensor without elements has for data: an element may be read there where no lane, or only a mask, discards it. */
const uint64_t t_nothing[8] = {0};

/* Where a tensor's data lies, checked for strides, size, null and alignment. */
int t_locate(const torshc_tensor *x, const char *what, int32_t i, t_span *span) {
    int status;
    if ((status = extent(x, what, i, &span->bytes)) || (status = check_strides(x, what, i)))
        return status;
    if (span->bytes && !x->data)
        return t_fail(TORSHC_E_NULL, "%s %d has no data", what, (int)i);
    span->at = x->data ? (unsigned char *)x->data + x->byte_offset : NULL;
    const uintptr_t align = x->dtype.code < TORSHC_STRING ? (uintptr_t)t_tensor_bytes(x->dtype) : sizeof(void *);
    if (span->bytes && (uintptr_t)span->at % align)
        return t_fail(TORSHC_E_ALIGN, "%s %d is not aligned to its elements of %d bytes", what, (int)i,
                      (int)t_tensor_bytes(x->dtype));
    return TORSHC_OK;
}

/* The elements of strings, sequences and optionals; sequences are as deep as the port. */
int t_check_elements(const torshc_tensor *x, const t_port *port, int32_t i) {
    t_span span = {NULL, 0};
    int status = t_locate(x, "input", i, &span);
    const uint64_t count = status ? 0 : span.bytes / (uint64_t)t_tensor_bytes(x->dtype);
    const torshc_string *text = (const torshc_string *)(const void *)span.at;
    for (uint64_t k = 0; x->dtype.code == TORSHC_STRING && k < count; k++)
        if (text[k].bytes < 0 || text[k].bytes > T_BYTES_MAX || (text[k].bytes && !text[k].text))
            return t_fail(TORSHC_E_NULL, "input %d has a string without text", (int)i);
    if (!t_is_nested(x->dtype))
        return status;
    const torshc_tensor *inner = (const torshc_tensor *)(const void *)span.at;
    for (uint64_t k = 0; !status && k < count; k++) {
        if (!port->inner)
            return t_fail(TORSHC_E_SHAPE, "input %d must be empty", (int)i);
        if ((status = t_check_form(&inner[k], port->inner, "an element of input", i)))
            return status;
        for (int32_t d = 0; d < inner[k].ndim; d++)
            if (inner[k].shape[d] < 0 ||
                (port->inner->ndim >= 0 && port->inner->dims[d] >= 0 && inner[k].shape[d] != port->inner->dims[d]))
                return t_fail(TORSHC_E_SHAPE, "an element of input %d has dimension %lld", (int)i,
                              (long long)inner[k].shape[d]);
        status = t_check_elements(&inner[k], port->inner, i);
    }
    return status;
}

static int overlap(const t_span *a, const t_span *b) {
    return a->bytes && b->bytes && (uintptr_t)a->at < (uintptr_t)b->at + b->bytes &&
           (uintptr_t)b->at < (uintptr_t)a->at + a->bytes;
}

/* Number k of the inputs and then the outputs: what it is, its number there, its name. */
static const char *side(int32_t k) { return k < P->inputs ? "input" : "output"; }

static int32_t number(int32_t k) { return k < P->inputs ? k : k - P->inputs; }

static const char *name_of(int32_t k) {
    const char *name = k < P->inputs ? P->input[k].name : P->output[k - P->inputs].name;
    return name ? name : "";
}

/* Outputs and the workspace may overlap nothing, but that an output may be the very buffer of the input that
 * torshc_shared_input() names; inputs may overlap each other. */
int t_check_aliases(const t_span *spans, const t_span *work) {
    const int32_t n = P->inputs + P->outputs;
    for (int32_t o = P->inputs; o < n; o++) {
        const int32_t shared = torshc_shared_input(o - P->inputs);
        for (int32_t i = 0; i < o; i++) {
            if (!overlap(&spans[o], &spans[i]))
                continue;
            if (i != shared)
                return t_fail(TORSHC_E_ALIAS, "output %d \"%.200s\" overlaps %s %d \"%.200s\"", (int)number(o),
                              name_of(o), side(i), (int)number(i), name_of(i));
            if (spans[o].at != spans[i].at || spans[o].bytes != spans[i].bytes)
                return t_fail(TORSHC_E_ALIAS,
                              "output %d \"%.200s\" overlaps input %d \"%.200s\" and is not the same buffer",
                              (int)number(o), name_of(o), (int)i, name_of(i));
        }
    }
    for (int32_t i = 0; i < n; i++)
        if (overlap(work, &spans[i]))
            return t_fail(TORSHC_E_ALIAS, "the workspace overlaps %s %d \"%.200s\"", side(i), (int)number(i),
                          name_of(i));
    return TORSHC_OK;
}

int t_check_outputs(const torshc_tensor *outputs, int32_t count, const int64_t *s) {
    int status;
    if (count != P->outputs)
        return t_fail(TORSHC_E_COUNT, "%d outputs; expected %d", (int)count, (int)P->outputs);
    if (count && !outputs)
        return t_fail(TORSHC_E_ARGUMENT, "outputs is NULL");
    for (int32_t i = 0; i < count; i++)
        if ((status = t_check_form(&outputs[i], &P->output[i], "output", i)) ||
            (status = check_shape(&outputs[i], &P->output[i], s, "output", i)))
            return status;
    return TORSHC_OK;
}
