/* Runs operators of the host on values from standard input, with memory of malloc, for the sanitizers to watch.
 *
 * A request: i64 operator, i64 number of integers, integers, i64 number of inputs, inputs, i64 number of outputs. A
 * value: i64 code (-1: absent), bits, rank, dimensions, then data; of strings, for each its length and its bytes; of
 * sequences and optionals, values. The answer: i64 status, then the message (length and bytes) or the outputs.
 */
#include "t_value.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { INPUTS_MAX = 16, OUTPUTS_MAX = 4, INTEGERS_MAX = 64, PIECES_MAX = 1 << 16 };

struct t_block {
    int64_t users;
    void *data; /* a value may begin behind it */
};

struct t_frame {
    void *piece[PIECES_MAX]; /* characters, freed after the run */
    int64_t pieces;
};

static char message[256];

int t_fail(int status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    return status;
}

t_pool *t_threads(const t_frame *f)
{
    (void)f;
    return NULL;
}

int64_t t_integer(const void *data, int64_t i, torshc_dtype dtype)
{
    const int is_signed = dtype.code == TORSHC_INT;
    switch (dtype.bits) {
    case 64:
        return ((const int64_t *)data)[i];
    case 32:
        return is_signed ? ((const int32_t *)data)[i] : (int64_t)((const uint32_t *)data)[i];
    case 16:
        return is_signed ? ((const int16_t *)data)[i] : ((const uint16_t *)data)[i];
    default:
        return is_signed ? ((const int8_t *)data)[i] : ((const uint8_t *)data)[i];
    }
}

int64_t t_element_bytes(torshc_dtype dtype)
{
    return t_is_nested(dtype) ? (int64_t)sizeof(t_value) : dtype.bits / 8;
}

int64_t t_count(const t_value *v)
{
    int64_t count = 1;
    for (int32_t d = 0; d < v->ndim; d++)
        count *= v->shape[d];
    return v->ndim < 0 ? 0 : count;
}

int t_make(t_frame *f, t_value *v, torshc_dtype dtype, int32_t ndim, const int64_t *shape)
{
    (void)f;
    if (v->ndim != -1)
        return t_fail(TORSHC_E_ARGUMENT, "the value is not empty");
    v->dtype = dtype;
    v->ndim = ndim;
    for (int32_t d = 0; d < ndim; d++)
        v->shape[d] = shape[d];
    v->block = calloc(1, sizeof *v->block);
    v->block->users = 1;
    v->data = v->block->data = malloc((size_t)(t_count(v) * t_element_bytes(dtype)) + !t_count(v));
    for (int64_t i = 0; t_is_nested(dtype) && i < t_count(v); i++)
        t_values(v)[i] = (t_value){.ndim = -1};
    return TORSHC_OK;
}

void t_drop(t_frame *f, t_value *v)
{
    if (v->ndim >= 0 && !--v->block->users) {
        for (int64_t i = 0; t_is_nested(v->dtype) && i < t_count(v); i++)
            t_drop(f, &t_values(v)[i]);
        free(v->block->data);
        free(v->block);
    }
    v->ndim = -1;
}

int t_share(t_frame *f, t_value *to, const t_value *from)
{
    (void)f;
    *to = *from;
    to->block->users++;
    return TORSHC_OK;
}

int t_view(t_frame *f, t_value *to, const t_value *from, int32_t ndim, const int64_t *shape)
{
    t_share(f, to, from);
    to->ndim = ndim;
    for (int32_t d = 0; d < ndim; d++)
        to->shape[d] = shape[d];
    return t_count(to) == t_count(from) ? TORSHC_OK : t_fail(TORSHC_E_SHAPE, "a view of another size");
}

char *t_characters(t_frame *f, int64_t bytes)
{
    if (f->pieces == PIECES_MAX)
        abort();
    return f->piece[f->pieces++] = malloc((size_t)bytes + !bytes);
}

void *t_scratch(t_frame *f, int64_t bytes)
{
    (void)f;
    return malloc((size_t)bytes);
}

void t_scratch_free(void *memory)
{
    free(memory);
}

t_operator t_op_text_case, t_op_text_concat, t_op_text_equal, t_op_text_find, t_op_text_from, t_op_text_keep;
t_operator t_op_text_match, t_op_text_pick, t_op_text_split, t_op_text_to, t_op_text_view, t_op_text_tokens;
t_operator t_op_compress, t_op_non_max_suppression, t_op_nonzero, t_op_unique;
t_operator t_op_concat_from_sequence, t_op_optional, t_op_optional_get, t_op_optional_has, t_op_sequence_at;
t_operator t_op_sequence_construct, t_op_sequence_erase, t_op_sequence_insert, t_op_sequence_length;
t_operator t_op_split_to_sequence, t_op_couple, t_op_zip_map;

static t_operator *const operators[] = {
    t_op_text_case, t_op_text_concat, t_op_text_equal, t_op_text_find,  t_op_text_from, t_op_text_keep,
    t_op_text_match, t_op_text_pick, t_op_text_split, t_op_text_to, t_op_text_view,
    t_op_compress, t_op_non_max_suppression, t_op_nonzero, t_op_unique,
    t_op_concat_from_sequence, t_op_optional, t_op_optional_get, t_op_optional_has, t_op_sequence_at,
    t_op_sequence_construct, t_op_sequence_erase, t_op_sequence_insert, t_op_sequence_length, t_op_split_to_sequence,
    t_op_couple, t_op_zip_map, t_op_text_tokens,
};

static void take(void *to, int64_t bytes)
{
    if (bytes && fread(to, 1, (size_t)bytes, stdin) != (size_t)bytes)
        exit(3);
}

static int64_t number(void)
{
    int64_t n;
    take(&n, sizeof n);
    return n;
}

static void tell(int64_t n)
{
    fwrite(&n, sizeof n, 1, stdout);
}

static void take_value(t_frame *f, t_value *v)
{
    int64_t shape[T_VALUE_RANK], code = number();
    torshc_dtype dtype = {(uint8_t)code, 0, 1};
    int32_t ndim;
    if (code < 0)
        return;
    dtype.bits = (uint8_t)number();
    ndim = (int32_t)number();
    take(shape, ndim * (int64_t)sizeof *shape);
    t_make(f, v, dtype, ndim, shape);
    for (int64_t i = 0; t_is_nested(dtype) && i < t_count(v); i++)
        take_value(f, &t_values(v)[i]);
    if (t_is_nested(dtype))
        return;
    if (code != TORSHC_STRING) {
        take(v->data, t_count(v) * t_element_bytes(dtype));
        return;
    }
    for (int64_t i = 0; i < t_count(v); i++) {
        const int64_t bytes = number();
        char *text = bytes > 0 ? t_characters(f, bytes) : NULL; /* a copy of its own: reads behind it are seen */
        if (text)
            take(text, bytes);
        ((t_string *)v->data)[i] = (t_string){text, bytes};
    }
}

static void tell_value(const t_value *v)
{
    tell(v->ndim < 0 ? -1 : v->dtype.code);
    if (v->ndim < 0)
        return;
    tell(v->dtype.bits);
    tell(v->ndim);
    fwrite(v->shape, sizeof *v->shape, (size_t)v->ndim, stdout);
    for (int64_t i = 0; t_is_nested(v->dtype) && i < t_count(v); i++)
        tell_value(&t_values(v)[i]);
    if (t_is_nested(v->dtype))
        return;
    if (v->dtype.code != TORSHC_STRING) {
        fwrite(v->data, (size_t)t_element_bytes(v->dtype), (size_t)t_count(v), stdout);
        return;
    }
    for (int64_t i = 0; i < t_count(v); i++) {
        const t_string *s = &((const t_string *)v->data)[i];
        tell(s->bytes);
        if (s->bytes)
            fwrite(s->text, 1, (size_t)s->bytes, stdout);
    }
}

int main(void)
{
    static t_frame frame;
    int64_t which, n[INTEGERS_MAX];
    while (fread(&which, sizeof which, 1, stdin) == 1) {
        t_value value[INPUTS_MAX + OUTPUTS_MAX], *out[OUTPUTS_MAX];
        const t_value *in[INPUTS_MAX];
        const int64_t integers = number();
        int64_t inputs, outputs;
        int status;
        for (int k = 0; k < INPUTS_MAX + OUTPUTS_MAX; k++)
            value[k] = (t_value){.ndim = -1};
        take(n, integers * (int64_t)sizeof *n);
        inputs = number();
        for (int64_t k = 0; k < inputs; k++) {
            take_value(&frame, &value[k]);
            in[k] = value[k].ndim < 0 ? NULL : &value[k];
        }
        outputs = number();
        for (int64_t k = 0; k < OUTPUTS_MAX; k++)
            out[k] = k < outputs ? &value[INPUTS_MAX + k] : NULL;
        status = operators[which](&frame, in, out, n);
        tell(status);
        if (status) {
            tell((int64_t)strlen(message));
            fputs(message, stdout);
        }
        for (int64_t k = 0; !status && k < outputs; k++)
            tell_value(out[k]);
        fflush(stdout);
        for (int k = 0; k < INPUTS_MAX + OUTPUTS_MAX; k++)
            t_drop(&frame, &value[k]);
        while (frame.pieces)
            free(frame.piece[--frame.pieces]);
    }
    return 0;
}
