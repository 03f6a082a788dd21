/* Uses a bundle through model.h alone and checks every status code that a caller can cause. The model is that of
 * tiny.py: x [s0, 16] -> y = relu(x) + w, z = 2 y.
 *
 *     abi_test WEIGHTS_OR_- STATIC_BATCH_OR_0 */
#include <model.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WIDTH = 16, ROWS_MAX = 64 };

static int failures, refused;

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            printf("line %d: %s [%s]\n", __LINE__, #condition, torshc_last_error()); \
            failures++; \
        } \
    } while (0)

typedef struct {
    float x[ROWS_MAX * WIDTH], y[ROWS_MAX * WIDTH], z[ROWS_MAX * WIDTH];
    int64_t shape[2];
    torshc_tensor in, out[2];
} call;

static void prepare(call *c, int64_t rows)
{
    const torshc_tensor tensor = {NULL, {TORSHC_CPU, 0}, 2, {TORSHC_FLOAT, 32, 1}, c->shape, NULL, 0};
    for (int i = 0; i < ROWS_MAX * WIDTH; i++) {
        c->x[i] = (float)(i % 7) - 3.0f;
        c->y[i] = c->z[i] = 77.0f;
    }
    c->shape[0] = rows;
    c->shape[1] = WIDTH;
    c->in = c->out[0] = c->out[1] = tensor;
    c->in.data = c->x;
    c->out[0].data = c->y;
    c->out[1].data = c->z;
}

static float weight(int j)
{
    return -1.0f + 2.0f * (float)j / 15.0f;
}

static int right(const call *c)
{
    for (int64_t i = 0; i < c->shape[0] * WIDTH; i++) {
        const float want = (c->x[i] > 0 ? c->x[i] : 0) + weight(i % WIDTH), error = c->y[i] - want;
        if (error > 1e-6f || error < -1e-6f || c->z[i] != 2 * c->y[i])
            return 0;
    }
    return 1;
}

static int untouched(const call *c)
{
    for (int i = 0; i < ROWS_MAX * WIDTH; i++)
        if (c->y[i] != 77.0f || c->z[i] != 77.0f)
            return 0;
    return 1;
}

static int run(torshc_model *m, call *c)
{
    return torshc_run(m, &c->in, 1, c->out, 2, NULL, 0);
}

#define REFUSED(change, status) \
    do { \
        prepare(c, rows); \
        change; \
        CHECK(run(m, c) == (status)); \
        refused++; \
        CHECK(untouched(c)); \
        CHECK(strlen(torshc_last_error()) > 0); \
    } while (0)

static void refusals(torshc_model *m, call *c, int64_t rows)
{
    int64_t strides[2] = {1, rows}, other[2] = {rows, 15}, more[2] = {rows + 1, WIDTH}, below[2] = {-1, WIDTH};
    REFUSED(c->in.dtype.bits = 64, TORSHC_E_DTYPE);
    REFUSED(c->in.dtype.lanes = 2, TORSHC_E_DTYPE);
    REFUSED(c->out[1].dtype.code = TORSHC_INT, TORSHC_E_DTYPE);
    REFUSED(c->in.ndim = 1, TORSHC_E_RANK);
    REFUSED(c->in.ndim = -5, TORSHC_E_RANK);
    REFUSED(c->out[0].ndim = 3, TORSHC_E_RANK);
    REFUSED(c->in.shape = other, TORSHC_E_SHAPE);
    REFUSED(c->in.shape = below, TORSHC_E_SHAPE);
    REFUSED(c->out[1].shape = more, TORSHC_E_SHAPE);
    REFUSED(c->in.shape = NULL, TORSHC_E_NULL);
    REFUSED(c->in.data = NULL, TORSHC_E_NULL);
    REFUSED(c->out[0].data = NULL, TORSHC_E_NULL);
    REFUSED(c->in.strides = strides, TORSHC_E_STRIDES);
    REFUSED(c->out[0].strides = strides, TORSHC_E_STRIDES);
    REFUSED(c->in.byte_offset = 1, TORSHC_E_ALIGN);
    REFUSED(c->out[1].byte_offset = 2, TORSHC_E_ALIGN);
    REFUSED(c->out[1].data = c->y, TORSHC_E_ALIAS);
    REFUSED(c->out[0].data = c->x, TORSHC_E_ALIAS);
    REFUSED(c->out[0].data = c->x + 1, TORSHC_E_ALIAS);
    REFUSED(c->in.device.type = TORSHC_CUDA, TORSHC_E_DEVICE);
    REFUSED(c->out[1].device.type = 0, TORSHC_E_DEVICE);
    prepare(c, rows);
    CHECK(torshc_run(NULL, &c->in, 1, c->out, 2, NULL, 0) == TORSHC_E_ARGUMENT);
    CHECK(torshc_run(m, NULL, 1, c->out, 2, NULL, 0) == TORSHC_E_ARGUMENT);
    CHECK(torshc_run(m, &c->in, 1, NULL, 2, NULL, 0) == TORSHC_E_ARGUMENT);
    CHECK(torshc_run(m, &c->in, 0, c->out, 2, NULL, 0) == TORSHC_E_COUNT);
    CHECK(torshc_run(m, &c->in, 1, c->out, 1, NULL, 0) == TORSHC_E_COUNT);
    CHECK(torshc_run(m, &c->in, -1, c->out, 2, NULL, 0) == TORSHC_E_COUNT);
    CHECK(untouched(c));
}

static void workspaces(torshc_model *m, call *c, int64_t rows)
{
    size_t bytes = 0, bad = 0;
    prepare(c, rows);
    c->in.data = NULL;
    CHECK(torshc_workspace_size(m, &c->in, 1, &bytes) == TORSHC_OK && bytes >= 64);
    CHECK(torshc_workspace_size(NULL, &c->in, 1, &bad) == TORSHC_E_ARGUMENT);
    CHECK(torshc_workspace_size(m, &c->in, 2, &bad) == TORSHC_E_COUNT);
    c->in.data = c->x;
    unsigned char *work = aligned_alloc(64, bytes + 64);
    CHECK(torshc_run(m, &c->in, 1, c->out, 2, work, bytes - 1) == TORSHC_E_WORKSPACE);
    CHECK(torshc_run(m, &c->in, 1, c->out, 2, work + 32, bytes) == TORSHC_E_ALIGN);
    CHECK(untouched(c));
    void *y = c->out[0].data;
    c->out[0].data = work;
    CHECK(torshc_run(m, &c->in, 1, c->out, 2, work, bytes) == TORSHC_E_ALIAS);
    c->out[0].data = y;
    CHECK(torshc_run(m, &c->in, 1, c->out, 2, work, bytes) == TORSHC_OK && right(c));
    free(work);
}

static void shapes(torshc_model *m, call *c, int64_t rows, int is_static)
{
    int64_t dims[2] = {0, 0};
    const int64_t *info;
    int32_t ndim;
    torshc_dtype dtype;
    CHECK(torshc_input_count() == 1 && torshc_output_count() == 2 && torshc_step_count() == 2);
    CHECK(torshc_input_info(0, &dtype, &ndim, &info) == TORSHC_OK);
    CHECK(dtype.code == TORSHC_FLOAT && dtype.bits == 32 && dtype.lanes == 1 && ndim == 2);
    CHECK(info[0] == (is_static ? rows : -1) && info[1] == WIDTH);
    CHECK(torshc_output_info(1, NULL, NULL, NULL) == TORSHC_OK);
    CHECK(torshc_output_info(2, &dtype, &ndim, &info) == TORSHC_E_ARGUMENT);
    CHECK(torshc_input_info(-1, &dtype, &ndim, &info) == TORSHC_E_ARGUMENT);
    prepare(c, rows);
    CHECK(torshc_output_shape(m, &c->in, 1, 1, dims) == TORSHC_OK && dims[0] == rows && dims[1] == WIDTH);
    CHECK(torshc_output_shape(m, &c->in, 1, 2, dims) == TORSHC_E_ARGUMENT);
    CHECK(torshc_output_shape(m, &c->in, 1, 0, NULL) == TORSHC_E_ARGUMENT);
}

static void symbolic(torshc_model *m, call *c)
{
    const int64_t sizes[] = {0, 1, 2, 7, ROWS_MAX, 3};
    int64_t dims[2];
    for (int i = 0; i < 6; i++) {
        prepare(c, sizes[i]);
        if (!sizes[i])
            c->in.data = c->out[0].data = c->out[1].data = NULL;
        CHECK(run(m, c) == TORSHC_OK && right(c));
        for (int64_t k = sizes[i] * WIDTH; k < ROWS_MAX * WIDTH; k++)
            CHECK(c->y[k] == 77.0f && c->z[k] == 77.0f);
    }
    prepare(c, (int64_t)1 << 31);
    CHECK(run(m, c) == TORSHC_E_SHAPE);
    prepare(c, INT64_MAX);
    CHECK(run(m, c) == TORSHC_E_SHAPE);
    prepare(c, ((int64_t)1 << 31) - 1);
    CHECK(torshc_output_shape(m, &c->in, 1, 0, dims) == TORSHC_OK && dims[0] == c->shape[0]);
    CHECK(untouched(c));
}

static void opening(const char *weights)
{
    torshc_model *m = (torshc_model *)&failures;
    torshc_options options = {.size = sizeof options, .threads = 1, .weights_path = weights};
    CHECK(torshc_open(&options, NULL) == TORSHC_E_ARGUMENT);
    options.size = 4;
    CHECK(torshc_open(&options, &m) == TORSHC_E_ARGUMENT && !m);
    options.size = sizeof options;
    options.flags = 8;
    CHECK(torshc_open(&options, &m) == TORSHC_E_ARGUMENT);
    options.flags = 0;
    options.threads = -1;
    CHECK(torshc_open(&options, &m) == TORSHC_E_ARGUMENT);
    options.threads = 1;
    torshc_close(NULL);
    if (!weights)
        return;
    options.weights_path = NULL;
    CHECK(torshc_open(&options, &m) == TORSHC_E_WEIGHTS);
    options.weights_path = "/nonexistent/weights.bin";
    CHECK(torshc_open(&options, &m) == TORSHC_E_WEIGHTS && strstr(torshc_last_error(), "No such file"));
    options.weights_path = "/dev/zero";
    CHECK(torshc_open(&options, &m) == TORSHC_E_WEIGHTS);
    options.weights_path = "/proc/self/exe";
    CHECK(torshc_open(&options, &m) == TORSHC_E_WEIGHTS && strstr(torshc_last_error(), "bytes"));
    CHECK(torshc_open(NULL, &m) == TORSHC_E_WEIGHTS && !m);
    options.weights_path = "/";
    CHECK(torshc_open(&options, &m) == TORSHC_E_WEIGHTS && strstr(torshc_last_error(), "not a regular file"));
    char pipe[4096];
    snprintf(pipe, sizeof pipe, "%s.pipe", weights);
    options.weights_path = pipe;
    CHECK(!mkfifo(pipe, 0600));
    alarm(60); /* a call that waits for a writer waits for ever */
    CHECK(torshc_open(&options, &m) == TORSHC_E_WEIGHTS && strstr(torshc_last_error(), "not a regular file"));
    alarm(0);
    unlink(pipe);
}

static torshc_model *shared;

static void *call_often(torshc_model *m, int64_t rows)
{
    call *c = malloc(sizeof *c);
    int wrong = 0;
    for (int i = 0; i < 200 && !wrong; i++) {
        prepare(c, rows ? rows : 1 + i % ROWS_MAX);
        wrong = run(m, c) || !right(c);
    }
    free(c);
    return wrong ? "wrong" : NULL;
}

static void *caller(void *argument) { return call_often(shared, (int64_t)(intptr_t)argument); }

static void *caller_with_context(void *argument)
{
    torshc_model *context;
    if (torshc_context_new(shared, NULL, &context))
        return "no context";
    void *result = call_often(context, (int64_t)(intptr_t)argument);
    torshc_context_free(context);
    return result;
}

static void contexts(const char *weights, int64_t rows)
{
    torshc_model *m = NULL, *first = NULL, *second = NULL;
    torshc_options options = {.size = sizeof options, .threads = 1, .weights_path = weights};
    torshc_options other = {.size = sizeof other, .threads = 2, .weights_path = "/nowhere"};
    CHECK(torshc_open(&options, &m) == TORSHC_OK);
    CHECK(torshc_context_new(m, NULL, &first) == TORSHC_OK && torshc_context_new(m, &other, &second) == TORSHC_OK);
    torshc_close(m); /* in any order */
    CHECK(!call_often(second, rows));
    torshc_context_free(second);
    CHECK(torshc_context_new(first, NULL, &m) == TORSHC_OK);
    torshc_close(first);
    CHECK(!call_often(m, rows));
    other.device = 1;
    CHECK(torshc_context_new(m, &other, &first) == TORSHC_E_ARGUMENT && !first);
    other.device = 0;
    other.stream = &other;
    CHECK(torshc_context_new(m, &other, &first) == TORSHC_E_ARGUMENT && !first);
    other.size = 3;
    CHECK(torshc_context_new(m, &other, &first) == TORSHC_E_ARGUMENT && !first);
    CHECK(torshc_context_new(NULL, NULL, &first) == TORSHC_E_ARGUMENT && !first);
    CHECK(torshc_context_new(m, NULL, NULL) == TORSHC_E_ARGUMENT);
    torshc_close(m);
}

/* Files as another build of the model has them: with another identity, or of another size. */
static void other_builds(const char *weights)
{
    torshc_model *m = NULL;
    char path[4096];
    unsigned char all[128];
    torshc_options options = {.size = sizeof options, .threads = 1, .weights_path = path};
    snprintf(path, sizeof path, "%s.other", weights);
    for (int smaller = 0; smaller < 2; smaller++) {
        FILE *from = fopen(weights, "rb"), *to = fopen(path, "wb");
        CHECK(from && to && fread(all, 1, sizeof all, from) == sizeof all);
        all[64 + 24] ^= 1;
        all[64 + 16] = smaller ? 0 : 64; /* bytes before the footer */
        CHECK(fwrite(all + 64 * smaller, 1, sizeof all - 64 * (size_t)smaller, to) > 0);
        fclose(from);
        fclose(to);
        CHECK(torshc_open(&options, &m) == TORSHC_E_BUILD && !m);
    }
}

/* Weights of zeros in a file beside the model's own; `bytes` of them are written. */
static const char *zero_weights(const char *weights, size_t bytes)
{
    static char path[4096];
    unsigned char all[128];
    snprintf(path, sizeof path, "%s.zeros", weights);
    FILE *from = fopen(weights, "rb"), *to = fopen(path, "wb");
    CHECK(from && to && fread(all, 1, sizeof all, from) == sizeof all);
    memset(all, 0, 64);
    CHECK(fwrite(all, 1, bytes, to) == bytes);
    fclose(from);
    fclose(to);
    return path;
}

static void other_weights(const char *weights, call *c, int64_t rows)
{
    torshc_model *m = NULL, *context = NULL;
    torshc_options options = {.size = sizeof options, .threads = 1, .weights_path = weights};
    CHECK(torshc_open(&options, &m) == TORSHC_OK);
    CHECK(torshc_set_weights(NULL, weights) == TORSHC_E_ARGUMENT);
    prepare(c, rows);
    if (!weights) {
        CHECK(torshc_set_weights(m, "/nowhere") == TORSHC_E_UNSUPPORTED);
    } else {
        other_builds(weights);
        CHECK(torshc_context_new(m, NULL, &context) == TORSHC_OK);
        CHECK(torshc_set_weights(m, NULL) == TORSHC_E_WEIGHTS);
        CHECK(torshc_set_weights(m, "/nowhere") == TORSHC_E_WEIGHTS);
        CHECK(torshc_set_weights(m, zero_weights(weights, 127)) == TORSHC_E_WEIGHTS);
        CHECK(run(m, c) == TORSHC_OK && right(c));
        CHECK(torshc_set_weights(m, zero_weights(weights, 128)) == TORSHC_OK);
        CHECK(run(m, c) == TORSHC_OK && c->y[0] == 0 && c->y[6] == 3);
        CHECK(run(context, c) == TORSHC_OK && c->y[0] == 0 && c->y[6] == 3);
        CHECK(torshc_set_weights(context, weights) == TORSHC_OK);
        torshc_context_free(context);
    }
    CHECK(run(m, c) == TORSHC_OK && right(c));
    torshc_close(m);
}

/* Runs while weights are exchanged; each has one set of them from its first step to its last. */
static void *caller_of_any_weights(void *argument)
{
    torshc_model *context;
    call *c = malloc(sizeof *c);
    const int64_t rows = (int64_t)(intptr_t)argument;
    if (torshc_context_new(shared, NULL, &context))
        return "no context";
    int wrong = 0, had[2] = {0, 0};
    while ((!had[0] || !had[1]) && !wrong) {
        prepare(c, rows ? rows : 1 + had[0] % ROWS_MAX);
        wrong = run(context, c) != TORSHC_OK;
        const int zeros = c->y[0] == 0;
        for (int64_t i = 0; zeros && i < c->shape[0] * WIDTH; i++)
            wrong |= c->y[i] != (c->x[i] > 0 ? c->x[i] : 0) || c->z[i] != 2 * c->y[i];
        wrong |= !zeros && !right(c);
        had[zeros]++;
    }
    torshc_context_free(context);
    free(c);
    return wrong ? "wrong" : NULL;
}

static atomic_int seen;

static void *exchanger(void *argument)
{
    const char *files[] = {argument, zero_weights(argument, 128)};
    for (int i = 0; !atomic_load(&seen); i++) {
        if (torshc_set_weights(shared, files[i % 2]))
            return "refused";
        usleep(100);
    }
    return torshc_set_weights(shared, argument) ? "refused" : NULL;
}

static void weights_meanwhile(const char *weights, int64_t rows)
{
    torshc_options options = {.size = sizeof options, .threads = 1, .weights_path = weights};
    pthread_t threads[3];
    void *result;
    call *c = malloc(sizeof *c);
    CHECK(torshc_open(&options, &shared) == TORSHC_OK);
    pthread_create(&threads[2], NULL, exchanger, (void *)(uintptr_t)weights);
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, caller_of_any_weights, (void *)(intptr_t)rows);
    for (int i = 0; i < 3; i++) {
        atomic_store(&seen, i == 2);
        pthread_join(threads[i], &result);
        CHECK(result == NULL);
    }
    prepare(c, rows);
    CHECK(run(shared, c) == TORSHC_OK && right(c));
    free(c);
    torshc_close(shared);
}

static void many_threads(int64_t rows)
{
    pthread_t threads[8];
    for (int i = 0; i < 8; i++)
        pthread_create(&threads[i], NULL, i % 2 ? caller : caller_with_context, (void *)(intptr_t)rows);
    for (int i = 0; i < 8; i++) {
        void *result;
        pthread_join(threads[i], &result);
        CHECK(result == NULL);
    }
}

static void forked(torshc_model *m, call *c, int64_t rows)
{
    int status = 0;
    const pid_t child = fork();
    if (!child) {
        prepare(c, rows);
        const int wrong = run(m, c) != TORSHC_E_FORKED || !untouched(c);
        torshc_close(m);
        _exit(wrong);
    }
    waitpid(child, &status, 0);
    CHECK(status == 0);
}

/* Whatever state the caller has set (here: flush denormals, round up), the results are those of the default state, in
 * the pool's threads too, and the state stays as it was. */
static void floating_point_state(const char *weights, call *c, int64_t rows)
{
#if defined(__x86_64__)
    const unsigned mine = 0xdfc0, before = __builtin_ia32_stmxcsr();
    float *want = malloc(sizeof c->y);
    for (int changed = 0; changed < 2; changed++) {
        torshc_model *m = NULL;
        torshc_options options = {.size = sizeof options, .threads = 2, .weights_path = weights};
        prepare(c, rows);
        for (int i = 0; i < ROWS_MAX * WIDTH; i++)
            c->x[i] = 1.0f / (float)(3 + i);
        if (changed)
            __builtin_ia32_ldmxcsr(mine);
        const int opened = torshc_open(&options, &m), ran = opened ? opened : run(m, c);
        const unsigned after = __builtin_ia32_stmxcsr();
        __builtin_ia32_ldmxcsr(before);
        CHECK(ran == TORSHC_OK && (!changed || after == mine));
        if (changed)
            CHECK(!memcmp(want, c->y, sizeof c->y));
        else
            memcpy(want, c->y, sizeof c->y);
        torshc_close(m);
    }
    free(want);
#else
    (void)weights, (void)c, (void)rows;
#endif
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    const char *weights = strcmp(argv[1], "-") ? argv[1] : NULL;
    const int64_t batch = atoll(argv[2]), rows = batch ? batch : 5;
    call *c = malloc(sizeof *c);
    CHECK(torshc_abi_version() == TORSHC_ABI_VERSION);
    CHECK(!strcmp(torshc_status_text(TORSHC_E_ALIAS), "overlapping buffers"));
    CHECK(!strcmp(torshc_status_text(TORSHC_E_UNSUPPORTED), "compiled without profiling"));
    CHECK(!strcmp(torshc_status_text(999), "unknown status"));
    opening(weights);
    contexts(weights, rows);
    other_weights(weights, c, rows);
    if (weights)
        weights_meanwhile(weights, rows);
    if (!getenv("ABI_TEST_VALGRIND")) /* which does not know all of the state */
        floating_point_state(weights, c, rows);
    for (int threads = 1; threads <= 2; threads++) {
        torshc_model *m = NULL;
        uint64_t calls = 0, ns = 0;
        torshc_options options = {.size = sizeof options, .threads = threads, .weights_path = weights};
        CHECK(torshc_open(&options, &m) == TORSHC_OK);
        shapes(m, c, rows, batch != 0);
        refusals(m, c, rows);
        workspaces(m, c, rows);
        if (!batch)
            symbolic(m, c);
        prepare(c, rows);
        CHECK(run(m, c) == TORSHC_OK && right(c));
        CHECK(torshc_profile(m, 0, &calls, &ns) == TORSHC_E_UNSUPPORTED);
        CHECK(torshc_profile(m, 2, &calls, &ns) == TORSHC_E_ARGUMENT);
        shared = m;
        many_threads(batch);
        if (threads > 1 && !getenv("ABI_TEST_VALGRIND")) /* a child cannot join threads that it does not have */
            forked(m, c, rows);
        torshc_close(m);
    }
    for (int i = 0; i < 50; i++) {
        torshc_model *m = NULL;
        torshc_options options = {.size = sizeof options, .threads = 2, .weights_path = weights};
        CHECK(torshc_open(&options, &m) == TORSHC_OK);
        torshc_close(m);
    }
    free(c);
    printf("%d wrong calls, %d failures\n", refused, failures);
    return failures != 0;
}
