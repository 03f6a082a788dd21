/* What runs see, for `torshc compile --observed`: sizes, how often, how long such runs took in all, which inputs were one
 * number throughout, and how many of their elements were 0.
 *
 * An open model has a file, which it writes when it is closed, when the process ends, and now and then in between. The
 * text of several files adds up in any order: a line for each combination of sizes, with its runs and their nanoseconds,
 * in how many of them inputs were looked at, and of each input a number, how many of these had it throughout, and how
 * many elements were 0 in all of these. */
#define _GNU_SOURCE
#include "t_model.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define P (t_the_program())

enum { FIRST_ROWS = 64, MOST_ROWS = 4096, TAIL = 64 };
static const uint64_t EVERY = UINT64_C(20000000000); /* nanoseconds between two times that it writes */

/* Inputs are looked at in the first runs with some sizes, and then in one of many: to look at one takes no longer than
 * the run, which reads it too, so all of it is less than a hundredth of the time. */
enum { LOOKS = 8, LOOK_EACH = 128, MOST_LOOKED = 16 };

/* A row is the sizes of a run, then how many there were and the nanoseconds of all but the first, which reads weights and
 * memory that nobody touched before; one without runs is free. Behind these is in how many inputs were looked at, and of
 * each that is, a number, how many times it had that throughout, and its zeros. */
enum { RUNS, TIME, LOOKED, VALUES };
enum { VALUE, HAD, ZEROS, OF_EACH };
struct t_observer {
    t_observer *next;
    atomic_int used;
    pid_t owner;
    pthread_mutex_t lock;
    char *path, *beside; /* its file, and what that is called until it is whole */
    int64_t *rows;
    size_t capacity, count;
    int64_t others; /* runs with sizes for which there was no row */
    uint64_t written;
    int changed;
};

/* All there ever were, used again by later models, as a list that another process may have inherited has no lock. */
static _Atomic(t_observer *) observers;
static atomic_uint opened;

/* ---- rows ---- */

/* Integers and truths, whose elements have bytes of their own. */
static int is_looked_at(const t_port *port) {
    const int code = port->dtype.code;
    return (code == TORSHC_INT || code == TORSHC_UINT || code == TORSHC_BOOL) && port->dtype.bits >= 8;
}

/* The number of the first input from `i` on that is looked at, -1 for none; `k` were before it. */
static int32_t next_looked_at(int32_t i, int32_t k) {
    for (; i < P->inputs && k < MOST_LOOKED; i++)
        if (is_looked_at(&P->input[i]))
            return i;
    return -1;
}

static size_t width(void) {
    size_t values = 0;
    for (int32_t i = next_looked_at(0, 0), k = 0; i >= 0; i = next_looked_at(i + 1, ++k))
        values += OF_EACH;
    return (size_t)P->symbols + VALUES + values;
}

/* Whether symbol `k` is a size: what a run counts of an input is none. */
static int is_size(int32_t k) { return P->symbol[k].kind != T_COUNT; }

static int same_sizes(const int64_t *a, const int64_t *b) {
    for (int32_t k = 0; k < P->symbols; k++)
        if (a[k] != b[k] && is_size(k))
            return 0;
    return 1;
}

/* The row of some sizes, or the free one where they would be. */
static int64_t *find_row(int64_t *rows, size_t capacity, const int64_t *s) {
    uint64_t hash = 0;
    for (int32_t k = 0; k < P->symbols; k++)
        hash = is_size(k) ? (hash ^ (uint64_t)s[k]) * UINT64_C(0x9e3779b97f4a7c15) : hash;
    for (size_t at = hash >> 32;; at++) {
        int64_t *row = rows + at % capacity * width();
        if (!row[P->symbols] || same_sizes(row, s))
            return row;
    }
}

/* Twice as many rows; TORSHC_E_MEMORY leaves them as they are. */
static int grow(t_observer *o) {
    const size_t capacity = o->capacity ? 2 * o->capacity : FIRST_ROWS;
    int64_t *rows = capacity <= MOST_ROWS ? calloc(capacity, width() * sizeof *rows) : NULL;
    if (!rows)
        return TORSHC_E_MEMORY;
    for (size_t k = 0; k < o->capacity; k++) {
        const int64_t *row = o->rows + k * width();
        if (row[P->symbols])
            memcpy(find_row(rows, capacity, row), row, width() * sizeof *row);
    }
    free(o->rows);
    o->rows = rows;
    o->capacity = capacity;
    return TORSHC_OK;
}

/* ---- the file ---- */

static void write_rows(const t_observer *o, FILE *file) {
    fprintf(file, "torshc-profile 3\nmodel %s\nsizes", P->model);
    for (int32_t k = 0; k < P->symbols; k++)
        if (is_size(k))
            fprintf(file, P->symbol[k].kind == T_DIM ? " %d.%d" : " %d[%d]", (int)P->symbol[k].input,
                    (int)P->symbol[k].dim);
    fputs("\ninputs", file);
    for (int32_t i = next_looked_at(0, 0), k = 0; i >= 0; i = next_looked_at(i + 1, ++k))
        fprintf(file, " %d", (int)i);
    fprintf(file, "\nothers %lld\n", (long long)o->others);
    for (size_t k = 0; k < o->capacity; k++) {
        const int64_t *row = o->rows + k * width();
        if (!row[P->symbols])
            continue;
        fprintf(file, "%lld %lld", (long long)row[P->symbols + RUNS], (long long)row[P->symbols + TIME]);
        for (int32_t i = 0; i < P->symbols; i++)
            if (is_size(i))
                fprintf(file, " %lld", (long long)row[i]);
        for (size_t i = (size_t)P->symbols + LOOKED; i < width(); i++)
            fprintf(file, " %lld", (long long)row[i]);
        fputc('\n', file);
    }
    fputs("end\n", file);
}

/* Writes the file beside its place and renames it. What fails is tried again later: no run may fail by it. */
static void write_file(t_observer *o) {
    const int fd = open(o->beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
    o->written = t_now();
    if (!file) {
        if (fd >= 0)
            close(fd);
        return;
    }
    write_rows(o, file);
    const int whole = !ferror(file);
    if (!fclose(file) && whole && !rename(o->beside, o->path))
        o->changed = 0;
    else
        unlink(o->beside);
}

/* ---- observers ---- */

static t_observer *take_observer(void) {
    for (t_observer *o = atomic_load(&observers); o; o = o->next) {
        int free_one = 0;
        if (atomic_compare_exchange_strong(&o->used, &free_one, 1))
            return o;
    }
    t_observer *o = calloc(1, sizeof *o);
    if (!o)
        return NULL;
    atomic_init(&o->used, 1);
    o->next = atomic_load(&observers);
    while (!atomic_compare_exchange_weak(&observers, &o->next, o))
        ;
    return o;
}

/* The names of its files, from the root on, since a process may change its folder. */
static int name_files(t_observer *o, const char *path) {
    char *folder = *path == '/' ? NULL : getcwd(NULL, 0);
    const size_t bytes = strlen(path) + (folder ? strlen(folder) : 0) + TAIL;
    o->path = malloc(bytes);
    o->beside = malloc(bytes);
    if (o->path && o->beside) {
        struct timespec at;
        clock_gettime(CLOCK_REALTIME, &at);
        const int length = snprintf(o->path, bytes, "%s%s%s.%ld-%llx%08lx%x", folder ? folder : "", folder ? "/" : "",
                                    path, (long)getpid(), (unsigned long long)at.tv_sec, (unsigned long)at.tv_nsec,
                                    atomic_fetch_add(&opened, 1));
        snprintf(o->beside, bytes, "%.*s.partial", length, o->path);
    }
    free(folder);
    return o->path && o->beside ? TORSHC_OK : TORSHC_E_MEMORY;
}

t_observer *t_observe(const char *path) {
    path = path ? path : getenv("TORSHC_PROFILE");
    if (!path || !*path || !P->model || !*P->model)
        return NULL;
    t_observer *o = take_observer();
    if (!o)
        return NULL;
    o->owner = getpid();
    o->written = t_now();
    o->others = 0;
    o->count = 0;
    o->changed = 0;
    pthread_mutex_init(&o->lock, NULL);
    if (!name_files(o, path) && !grow(o))
        return o;
    t_end_observing(o);
    return NULL;
}

/* Looks at the inputs of a run. A number that fewer than half of the runs had gives way to the one that this has. */
static void look(int64_t *counts, const torshc_tensor *inputs) {
    counts[LOOKED]++;
    int64_t *value = counts + VALUES;
    for (int32_t i = next_looked_at(0, 0), k = 0; i >= 0; i = next_looked_at(i + 1, ++k), value += OF_EACH) {
        int64_t seen;
        value[ZEROS] += t_elements(&inputs[i]) - t_count_nonzero(&inputs[i]);
        if (!t_is_throughout(&inputs[i], &seen))
            continue;
        if (value[HAD] && value[VALUE] != seen && 2 * value[HAD] >= counts[LOOKED])
            continue;
        value[HAD] = value[HAD] && value[VALUE] == seen ? value[HAD] + 1 : 1;
        value[VALUE] = seen;
    }
}

void t_note_run(t_observer *o, const int64_t *s, uint64_t began, const torshc_tensor *inputs) {
    const uint64_t now = t_now();
    pthread_mutex_lock(&o->lock);
    int64_t *row = find_row(o->rows, o->capacity, s);
    const int fresh = !row[P->symbols];
    if (fresh && 2 * o->count >= o->capacity && grow(o)) {
        o->others++;
    } else {
        row = fresh ? find_row(o->rows, o->capacity, s) : row;
        o->count += (size_t)fresh;
        memcpy(row, s, (size_t)P->symbols * sizeof *s);
        int64_t *counts = row + P->symbols;
        counts[RUNS]++;
        counts[TIME] += P->device == TORSHC_CPU && !fresh ? (int64_t)(now - began) : 0;
        if (counts[RUNS] <= LOOKS || counts[RUNS] % LOOK_EACH == 0)
            look(counts, inputs);
    }
    o->changed = 1;
    if (now - o->written > EVERY)
        write_file(o);
    pthread_mutex_unlock(&o->lock);
}

void t_end_observing(t_observer *o) {
    if (!o)
        return;
    if (o->changed)
        write_file(o);
    free(o->rows);
    free(o->path);
    free(o->beside);
    o->rows = NULL;
    o->path = o->beside = NULL;
    o->capacity = 0;
    pthread_mutex_destroy(&o->lock);
    atomic_store(&o->used, 0);
}

/* The process ends, or the library leaves it: models may still be open, but not those of a parent before fork(). */
__attribute__((destructor)) static void end_process(void) {
    for (t_observer *o = atomic_load(&observers); o; o = o->next) {
        if (!atomic_load(&o->used) || o->owner != getpid() || pthread_mutex_trylock(&o->lock))
            continue;
        if (o->changed)
            write_file(o);
        pthread_mutex_unlock(&o->lock);
    }
}
