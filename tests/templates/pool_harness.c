/* Exercises the thread pool: pool_harness THREADS RUNS  (bench: pool_harness THREADS bench).
 *
 * Checks that every task is done once, that a run wants no more threads than it has tasks, and that scratch areas are
 * private; runs follow each other at once or after a pause, so that workers are met spinning and asleep.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "t_pool.h"

enum { TASKS = 997, STRIDE = 64 };

static void count(void *const *buf, const int64_t *dim, void *scratch, int64_t begin, int64_t end) {
    int *done = buf[0];
    int64_t *mine = scratch;
    for (int64_t i = begin; i < end; i++) done[i] += (int)dim[0];
    *mine += end - begin;
}

static void nothing(void *const *buf, const int64_t *dim, void *scratch, int64_t begin, int64_t end) {
    (void)buf, (void)dim, (void)scratch, (void)begin, (void)end;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void bench(t_pool *pool) {
    enum { N = 20000 };
    static double took[N];
    for (int i = 0; i < N; i++) {
        const double start = now();
        t_pool_run(pool, nothing, NULL, NULL, NULL, 0, t_pool_threads(pool) * 8);
        took[i] = now() - start;
    }
    qsort(took, N, sizeof took[0], by_value);
    printf("%d threads: fork and join, median %.2f us, 90%% %.2f us, 99%% %.2f us\n", t_pool_threads(pool), took[N / 2],
           took[N / 10 * 9], took[N / 100 * 99]);
}

static int check(t_pool *pool, int runs) {
    int done[TASKS];
    void *const buf[] = {done};
    const int threads = t_pool_threads(pool);
    const size_t size = (size_t)threads * STRIDE;
    unsigned char *scratch = aligned_alloc(STRIDE, size);
    for (int run = 0; run < runs; run++) {
        const int64_t tasks = run % 3 == 0 ? run % 20 : TASKS, dim[] = {run + 1};
        memset(done, 0, sizeof done);
        memset(scratch, 0, size);
        t_pool_run(pool, count, buf, dim, scratch, STRIDE, tasks);
        int64_t sum = 0;
        for (int i = 0; i < threads; i++) {
            const int64_t mine = *(int64_t *)(void *)(scratch + i * STRIDE);
            if (mine && i >= tasks) return fprintf(stderr, "run %d wakes thread %d for %d tasks\n", run, i, (int)tasks), 1;
            sum += mine;
        }
        for (int64_t i = 0; i < TASKS; i++)
            if (done[i] != (i < tasks ? run + 1 : 0)) return fprintf(stderr, "task %d of run %d\n", (int)i, run), 1;
        if (sum != tasks) return fprintf(stderr, "scratch of run %d\n", run), 1;
        if (run % 64 == 63) usleep(300);
    }
    free(scratch);
    return 0;
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    t_pool *pool = t_pool_create(atoi(argv[1]));
    int failed = 0;
    if (strcmp(argv[2], "bench") == 0) bench(pool);
    else failed = check(pool, atoi(argv[2]));
    printf("threads %d\n", t_pool_threads(pool));
    t_pool_destroy(pool);
    return failed;
}
