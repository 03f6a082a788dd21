/* Gives a model other weights by name through model.h alone.
 *
 *     named_test WEIGHTS INPUT OUTPUT FIXED NAME DIMS FILE [NAME DIMS FILE]...
 *
 * The model has one input and one output of static shapes, all f32; DIMS are as in 8x16. FIXED is a weight that cannot be
 * exchanged. OUTPUT gets the results before and after, while two threads run the model all the time. */
#include <model.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANK_MAX = 8, WEIGHTS_MAX = 64 };

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            printf("line %d: %s [%s]\n", __LINE__, #condition, torshc_last_error());                                   \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

/* Memory of its own for a tensor, so that sanitizers see its ends. */
typedef struct {
    torshc_tensor tensor;
    int64_t shape[RANK_MAX];
    size_t bytes;
} owned;

static void make(owned *x, int32_t ndim, const int64_t *dims)
{
    const torshc_tensor tensor = {NULL, {TORSHC_CPU, 0}, ndim, {TORSHC_FLOAT, 32, 1}, x->shape, NULL, 0};
    x->tensor = tensor;
    x->bytes = sizeof(float);
    for (int32_t d = 0; d < ndim; d++)
        x->bytes *= (size_t)(x->shape[d] = dims[d]);
    x->tensor.data = calloc(1, x->bytes);
    CHECK(x->tensor.data);
}

static void fill(owned *x, const char *path)
{
    FILE *file = fopen(path, "rb");
    CHECK(file && fread(x->tensor.data, 1, x->bytes, file) == x->bytes && fgetc(file) == EOF);
    fclose(file);
}

static owned input, before, after;
static torshc_model *model;
static atomic_int done, ready;

static void make_output(owned *y)
{
    const int64_t *dims;
    int32_t ndim;
    CHECK(torshc_output_info(0, NULL, &ndim, &dims) == TORSHC_OK);
    make(y, ndim, dims);
}

static int run(torshc_model *m, owned *y) { return torshc_run(m, &input.tensor, 1, &y->tensor, 1, NULL, 0); }

/* Runs until `done`; each result is that of the old weights or that of the new ones. */
static void *runner(void *unused)
{
    torshc_model *context;
    owned y;
    CHECK(torshc_context_new(model, NULL, &context) == TORSHC_OK);
    make_output(&y);
    for (int last = 0; !last; atomic_fetch_add(&ready, 1)) {
        last = atomic_load(&done);
        CHECK(run(context, &y) == TORSHC_OK);
        const int is_old = !memcmp(y.tensor.data, before.tensor.data, y.bytes);
        CHECK(is_old || !memcmp(y.tensor.data, after.tensor.data, y.bytes));
        CHECK(!last || !is_old);
    }
    free(y.tensor.data);
    torshc_context_free(context);
    return unused;
}

static void refusals(torshc_named_tensor *given, size_t count, const char *fixed)
{
    torshc_named_tensor *last = &given[count - 1];
    const torshc_named_tensor was = *last;
    torshc_tensor other = *was.tensor;
    int64_t shape[RANK_MAX], strides[RANK_MAX] = {3, 3, 3, 3, 3, 3, 3, 3};
    CHECK(torshc_set_tensors(NULL, given, count) == TORSHC_E_ARGUMENT);
    CHECK(torshc_set_tensors(model, NULL, count) == TORSHC_E_ARGUMENT);
    CHECK(torshc_set_tensors(model, NULL, 0) == TORSHC_OK);
    last->name = NULL;
    CHECK(torshc_set_tensors(model, given, count) == TORSHC_E_NULL);
    last->name = "no such weight";
    CHECK(torshc_set_tensors(model, given, count) == TORSHC_E_NAME && strstr(torshc_last_error(), "no such weight"));
    last->name = fixed;
    CHECK(torshc_set_tensors(model, given, count) == TORSHC_E_UNSUPPORTED && strstr(torshc_last_error(), fixed));
    CHECK(strstr(torshc_last_error(), "torshc weights"));
    *last = given[0];
    CHECK(count == 1 || torshc_set_tensors(model, given, count) == TORSHC_E_ARGUMENT);
    *last = was;
    last->tensor = NULL;
    CHECK(torshc_set_tensors(model, given, count) == TORSHC_E_NULL);
    last->tensor = &other;
    other.dtype.bits = 64;
    CHECK(torshc_set_tensors(model, given, count) == TORSHC_E_DTYPE && strstr(torshc_last_error(), was.name));
    other = *was.tensor;
    other.ndim++;
    CHECK(torshc_set_tensors(model, given, count) == TORSHC_E_RANK);
    other = *was.tensor;
    other.shape = memcpy(shape, was.tensor->shape, sizeof shape);
    shape[0]++;
    CHECK(torshc_set_tensors(model, given, count) == TORSHC_E_SHAPE && strstr(torshc_last_error(), was.name));
    other = *was.tensor;
    other.strides = strides;
    CHECK(torshc_set_tensors(model, given, count) == TORSHC_E_STRIDES);
    other = *was.tensor;
    other.data = NULL;
    CHECK(torshc_set_tensors(model, given, count) == TORSHC_E_NULL);
    other = *was.tensor;
    other.device.type = TORSHC_CUDA;
    CHECK(torshc_set_tensors(model, given, count) == TORSHC_E_DEVICE);
    *last = was;
}

int main(int argc, char **argv)
{
    static owned weights[WEIGHTS_MAX];
    static torshc_named_tensor given[WEIGHTS_MAX];
    const int64_t *dims;
    int32_t ndim;
    size_t count = 0;
    torshc_options options = {.size = sizeof options, .threads = 1, .weights_path = argv[1]};
    CHECK(torshc_open(&options, &model) == TORSHC_OK);
    CHECK(torshc_input_info(0, NULL, &ndim, &dims) == TORSHC_OK);
    make(&input, ndim, dims);
    fill(&input, argv[2]);
    make_output(&before);
    make_output(&after);
    for (int k = 5; k + 2 < argc; k += 3, count++) {
        int64_t shape[RANK_MAX];
        int32_t rank = 0;
        for (char *at = argv[k + 1]; *at; at += *at == 'x')
            shape[rank++] = strtoll(at, &at, 10);
        make(&weights[count], rank, shape);
        fill(&weights[count], argv[k + 2]);
        given[count] = (torshc_named_tensor){argv[k], &weights[count].tensor};
    }
    owned y;
    make_output(&y);
    CHECK(run(model, &before) == TORSHC_OK);
    refusals(given, count, argv[4]);
    CHECK(run(model, &y) == TORSHC_OK && !memcmp(y.tensor.data, before.tensor.data, y.bytes));

    torshc_model *other;
    CHECK(torshc_open(&options, &other) == TORSHC_OK && torshc_set_tensors(other, given, count) == TORSHC_OK);
    CHECK(run(other, &after) == TORSHC_OK);
    torshc_close(other);

    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, runner, NULL);
    while (atomic_load(&ready) < 4)
        ;
    CHECK(torshc_set_tensors(model, given, count) == TORSHC_OK);
    CHECK(torshc_set_tensors(model, given, count) == TORSHC_OK); /* again, from what is in memory */
    atomic_store(&done, 1);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    CHECK(run(model, &y) == TORSHC_OK && !memcmp(y.tensor.data, after.tensor.data, y.bytes));
    torshc_close(model);

    FILE *file = fopen(argv[3], "wb");
    CHECK(file && fwrite(before.tensor.data, 1, y.bytes, file) && fwrite(after.tensor.data, 1, y.bytes, file));
    fclose(file);
    for (size_t k = 0; k < count; k++)
        free(weights[k].tensor.data);
    free(input.tensor.data);
    free(before.tensor.data);
    free(after.tensor.data);
    free(y.tensor.data);
    puts("ok");
    return 0;
}
