// Uses a bundle for a device from C++ through model.h alone. The model is that of tiny.py: x [s0, 16] -> y = relu(x) + w,
// z = 2 y.
//
//     device_test WEIGHTS_OR_- STATIC_BATCH_OR_0
#include <model.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

static const int WIDTH = 16;
static int failures;

#define CHECK(condition)                                                                   \
    do {                                                                                   \
        if (!(condition)) {                                                                \
            std::printf("line %d: %s [%s]\n", __LINE__, #condition, torshc_last_error()); \
            failures++;                                                                    \
        }                                                                                  \
    } while (0)

struct Call {
    std::vector<float> x, y, z;
    int64_t shape[2];
    torshc_tensor in, out[2];
    explicit Call(int64_t rows) : x(rows * WIDTH), y(rows * WIDTH, 77.0f), z(rows * WIDTH, 77.0f), shape{rows, WIDTH}
    {
        for (size_t i = 0; i < x.size(); i++)
            x[i] = (float)(i % 7) - 3.0f;
        const torshc_tensor tensor = {nullptr, {TORSHC_CPU, 0}, 2, {TORSHC_FLOAT, 32, 1}, shape, nullptr, 0};
        in = out[0] = out[1] = tensor;
        in.data = x.data(), out[0].data = y.data(), out[1].data = z.data();
    }
    bool right() const
    {
        for (size_t i = 0; i < x.size(); i++) {
            const float weight = -1.0f + 2.0f * (float)(i % WIDTH) / 15.0f;
            const float error = y[i] - ((x[i] > 0 ? x[i] : 0) + weight);
            if (error > 1e-6f || error < -1e-6f || z[i] != 2 * y[i])
                return false;
        }
        return true;
    }
};

static int run(torshc_model *m, Call &c, void *workspace = nullptr, size_t bytes = 0)
{
    return torshc_run(m, &c.in, 1, c.out, 2, workspace, bytes);
}

static void move_to(torshc_model *m, torshc_tensor *tensor, const std::vector<float> &data)
{
    void *at = nullptr;
    CHECK(torshc_alloc(m, data.size() * sizeof(float), &at) == TORSHC_OK);
    CHECK(torshc_copy(m, at, data.data(), data.size() * sizeof(float)) == TORSHC_OK);
    tensor->data = at;
    tensor->device = {torshc_device_type(), 0};
}

static void on_device(torshc_model *m, int64_t rows)
{
    Call c(rows);
    const size_t bytes = c.x.size() * sizeof(float);
    move_to(m, &c.in, c.x);
    move_to(m, &c.out[0], c.y);
    move_to(m, &c.out[1], c.z);
    for (int i = 0; i < 4; i++) {
        CHECK(run(m, c) == TORSHC_OK);
        CHECK(torshc_copy(m, c.y.data(), c.out[0].data, bytes) == TORSHC_OK);
        CHECK(torshc_copy(m, c.z.data(), c.out[1].data, bytes) == TORSHC_OK);
        CHECK(c.right());
    }
    c.in.device.id = 7;
    CHECK(run(m, c) == TORSHC_E_DEVICE);
    c.in.device.id = 0;
    void *const where = c.out[1].data;
    c.out[1].data = c.out[0].data;
    CHECK(run(m, c) == TORSHC_E_ALIAS);
    c.out[1].data = c.x.data(); /* memory of the processor */
    CHECK(run(m, c) == TORSHC_E_DEVICE);
    c.out[1].data = where;

    size_t need = 0;
    void *workspace = nullptr;
    CHECK(torshc_workspace_size(m, &c.in, 1, &need) == TORSHC_OK && need >= 64);
    CHECK(torshc_alloc(m, need + 8, &workspace) == TORSHC_OK);
    CHECK(run(m, c, workspace, need) == TORSHC_OK);
    CHECK(run(m, c, workspace, need - 1) == TORSHC_E_WORKSPACE);
    CHECK(run(m, c, (char *)workspace + 8, need) == TORSHC_E_ALIGN);
    alignas(64) static char host[4096];
    CHECK(need > sizeof host || run(m, c, host, sizeof host) == TORSHC_E_DEVICE);
    CHECK(torshc_free(m, where) == TORSHC_OK);
    CHECK(run(m, c) == TORSHC_E_DEVICE); /* what is given back is not known any more */
    for (void *at : {workspace, c.in.data, c.out[0].data})
        CHECK(torshc_free(m, at) == TORSHC_OK);
    CHECK(torshc_free(m, nullptr) == TORSHC_OK && torshc_synchronize(m) == TORSHC_OK);
}

static void refused(torshc_model *m, int64_t rows)
{
    Call c(rows);
    CHECK(run(nullptr, c) == TORSHC_E_ARGUMENT);
    CHECK(torshc_run(m, &c.in, 2, c.out, 2, nullptr, 0) == TORSHC_E_COUNT);
    c.in.device.type = torshc_device_type() == TORSHC_CUDA ? TORSHC_METAL : TORSHC_CUDA;
    CHECK(run(m, c) == TORSHC_E_DEVICE);
    c.in.device.type = TORSHC_CPU;
    c.in.dtype.bits = 64;
    CHECK(run(m, c) == TORSHC_E_DTYPE);
    c.in.dtype.bits = 32;
    c.in.data = nullptr;
    CHECK(run(m, c) == TORSHC_E_NULL);
    c.in.data = c.x.data();
    CHECK(c.y[0] == 77.0f && run(m, c) == TORSHC_OK && c.right());
}

static void opening(const char *weights)
{
    torshc_model *m = nullptr;
    torshc_options options = {};
    options.size = sizeof options;
    options.weights_path = weights;
    options.device = 99;
    CHECK(torshc_open(&options, &m) == TORSHC_E_DEVICE && !m);
    options.device = 0;
    options.size = 24; /* the first version's */
    CHECK(torshc_open(&options, &m) == TORSHC_OK);
    torshc_close(m);
    options.size = sizeof options;
    options.weights_path = "/nonesuch";
    CHECK(!weights || (torshc_open(&options, &m) == TORSHC_E_WEIGHTS && !m));
}

int main(int, char **argv)
{
    const char *weights = std::strcmp(argv[1], "-") ? argv[1] : nullptr;
    const int64_t batch = std::atoi(argv[2]);
    torshc_options options = {};
    options.size = sizeof options;
    options.weights_path = weights;
    torshc_model *m = nullptr;
    opening(weights);
    CHECK(torshc_device_type() == TORSHC_CUDA || torshc_device_type() == TORSHC_METAL);
    CHECK(torshc_open(&options, &m) == TORSHC_OK);
    if (!m)
        return 1;
    for (int64_t rows : {5, 1, 64, 64, 64, 5, 3000}) {
        Call c(batch ? batch : rows);
        CHECK(run(m, c) == TORSHC_OK && c.right());
    }
    on_device(m, batch ? batch : 33);
    refused(m, batch ? batch : 3);
    std::vector<std::thread> threads;
    for (int k = 0; k < 4; k++)
        threads.emplace_back([=] {
            for (int i = 0; i < 50; i++) {
                Call c(batch ? batch : 1 + (k + i) % 9);
                CHECK(run(m, c) == TORSHC_OK && c.right());
            }
        });
    for (std::thread &thread : threads)
        thread.join();
    torshc_close(m);
    std::printf("%d failures\n", failures);
    return failures != 0;
}
