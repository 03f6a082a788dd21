/* Fork and join: the caller opens a run, and works too; a worker that sees the open run joins it, takes chunks until none
 * is left, and leaves. The caller, when it finds no chunk any more, closes the run.
 *
 * A run ends when it is closed and every worker that joined has left, so that no worker can still be reading the fields
 * of a run when the next one is written. Who wakes too late to join is not waited for: of a short run the caller has done
 * all the work before another thread is awake, some tens of microseconds where its processor was asleep or is in use.
 */
#define _GNU_SOURCE
#include "t_pool.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

/* Pauses of a spin before sleeping: some tens of microseconds. Model runs are launches close
 * upon each other; a worker should be awake for the next one, and not longer. */
enum { SPINS = 2000, CACHE_LINE = 64, MAX_THREADS = 1024 };

/* Parts of a pool's state: workers inside, OPEN, and the run's number, a multiple of RUN. */
#define INSIDE 0xffffull
#define OPEN (1ull << 16)
#define RUN (1ull << 32)

struct worker {
    t_pool *pool;
    pthread_t thread;
    int index;
};

struct t_pool {
    /* Written by the caller between runs. */
    t_kernel *fn;
    void *const *buf;
    const int64_t *dim;
    unsigned char *scratch;
    size_t scratch_stride;
    int64_t tasks, chunk;
    int threads;
    atomic_int stop;

    _Alignas(CACHE_LINE) atomic_ullong state; /* the number of the run, whether it is open, and the workers inside */
    atomic_int caller_sleeps;
    _Alignas(CACHE_LINE) atomic_llong next;

    _Alignas(CACHE_LINE) pthread_mutex_t lock;
    pthread_cond_t started, finished;
    int sleepers; /* guarded by lock */
    struct worker workers[];
};

static inline void pause_cpu(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__) || defined(__arm__)
    __asm__ __volatile__("yield");
#endif
}

static void work(t_pool *pool, int index) {
    unsigned char *scratch = pool->scratch;
    if (scratch)
        scratch += (size_t)index * pool->scratch_stride;
    const int64_t tasks = pool->tasks, chunk = pool->chunk;
    for (;;) {
        const int64_t begin = atomic_fetch_add_explicit(&pool->next, chunk, memory_order_relaxed);
        if (begin >= tasks)
            return;
        pool->fn(pool->buf, pool->dim, scratch, begin, tasks - begin < chunk ? tasks : begin + chunk);
    }
}

/* A worker is inside no more. Sequentially consistent with the caller's announcement in close_run: either the caller
 * sees that nobody is inside, or this sees that it sleeps. */
static void leave(t_pool *pool) {
    if ((atomic_fetch_sub(&pool->state, 1) & INSIDE) != 1 || !atomic_load(&pool->caller_sleeps))
        return;
    pthread_mutex_lock(&pool->lock);
    pthread_cond_signal(&pool->finished);
    pthread_mutex_unlock(&pool->lock);
}

/* Whether a state is that of an open run other than `seen`. */
static inline int is_new(uint64_t state, uint64_t seen) { return (state & OPEN) && state / RUN != seen; }

/* Joins an open run other than `seen`, which becomes its number; false where there is none. */
static int join(t_pool *pool, uint64_t *seen) {
    if (!is_new(atomic_load_explicit(&pool->state, memory_order_relaxed), *seen))
        return 0;
    const uint64_t state = atomic_fetch_add_explicit(&pool->state, 1, memory_order_acquire);
    if (is_new(state, *seen)) {
        *seen = state / RUN;
        return 1;
    }
    leave(pool);
    return 0;
}

/* Waits for a run other than `seen`, and joins it. */
static void wait_run(t_pool *pool, uint64_t *seen) {
    for (;;) {
        for (int i = 0; i < SPINS; i++) {
            if (join(pool, seen))
                return;
            pause_cpu();
        }
        pthread_mutex_lock(&pool->lock);
        pool->sleepers++;
        if (!is_new(atomic_load_explicit(&pool->state, memory_order_relaxed), *seen))
            pthread_cond_wait(&pool->started, &pool->lock);
        pool->sleepers--;
        pthread_mutex_unlock(&pool->lock);
    }
}

static void *worker_main(void *argument) {
    struct worker *self = argument;
    t_pool *pool = self->pool;
    for (uint64_t seen = 0;;) {
        wait_run(pool, &seen);
        if (atomic_load_explicit(&pool->stop, memory_order_relaxed))
            return NULL;
        work(pool, self->index);
        leave(pool);
    }
}

/* Opens a run; the lock orders it with a worker that is about to sleep. */
static void open_run(t_pool *pool) {
    pthread_mutex_lock(&pool->lock);
    atomic_fetch_add_explicit(&pool->state, RUN + OPEN, memory_order_release);
    const int sleepers = pool->sleepers;
    pthread_mutex_unlock(&pool->lock);
    if (sleepers)
        pthread_cond_broadcast(&pool->started);
}

/* Closes the run, and waits until all who joined it have left. */
static void close_run(t_pool *pool) {
    if (!(atomic_fetch_sub_explicit(&pool->state, OPEN, memory_order_acquire) & INSIDE))
        return;
    for (int i = 0; i < SPINS; i++) {
        if (!(atomic_load_explicit(&pool->state, memory_order_acquire) & INSIDE))
            return;
        pause_cpu();
    }
    pthread_mutex_lock(&pool->lock);
    atomic_store(&pool->caller_sleeps, 1);
    while (atomic_load(&pool->state) & INSIDE)
        pthread_cond_wait(&pool->finished, &pool->lock);
    atomic_store(&pool->caller_sleeps, 0);
    pthread_mutex_unlock(&pool->lock);
}

void t_pool_run(t_pool *pool, t_kernel *fn, void *const *buf, const int64_t *dim, unsigned char *scratch,
                size_t scratch_stride, int64_t tasks) {
    if (tasks <= 0)
        return;
    if (!pool || tasks == 1) {
        fn(buf, dim, scratch, 0, tasks);
        return;
    }
    const int64_t chunk = tasks / ((int64_t)pool->threads * 8);
    pool->fn = fn;
    pool->buf = buf;
    pool->dim = dim;
    pool->scratch = scratch;
    pool->scratch_stride = scratch_stride;
    pool->tasks = tasks;
    pool->chunk = chunk > 1 ? chunk : 1;
    atomic_store_explicit(&pool->next, 0, memory_order_relaxed);
    open_run(pool);
    work(pool, 0);
    close_run(pool);
}

int t_pool_threads(const t_pool *pool) { return pool ? pool->threads : 1; }

/* Workers inherit the mask that they are started with: signals of the program run on its own threads. Those stay that a
 * fault in a worker raises there. */
static void block_signals(sigset_t *before) {
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
    sigset_t blocked;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        sigdelset(&blocked, faults[i]);
    pthread_sigmask(SIG_BLOCK, &blocked, before);
}

static int start_workers(t_pool *pool, int threads) {
    int started = 1;
    sigset_t before;
    block_signals(&before);
    for (; started < threads; started++) {
        struct worker *w = &pool->workers[started - 1];
        w->pool = pool;
        w->index = started;
        if (pthread_create(&w->thread, NULL, worker_main, w))
            break;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

int t_start_thread(pthread_t *thread, void *(*main)(void *), void *argument) {
    sigset_t before;
    block_signals(&before);
    const int error = pthread_create(thread, NULL, main, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

t_pool *t_pool_create(int threads) {
    if (threads <= 1)
        return NULL;
    if (threads > MAX_THREADS)
        threads = MAX_THREADS;
    size_t size = sizeof(t_pool) + (size_t)(threads - 1) * sizeof(struct worker);
    size = (size + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
    t_pool *pool = aligned_alloc(CACHE_LINE, size);
    if (!pool)
        return NULL;
    *pool = (t_pool){.threads = 1};
    /* With default attributes on the systems in question these only fill in memory. */
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->started, NULL);
    pthread_cond_init(&pool->finished, NULL);
    pool->threads = start_workers(pool, threads);
    if (pool->threads > 1)
        return pool;
    t_pool_destroy(pool);
    return NULL;
}

void t_pool_destroy(t_pool *pool) {
    if (!pool)
        return;
    atomic_store_explicit(&pool->stop, 1, memory_order_relaxed);
    open_run(pool);
    for (int i = 0; i < pool->threads - 1; i++)
        pthread_join(pool->workers[i].thread, NULL);
    pthread_cond_destroy(&pool->finished);
    pthread_cond_destroy(&pool->started);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}
