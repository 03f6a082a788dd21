/* Reads memory as fast as a program can, where it lies: threads take chunks until none is left, and read each as some
 * streams side by side, which waits less for tables of small pages. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

typedef uint64_t line __attribute__((vector_size(64), aligned(8)));
enum { STEP = 4, CHUNK = 1 << 20, MOST = 256, PARTS = 4 /* of a chunk, at most */ };

struct area {
    const char *at;
    size_t bytes;
};

struct job {
    const struct area *areas;
    int count, threads, streams;
    atomic_int ready;
    atomic_size_t next;
    atomic_ullong sum; /* so that reads are not left out */
};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static uint64_t read_chunk(const char *from, const int streams) {
    line sum[STEP] = {{0}};
    const size_t part = CHUNK / sizeof(line) / (size_t)streams;
    for (size_t i = 0; i < part; i += STEP)
        for (int s = 0; s < streams; s++)
            for (int k = 0; k < STEP; k++) sum[k] |= ((const line *)from)[(size_t)s * part + i + (size_t)k];
    return (sum[0] | sum[1] | sum[2] | sum[3])[0];
}

static uint64_t read_chunks(struct job *job) {
    uint64_t sum = 0;
    for (;;) {
        size_t chunk = atomic_fetch_add(&job->next, 1);
        int area = 0;
        for (; area < job->count && chunk >= job->areas[area].bytes / CHUNK; area++) chunk -= job->areas[area].bytes / CHUNK;
        if (area == job->count) return sum;
        const char *from = job->areas[area].at + chunk * CHUNK;
        sum |= job->streams == 1 ? read_chunk(from, 1) : read_chunk(from, PARTS);
    }
}

static void meet(struct job *job, int all) {
    atomic_fetch_add(&job->ready, 1);
    while (atomic_load(&job->ready) < all) sched_yield();
}

static void *work(void *argument) {
    struct job *job = argument;
    meet(job, job->threads);
    atomic_fetch_or(&job->sum, read_chunks(job));
    meet(job, 2 * job->threads);
    return NULL;
}

/* Seconds in which threads read the whole chunks of some areas, in one stream or four; negative for more than MOST threads. */
double read_seconds(const struct area *areas, int count, int threads, int streams) {
    struct job job = {.areas = areas, .count = count, .threads = threads, .streams = streams};
    pthread_t ids[MOST];
    if (threads < 1 || threads > MOST) return -1;
    for (int i = 1; i < threads; i++)
        if (pthread_create(&ids[i], NULL, work, &job)) abort();
    while (atomic_load(&job.ready) < threads - 1) sched_yield();
    const double began = now();
    work(&job);
    const double took = now() - began;
    for (int i = 1; i < threads; i++) pthread_join(ids[i], NULL);
    return took;
}
