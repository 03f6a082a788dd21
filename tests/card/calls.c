/* Times calls of a bundle with tensors on its device: calls WEIGHTS CALLS, microseconds of each, the median of rounds. */
#include <model.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { MOST = 8, ROUNDS = 21 };

static void succeed(int status) {
    if (status != TORSHC_OK) exit((fprintf(stderr, "%s\n", torshc_last_error()), 1));
}

static double now(void) {
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef int information(int32_t index, torshc_dtype *dtype, int32_t *ndim, const int64_t **dims);

/* A tensor of zeros on the device. */
static torshc_tensor made(torshc_model *model, information *info, int32_t k) {
    torshc_tensor x = {0};
    const int64_t *dims;
    succeed(info(k, &x.dtype, &x.ndim, &dims));
    x.shape = (int64_t *)dims;
    size_t bytes = x.dtype.bits / 8;
    for (int32_t d = 0; d < x.ndim; d++) bytes *= (size_t)dims[d];
    void *const zeros = calloc(1, bytes);
    succeed(zeros ? torshc_alloc(model, bytes, &x.data) : TORSHC_E_MEMORY);
    succeed(torshc_copy(model, x.data, zeros, bytes));
    free(zeros);
    x.device.type = torshc_device_type();
    return x;
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    const torshc_options options = {.size = sizeof options, .weights_path = argv[1]};
    const int calls = atoi(argv[2]);
    torshc_model *model;
    succeed(torshc_open(&options, &model));
    const int32_t inputs = torshc_input_count(), outputs = torshc_output_count();
    torshc_tensor x[MOST], y[MOST];
    if (inputs > MOST || outputs > MOST || calls < 1) return 2;
    for (int32_t k = 0; k < inputs; k++) x[k] = made(model, torshc_input_info, k);
    for (int32_t k = 0; k < outputs; k++) y[k] = made(model, torshc_output_info, k);
    double rounds[ROUNDS];
    for (int r = 0; r < ROUNDS; r++) {
        const double began = now();
        for (int i = 0; i < calls; i++) succeed(torshc_run(model, x, inputs, y, outputs, NULL, 0));
        rounds[r] = (now() - began) / calls;
    }
    qsort(rounds, ROUNDS, sizeof *rounds, by_size);
    printf("%f\n", rounds[ROUNDS / 2]);
    for (int32_t k = 0; k < inputs; k++) succeed(torshc_free(model, x[k].data));
    for (int32_t k = 0; k < outputs; k++) succeed(torshc_free(model, y[k].data));
    torshc_close(model);
    return 0;
}
