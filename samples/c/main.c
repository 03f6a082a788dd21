/* Classifies handwritten digits with a compiled model: all that a program in C needs of torshc is the bundle.
 *
 *     digits BUNDLE [IMAGES]
 *
 * BUNDLE is the folder that `torshc compile` wrote. IMAGES is a raw file of 8x8 images, 64 floats in [0, 1] each, in
 * the machine's byte order; without it, ten built-in images are classified. Exit status 0, or 1 with a message. */
#include <model.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "digits.h"

enum { SIDE = 8, PIXELS = SIDE * SIDE, CLASSES = 10, BUILT_IN = 10 };

static int fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("digits: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    return 1;
}

/* The built-in images, their grey values scaled as the model was trained. */
static float *built_in_images(long *count)
{
    float *images = malloc(sizeof(float) * BUILT_IN * PIXELS);
    if (!images) {
        fail("out of memory");
        return NULL;
    }
    for (int i = 0; i < BUILT_IN; i++)
        for (int p = 0; p < PIXELS; p++) images[i * PIXELS + p] = digits[i][p / SIDE][p % SIDE] / 16.0f;
    *count = BUILT_IN;
    return images;
}

/* All images of a raw file; NULL, after a message, if it cannot be read or is not a whole number of images. */
static float *read_images(const char *path, long *count)
{
    const long image_bytes = PIXELS * sizeof(float);
    float *images = NULL;
    FILE *file = fopen(path, "rb");
    if (!file) {
        fail("cannot open %s", path);
        return NULL;
    }
    long bytes = fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
    if (bytes <= 0 || bytes % image_bytes != 0) {
        fail("%s has %ld bytes; an image has %ld bytes", path, bytes, image_bytes);
    } else if (!(images = malloc((size_t)bytes))) {
        fail("out of memory");
    } else {
        rewind(file);
        if (fread(images, 1, (size_t)bytes, file) != (size_t)bytes) {
            fail("cannot read %s", path);
            free(images);
            images = NULL;
        }
    }
    fclose(file);
    *count = bytes / image_bytes;
    return images;
}

/* One run for the whole batch: images [count, 1, 8, 8] in, probabilities [count, 10] out. The shapes are the caller's
 * and may differ from run to run, because the model's batch dimension is symbolic. */
static int classify(torshc_model *model, float *images, long count, float *probabilities)
{
    const torshc_device cpu = {TORSHC_CPU, 0};
    const torshc_dtype f32 = {TORSHC_FLOAT, 32, 1};
    int64_t image_shape[] = {count, 1, SIDE, SIDE};
    int64_t probability_shape[] = {count, CLASSES};
    torshc_tensor input = {images, cpu, 4, f32, image_shape, NULL, 0};
    torshc_tensor output = {probabilities, cpu, 2, f32, probability_shape, NULL, 0};
    return torshc_run(model, &input, 1, &output, 1, NULL, 0);
}

static void print_answers(const float *probabilities, long count)
{
    for (long i = 0; i < count; i++) {
        const float *p = probabilities + i * CLASSES;
        int best = 0;
        for (int digit = 1; digit < CLASSES; digit++)
            if (p[digit] > p[best]) best = digit;
        printf("image %2ld: says %d, %5.1f %%\n", i, best, 100.0 * p[best]);
    }
}

int main(int argc, char **argv)
{
    if (argc < 2 || argc > 3) return fail("usage: digits BUNDLE [IMAGES]");
    if (torshc_abi_version() != TORSHC_ABI_VERSION) return fail("built with the header of another torshc");

    /* The weights are opened exactly where the caller says; nothing is searched for. */
    char weights[4096];
    int length = snprintf(weights, sizeof weights, "%s/weights.bin", argv[1]);
    if (length < 0 || (size_t)length >= sizeof weights) return fail("the bundle's path is too long");
    torshc_options options = {.size = sizeof options, .threads = 1, .weights_path = weights};
    torshc_model *model;
    if (torshc_open(&options, &model) != TORSHC_OK) return fail("%s", torshc_last_error());

    int status = 1;
    long count = 0;
    float *probabilities = NULL;
    float *images = argc == 3 ? read_images(argv[2], &count) : built_in_images(&count);
    if (!images) goto done;
    probabilities = malloc(sizeof(float) * CLASSES * (size_t)count);
    if (!probabilities) {
        fail("out of memory");
        goto done;
    }
    if (classify(model, images, count, probabilities) != TORSHC_OK) {
        fail("%s", torshc_last_error());
        goto done;
    }
    print_answers(probabilities, count);
    status = 0;
done:
    free(probabilities);
    free(images);
    torshc_close(model);
    return status;
}
