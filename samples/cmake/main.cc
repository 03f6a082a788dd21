// A server in small: four threads answer requests for two models, each in contexts of its own.
//
//     server [REQUESTS]
//
// Both models are in one program and loaded once; a context has the model's weights and a workspace of its own, so that
// no thread waits for another. Every answer is compared with that of a single thread before. Exit status 0 when all agree.
#include <digits.h>
#include <flowers.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <thread>
#include <vector>

namespace {

constexpr int threads = 4;

// A request of either kind: an image of 8x8 pixels, or the four measures of a flower.
struct Request {
    bool image;
    std::array<float, 64> data;
};

using Answer = std::array<float, 10>;

// What one thread works with.
class Worker {
public:
    Worker(const digits_model *digits, const flowers_model *flowers)
    {
        if (digits_context_new(digits, nullptr, &digits_))
            throw std::runtime_error(digits_last_error());
        if (flowers_context_new(flowers, nullptr, &flowers_))
            throw std::runtime_error(flowers_last_error());
    }
    Worker(const Worker &) = delete;
    Worker &operator=(const Worker &) = delete;
    ~Worker()
    {
        digits_context_free(digits_);
        flowers_context_free(flowers_);
    }

    Answer answer(const Request &request)
    {
        Answer found{};
        if (request.image) {
            digits_tensors t{};
            t.batch = 1;
            t.image = request.data.data();
            t.probability = found.data();
            if (digits_call(digits_, &t))
                throw std::runtime_error(digits_last_error());
        } else {
            flowers_tensors t{};
            t.batch = 1;
            t.flower = request.data.data();
            t.species = found.data();
            if (flowers_call(flowers_, &t))
                throw std::runtime_error(flowers_last_error());
        }
        return found;
    }

private:
    digits_model *digits_ = nullptr;
    flowers_model *flowers_ = nullptr;
};

std::vector<Request> make_requests(int count)
{
    std::vector<Request> made(static_cast<size_t>(count));
    unsigned state = 1;
    for (size_t i = 0; i < made.size(); i++) {
        made[i].image = i % 2 == 0;
        for (float &x : made[i].data) {
            state = state * 1664525u + 1013904223u;
            x = static_cast<float>(state >> 8) / (1 << 24) * (made[i].image ? 1.0f : 7.0f);
        }
    }
    return made;
}

int serve(const digits_model *digits, const flowers_model *flowers, int count)
{
    const std::vector<Request> requests = make_requests(count);
    std::vector<Answer> expected, found(requests.size());
    Worker alone(digits, flowers);
    for (const Request &request : requests)
        expected.push_back(alone.answer(request));

    std::atomic<size_t> next{0};
    std::vector<std::thread> workers;
    for (int i = 0; i < threads; i++)
        workers.emplace_back([&] {
            Worker worker(digits, flowers);
            for (size_t k; (k = next++) < requests.size();)
                found[k] = worker.answer(requests[k]);
        });
    for (std::thread &worker : workers)
        worker.join();

    size_t wrong = 0;
    for (size_t k = 0; k < requests.size(); k++)
        wrong += found[k] != expected[k];
    std::printf("%zu requests to 2 models by %d threads, %zu wrong answers\n", requests.size(), threads, wrong);
    std::printf("digits take %s, flowers take %s\n", digits_input_name(digits_image_index), flowers_input_name(0));
    return wrong != 0;
}

}  // namespace

int main(int argc, char **argv)
{
    torshc_options options{};
    options.size = sizeof options;
    options.threads = 1;
    options.weights_path = DIGITS_WEIGHTS;
    digits_model *digits = nullptr;
    flowers_model *flowers = nullptr;
    int status = 1;
    if (digits_open(&options, &digits))
        std::fprintf(stderr, "server: %s\n", digits_last_error());
    else if (flowers_open(nullptr, &flowers))
        std::fprintf(stderr, "server: %s\n", flowers_last_error());
    else
        status = serve(digits, flowers, argc > 1 ? std::atoi(argv[1]) : 1000);
    flowers_close(flowers);
    digits_close(digits);
    return status;
}
