/* What the programs that call a bundle share: its inputs from a file, its outputs, a run, and the first answer. */
#ifndef CALLS_H
#define CALLS_H

#include <model.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PORTS = 1024, RANK = 8 };

typedef struct {
    torshc_tensor tensor[PORTS];
    int64_t dims[PORTS][RANK];
    size_t bytes[PORTS];
    int count;
} tensors;

static tensors inputs, answer;
static torshc_options options = {.size = sizeof options, .threads = 1};

static inline void need(int condition, const char *what)
{
    if (condition)
        return;
    fprintf(stderr, "%s [%s]\n", what, torshc_last_error());
    exit(1);
}

/* ---- calls ---- */

static inline void add(tensors *t, torshc_dtype dtype, int32_t rank, const int64_t *dims)
{
    const int i = t->count++;
    size_t bytes = (size_t)(dtype.bits + 7) / 8;
    for (int k = 0; k < rank; k++)
        bytes *= (size_t)(t->dims[i][k] = dims[k]);
    t->bytes[i] = bytes;
    t->tensor[i] = (torshc_tensor){.device = {TORSHC_CPU, 0}, .ndim = rank, .dtype = dtype, .shape = t->dims[i]};
    need(!posix_memalign(&t->tensor[i].data, 64, bytes + 64), "memory");
}

static inline void read_inputs(const char *path)
{
    FILE *file = fopen(path, "rb");
    need(file != NULL, path);
    for (int i = 0; i < torshc_input_count(); i++) {
        int64_t rank, dims[RANK];
        torshc_dtype dtype;
        torshc_input_info(i, &dtype, NULL, NULL);
        need(fread(&rank, 8, 1, file) == 1 && rank <= RANK, "rank");
        need(fread(dims, 8, (size_t)rank, file) == (size_t)rank, "dimensions");
        add(&inputs, dtype, (int32_t)rank, dims);
        need(fread(inputs.tensor[i].data, 1, inputs.bytes[i], file) == inputs.bytes[i], "data");
    }
    fclose(file);
}

static inline void make_outputs(torshc_model *m, tensors *t)
{
    t->count = 0;
    for (int i = 0; i < torshc_output_count(); i++) {
        torshc_dtype dtype;
        int32_t rank;
        int64_t dims[RANK];
        torshc_output_info(i, &dtype, &rank, NULL);
        need(!torshc_output_shape(m, inputs.tensor, inputs.count, i, dims), "shape");
        add(t, dtype, rank, dims);
    }
}

static inline void free_outputs(tensors *t)
{
    for (int i = 0; i < t->count; i++)
        free(t->tensor[i].data);
}

static inline int run(torshc_model *m, tensors *t)
{
    for (int i = 0; i < t->count; i++)
        memset(t->tensor[i].data, 0xab, t->bytes[i]);
    return torshc_run(m, inputs.tensor, inputs.count, t->tensor, t->count, NULL, 0);
}

static inline int same(const tensors *t)
{
    for (int i = 0; i < t->count; i++)
        if (t->bytes[i] != answer.bytes[i] || memcmp(t->tensor[i].data, answer.tensor[i].data, t->bytes[i]))
            return 0;
    return t->count == answer.count;
}

static inline torshc_model *opened(int threads)
{
    torshc_model *m = NULL;
    torshc_options mine = options;
    mine.threads = threads;
    need(!torshc_open(&mine, &m), "open");
    return m;
}

/* Opens WEIGHTS, reads INPUTS, makes the first answer and calls the function of MODE with COUNT. */
typedef struct {
    const char *name;
    void (*function)(long);
} mode;

static inline int call_mode(int argc, char **argv, const mode *modes, size_t count)
{
    if (argc != 5)
        return 2;
    options.weights_path = argv[1];
    torshc_model *m = opened(1);
    read_inputs(argv[2]);
    make_outputs(m, &answer);
    need(!run(m, &answer), "run");
    torshc_close(m);
    for (size_t k = 0; k < count; k++)
        if (!strcmp(argv[3], modes[k].name))
            modes[k].function(atol(argv[4]));
    free_outputs(&answer);
    free_outputs(&inputs);
    return 0;
}

#endif
