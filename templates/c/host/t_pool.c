/* Fork and join: the caller opens a run, and works too; a worker that sees the open run joins it, takes chunks until none
 * is left, and leaves. The caller, when it finds no chunk any more, closes the run.
 *
 * Each thread has chunks of its own, which lie beside each other, and takes those of others when it has done them. Where
 * kernels have alike tasks a processor so meets the rows and weights again that are in its caches, and in a short run no
 * two threads write the same line of memory, which takes as long as a small task.
 *
 * A run ends when it is closed and every worker that joined has left, so that no worker can still be reading the fields
 * of a run when the next one is written. Who wakes too late to join is not waited for: of a short run the caller has done
 * all the work before another thread is awake, some tens of microseconds where its processor was asleep or is in use.
 *
 * A system with more threads than processors takes a worker's processor away when its time slice is used up, for as long
 * as another's slice: some milliseconds, for which the caller would wait if that happened within a chunk. A worker so
 * leaves the run and gives way by itself before its slice ends; where nobody else wants the processor, it is back at once.
 */
#define _GNU_SOURCE
#include "t_pool.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

/* Pauses of a spin before sleeping: some tens of microseconds. Model runs are launches close
 * upon each other; a worker should be awake for the next one, and not longer. */
enum { SPINS = 2000, CACHE_LINE = 64, MAX_THREADS = 1024 };
/* How long a worker computes before it gives way: less than a slice of Linux, 1.4 ms with two processors and 2.8 with
 * eight or more. The caller, whom nobody waits for, does not. */
#define TURN_NS 1000000u
#define NEVER UINT64_MAX

/* Parts of a pool's state: OPEN, how many threads the run wants, a multiple of WANTED, and the run's number, of RUN. */
#define OPEN 1ull
#define WANTED 2ull
#define RUN (1ull << 16)

/* What a thread has: how many of its chunks are taken in a run, whose number is a multiple of RUN, and whether it is inside. */
struct place {
    _Alignas(CACHE_LINE) atomic_ullong taken;
    _Alignas(CACHE_LINE) atomic_int inside;
};

struct worker {
    t_pool *pool;
    pthread_t thread;
    int index;
};

struct t_pool {
    /* Of a run, in one line with its number, by which workers see that the rest is there. */
    _Alignas(CACHE_LINE) atomic_ullong state;
    t_kernel *fn;
    void *const *buf;
    const int64_t *dim;
    unsigned char *scratch;
    size_t scratch_stride;
    int64_t tasks, chunk;

    _Alignas(CACHE_LINE) pthread_mutex_t lock;
    pthread_cond_t started, finished;
    atomic_int first_asleep; /* no worker of a lower index sleeps; MAX_THREADS where none does */
    atomic_int caller_sleeps, stop;
    int threads;
    struct place *places;
    struct worker workers[];
};

static inline void pause_cpu(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__) || defined(__arm__)
    __asm__ __volatile__("yield");
#endif
}

static inline int wanted(uint64_t state) { return (int)(state % RUN / WANTED); }

/* Takes one of `count` chunks of a thread; returns how many were taken before, or `count` where all were. */
static int64_t take(struct place *place, uint64_t run, int64_t count) {
    unsigned long long seen = atomic_load_explicit(&place->taken, memory_order_relaxed);
    for (;;) {
        const uint64_t taken = seen / RUN == run ? seen % RUN : 0;
        if ((int64_t)taken >= count)
            return count;
        if (atomic_compare_exchange_weak_explicit(&place->taken, &seen, run * RUN + taken + 1, memory_order_relaxed,
                                                  memory_order_relaxed))
            return (int64_t)taken;
    }
}

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* Does chunks of the run that `state` is, those of thread `index` first, until none is left or it is time to give way;
 * returns whether none is left. */
static int work(t_pool *pool, int index, uint64_t state, uint64_t give_way) {
    unsigned char *scratch = pool->scratch;
    if (scratch)
        scratch += (size_t)index * pool->scratch_stride;
    const int64_t tasks = pool->tasks, chunk = pool->chunk, chunks = (tasks + chunk - 1) / chunk;
    const int threads = wanted(state);
    for (int i = 0, owner = index; i < threads; i++, owner = owner + 1 < threads ? owner + 1 : 0) {
        const int64_t first = chunks * owner / threads, count = chunks * (owner + 1) / threads - first;
        for (int64_t at; (at = take(&pool->places[owner], state / RUN, count)) < count;) {
            const int64_t begin = (first + at) * chunk;
            pool->fn(pool->buf, pool->dim, scratch, begin, tasks - begin < chunk ? tasks : begin + chunk);
            if (give_way != NEVER && now() > give_way)
                return 0;
        }
    }
    return 1;
}

/* A worker is inside no more. Sequentially consistent with the caller's announcement in close_run: either the caller
 * sees that nobody is inside, or this sees that it sleeps. */
static void leave(t_pool *pool, int index) {
    atomic_store(&pool->places[index].inside, 0);
    if (!atomic_load(&pool->caller_sleeps))
        return;
    pthread_mutex_lock(&pool->lock);
    pthread_cond_signal(&pool->finished);
    pthread_mutex_unlock(&pool->lock);
}

/* Whether a state is that of an open run other than `seen`. */
static inline int is_new(uint64_t state, uint64_t seen) { return (state & OPEN) && state / RUN != seen; }

/* Joins an open run. Sequentially consistent with close_run: either this sees that the run is closed, or the caller sees that
 * a worker is inside. */
static int join(t_pool *pool, int index, uint64_t state) {
    atomic_store(&pool->places[index].inside, 1);
    if (atomic_load(&pool->state) == state)
        return 1;
    leave(pool, index);
    return 0;
}

/* Waits for a run other than `seen` that wants this worker, and joins it; returns its state. Who slept has a slice
 * before it again. */
static uint64_t wait_run(t_pool *pool, int index, uint64_t seen, uint64_t *give_way) {
    for (;;) {
        for (int i = 0; i < SPINS; i++) {
            const uint64_t state = atomic_load_explicit(&pool->state, memory_order_relaxed);
            if (is_new(state, seen)) {
                if (index < wanted(state) && join(pool, index, state))
                    return state;
                seen = index < wanted(state) ? seen : state / RUN;
                i = 0;
            }
            pause_cpu();
        }
        pthread_mutex_lock(&pool->lock);
        if (index < atomic_load(&pool->first_asleep))
            atomic_store(&pool->first_asleep, index);
        if (!is_new(atomic_load(&pool->state), seen))
            pthread_cond_wait(&pool->started, &pool->lock);
        pthread_mutex_unlock(&pool->lock);
        *give_way = now() + TURN_NS;
    }
}

static void *worker_main(void *argument) {
    struct worker *self = argument;
    t_pool *pool = self->pool;
    uint64_t done = 0, give_way = now() + TURN_NS;
    for (;;) {
        const uint64_t state = wait_run(pool, self->index, done, &give_way);
        if (atomic_load_explicit(&pool->stop, memory_order_relaxed))
            return NULL;
        if (work(pool, self->index, state, give_way))
            done = state / RUN;
        leave(pool, self->index);
        if (now() > give_way) {
            sched_yield();
            give_way = now() + TURN_NS;
        }
    }
}

/* Opens a run that wants so many threads; returns its state. Either a worker that is about to sleep sees it, or this sees
 * that it sleeps. */
static uint64_t open_run(t_pool *pool, int threads) {
    const uint64_t before = atomic_load_explicit(&pool->state, memory_order_relaxed);
    const uint64_t state = (before / RUN + 1) * RUN + (uint64_t)threads * WANTED + OPEN;
    atomic_store(&pool->state, state);
    if (atomic_load(&pool->first_asleep) < threads) {
        pthread_mutex_lock(&pool->lock);
        atomic_store(&pool->first_asleep, MAX_THREADS);
        pthread_cond_broadcast(&pool->started);
        pthread_mutex_unlock(&pool->lock);
    }
    return state;
}

/* Closes the run, and waits until all who joined it have left. */
static void close_run(t_pool *pool, uint64_t state) {
    atomic_store(&pool->state, state - OPEN);
    for (int i = 1, spins = 0; i < wanted(state); spins++) {
        if (!atomic_load(&pool->places[i].inside)) {
            i++;
        } else if (spins < SPINS) {
            pause_cpu();
        } else {
            pthread_mutex_lock(&pool->lock);
            atomic_store(&pool->caller_sleeps, 1);
            while (atomic_load(&pool->places[i].inside))
                pthread_cond_wait(&pool->finished, &pool->lock);
            atomic_store(&pool->caller_sleeps, 0);
            pthread_mutex_unlock(&pool->lock);
        }
    }
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
    const uint64_t state = open_run(pool, tasks < pool->threads ? (int)tasks : pool->threads);
    work(pool, 0, state, NEVER);
    close_run(pool, state);
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
    t_pool *pool = aligned_alloc(CACHE_LINE, size + (size_t)threads * sizeof(struct place));
    if (!pool)
        return NULL;
    *pool =
        (t_pool){.threads = 1, .first_asleep = MAX_THREADS, .places = (struct place *)((unsigned char *)pool + size)};
    for (int i = 0; i < threads; i++)
        pool->places[i] = (struct place){0};
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
    open_run(pool, MAX_THREADS);
    for (int i = 0; i < pool->threads - 1; i++)
        pthread_join(pool->workers[i].thread, NULL);
    pthread_cond_destroy(&pool->finished);
    pthread_cond_destroy(&pool->started);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}
