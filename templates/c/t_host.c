/* The interface of model.h over the tables of host.c: opening, checking, memory, running. */
#define _GNU_SOURCE
#include "t_host.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { T_FOOTER = 64, T_HUGE = 2 << 20, T_THREADS_MAX = 1024 };

#define P (&t_the_program)

struct torshc_model {
    pthread_mutex_t lock; /* held during a run */
    pid_t owner;          /* threads do not survive fork() */
    int threads;
    t_pool *pool;
    unsigned char *weights;
    size_t mapped; /* bytes of the weights file, 0 when embedded */
    unsigned char *own;
    size_t own_bytes;
    t_counter *counters;
};

/* ---- floating-point state ---- */

/* A run uses the default state (round to nearest, denormals kept, no traps) whatever the caller has set. */
static inline uint64_t fp_enter(void)
{
#if defined(__x86_64__)
    const uint32_t was = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(0x1f80);
    return was;
#elif defined(__aarch64__)
    uint64_t was;
    __asm__ volatile("mrs %0, fpcr" : "=r"(was));
    __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)0));
    return was;
#else
    return 0;
#endif
}

static inline void fp_leave(uint64_t was)
{
#if defined(__x86_64__)
    __builtin_ia32_ldmxcsr((uint32_t)was);
#elif defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" : : "r"(was));
#else
    (void)was;
#endif
}

/* ---- memory ---- */

static size_t round_up(int64_t bytes)
{
    return ((size_t)bytes + T_ALIGN - 1) / T_ALIGN * T_ALIGN;
}

/* Huge pages for large memory: a convolution walks far more 4 KiB pages than a processor remembers. */
static unsigned char *allocate(size_t bytes)
{
    void *memory = NULL;
    const size_t align = bytes >= 2 * T_HUGE ? T_HUGE : T_ALIGN;
    if (posix_memalign(&memory, align, bytes ? bytes : T_ALIGN))
        return NULL;
    if (align == T_HUGE)
        (void)madvise(memory, bytes, MADV_HUGEPAGE);
    return memory;
}

static int grow(torshc_model *m, size_t bytes)
{
    if (m->own && bytes <= m->own_bytes)
        return TORSHC_OK;
    free(m->own);
    m->own_bytes = 0;
    m->own = allocate(bytes);
    if (!m->own)
        return t_fail(TORSHC_E_MEMORY, "no memory for a workspace of %zu bytes", bytes);
    m->own_bytes = bytes;
    return TORSHC_OK;
}

/* ---- weights ---- */

/* The last 64 bytes of a weights file: 16 of magic, payload size, identity, zeros; little-endian. */
static uint64_t little(const unsigned char *at)
{
    uint64_t value = 0;
    for (int i = 7; i >= 0; i--)
        value = value << 8 | at[i];
    return value;
}

static int check_footer(const unsigned char *weights)
{
    const unsigned char *footer = weights + P->weights_bytes;
    if (memcmp(footer, "TORSHC WEIGHTS 1", 16) != 0)
        return t_fail(TORSHC_E_WEIGHTS, "the weights file has no torshc footer");
    if (little(footer + 16) != P->weights_bytes || little(footer + 24) != P->weights_id)
        return t_fail(TORSHC_E_WEIGHTS, "the weights file belongs to another model or another build of this one");
    return TORSHC_OK;
}

static int map_file(torshc_model *m, const char *path, int file)
{
    const uint64_t want = P->weights_bytes + T_FOOTER;
    struct stat status;
    if (fstat(file, &status))
        return t_fail(TORSHC_E_WEIGHTS, "weights file %.150s: %s", path, strerror(errno));
    if (!S_ISREG(status.st_mode))
        return t_fail(TORSHC_E_WEIGHTS, "weights file %.150s is not a regular file", path);
    if ((uint64_t)status.st_size != want)
        return t_fail(TORSHC_E_WEIGHTS, "weights file %.150s has %lld bytes; expected %llu", path,
                    (long long)status.st_size, (unsigned long long)want);
    void *memory = mmap(NULL, (size_t)want, PROT_READ, MAP_PRIVATE, file, 0);
    if (memory == MAP_FAILED)
        return t_fail(TORSHC_E_WEIGHTS, "weights file %.150s cannot be mapped: %s", path, strerror(errno));
    (void)madvise(memory, (size_t)want, MADV_WILLNEED);
    m->weights = memory;
    m->mapped = (size_t)want;
    return check_footer(m->weights);
}

static int open_weights(torshc_model *m, const char *path)
{
    if (P->embedded) {
        m->weights = (unsigned char *)(uintptr_t)P->embedded; /* read-only; kernels take `void *` for all buffers */
        return check_footer(m->weights);
    }
    if (!P->weights_bytes)
        return TORSHC_OK;
    if (!path)
        return t_fail(TORSHC_E_WEIGHTS, "this model needs its weights file: set options.weights_path");
    int file;
    do
        file = open(path, O_RDONLY | O_CLOEXEC);
    while (file < 0 && errno == EINTR);
    if (file < 0)
        return t_fail(TORSHC_E_WEIGHTS, "weights file %.150s: %s", path, strerror(errno));
    const int status = map_file(m, path, file);
    close(file);
    return status;
}

/* ---- open and close ---- */

static int usable_processors(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0)
        return CPU_COUNT(&set);
    const long count = sysconf(_SC_NPROCESSORS_ONLN);
    return count > 0 && count <= T_THREADS_MAX ? (int)count : 1;
}

static size_t workspace_bytes(const torshc_model *m, const int64_t *s)
{
    return round_up(P->arena(s)) + (size_t)m->threads * round_up(P->scratch(s));
}

static int fill_model(torshc_model *m, const torshc_options *options)
{
    int status = open_weights(m, options ? options->weights_path : NULL);
    if (status)
        return status;
    const int threads = options && options->threads ? options->threads : usable_processors();
    m->owner = getpid();
    m->counters = calloc((size_t)P->steps + 1, sizeof *m->counters);
    if (!m->counters)
        return t_fail(TORSHC_E_MEMORY, "no memory for %d counters", (int)P->steps);
    const uint64_t was = fp_enter(); /* the threads inherit it */
    m->pool = t_pool_create(threads);
    fp_leave(was);
    m->threads = t_pool_threads(m->pool);
    return P->symbols ? TORSHC_OK : grow(m, workspace_bytes(m, NULL));
}

int torshc_open(const torshc_options *options, torshc_model **model)
{
    if (!model)
        return t_fail(TORSHC_E_ARGUMENT, "torshc_open: model is NULL");
    *model = NULL;
    if (options && (options->size != sizeof *options || options->flags))
        return t_fail(TORSHC_E_ARGUMENT, "torshc_open: options of another version (size %u, flags %u)", options->size,
                    options->flags);
    if (options && (options->threads < 0 || options->threads > T_THREADS_MAX))
        return t_fail(TORSHC_E_ARGUMENT, "torshc_open: %d threads; expected 0 to %d", (int)options->threads,
                    T_THREADS_MAX);
    if (!P->cpu())
        return t_fail(TORSHC_E_CPU, "this processor lacks instructions that the library was compiled for");
    torshc_model *m = calloc(1, sizeof *m);
    if (!m)
        return t_fail(TORSHC_E_MEMORY, "no memory for the model");
    pthread_mutex_init(&m->lock, NULL);
    const int status = fill_model(m, options);
    if (status) {
        torshc_close(m);
        return status;
    }
    *model = m;
    return TORSHC_OK;
}

void torshc_close(torshc_model *m)
{
    if (!m)
        return;
    if (m->pool && m->owner == getpid())
        t_pool_destroy(m->pool);
    if (m->mapped)
        munmap(m->weights, m->mapped);
    free(m->own);
    free(m->counters);
    pthread_mutex_destroy(&m->lock);
    free(m);
}

/* ---- queries ---- */

int32_t torshc_input_count(void)
{
    return P->inputs;
}

int32_t torshc_output_count(void)
{
    return P->outputs;
}

int32_t torshc_step_count(void)
{
    return P->steps;
}

static int port_info(const t_port *ports, int32_t count, int32_t index, torshc_dtype *dtype, int32_t *ndim,
                     const int64_t **dims)
{
    if (index < 0 || index >= count)
        return t_fail(TORSHC_E_ARGUMENT, "index %d of %d", (int)index, (int)count);
    if (dtype)
        *dtype = ports[index].dtype;
    if (ndim)
        *ndim = ports[index].ndim;
    if (dims)
        *dims = ports[index].dims;
    return TORSHC_OK;
}

int torshc_input_info(int32_t index, torshc_dtype *dtype, int32_t *ndim, const int64_t **dims)
{
    return port_info(P->input, P->inputs, index, dtype, ndim, dims);
}

int torshc_output_info(int32_t index, torshc_dtype *dtype, int32_t *ndim, const int64_t **dims)
{
    return port_info(P->output, P->outputs, index, dtype, ndim, dims);
}

/* ---- shapes and runs ---- */

int torshc_output_shape(const torshc_model *m, const torshc_tensor *inputs, int32_t count, int32_t index,
                        int64_t *dims)
{
    int64_t s[T_SYMBOLS_MAX];
    if (!m || !dims || index < 0 || index >= P->outputs)
        return t_fail(TORSHC_E_ARGUMENT, "torshc_output_shape: NULL argument, or output %d of %d", (int)index,
                    (int)P->outputs);
    const int status = t_bind(inputs, count, s);
    if (!status)
        P->output_dims(index, s, dims);
    return status;
}

int torshc_workspace_size(const torshc_model *m, const torshc_tensor *inputs, int32_t count, size_t *bytes)
{
    int64_t s[T_SYMBOLS_MAX];
    if (!m || !bytes)
        return t_fail(TORSHC_E_ARGUMENT, "torshc_workspace_size: NULL argument");
    const int status = t_bind(inputs, count, s);
    if (!status)
        *bytes = workspace_bytes(m, s);
    return status;
}

static int check_workspace(const t_span *work, size_t need)
{
    if ((uintptr_t)work->at % T_ALIGN)
        return t_fail(TORSHC_E_ALIGN, "the workspace is not aligned to %d bytes", T_ALIGN);
    if (work->at && work->bytes < need)
        return t_fail(TORSHC_E_WORKSPACE, "the workspace has %llu bytes; this run needs %zu",
                    (unsigned long long)work->bytes, need);
    return TORSHC_OK;
}

static int run_locked(torshc_model *m, const t_span *spans, unsigned char *work, const int64_t *s)
{
    const size_t need = workspace_bytes(m, s);
    const int32_t n = P->inputs + P->outputs;
    unsigned char *at[n + 1];
    int status;
    if (!work && (status = grow(m, need)))
        return status;
    for (int32_t i = 0; i < n; i++)
        at[i] = spans[i].at;
    unsigned char *const base = work ? work : m->own;
    const t_run run = {at, at + P->inputs, m->weights, base, base + round_up(P->arena(s)),
                       round_up(P->scratch(s)), m->pool, m->counters};
    const uint64_t was = fp_enter();
    P->run(&run, s);
    fp_leave(was);
    return TORSHC_OK;
}

int torshc_run(torshc_model *m, const torshc_tensor *inputs, int32_t input_count, const torshc_tensor *outputs,
               int32_t output_count, void *workspace, size_t bytes)
{
    int64_t s[T_SYMBOLS_MAX];
    int status;
    if (!m)
        return t_fail(TORSHC_E_ARGUMENT, "torshc_run: model is NULL");
    if (m->threads > 1 && m->owner != getpid())
        return t_fail(TORSHC_E_FORKED, "the model was opened before fork(); open it again in this process");
    if ((status = t_bind(inputs, input_count, s)) || (status = t_check_outputs(outputs, output_count, s)))
        return status;
    t_span spans[P->inputs + P->outputs + 1];
    for (int32_t i = 0; i < P->inputs; i++)
        if ((status = t_locate(&inputs[i], "input", i, &spans[i])))
            return status;
    for (int32_t i = 0; i < P->outputs; i++)
        if ((status = t_locate(&outputs[i], "output", i, &spans[P->inputs + i])))
            return status;
    const t_span work = {workspace, workspace ? bytes : 0};
    if ((status = t_check_aliases(spans, &work)) || (status = check_workspace(&work, workspace_bytes(m, s))))
        return status;
    pthread_mutex_lock(&m->lock);
    status = run_locked(m, spans, workspace, s);
    pthread_mutex_unlock(&m->lock);
    return status;
}

int torshc_profile(torshc_model *m, int32_t step, uint64_t *calls, uint64_t *nanoseconds)
{
    if (!m || !calls || !nanoseconds || step < 0 || step >= P->steps)
        return t_fail(TORSHC_E_ARGUMENT, "torshc_profile: NULL argument, or step %d of %d", (int)step, (int)P->steps);
#ifdef TORSHC_PROFILE
    pthread_mutex_lock(&m->lock);
    *calls = m->counters[step].calls;
    *nanoseconds = m->counters[step].ns;
    pthread_mutex_unlock(&m->lock);
    return TORSHC_OK;
#else
    return t_fail(TORSHC_E_UNSUPPORTED, "compiled without profiling");
#endif
}
