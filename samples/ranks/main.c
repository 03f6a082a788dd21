/* Runs a model that several processes share, on ones: mpirun -n 2 ./ranks BUNDLE
 *
 * Every rank gives its model the same inputs and gets the same outputs. MPI comes with the bundle's libtorshc_mpi.so; this
 * program and the model's libraries are linked with none.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"
#include "torshc_mpi.h"

enum { AXES = 8 };

/* What the program calls of a rank's library. */
typedef struct {
    int (*open)(const torshc_options *, torshc_model **);
    void (*close)(torshc_model *);
    const char *(*last_error)(void);
    int32_t (*input_count)(void), (*output_count)(void);
    int (*input_info)(int32_t, torshc_dtype *, int32_t *, const int64_t **);
    int (*output_info)(int32_t, torshc_dtype *, int32_t *, const int64_t **);
    int (*output_shape)(const torshc_model *, const torshc_tensor *, int32_t, int32_t, int64_t *);
    int (*run)(torshc_model *, const torshc_tensor *, int32_t, const torshc_tensor *, int32_t, void *, size_t);
} library;

static void *symbol(void *from, const char *name)
{
    void *found = dlsym(from, name);
    if (!found) {
        fprintf(stderr, "ranks: %s\n", dlerror());
        exit(1);
    }
    return found;
}

static void *load(const char *bundle, const char *file, int mode)
{
    char path[4096];
    if (snprintf(path, sizeof path, "%s/%s", bundle, file) >= (int)sizeof path) exit(1);
    void *found = dlopen(path, RTLD_NOW | mode);
    if (!found) {
        fprintf(stderr, "ranks: %s\n", dlerror());
        exit(1);
    }
    return found;
}

static library open_library(const char *bundle, int rank)
{
    char file[64];
    library l;
    snprintf(file, sizeof file, "rank%d/libmodel.so", rank);
    void *from = load(bundle, file, RTLD_LOCAL);
    *(void **)&l.open = symbol(from, "torshc_open");
    *(void **)&l.close = symbol(from, "torshc_close");
    *(void **)&l.last_error = symbol(from, "torshc_last_error");
    *(void **)&l.input_count = symbol(from, "torshc_input_count");
    *(void **)&l.output_count = symbol(from, "torshc_output_count");
    *(void **)&l.input_info = symbol(from, "torshc_input_info");
    *(void **)&l.output_info = symbol(from, "torshc_output_info");
    *(void **)&l.output_shape = symbol(from, "torshc_output_shape");
    *(void **)&l.run = symbol(from, "torshc_run");
    return l;
}

static size_t elements(const torshc_tensor *x)
{
    size_t count = 1;
    for (int32_t d = 0; d < x->ndim; d++) count *= (size_t)x->shape[d];
    return count;
}

/* A tensor of f32 of its declared sizes, 1 for those that are symbolic, filled with ones. */
static void make(torshc_tensor *x, int64_t *shape, int32_t ndim, torshc_dtype dtype, const int64_t *dims)
{
    if (ndim > AXES || dtype.code != TORSHC_FLOAT || dtype.bits != 32) {
        fprintf(stderr, "ranks: a tensor that is not f32, or has more than %d axes\n", AXES);
        exit(1);
    }
    for (int32_t d = 0; d < ndim; d++) shape[d] = dims[d] < 0 ? 1 : dims[d];
    *x = (torshc_tensor){NULL, {TORSHC_CPU, 0}, ndim, dtype, shape, NULL, 0};
    float *data = malloc(sizeof(float) * elements(x) + 1);
    for (size_t i = 0; data && i < elements(x); i++) data[i] = 1.0f;
    x->data = data;
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: mpirun -n RANKS ranks BUNDLE\n");
        return 2;
    }
    /* MPI's own parts look for its symbols among those of the whole program. */
    torshc_ranks *(*start)(void);
    *(void **)&start = symbol(load(argv[1], "libtorshc_mpi.so", RTLD_GLOBAL), "torshc_mpi_ranks");
    torshc_ranks *ranks = start();
    if (!ranks) return 1;

    library l = open_library(argv[1], ranks->rank);
    char weights[4096];
    snprintf(weights, sizeof weights, "%s/rank%d/weights.bin", argv[1], ranks->rank);
    torshc_options options = {.size = sizeof options, .threads = 1, .weights_path = weights, .ranks = ranks};
    torshc_model *model;
    if (l.open(&options, &model)) {
        fprintf(stderr, "ranks: %s\n", l.last_error());
        return 1;
    }
    torshc_tensor in[AXES], out[AXES];
    int64_t shapes[2 * AXES][AXES];
    const int32_t inputs = l.input_count(), outputs = l.output_count();
    if (inputs > AXES || outputs > AXES) return 1;
    torshc_dtype dtype;
    int32_t ndim;
    const int64_t *dims;
    for (int32_t i = 0; i < inputs; i++) {
        l.input_info(i, &dtype, &ndim, &dims);
        make(&in[i], shapes[i], ndim, dtype, dims);
    }
    for (int32_t i = 0; i < outputs; i++) {
        int64_t sizes[AXES];
        l.output_info(i, &dtype, &ndim, &dims);
        if (ndim > AXES || l.output_shape(model, in, inputs, i, sizes)) return 1;
        make(&out[i], shapes[AXES + i], ndim, dtype, sizes);
    }
    if (l.run(model, in, inputs, out, outputs, NULL, 0)) {
        fprintf(stderr, "ranks: rank %d: %s\n", (int)ranks->rank, l.last_error());
        return 1; /* as a run failed, the end of this program ends the others */
    }
    for (int32_t i = 0; i < outputs && ranks->rank == 0; i++) {
        double sum = 0;
        for (size_t k = 0; k < elements(&out[i]); k++) sum += ((const float *)out[i].data)[k];
        printf("output %d of %d ranks: sum %.6g\n", (int)i, (int)ranks->count, sum);
    }
    for (int32_t i = 0; i < inputs; i++) free(in[i].data);
    for (int32_t i = 0; i < outputs; i++) free(out[i].data);
    l.close(model);
    return 0;
}
