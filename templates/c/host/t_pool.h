/* Thread pool of the generated runtime: fork and join over a range of tasks. */
#ifndef T_POOL_H
#define T_POOL_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct t_pool t_pool;

/* A kernel: tasks [begin, end) with this thread's own scratch. */
typedef void t_kernel(void *const *buf, const int64_t *dim, void *scratch, int64_t begin, int64_t end);

/* A pool of `threads` threads, the caller of t_pool_run being one.  Threads that the system
 * refuses are done without.  NULL, which t_pool_run takes for one thread, where threads <= 1,
 * where no thread could be started or where memory is short. */
t_pool *t_pool_create(int threads);

/* Threads that take part: at least 1, and the number of scratch areas that a run needs. */
int t_pool_threads(const t_pool *pool);

/* Runs fn over [0, tasks) and returns when all are done.  Thread i works in
 * scratch + i * scratch_stride.  One caller at a time; a kernel must not call it. */
void t_pool_run(t_pool *pool, t_kernel *fn, void *const *buf, const int64_t *dim, unsigned char *scratch,
                size_t scratch_stride, int64_t tasks);

/* As pthread_create; the thread blocks the program's signals. */
int t_start_thread(pthread_t *thread, void *(*main)(void *), void *argument);

/* Ends and joins the threads. pool may be NULL. */
void t_pool_destroy(t_pool *pool);

#ifdef __cplusplus
}
#endif

#endif
