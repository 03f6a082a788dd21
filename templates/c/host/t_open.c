/* What all host programs do in the same way: open weights, answer queries, set the floating-point state. */
#define _GNU_SOURCE
#include "t_program.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { T_FOOTER = 64, T_LARGE = 64 << 20 }; /* bytes */

#define P (t_the_program())

/* ---- weights ---- */

/* The last 64 bytes of a weights file: 16 of magic, payload size, identity, zeros; little-endian. */
static uint64_t little(const unsigned char *at) {
    uint64_t value = 0;
    for (int i = 7; i >= 0; i--)
        value = value << 8 | at[i];
    return value;
}

static int check_footer(const unsigned char *footer) {
    if (memcmp(footer, "TORSHC WEIGHTS 1", 16) != 0)
        return t_fail(TORSHC_E_WEIGHTS, "the weights file has no torshc footer");
    if (little(footer + 16) != P->file_bytes || little(footer + 24) != P->weights_id)
        return t_fail(TORSHC_E_BUILD, "the weights file belongs to another model or another build of this one");
    return TORSHC_OK;
}

/* A file of another size: whole, but of another build, or damaged. */
static int refuse_size(const char *path, int file, off_t size, uint64_t want) {
    unsigned char footer[T_FOOTER];
    if (size >= T_FOOTER && pread(file, footer, T_FOOTER, size - T_FOOTER) == T_FOOTER &&
        little(footer + 16) == (uint64_t)size - T_FOOTER && check_footer(footer) == TORSHC_E_BUILD)
        return TORSHC_E_BUILD;
    return t_fail(TORSHC_E_WEIGHTS, "weights file %.150s has %lld bytes; expected %llu", path, (long long)size,
                  (unsigned long long)want);
}

/* Large files are read into huge pages, where the file system has them; they are read as runs come to them then. */
static void advise(void *memory, size_t bytes) {
#ifdef MADV_HUGEPAGE
    if (bytes >= T_LARGE && !madvise(memory, bytes, MADV_HUGEPAGE))
        return;
#endif
    (void)madvise(memory, bytes, MADV_WILLNEED);
}

static int map_file(t_weights_file *weights, const char *path, int file) {
    const uint64_t want = P->file_bytes + T_FOOTER;
    struct stat status;
    if (fstat(file, &status))
        return t_fail(TORSHC_E_WEIGHTS, "weights file %.150s: %s", path, strerror(errno));
    if (!S_ISREG(status.st_mode))
        return t_fail(TORSHC_E_WEIGHTS, "weights file %.150s is not a regular file", path);
    if ((uint64_t)status.st_size != want)
        return refuse_size(path, file, status.st_size, want);
    void *memory = mmap(NULL, (size_t)want, PROT_READ, MAP_PRIVATE, file, 0);
    if (memory == MAP_FAILED)
        return t_fail(TORSHC_E_WEIGHTS, "weights file %.150s cannot be mapped: %s", path, strerror(errno));
    advise(memory, (size_t)want);
    weights->at = memory;
    weights->mapped = (size_t)want;
    return check_footer(weights->at + P->file_bytes);
}

static uint32_t widen_f16(uint32_t half) {
    const uint32_t sign = (half & 0x8000u) << 16, rest = half & 0x7fffu;
    if (rest >= 0x7c00u) /* infinity, NaN */
        return sign | 0x7f800000u | (rest & 0x3ffu) << 13;
    if (rest >= 0x400u)
        return sign | ((rest << 13) + (112u << 23));
    const float value = (float)rest * 0x1p-24f;
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return sign | bits;
}

/* A byte of f8 times a power of two, `scale` as bits of f32. No f32 on the way is subnormal. */
static uint32_t widen_f8(uint32_t byte, uint32_t scale) {
    const uint32_t sign = (byte & 0x80u) << 24, rest = byte & 0x7fu;
    if (rest >= 0x7eu)
        return sign | (rest == 0x7eu ? 0x7f800000u : 0x7fc00000u);
    const float value = (float)rest * 0x1p-9f;
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (rest >= 8)
        bits = (rest << 20) + (120u << 23);
    return bits ? sign | (bits + scale - (127u << 23)) : sign;
}

static void widen_blocks(const unsigned char *from, uint32_t *to, uint64_t count) {
    for (uint64_t i = 0; i < count; i += T_F8_BLOCK, from += T_F8_BLOCK + 1)
        for (uint64_t k = 0; k < T_F8_BLOCK && i + k < count; k++)
            to[i + k] = widen_f8(from[k + 1], (uint32_t)from[0] << 23);
}

static void widen(const t_stored *s, const unsigned char *file, unsigned char *memory) {
    const uint16_t *from = (const uint16_t *)(const void *)(file + s->place);
    uint32_t *to = (uint32_t *)(void *)(memory + s->offset);
    const uint64_t count = s->bytes / sizeof *to;
    if (s->type == T_AS_IT_IS)
        memcpy(memory + s->offset, file + s->place, s->bytes);
    else if (s->type == T_F16)
        for (uint64_t i = 0; i < count; i++)
            to[i] = widen_f16(from[i]);
    else if (s->type == T_F8)
        widen_blocks(file + s->place, to, count);
    else
        for (uint64_t i = 0; i < count; i++)
            to[i] = (uint32_t)from[i] << 16;
}

/* Memory for weights, to be written until t_keep_weights(). */
static int allocate_weights(t_weights_file *weights) {
    unsigned char *memory =
        mmap(NULL, (size_t)P->weights_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return t_fail(TORSHC_E_MEMORY, "no memory for %llu bytes of weights", (unsigned long long)P->weights_bytes);
#ifdef MADV_HUGEPAGE
    (void)madvise(memory, (size_t)P->weights_bytes, MADV_HUGEPAGE);
#endif
    *weights = (t_weights_file){memory, (size_t)P->weights_bytes};
    return TORSHC_OK;
}

void t_keep_weights(const t_weights_file *weights) { (void)mprotect(weights->at, weights->mapped, PROT_READ); }

int t_copy_weights(t_weights_file *weights, const t_weights_file *of) {
    const int status = allocate_weights(weights);
    if (!status)
        memcpy(weights->at, of->at, (size_t)P->weights_bytes);
    return status;
}

/* Weights in memory in place of a file that holds some in a narrower type. */
static int widen_all(t_weights_file *weights) {
    t_weights_file wide;
    const int status = allocate_weights(&wide);
    if (status)
        return status;
    for (int32_t i = 0; i < P->stored_count; i++)
        widen(&P->stored[i], weights->at, wide.at);
    t_keep_weights(&wide);
    t_close_weights(weights);
    *weights = wide;
    return TORSHC_OK;
}

static int open_as_stored(t_weights_file *weights, const char *path) {
    if (P->embedded) {
        weights->at = (unsigned char *)(uintptr_t)P->embedded; /* read-only; kernels take `void *` for all buffers */
        return check_footer(weights->at + P->file_bytes);
    }
    if (!P->weights_bytes)
        return TORSHC_OK;
    if (!path)
        return t_fail(TORSHC_E_WEIGHTS, "this model needs its weights file: set options.weights_path");
    int file;
    do
        file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); /* a pipe would wait for a writer */
    while (file < 0 && errno == EINTR);
    if (file < 0)
        return t_fail(TORSHC_E_WEIGHTS, "weights file %.150s: %s", path, strerror(errno));
    const int status = map_file(weights, path, file);
    close(file);
    return status;
}

int t_open_weights(t_weights_file *weights, const char *path) {
    const int status = open_as_stored(weights, path);
    return status || !P->stored_count ? status : widen_all(weights);
}

void t_close_weights(t_weights_file *weights) {
    if (weights->mapped)
        munmap(weights->at, weights->mapped);
    *weights = (t_weights_file){NULL, 0};
}

/* ---- the processor ---- */

int t_usable_processors(void) {
#ifdef __linux__
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0)
        return CPU_COUNT(&set);
#endif
    const long count = sysconf(_SC_NPROCESSORS_ONLN);
    return count > 0 && count <= T_THREADS_MAX ? (int)count : 1;
}

uint64_t t_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t t_fp_enter(void) {
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

void t_fp_leave(uint64_t was) {
#if defined(__x86_64__)
    __builtin_ia32_ldmxcsr((uint32_t)was);
#elif defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" : : "r"(was));
#else
    (void)was;
#endif
}

/* ---- queries ---- */

int32_t torshc_device_type(void) { return P->device; }

uint64_t torshc_interface_id(void) { return P->interface_id; }

int32_t torshc_input_count(void) { return P->inputs; }

int32_t torshc_output_count(void) { return P->outputs; }

int32_t torshc_step_count(void) { return P->steps; }

int32_t torshc_form_count(void) { return P->forms ? P->forms : 1; }

static int port_info(const t_port *ports, int32_t count, int32_t index, torshc_dtype *dtype, int32_t *ndim,
                     const int64_t **dims) {
    if (index < 0 || index >= count)
        return t_fail(TORSHC_E_ARGUMENT, "index %d is out of range: there are %d", (int)index, (int)count);
    if (dtype)
        *dtype = ports[index].dtype;
    if (ndim)
        *ndim = ports[index].ndim;
    if (dims)
        *dims = ports[index].dims;
    return TORSHC_OK;
}

int torshc_input_info(int32_t index, torshc_dtype *dtype, int32_t *ndim, const int64_t **dims) {
    return port_info(P->input, P->inputs, index, dtype, ndim, dims);
}

int torshc_output_info(int32_t index, torshc_dtype *dtype, int32_t *ndim, const int64_t **dims) {
    return port_info(P->output, P->outputs, index, dtype, ndim, dims);
}

const char *torshc_input_name(int32_t index) { return index >= 0 && index < P->inputs ? P->input[index].name : NULL; }

const char *torshc_output_name(int32_t index) {
    return index >= 0 && index < P->outputs ? P->output[index].name : NULL;
}

int32_t torshc_shared_input(int32_t output) {
    return P->shared && output >= 0 && output < P->outputs ? P->shared[output] : -1;
}

static const char *dim_name(const t_port *ports, int32_t count, int32_t index, int32_t dim) {
    if (index < 0 || index >= count || dim < 0 || dim >= ports[index].ndim || !ports[index].dim_names)
        return NULL;
    return ports[index].dim_names[dim];
}

const char *torshc_input_dim_name(int32_t index, int32_t dim) { return dim_name(P->input, P->inputs, index, dim); }

const char *torshc_output_dim_name(int32_t index, int32_t dim) { return dim_name(P->output, P->outputs, index, dim); }
