/* Processes of one machine that share a model, without MPI: a table of functions over memory that all of them map.
 *
 * Messages go through rings, one for each pair of processes and direction. What all do together goes through boards, one for
 * each process: all write what they have, each adds up a part, and all read the sums, a piece after the other. How far each
 * process is, it counts (`stage`): three for a piece. A process holds a lock on a byte of the file as long as it lives, which
 * the system takes back however it ends; that is how others learn of its end. */
#define _GNU_SOURCE
#include "t_ranks.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "t_program.h"

enum { RANKS_MOST = 64, LINE = 128, RING = 1 << 18, BOARD = 1 << 20, ROLL_CALL = 32767, BUSY = 64 };

/* What a process tells all others, on cache lines of its own. */
typedef struct {
    _Alignas(LINE) _Atomic uint64_t stage;
    _Atomic uint32_t count; /* of processes, once it has come */
} t_mark;

/* Bytes from one process to another: how many were written and read so far, and signs of life. */
typedef struct {
    _Alignas(LINE) _Atomic uint64_t written;
    _Alignas(LINE) _Atomic uint64_t read;
    _Alignas(LINE) _Atomic uint64_t signs;
    _Alignas(LINE) unsigned char bytes[RING];
} t_ring;

typedef struct {
    _Alignas(LINE) unsigned char bytes[BOARD];
} t_board;

typedef struct t_local {
    struct t_local *next;
    char *path;
    int file;
    t_mark *marks;
    t_board *boards;
    t_ring *rings;
    uint64_t stage;             /* as marks[rank].stage */
    uint64_t heard[RANKS_MOST]; /* signs of life */
    char message[80];
    torshc_ranks table;
} t_local;

typedef enum { T_SEND, T_RECEIVE, T_SIGN, T_LISTEN, T_SUM, T_GATHER, T_SCATTER } t_kind;

/* An exchange in progress. */
typedef struct {
    t_kind kind;
    const unsigned char *from;
    unsigned char *to;
    size_t bytes, done; /* of what a process gives; of T_SCATTER, of a part */
    int32_t peer;
    torshc_dtype type;
    unsigned asked;
} t_request;

static t_local *all_local;

static t_ring *ring_of(t_local *l, int32_t from, int32_t to) { return &l->rings[from * l->table.count + to]; }

static int fail(t_local *l, const char *what, int32_t rank) {
    snprintf(l->message, sizeof l->message, what, (int)rank);
    return 1;
}

/* ---- who is there ---- */

static int32_t lost(void *context) {
    t_local *l = context;
    for (int32_t r = 0; r < l->table.count; r++) {
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = r, .l_len = 1};
        if (r != l->table.rank && atomic_load(&l->marks[r].count) && !fcntl(l->file, F_OFD_GETLK, &lock) &&
            lock.l_type == F_UNLCK)
            return r;
    }
    return -1;
}

/* ---- messages ---- */

/* Moves what fits; whether anything did. */
static int move(t_local *l, t_request *q) {
    const int sends = q->kind == T_SEND;
    t_ring *ring = sends ? ring_of(l, l->table.rank, q->peer) : ring_of(l, q->peer, l->table.rank);
    const uint64_t written = atomic_load(&ring->written), read = atomic_load(&ring->read);
    uint64_t count = sends ? RING - (written - read) : written - read;
    if (count > q->bytes - q->done)
        count = q->bytes - q->done;
    for (uint64_t moved = 0; moved < count;) {
        const uint64_t at = ((sends ? written : read) + moved) % RING;
        const uint64_t piece = count - moved < RING - at ? count - moved : RING - at;
        if (sends)
            memcpy(ring->bytes + at, q->from + q->done + moved, piece);
        else
            memcpy(q->to + q->done + moved, ring->bytes + at, piece);
        moved += piece;
    }
    atomic_fetch_add(sends ? &ring->written : &ring->read, count);
    q->done += count;
    return count > 0;
}

/* ---- what all do together ---- */

static int all_at(t_local *l, uint64_t stage) {
    for (int32_t r = 0; r < l->table.count; r++)
        if (atomic_load(&l->marks[r].stage) < stage)
            return 0;
    return 1;
}

#define T_ADD(T)                                                                                                       \
    for (size_t i = 0; i < bytes / sizeof(T); i++) {                                                                   \
        T total = ((const T *)(const void *)(l->boards[0].bytes + at))[i];                                             \
        for (int32_t r = 1; r < l->table.count; r++)                                                                   \
            total += ((const T *)(const void *)(l->boards[r].bytes + at))[i];                                          \
        ((T *)to)[i] = total;                                                                                          \
    }

/* The sum of what all boards have at a place, in the order of ranks. */
static void add(const t_local *l, torshc_dtype type, size_t at, size_t bytes, void *to) {
    if (type.code == TORSHC_FLOAT && type.bits == 64) {
        T_ADD(double)
    } else if (type.code == TORSHC_FLOAT) {
        T_ADD(float)
    } else if (type.bits == 64) {
        T_ADD(uint64_t)
    } else {
        T_ADD(uint32_t)
    }
}

/* Bytes of a piece, of all or of a part for each process; whole elements. */
static size_t piece_of(const t_local *l, const t_request *q) {
    const size_t most = q->kind == T_SCATTER ? BOARD / (size_t)l->table.count / 8 * 8 : BOARD;
    return q->bytes - q->done < most ? q->bytes - q->done : most;
}

/* Where the part of a process begins in a piece of a sum, in whole elements of 8 bytes. */
static size_t part_at(const t_local *l, size_t piece, int32_t rank) {
    return piece / 8 * (size_t)rank / (size_t)l->table.count * 8;
}

static void write_piece(t_local *l, const t_request *q, size_t piece) {
    unsigned char *board = l->boards[l->table.rank].bytes;
    if (q->kind != T_SCATTER) {
        memcpy(board, q->from + q->done, piece);
        return;
    }
    for (int32_t r = 0; r < l->table.count; r++)
        memcpy(board + (size_t)r * piece, q->from + (size_t)r * q->bytes + q->done, piece);
}

/* Each process adds up its part of the sums, where nobody else reads: it is what its own board has there. */
static void add_piece(t_local *l, const t_request *q, size_t piece) {
    const int32_t rank = l->table.rank;
    const size_t first = part_at(l, piece, rank);
    const size_t end = rank + 1 < l->table.count ? part_at(l, piece, rank + 1) : piece;
    if (q->kind == T_SUM)
        add(l, q->type, first, end - first, l->boards[rank].bytes + first);
    else if (q->kind == T_SCATTER)
        add(l, q->type, (size_t)rank * piece, piece, q->to + q->done);
}

static void read_piece(t_local *l, const t_request *q, size_t piece) {
    for (int32_t r = 0; r < l->table.count; r++) {
        const size_t first = part_at(l, piece, r), end = r + 1 < l->table.count ? part_at(l, piece, r + 1) : piece;
        if (q->kind == T_SUM)
            memcpy(q->to + q->done + first, l->boards[r].bytes + first, end - first);
        else if (q->kind == T_GATHER)
            memcpy(q->to + (size_t)r * q->bytes + q->done, l->boards[r].bytes, piece);
    }
}

/* Does the next of the three things that a piece needs; whether it could. */
static int step(t_local *l, t_request *q) {
    const size_t piece = piece_of(l, q);
    if (!all_at(l, l->stage))
        return 0;
    switch (l->stage % 3) {
    case 0:
        write_piece(l, q, piece);
        break;
    case 1:
        add_piece(l, q, piece);
        break;
    default:
        read_piece(l, q, piece);
        q->done += piece;
    }
    atomic_store(&l->marks[l->table.rank].stage, ++l->stage);
    return 1;
}

/* ---- the table ---- */

static int begin(t_local *l, t_request request, void **made) {
    t_request *q = malloc(sizeof *q);
    if (!q)
        return fail(l, "no memory for a request", 0);
    *q = request;
    *made = q;
    return 0;
}

static int send_to(void *c, const void *data, size_t bytes, int32_t to, int32_t tag, void **request) {
    t_local *l = c;
    if (tag == ROLL_CALL)
        atomic_fetch_add(&ring_of(l, l->table.rank, to)->signs, 1);
    return begin(l, (t_request){.kind = tag == ROLL_CALL ? T_SIGN : T_SEND, .from = data, .bytes = bytes, .peer = to},
                 request);
}

static int receive(void *c, void *data, size_t bytes, int32_t from, int32_t tag, void **request) {
    return begin(c,
                 (t_request){.kind = tag == ROLL_CALL ? T_LISTEN : T_RECEIVE, .to = data, .bytes = bytes, .peer = from},
                 request);
}

static size_t bytes_of(size_t count, torshc_dtype type) { return count * type.bits / 8; }

static int all_reduce(void *c, const void *from, void *to, size_t count, torshc_dtype type, void **request) {
    return begin(c, (t_request){.kind = T_SUM, .from = from, .to = to, .bytes = bytes_of(count, type), .type = type},
                 request);
}

static int all_gather(void *c, const void *from, void *to, size_t bytes, void **request) {
    return begin(c, (t_request){.kind = T_GATHER, .from = from, .to = to, .bytes = bytes}, request);
}

static int reduce_scatter(void *c, const void *from, void *to, size_t count, torshc_dtype type, void **request) {
    return begin(c,
                 (t_request){.kind = T_SCATTER, .from = from, .to = to, .bytes = bytes_of(count, type), .type = type},
                 request);
}

/* Goes on as far as others allow. */
static int advance(t_local *l, t_request *q) {
    if (q->kind == T_SIGN)
        return 1;
    if (q->kind == T_LISTEN) {
        const int heard = atomic_load(&ring_of(l, q->peer, l->table.rank)->signs) > l->heard[q->peer];
        l->heard[q->peer] += (uint64_t)heard;
        return heard;
    }
    while (q->done < q->bytes && (q->kind < T_SIGN ? move(l, q) : step(l, q)))
        ;
    return q->done == q->bytes && (q->kind < T_SIGN || l->stage % 3 == 0);
}

static int test(void *c, void **request, int *done) {
    t_local *l = c;
    t_request *q = *request;
    *done = advance(l, q);
    if (!*done && ++q->asked % BUSY == 0) {
        const int32_t gone = lost(l);
        if (gone >= 0 && (q->kind > T_LISTEN || gone == q->peer) && !(*done = advance(l, q)))
            return fail(l, "rank %d has ended", gone);
    }
    if (*done) {
        free(q);
        *request = NULL;
    }
    return 0;
}

static const char *message(void *c) { return ((t_local *)c)->message; }

/* Others see that this process has ended. */
static void end_all(void *c, int status) { (void)c, _exit(status); }

/* ---- opening ---- */

static t_local *drop(t_local *l, const char *what, const char *why) {
    t_fail(TORSHC_E_RANKS, "%s %.200s: %s", what, l->path ? l->path : "the ranks' file", why);
    if (l->file >= 0)
        close(l->file);
    free(l->path);
    free(l);
    return NULL;
}

static t_local *open_local(const char *path, int32_t rank, int32_t count) {
    const size_t n = (size_t)count, bytes = n * (sizeof(t_mark) + sizeof(t_board)) + n * n * sizeof(t_ring);
    struct flock own = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = rank, .l_len = 1};
    t_local *l = calloc(1, sizeof *l);
    if (!l) {
        t_fail(TORSHC_E_MEMORY, "no memory for %d ranks", (int)count);
        return NULL;
    }
    l->path = strdup(path);
    l->file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    struct stat found;
    if (l->file < 0 || fstat(l->file, &found))
        return drop(l, "cannot open", strerror(errno));
    if (!S_ISREG(found.st_mode) || (found.st_size && (size_t)found.st_size != bytes))
        return drop(l, "another job's is", "processes of a job meet in a new folder");
    if (!found.st_size && ftruncate(l->file, (off_t)bytes)) /* others do the same, which changes nothing */
        return drop(l, "no room for", strerror(errno));
    if (fcntl(l->file, F_OFD_SETLK, &own))
        return drop(l, "at", "another process is this rank");
    unsigned char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, l->file, 0);
    if (at == MAP_FAILED)
        return drop(l, "cannot map", strerror(errno));
    l->boards = (t_board *)(void *)at;
    l->rings = (t_ring *)(void *)(l->boards + n);
    l->marks = (t_mark *)(void *)(l->rings + n * n);
    if (atomic_load(&l->marks[rank].count)) {
        munmap(at, bytes);
        return drop(l, "another job's is", "processes of a job meet in a new folder");
    }
    atomic_store(&l->marks[rank].count, (uint32_t)count);
    return l;
}

torshc_ranks *torshc_local_ranks(const char *path, int32_t rank, int32_t count) {
    const char *seconds = getenv("TORSHC_RANKS_SECONDS");
    for (t_local *l = all_local; l && path; l = l->next)
        if (!strcmp(l->path, path) && l->table.rank == rank && l->table.count == count)
            return &l->table;
    if (!path || path[0] != '/' || count < 1 || count > RANKS_MOST || rank < 0 || rank >= count) {
        t_fail(TORSHC_E_ARGUMENT, "torshc_local_ranks: rank %d of %d (at most %d), or a path that is not absolute",
               (int)rank, (int)count, RANKS_MOST);
        return NULL;
    }
    t_local *l = open_local(path, rank, count);
    if (!l)
        return NULL;
    l->table = (torshc_ranks){.size = sizeof l->table,
                              .rank = rank,
                              .count = count,
                              .seconds = seconds && atof(seconds) > 0 ? atof(seconds) : 30.0,
                              .context = l,
                              .isend = send_to,
                              .irecv = receive,
                              .iallreduce = all_reduce,
                              .iallgather = all_gather,
                              .ireduce_scatter = reduce_scatter,
                              .test = test,
                              .message = message,
                              .abort = end_all,
                              .lost = lost};
    l->next = all_local;
    all_local = l;
    return &l->table;
}
