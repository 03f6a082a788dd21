/* A model whose result sizes are known only at run time, through the C interface: scalars without a shape, both ways to run, and
 * what a caller may get wrong. The model is that of test_script_abi.py:
 *
 *     rounds, start -> last = start + 0 + 1 + ... + (rounds - 1), all = the sums after each round */
#include <model.h>
#include <stdio.h>

static int failures;

#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            printf("line %d: %s; last error: %s\n", __LINE__, #condition, torshc_last_error());                        \
            failures++;                                                                                                \
        }                                                                                                              \
    } while (0)

static torshc_tensor scalar(int64_t *data)
{
    return (torshc_tensor){data, {TORSHC_CPU, 0}, 0, {TORSHC_INT, 64, 1}, NULL, NULL, 0};
}

static void sized(torshc_model *model, int64_t rounds, int64_t start)
{
    torshc_tensor in[] = {scalar(&rounds), scalar(&start)}, out[2];
    EXPECT(torshc_run_sized(model, in, 2, out, 2) == TORSHC_OK);
    EXPECT(out[0].ndim == 0 && *(int64_t *)out[0].data == start + rounds * (rounds - 1) / 2);
    EXPECT(out[1].ndim == 1 && out[1].shape[0] == rounds);
    int64_t sum = start;
    for (int64_t i = 0; i < rounds; i++)
        EXPECT(((int64_t *)out[1].data)[i] == (sum += i));
}

static void known(torshc_model *model)
{
    int64_t rounds = 3, start = 10, last = -1, sums[4] = {-1, -1, -1, -1}, three = 3, four = 4;
    torshc_tensor in[] = {scalar(&rounds), scalar(&start)}, out[] = {scalar(&last), scalar(sums)};
    out[1].ndim = 1;
    out[1].shape = &four;
    EXPECT(torshc_run(model, in, 2, out, 2, NULL, 0) == TORSHC_E_SHAPE);
    EXPECT(last == -1 && sums[0] == -1); /* all checks come before the first write */
    out[1].shape = &three;
    EXPECT(torshc_run(model, in, 2, out, 2, NULL, 0) == TORSHC_OK);
    out[1].data = &last;
    out[0].data = &start;
    EXPECT(torshc_run(model, in, 2, out, 2, NULL, 0) == TORSHC_E_ALIAS && start == 10);
    EXPECT(last == 13 && sums[0] == 10 && sums[1] == 11 && sums[2] == 13 && sums[3] == -1);
}

static void refused(torshc_model *model)
{
    int64_t rounds = 3, start = 10, two = 2, dims[4];
    torshc_tensor in[] = {scalar(&rounds), scalar(&start)}, out[2];
    EXPECT(torshc_run_sized(model, in, 1, out, 2) == TORSHC_E_COUNT);
    EXPECT(torshc_run_sized(model, in, 2, out, 1) == TORSHC_E_COUNT);
    EXPECT(torshc_run_sized(NULL, in, 2, out, 2) == TORSHC_E_ARGUMENT);
    EXPECT(torshc_run_sized(model, NULL, 2, out, 2) == TORSHC_E_ARGUMENT);
    EXPECT(torshc_run_sized(model, in, 2, NULL, 2) == TORSHC_E_ARGUMENT);
    EXPECT(torshc_run(model, in, 2, NULL, 2, NULL, 0) == TORSHC_E_ARGUMENT);
    in[0].ndim = 1;
    EXPECT(torshc_run_sized(model, in, 2, out, 2) == TORSHC_E_RANK);
    in[0].shape = &two;
    EXPECT(torshc_run_sized(model, in, 2, out, 2) == TORSHC_E_RANK);
    in[0] = scalar(NULL);
    EXPECT(torshc_run_sized(model, in, 2, out, 2) == TORSHC_E_NULL);
    in[0] = scalar(&rounds);
    in[1].dtype.bits = 32;
    EXPECT(torshc_run_sized(model, in, 2, out, 2) == TORSHC_E_DTYPE);
    in[1] = scalar(&start);
    EXPECT(torshc_output_shape(model, in, 2, 1, dims) == TORSHC_OK && dims[0] == -1);
}

int main(int count, char **arguments)
{
    const torshc_options options = {.size = sizeof options, .threads = 2, .weights_path = count > 1 ? arguments[1] : 0};
    torshc_model *model = NULL;
    EXPECT(torshc_open(&options, &model) == TORSHC_OK);
    for (int turn = 0; model && turn < 3; turn++) {
        sized(model, 5, 100);
        refused(model);
        sized(model, 0, -1);
        known(model);
        sized(model, 1000, 0); /* more rounds than there was room for at first */
    }
    torshc_close(model);
    printf("%d failures\n", failures);
    return failures != 0;
}
