/* Calls a bundle in processes that fork, whose signals have handlers, and on small stacks.
 *
 *     surroundings WEIGHTS INPUTS MODE COUNT, as callers.c */
#define _GNU_SOURCE
#include "calls.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- fork ---- */

static atomic_int stop;

static void *call_always(void *model)
{
    tensors mine = {.count = 0};
    make_outputs(model, &mine);
    while (!stop)
        need(!run(model, &mine) && same(&mine), "a run while others fork");
    free_outputs(&mine);
    return NULL;
}

static int is_untouched(const tensors *t)
{
    for (int i = 0; i < t->count; i++)
        for (size_t k = 0; k < t->bytes[i]; k++)
            if (((unsigned char *)t->tensor[i].data)[k] != 0xab)
                return 0;
    return 1;
}

/* Every call on a model of the parent is refused. */
static int is_refused(torshc_model *m, tensors *t)
{
    torshc_model *context = NULL;
    int64_t dims[RANK];
    uint64_t calls, nanoseconds;
    size_t bytes;
    void *data = NULL;
    const int found[] = {
        run(m, t),
        torshc_run_sized(m, inputs.tensor, inputs.count, t->tensor, t->count),
        torshc_output_shape(m, inputs.tensor, inputs.count, 0, dims),
        torshc_workspace_size(m, inputs.tensor, inputs.count, &bytes),
        torshc_context_new(m, NULL, &context),
        torshc_set_weights(m, options.weights_path),
        torshc_set_tensors(m, NULL, 0),
        torshc_alloc(m, 64, &data),
        torshc_copy(m, dims, &bytes, sizeof bytes),
        torshc_free(m, data),
        torshc_synchronize(m),
        torshc_profile(m, 0, &calls, &nanoseconds),
    };
    int refused = is_untouched(t) && !context;
    for (size_t k = 0; k < sizeof found / sizeof *found; k++)
        refused &= found[k] == TORSHC_E_FORKED;
    return refused;
}

static int child(torshc_model **models, int count, tensors *t)
{
    alarm(60); /* a call that waits for a thread of the parent waits for ever */
    for (int k = 0; k < count; k++)
        if (!is_refused(models[k], t))
            return 1;
    for (int k = 0; k < count; k++)
        torshc_close(models[k]);
    for (int threads = 1; threads <= 2; threads++) {
        torshc_model *again = opened(threads);
        if (run(again, t) || !same(t))
            return 2;
        torshc_close(again);
    }
    return 0;
}

/* Two threads run models of one and of two threads all the time, so that their locks are held when the process forks. */
static void in_children(long count)
{
    tensors t = {.count = 0};
    torshc_model *models[3] = {opened(1), opened(2)};
    pthread_t busy[2];
    need(!torshc_context_new(models[0], NULL, &models[2]), "a context");
    make_outputs(models[0], &t);
    for (int k = 0; k < 2; k++)
        need(!pthread_create(&busy[k], NULL, call_always, models[k]), "a thread");
    for (long i = 0; i < count; i++) {
        int status = 0;
        fflush(NULL);
        const pid_t id = fork();
        if (!id)
            _exit(child(models, 3, &t));
        waitpid(id, &status, 0);
        need(!status, "a child");
        need(!run(models[2], &t) && same(&t), "the parent after fork()");
    }
    stop = 1;
    for (int k = 0; k < 2; k++)
        pthread_join(busy[k], NULL);
    for (int k = 0; k < 3; k++)
        torshc_close(models[k]);
    free_outputs(&t);
    printf("children %ld\n", count);
}

/* ---- signals ---- */

static pthread_t program;
static atomic_long ours, theirs;

static void on_signal(int number)
{
    (void)number;
    if (pthread_equal(pthread_self(), program))
        ours++;
    else
        theirs++;
}

/* The program blocks signals and sends them to its process: no thread of a model takes one. */
static void to_workers(long count)
{
    static const int numbers[] = {SIGUSR1, SIGUSR2, SIGTERM, SIGINT, SIGHUP, SIGALRM, SIGPROF, SIGCHLD, SIGPIPE};
    const int kinds = sizeof numbers / sizeof *numbers;
    const struct sigaction action = {.sa_handler = on_signal};
    tensors t = {.count = 0};
    torshc_model *m = opened(4), *context;
    sigset_t blocked;
    need(!torshc_context_new(m, NULL, &context), "a context");
    make_outputs(m, &t);
    program = pthread_self();
    sigemptyset(&blocked);
    for (int k = 0; k < kinds; k++) {
        sigaction(numbers[k], &action, NULL);
        sigaddset(&blocked, numbers[k]);
    }
    for (long i = 0; i < count; i++) {
        pthread_sigmask(SIG_BLOCK, &blocked, NULL);
        for (int k = 0; k < kinds; k++)
            kill(getpid(), numbers[k]);
        need(!run(m, &t) && same(&t) && !run(context, &t), "a run while signals wait");
        need(theirs == 0, "a thread of the model took a signal");
        pthread_sigmask(SIG_UNBLOCK, &blocked, NULL);
        need(ours == (i + 1) * kinds, "the program did not get its signals");
    }
    torshc_close(context);
    torshc_close(m);
    free_outputs(&t);
    printf("signals to workers %ld\n", ours);
}

/* ---- stack ---- */

enum { STACK = 1 << 20, PAINT = 0xa5 };
static tensors painted;
static unsigned char *top;

static void *call_all(void *unused)
{
    torshc_model *m = NULL, *context = NULL;
    size_t bytes;
    int64_t dims[RANK];
    int status = 0;
    (void)unused;
    top = __builtin_frame_address(0);
    status |= torshc_open(&options, &m);
    for (int i = 0; i < painted.count; i++)
        status |= torshc_output_shape(m, inputs.tensor, inputs.count, i, dims);
    status |= torshc_workspace_size(m, inputs.tensor, inputs.count, &bytes);
    status |= torshc_context_new(m, NULL, &context);
    status |= torshc_run(m, inputs.tensor, inputs.count, painted.tensor, painted.count, NULL, 0);
    status |= torshc_run(context, inputs.tensor, inputs.count, painted.tensor, painted.count, NULL, 0);
    status |= !torshc_run(m, inputs.tensor, inputs.count + 1, painted.tensor, painted.count, NULL, 0); /* a message */
    status |= !torshc_set_weights(m, "/nowhere");
    torshc_close(context);
    torshc_close(m);
    return status ? painted.tensor : NULL;
}

static void on_paint(long unused)
{
    unsigned char *memory = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    torshc_model *m = opened(1);
    pthread_attr_t attributes;
    pthread_t thread;
    void *wrong;
    size_t free_bytes = 0;
    (void)unused;
    make_outputs(m, &painted);
    torshc_close(m);
    need(memory != MAP_FAILED, "memory");
    memset(memory, PAINT, STACK);
    pthread_attr_init(&attributes);
    need(!pthread_attr_setstack(&attributes, memory, STACK), "a stack");
    need(!pthread_create(&thread, &attributes, call_all, NULL), "a thread");
    pthread_join(thread, &wrong);
    need(!wrong && same(&painted), "a call on a painted stack");
    while (memory[free_bytes] == PAINT)
        free_bytes++;
    printf("at most bytes of stack %ld\n", (long)(top - memory) - (long)free_bytes);
    free_outputs(&painted);
}

int main(int argc, char **argv)
{
    static const mode modes[] = {{"fork", in_children}, {"workers", to_workers}, {"stack", on_paint}};
    return call_mode(argc, argv, modes, sizeof modes / sizeof *modes);
}
