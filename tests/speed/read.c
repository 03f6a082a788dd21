/* Reads memory as fast as a program can: 256 bytes at a time, asked for 1,024 bytes ahead. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

typedef uint64_t line __attribute__((vector_size(64)));
enum { STEP = 4, AHEAD = 16, MOST = 256 };

struct part {
    pthread_barrier_t *barrier;
    const line *from;
    size_t lines;
    int rounds;
    double *seconds; /* of the first part alone, else NULL */
    volatile uint64_t sum;
};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void *read_part(void *argument) {
    struct part *p = argument;
    for (int round = 0; round < p->rounds; round++) {
        line sum[STEP] = {{0}};
        pthread_barrier_wait(p->barrier);
        const double began = now();
        for (size_t i = 0; i + STEP <= p->lines; i += STEP)
            for (int k = 0; k < STEP; k++) {
                __builtin_prefetch(p->from + i + k + AHEAD);
                sum[k] |= p->from[i + k];
            }
        pthread_barrier_wait(p->barrier);
        const double took = now() - began;
        if (p->seconds && (round == 0 || took < *p->seconds)) *p->seconds = took;
        p->sum += (sum[0] | sum[1] | sum[2] | sum[3])[0];
    }
    return NULL;
}

/* The least seconds in which threads read so many bytes of huge pages; negative where there is no memory for them. */
double read_seconds(size_t bytes, int threads, int rounds) {
    double seconds = -1;
    struct part parts[MOST];
    pthread_t ids[MOST];
    pthread_barrier_t barrier;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || threads < 1 || threads > MOST) return -1;
    madvise(memory, bytes, MADV_HUGEPAGE);
    memset(memory, 1, bytes);
    pthread_barrier_init(&barrier, NULL, (unsigned)threads);
    for (int i = 0; i < threads; i++) {
        const size_t lines = bytes / sizeof(line) / (size_t)threads;
        parts[i] = (struct part){&barrier, (const line *)memory + (size_t)i * lines, lines, rounds, i ? NULL : &seconds, 0};
        if (i) pthread_create(&ids[i], NULL, read_part, &parts[i]);
    }
    read_part(&parts[0]);
    for (int i = 1; i < threads; i++) pthread_join(ids[i], NULL);
    munmap(memory, bytes);
    return seconds;
}
