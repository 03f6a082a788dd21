/* Trains the digits CNN further, in C and without a framework: for a camera that is mounted upside down.
 *
 *     train_digits BUNDLE STATE [STEPS]
 *
 * BUNDLE is what `torshc compile digits.onnx --train train_digits.yaml` wrote. Training goes on from the file STATE where
 * there is one, takes 40 steps, or STEPS, and is saved there. Exit status 0, or 1 with a message. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <training.h>

#include "c/digits.h"

enum { COUNT = 10, PIXELS = 64 };

static int fail(const char *what, const char *why)
{
    fprintf(stderr, "train_digits: %s: %s\n", what, why);
    return 1;
}

/* The built-in images turned around, and the digits that they show. */
static void make_batch(float images[COUNT][PIXELS], int64_t target[COUNT])
{
    for (int i = 0; i < COUNT; i++) {
        target[i] = i;
        for (int p = 0; p < PIXELS; p++) images[i][PIXELS - 1 - p] = digits[i][p / 8][p % 8] / 16.0f;
    }
}

int main(int argc, char **argv)
{
    static float images[COUNT][PIXELS];
    int64_t target[COUNT];
    float loss = 0;
    char weights[4096];
    if (argc < 3 || argc > 4) return fail("usage", "train_digits BUNDLE STATE [STEPS]");
    if (snprintf(weights, sizeof weights, "%s/weights.bin", argv[1]) >= (int)sizeof weights)
        return fail(argv[1], "the path is too long");

    torshc_options options = {.size = sizeof options, .threads = 1, .weights_path = weights};
    training_model *model;
    if (training_open(&options, &model)) return fail("cannot open the model", training_last_error());
    FILE *before = fopen(argv[2], "rb");
    int status = before ? training_state_load(model, argv[2]) : TORSHC_OK;
    if (before) fclose(before);

    make_batch(images, target);
    training_tensors t;
    memset(&t, 0, sizeof t);
    t.batch = COUNT;
    t.image = images[0];
    t.target = target;
    t.loss = &loss;
    const int steps = argc == 4 ? atoi(argv[3]) : 40;
    for (int k = 0; k < steps && !status; k++) {
        status = training_step(model, &t);
        if (!status && (k % 10 == 0 || k == steps - 1)) printf("step %2d of %d: loss %.4f\n", k + 1, steps, loss);
    }
    if (!status) status = training_state_save(model, argv[2]);
    if (status) fail("training stopped", training_last_error());
    training_close(model);
    return status != TORSHC_OK;
}
