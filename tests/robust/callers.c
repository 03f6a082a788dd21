/* Calls a bundle in ways that a program may: from many threads, in any floating-point state, between signals,
 * counting allocations, and two at once against the clock. Every answer must be the first one, bit for bit.
 *
 *     callers WEIGHTS INPUTS MODE COUNT
 *
 * INPUTS holds, for each input: rank, dimensions and data, numbers as int64. Prints "name value" for each figure. */
#define _GNU_SOURCE
#include "calls.h"

#include <errno.h>
#include <fenv.h>
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include <time.h>

enum { THREADS = 8 };

/* ---- allocations, where the C library lets them be counted ---- */

static volatile long allocations;
#ifdef COUNT_ALLOCATIONS
void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);
#define COUNTED __atomic_fetch_add(&allocations, 1, __ATOMIC_RELAXED)
void *malloc(size_t bytes) { return COUNTED, __libc_malloc(bytes); }
void *calloc(size_t n, size_t bytes) { return COUNTED, __libc_calloc(n, bytes); }
void *realloc(void *old, size_t bytes) { return COUNTED, __libc_realloc(old, bytes); }
void *memalign(size_t to, size_t bytes) { return COUNTED, __libc_memalign(to, bytes); }
void *aligned_alloc(size_t to, size_t bytes) { return COUNTED, __libc_memalign(to, bytes); }
int posix_memalign(void **out, size_t to, size_t bytes)
{
    *out = memalign(to, bytes);
    return *out ? 0 : ENOMEM;
}
#endif

/* ---- threads ---- */

static torshc_model *shared[2];
static long each;

static void *caller(void *unused)
{
    tensors mine = {.count = 0};
    const char *wrong = NULL;
    (void)unused;
    make_outputs(shared[0], &mine);
    for (long i = 0; i < each && !wrong; i++)
        if (run(shared[i % 2], &mine) || !same(&mine))
            wrong = "another answer in a thread";
    free_outputs(&mine);
    return (void *)wrong;
}

static void in_threads(long count)
{
    pthread_t threads[THREADS];
    each = count / THREADS;
    for (int k = 0; k < 2; k++)
        shared[k] = opened(1 + k);
    for (int k = 0; k < THREADS; k++)
        need(!pthread_create(&threads[k], NULL, caller, NULL), "a thread");
    for (int k = 0; k < THREADS; k++) {
        void *wrong;
        pthread_join(threads[k], &wrong);
        need(!wrong, wrong);
    }
    for (int k = 0; k < 2; k++)
        torshc_close(shared[k]);
    printf("calls %ld\n", each * THREADS);
}

/* ---- floating-point states ---- */

static unsigned state(void)
{
#if defined(__x86_64__)
    unsigned short x87;
    __asm__ volatile("fnstcw %0" : "=m"(x87));
    return __builtin_ia32_stmxcsr() | (unsigned)x87 << 16;
#else
    return (unsigned)fegetround();
#endif
}

static void set_state(int rounding, int flush, int traps)
{
    const int modes[4] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    fesetenv(FE_DFL_ENV);
    fesetround(modes[rounding]);
#if defined(__x86_64__)
    const unsigned both[4] = {0, 0x8000, 0x40, 0x8040}; /* flush to zero, denormals are zero */
    __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | both[flush]);
#else
    (void)flush;
#endif
#if defined(__GLIBC__)
    if (traps)
        feenableexcept(FE_DIVBYZERO | FE_INVALID | FE_OVERFLOW | FE_UNDERFLOW | FE_INEXACT);
#else
    (void)traps;
#endif
}

static void in_state(int rounding, int flush, int traps, int threads)
{
    torshc_model *m = NULL;
    torshc_options mine = options;
    tensors t = {.count = 0};
    int64_t dims[PORTS][RANK];
    size_t bytes;
    mine.threads = threads;
    for (int i = 0; i < answer.count; i++)
        add(&t, answer.tensor[i].dtype, answer.tensor[i].ndim, answer.dims[i]);
    set_state(rounding, flush, traps);
    const unsigned before = state();
    int status = torshc_open(&mine, &m);
    for (int i = 0; i < t.count && !status; i++)
        status = torshc_output_shape(m, inputs.tensor, inputs.count, i, dims[i]);
    status = status ? status : torshc_workspace_size(m, inputs.tensor, inputs.count, &bytes);
    status = status ? status : run(m, &t);
    torshc_close(m);
    const unsigned after = state();
    fesetenv(FE_DFL_ENV);
    need(!status, "a call in another floating-point state");
    need(before == after, "the floating-point state was changed");
    need(same(&t), "another answer in another floating-point state");
    for (int i = 0; i < t.count; i++)
        need(!memcmp(dims[i], answer.dims[i], 8 * (size_t)t.tensor[i].ndim), "other sizes in another state");
    free_outputs(&t);
}

static void in_states(long count)
{
    long done = 0;
    for (int threads = 1; threads <= 2; threads++)
        for (int k = 0; k < 32 && done < count; k++, done++)
            in_state(k % 4, k / 4 % 4, k / 16, threads);
    printf("floating-point states %ld\n", done);
}

/* ---- signals ---- */

static volatile sig_atomic_t signals;

static void on_signal(int number)
{
    static volatile double sum = 1;
    (void)number;
    signals++;
    sum = sum / 3 + 1e-300;
    errno = EINTR;
}

static void between_signals(long count)
{
    const struct sigaction action = {.sa_handler = on_signal}; /* no SA_RESTART */
    const struct itimerval often = {{0, 100}, {0, 100}}, never = {{0, 0}, {0, 0}};
    tensors t = {.count = 0};
    torshc_model *m = opened(2);
    make_outputs(m, &t);
    sigaction(SIGALRM, &action, NULL);
    sigaction(SIGPROF, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    setitimer(ITIMER_PROF, &often, NULL);
    while (signals < count) {
        const int status = run(m, &t);
        need(!status && same(&t), "another answer between signals");
        torshc_close(opened(2));
    }
    setitimer(ITIMER_REAL, &never, NULL);
    setitimer(ITIMER_PROF, &never, NULL);
    torshc_close(m);
    free_outputs(&t);
    printf("signals %ld\n", (long)signals);
}

/* ---- allocations ---- */

static void without_allocations(long count)
{
    for (int threads = 1; threads <= 2; threads++) {
        tensors t = {.count = 0};
        torshc_model *m = opened(threads);
        make_outputs(m, &t);
        const long before = allocations;
        need(before > 0, "nothing is counted");
        for (long i = 0; i < count / 2; i++)
            need(!run(m, &t), "run");
        need(allocations == before, "a run allocates");
        need(same(&t), "another answer");
        torshc_close(m);
        free_outputs(&t);
    }
    printf("runs without an allocation %ld\n", count / 2 * 2);
}

/* ---- contexts ---- */

/* A thread with a context: `runs` runs, and the processor time that they took, in seconds. */
typedef struct {
    torshc_model *context;
    tensors out;
    long runs;
    double own;
    pthread_barrier_t *start;
} runner;

static double seconds(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void *in_context(void *argument)
{
    runner *r = argument;
    int status = 0;
    pthread_barrier_wait(r->start);
    const double began = seconds(CLOCK_THREAD_CPUTIME_ID);
    for (long k = 0; k < r->runs; k++)
        status |= torshc_run(r->context, inputs.tensor, inputs.count, r->out.tensor, r->out.count, NULL, 0);
    r->own = seconds(CLOCK_THREAD_CPUTIME_ID) - began;
    return status ? "a run in a context" : NULL;
}

/* Seconds by the clock until so many contexts have made their runs; `own` gets the processor time of the slowest. */
static double stretch(runner *runners, int count, double *own)
{
    pthread_t threads[2];
    pthread_barrier_t start;
    pthread_barrier_init(&start, NULL, (unsigned)count + 1);
    for (int k = 0; k < count; k++) {
        runners[k].start = &start;
        need(!pthread_create(&threads[k], NULL, in_context, &runners[k]), "a thread");
    }
    pthread_barrier_wait(&start);
    const double began = seconds(CLOCK_MONOTONIC);
    *own = 0;
    for (int k = 0; k < count; k++) {
        void *wrong;
        pthread_join(threads[k], &wrong);
        need(!wrong, wrong);
        *own = runners[k].own > *own ? runners[k].own : *own;
    }
    const double took = seconds(CLOCK_MONOTONIC) - began;
    pthread_barrier_destroy(&start);
    return took;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, long count)
{
    qsort(values, (size_t)count, sizeof *values, by_size);
    return (values[count / 2] + values[(count - 1) / 2]) / 2;
}

/* How long two contexts take that run at once, each as often as one that runs alone; the two in turns. By the threads'
 * own time what else the machine does counts less. */
static void two_contexts(long count)
{
    const double stretches = 0.1; /* seconds */
    runner runners[2];
    torshc_model *m = opened(1);
    double *clock = calloc(3 * (size_t)count, sizeof *clock), *own = clock + count, *alone = own + count;
    double took = 0, ours[2];
    long runs = 1;
    for (int k = 0; k < 2; k++) {
        need(!torshc_context_new(m, NULL, &runners[k].context), "a context");
        make_outputs(m, &runners[k].out);
    }
    for (;; runs *= 2) { /* both, so that what a first run brings is behind them */
        runners[0].runs = runners[1].runs = runs;
        if ((took = stretch(runners, 2, ours)) > stretches / 2)
            break;
    }
    runners[0].runs = runners[1].runs = runs = 1 + (long)((double)runs * stretches / took);
    for (long k = 0; k < count; k++) {
        alone[k] = stretch(runners, 1, &ours[0]);
        clock[k] = stretch(runners, 2, &ours[1]) / alone[k];
        own[k] = ours[1] / ours[0];
    }
    for (int k = 0; k < 2; k++) {
        need(same(&runners[k].out), "another answer in a context");
        torshc_context_free(runners[k].context);
        free_outputs(&runners[k].out);
    }
    torshc_close(m);
    printf("nanoseconds %.0f\n", 1e9 * median(alone, count) / (double)runs);
    printf("thousandths by the clock %.0f\n", 1000 * median(clock, count));
    printf("thousandths by the threads' own time %.0f\n", 1000 * median(own, count));
    free(clock);
}

int main(int argc, char **argv)
{
    static const mode modes[] = {{"threads", in_threads},
                                 {"states", in_states},
                                 {"signals", between_signals},
                                 {"memory", without_allocations},
                                 {"contexts", two_contexts}};
    return call_mode(argc, argv, modes, sizeof modes / sizeof *modes);
}
