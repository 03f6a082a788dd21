/* Trains a model, and hands its weights over to contexts that run it on other threads, through the two headers alone.
 *
 *     serve_test WEIGHTS SERVED_WEIGHTS
 *
 * x f32[4, 3], target f32[4, 2] -> loss f32[]; x -> y f32[4, 2]; the states include w and b. */
#include <net.h>
#include <net_serve.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 40, THREADS = 2, OUT = 8, STATES_MAX = 16 };

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            printf("line %d: %s [%s | %s]\n", __LINE__, #condition, net_last_error(), net_serve_last_error());         \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static int64_t x_shape[] = {4, 3}, y_shape[] = {4, 2};
static float x_data[12], target_data[OUT];
static net_serve_model *served;
static atomic_int done;

static torshc_tensor tensor(void *data, int32_t ndim, int64_t *shape)
{
    const torshc_tensor made = {data, {TORSHC_CPU, 0}, ndim, {TORSHC_FLOAT, 32, 1}, shape, NULL, 0};
    return made;
}

/* What a thread saw: results that differ from those before, one behind the other. */
typedef struct {
    float seen[ROUNDS + 1][OUT];
    int count;
} history;

static void answer(net_serve_model *model, float *y)
{
    const torshc_tensor input = tensor(x_data, 2, x_shape), output = tensor(y, 2, y_shape);
    CHECK(net_serve_run(model, &input, 1, &output, 1, NULL, 0) == TORSHC_OK);
}

static void *serve(void *given)
{
    history *h = given;
    net_serve_model *context;
    CHECK(net_serve_context_new(served, NULL, &context) == TORSHC_OK);
    do {
        float y[OUT];
        answer(context, y);
        if (!h->count || memcmp(h->seen[h->count - 1], y, sizeof y) != 0) {
            CHECK(h->count <= ROUNDS);
            memcpy(h->seen[h->count++], y, sizeof y);
        }
    } while (!atomic_load(&done));
    net_serve_context_free(context);
    return NULL;
}

/* The weights w and b of the step, as they are between two steps. */
static void publish(net_model *model)
{
    static float data[STATES_MAX][64];
    torshc_tensor tensors[STATES_MAX];
    torshc_named_tensor named[STATES_MAX];
    size_t count = 0;
    for (int32_t k = 0; k < net_state_count(); k++) {
        const char *name = net_state_name(k);
        int32_t ndim;
        const int64_t *dims;
        if (!strncmp(name, "torshc.", 7))
            continue;
        CHECK(count < STATES_MAX && net_state_info(k, NULL, &ndim, &dims) == TORSHC_OK);
        size_t bytes = sizeof(float);
        for (int32_t d = 0; d < ndim; d++)
            bytes *= (size_t)dims[d];
        CHECK(bytes <= sizeof data[0] && net_state_read(model, k, data[count], bytes) == TORSHC_OK);
        tensors[count] = tensor(data[count], ndim, (int64_t *)dims);
        named[count].name = name;
        named[count].tensor = &tensors[count];
        count++;
    }
    CHECK(count == 2 && net_serve_set_tensors(served, named, count) == TORSHC_OK);
}

int main(int argc, char **argv)
{
    CHECK(argc == 3);
    static history seen[THREADS];
    static float expected[ROUNDS + 1][OUT];
    torshc_options options = {.size = sizeof options, .threads = 1, .weights_path = argv[1]};
    net_model *model;
    CHECK(net_open(&options, &model) == TORSHC_OK);
    options.weights_path = argv[2];
    CHECK(net_serve_open(&options, &served) == TORSHC_OK);
    for (int k = 0; k < 12; k++)
        x_data[k] = (float)k / 12;
    answer(served, expected[0]);
    pthread_t threads[THREADS];
    for (int k = 0; k < THREADS; k++)
        CHECK(!pthread_create(&threads[k], NULL, serve, &seen[k]));
    for (int k = 1; k <= ROUNDS; k++) {
        float loss, before[OUT];
        const torshc_tensor inputs[] = {tensor(x_data, 2, x_shape), tensor(target_data, 2, y_shape)};
        const torshc_tensor output = tensor(&loss, 0, NULL);
        CHECK(net_train(model, inputs, 2, &output, 1, NULL, 0) == TORSHC_OK);
        answer(served, before); /* a step alone changes nothing */
        CHECK(!memcmp(before, expected[k - 1], sizeof before));
        publish(model);
        answer(served, expected[k]);
        CHECK(memcmp(expected[k], expected[k - 1], sizeof before) != 0);
    }
    atomic_store(&done, 1);
    for (int k = 0; k < THREADS; k++) {
        CHECK(!pthread_join(threads[k], NULL));
        int at = 0; /* each result is that of one set of weights, and none comes before an older one */
        for (int n = 0; n < seen[k].count; n++) {
            while (at <= ROUNDS && memcmp(expected[at], seen[k].seen[n], sizeof expected[0]) != 0)
                at++;
            CHECK(at <= ROUNDS);
        }
    }
    net_close(model);
    net_serve_close(served);
    puts("ok");
    return 0;
}
