/* Exchanges between cards by NCCL, which is opened by its path and never searched for. The table of ranks (MPI's, or
 * another) brings the processes together: it hands over the communicator's id, and finds out who does not answer. */
#define _GNU_SOURCE
#include "t_nccl.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "t_gpu_model.h"

/* How long work may go on without a rank that has ended: it may have ended because it was done, and all that others have
 * left to do then is what follows the last exchange of a run. */
static const double GRACE = 1.0;

struct t_nccl {
    t_nccl_functions f;
    torshc_ranks *ranks;
    void *comm;
    t_device *device;
    int theirs;   /* the communicator is the caller's */
    int aborted;  /* nothing may be asked of it any more */
    double since; /* when a rank was first seen to have ended; 0: none has */
    /* A thread that gives up a call of NCCL in which a run hangs, as NCCL connects cards at their first exchange. */
    pthread_t watcher;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    double until; /* when the call in progress is given up; 0: none is */
    int started, ends;
};

static int fail_in(t_nccl *n, int result, const char *what) {
    return t_fail(TORSHC_E_RANKS, "NCCL: %s: %.120s", what, n->f.GetErrorString(result));
}

/* ---- the library ---- */

static int find(t_nccl *n, const char *path) {
    static const struct {
        const char *name;
        size_t offset;
    } functions[] = {
#define T_FUNCTION(name) {"nccl" #name, offsetof(t_nccl_functions, name)}
        T_FUNCTION(GetVersion),        T_FUNCTION(GetUniqueId),    T_FUNCTION(CommInitRank),
        T_FUNCTION(CommDestroy),       T_FUNCTION(CommAbort),      T_FUNCTION(CommCount),
        T_FUNCTION(CommGetAsyncError), T_FUNCTION(CommUserRank),   T_FUNCTION(CommCuDevice),
        T_FUNCTION(AllReduce),         T_FUNCTION(GetErrorString), T_FUNCTION(AllGather),
        T_FUNCTION(ReduceScatter),     T_FUNCTION(Send),           T_FUNCTION(Recv),
#undef T_FUNCTION
    };
    if (!path)
        return t_fail(TORSHC_E_RANKS, "no path of NCCL's library: set options.nccl_path");
    if (path[0] != '/')
        return t_fail(TORSHC_E_RANKS, "NCCL's path is not absolute: %.150s", path);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL); /* never closed: NCCL's threads may outlive a communicator */
    if (!library)
        return t_fail(TORSHC_E_RANKS, "NCCL cannot be opened: %.200s", dlerror());
    for (size_t k = 0; k < sizeof functions / sizeof *functions; k++) {
        void *found = dlsym(library, functions[k].name);
        if (!found)
            return t_fail(TORSHC_E_RANKS, "%.150s has no %s: it is not NCCL, or an old one", path, functions[k].name);
        memcpy((char *)&n->f + functions[k].offset, &found, sizeof found);
    }
    return TORSHC_OK;
}

/* ---- who the others are ---- */

/* What each rank tells the others. */
typedef struct {
    char host[96];    /* of its machine */
    uint8_t card[16]; /* of its card; zeros before it is open */
    int32_t ordinal, version;
    t_nccl_id id; /* of rank 0 */
} t_greeting;

/* What all ranks tell, in memory that the caller frees; NULL with a message after a failure. */
static t_greeting *greet(torshc_ranks *ranks, const t_greeting *own) {
    t_ranks_call call = {.ranks = ranks};
    t_greeting *all = calloc((size_t)ranks->count, sizeof *all);
    if (!all) {
        t_fail(TORSHC_E_MEMORY, "no memory for what %d ranks say", (int)ranks->count);
        return NULL;
    }
    t_ranks_all_gather(&call, own, all, (int64_t)sizeof *own);
    if (!call.status)
        return all;
    t_fail(call.status, "opening the model on all ranks: %s", call.message);
    free(all);
    return NULL;
}

/* Names the machine, also for containers on one: its name, and what it made up when it was started. */
static void name_host(char *text, size_t room) {
    char boot[64] = "";
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (!file || !fgets(boot, sizeof boot, file))
        gethostname(boot, sizeof boot - 1);
    if (file)
        fclose(file);
    snprintf(text, room, "%s", boot);
}

static int choose(torshc_ranks *ranks, int32_t *ordinal) {
    t_greeting own = {.host = ""};
    const int32_t cards = t_device_count();
    int32_t before = 0;
    name_host(own.host, sizeof own.host);
    t_greeting *all = greet(ranks, &own);
    if (!all)
        return TORSHC_E_RANKS;
    for (int32_t r = 0; r < ranks->rank; r++)
        before += !memcmp(all[r].host, own.host, sizeof own.host);
    free(all);
    *ordinal = cards ? before % cards : 0;
    return TORSHC_OK;
}

/* NCCL needs a card of its own for each rank, and equal libraries. */
static int check_greetings(torshc_ranks *ranks, const t_greeting *all) {
    const int32_t own = ranks->rank;
    for (int32_t r = 0; r < ranks->count; r++) {
        if (r != own && !memcmp(all[r].host, all[own].host, sizeof all->host) &&
            !memcmp(all[r].card, all[own].card, sizeof all->card))
            return t_fail(TORSHC_E_RANKS,
                          "ranks %d and %d have one card, number %d of the %d that this process sees: each needs its "
                          "own, so start fewer ranks, or some on another machine",
                          (int)(r < own ? r : own), (int)(r < own ? own : r), (int)all[own].ordinal,
                          (int)t_device_count());
        if (all[r].version != all[own].version)
            return t_fail(TORSHC_E_RANKS, "rank %d has NCCL %d and rank %d has %d: give all the same library", (int)r,
                          (int)all[r].version, (int)own, (int)all[own].version);
    }
    return TORSHC_OK;
}

/* ---- a communicator ---- */

/* What a thread of its own does, as it may never come back. */
typedef struct {
    int (*init)(void **comm, int count, t_nccl_id id, int rank);
    t_device *device;
    int count, rank;
    t_nccl_id id;
    void *comm;
    int result;
    int done;
} t_beginning;

static void *begin(void *argument) {
    t_beginning *b = argument;
    int result = t_device_use(b->device);
    if (!result)
        result = b->init(&b->comm, b->count, b->id, b->rank);
    b->result = result;
    __atomic_store_n(&b->done, 1, __ATOMIC_RELEASE);
    return NULL;
}

/* Begins a communicator with all ranks, each of which was there a moment ago. */
static int make(t_nccl *n, t_device *device, const t_nccl_id *id) {
    torshc_ranks *ranks = n->ranks;
    t_ranks_call call = {.ranks = ranks};
    t_beginning *b = calloc(1, sizeof *b);
    pthread_t thread;
    if (!b)
        return t_fail(TORSHC_E_MEMORY, "no memory to begin with NCCL");
    *b = (t_beginning){n->f.CommInitRank, device, ranks->count, ranks->rank, *id, NULL, 0, 0};
    if (t_start_thread(&thread, begin, b)) {
        free(b);
        return t_fail(TORSHC_E_MEMORY, "no thread to begin with NCCL");
    }
    const double began = t_ranks_now();
    while (!__atomic_load_n(&b->done, __ATOMIC_ACQUIRE)) {
        const int32_t lost = t_ranks_lost(ranks);
        if (lost >= 0)
            t_ranks_fail(&call, "rank %d of %d has ended", (int)lost, (int)ranks->count);
        else if (t_ranks_now() - began > ranks->seconds)
            t_ranks_late(&call, -1);
        if (call.status) { /* the thread and what it works with are left to the end of the process */
            pthread_detach(thread);
            return t_fail(call.status, "beginning with NCCL: %s", call.message);
        }
        t_ranks_pause(began);
    }
    pthread_join(thread, NULL);
    n->comm = b->comm;
    const int result = b->result;
    free(b);
    return result ? fail_in(n, result, "beginning with all ranks") : TORSHC_OK;
}

/* Checks that the caller's communicator is over these ranks and for this card. */
static int take(t_nccl *n, void *comm, int32_t ordinal) {
    int count = 0, rank = 0, device = 0;
    int result = n->f.CommCount(comm, &count);
    if (!result)
        result = n->f.CommUserRank(comm, &rank);
    if (!result)
        result = n->f.CommCuDevice(comm, &device);
    if (result)
        return fail_in(n, result, "asking the communicator of the options");
    if (count != n->ranks->count || rank != n->ranks->rank || device != ordinal)
        return t_fail(TORSHC_E_RANKS,
                      "options.nccl_comm is for rank %d of %d on card %d; the model is rank %d of %d on card %d", rank,
                      count, device, (int)n->ranks->rank, (int)n->ranks->count, (int)ordinal);
    n->comm = comm;
    n->theirs = 1;
    return TORSHC_OK;
}

static int begin_together(t_nccl *n, torshc_model *m, const torshc_options *options) {
    t_greeting own = {.ordinal = m->ordinal};
    int status = t_device_identity(m->device, own.card);
    int result = n->f.GetVersion(&own.version);
    name_host(own.host, sizeof own.host);
    if (!status && !result && n->ranks->rank == 0)
        result = n->f.GetUniqueId(&own.id);
    if (status || result)
        return status ? status : fail_in(n, result, "asking for an id");
    if (options->nccl_comm)
        return take(n, options->nccl_comm, m->ordinal);
    t_greeting *all = greet(n->ranks, &own);
    if (!all)
        return TORSHC_E_RANKS;
    const t_nccl_id id = all[0].id;
    status = check_greetings(n->ranks, all);
    free(all);
    return status ? status : make(n, m->device, &id);
}

/* ---- calls that hang, and work that never ends ---- */

static void *watch(void *argument) {
    t_nccl *n = argument;
    pthread_mutex_lock(&n->lock);
    while (!n->ends) {
        const double left = n->until - t_ranks_now();
        if (!n->until)
            pthread_cond_wait(&n->changed, &n->lock);
        else if (left > 0) {
            struct timespec moment;
            clock_gettime(CLOCK_REALTIME, &moment);
            moment.tv_sec += 1 + (time_t)left;
            pthread_cond_timedwait(&n->changed, &n->lock, &moment);
        } else {
            n->until = 0;
            n->aborted = 1;
            n->f.CommAbort(n->comm);
        }
    }
    pthread_mutex_unlock(&n->lock);
    return NULL;
}

/* From here on a call is given up when its time is over; 0 ends that. Whether the communicator is of use. */
static int limit(t_nccl *n, double seconds) {
    pthread_mutex_lock(&n->lock);
    n->until = seconds ? t_ranks_now() + seconds : 0;
    if (seconds)
        pthread_cond_signal(&n->changed);
    const int of_use = !n->aborted;
    pthread_mutex_unlock(&n->lock);
    return of_use;
}

/* Ends work that waits in vain. */
static void give_up(void *context) {
    t_nccl *n = context;
    pthread_mutex_lock(&n->lock);
    const int first = !n->aborted;
    n->aborted = 1;
    pthread_mutex_unlock(&n->lock);
    if (first)
        n->f.CommAbort(n->comm);
}

/* Asked while the device's work is waited for, since `began`. */
static int check(void *context, double began) {
    t_nccl *n = context;
    t_ranks_call call = {.ranks = n->ranks, .nccl = n};
    const double now = t_ranks_now();
    int result = T_NCCL_SUCCESS;
    if (n->aborted)
        return t_fail(TORSHC_E_RANKS, "an earlier exchange was given up: end all processes");
    const int32_t lost = t_ranks_lost(n->ranks);
    n->since = lost < 0 ? 0 : n->since ? n->since : now;
    const int asked = n->f.CommGetAsyncError(n->comm, &result);
    result = asked ? asked : result;
    if (lost >= 0 && (now - n->since > GRACE || result != T_NCCL_SUCCESS))
        t_ranks_fail(&call, "rank %d of %d has ended", (int)lost, (int)n->ranks->count);
    else if (result != T_NCCL_SUCCESS && result != T_NCCL_IN_PROGRESS)
        t_ranks_fail(&call, "NCCL: %.150s", n->f.GetErrorString(result));
    else if (now - began > n->ranks->seconds)
        t_ranks_late(&call, -1);
    return call.status ? t_fail(call.status, "waiting for a run: %s", call.message) : TORSHC_OK;
}

/* Keeps this library loaded: after a failure threads of it may go on until the process ends. */
static void stay(void) {
    Dl_info own;
    if (dladdr((const void *)&t_nccl_cards, &own))
        (void)dlopen(own.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
}

static int join(torshc_model *m, const torshc_options *options) {
    t_nccl *n = m->nccl = calloc(1, sizeof *n);
    if (!n)
        return t_fail(TORSHC_E_MEMORY, "no memory for NCCL");
    n->ranks = options->ranks;
    n->device = m->device;
    pthread_mutex_init(&n->lock, NULL);
    pthread_cond_init(&n->changed, NULL);
    stay();
    int status = find(n, options->nccl_path);
    if (status || (status = begin_together(n, m, options)))
        return status;
    t_device_watch(m->device, check, give_up, n);
    n->started = !t_start_thread(&n->watcher, watch, n);
    return n->started ? TORSHC_OK : t_fail(TORSHC_E_MEMORY, "no thread to watch NCCL");
}

/* After a failure NCCL's threads, and those that end its work, may go on until the process ends. */
static void leave(torshc_model *m) {
    t_nccl *n = m->nccl;
    if (!n || n->ranks->broken)
        return;
    if (n->started) {
        pthread_mutex_lock(&n->lock);
        n->ends = 1;
        pthread_cond_signal(&n->changed);
        pthread_mutex_unlock(&n->lock);
        pthread_join(n->watcher, NULL);
    }
    if (n->comm && !n->theirs && !n->aborted)
        n->f.CommDestroy(n->comm);
    pthread_cond_destroy(&n->changed);
    pthread_mutex_destroy(&n->lock);
    free(n);
}

const t_cards t_nccl_cards = {choose, join, leave};

/* ---- exchanges ---- */

static int type_of(torshc_dtype t) {
    if (t.bits == 16)
        return t.code == TORSHC_BFLOAT ? T_NCCL_BFLOAT16 : T_NCCL_FLOAT16;
    return t.code == TORSHC_FLOAT ? (t.bits == 64 ? T_NCCL_FLOAT64 : T_NCCL_FLOAT32)
                                  : (t.bits == 64 ? T_NCCL_INT64 : T_NCCL_INT32);
}

/* Before and after a call of NCCL, which returns at once but for the first ones of a communicator. */
static int can_begin(t_ranks_call *call) {
    const int of_use = limit(call->nccl, call->ranks->seconds);
    if (!of_use)
        t_ranks_fail(call, "an earlier exchange was given up");
    return of_use;
}

static void end(t_ranks_call *call, int result, int32_t peer) {
    const int of_use = limit(call->nccl, 0);
    const int32_t lost = t_ranks_lost(call->ranks);
    if (of_use && (result == T_NCCL_SUCCESS || result == T_NCCL_IN_PROGRESS))
        return;
    if (lost >= 0)
        t_ranks_fail(call, "rank %d of %d has ended", (int)lost, (int)call->ranks->count);
    else if (!of_use)
        t_ranks_late(call, peer);
    else
        t_ranks_fail(call, "NCCL: %.150s", call->nccl->f.GetErrorString(result));
}

/* Where an exchange goes. All go into one stream from the first that is waited for later until they are waited for. */
static void *stream_of(t_ranks_call *call, void *stream) {
    void *own = t_device_fork(call->nccl->device, call->later);
    return own ? own : stream;
}

void t_nccl_settle(t_ranks_call *call) {
    if ((call->status = t_device_join(call->nccl->device)))
        snprintf(call->message, sizeof call->message, "CUDA cannot have one stream wait for another");
}

void t_nccl_send(t_ranks_call *call, const void *data, int64_t bytes, int32_t peer, void *stream) {
    t_nccl *n = call->nccl;
    if (can_begin(call))
        end(call, n->f.Send(data, (size_t)bytes, T_NCCL_UINT8, peer, n->comm, stream), peer);
}

void t_nccl_receive(t_ranks_call *call, void *data, int64_t bytes, int32_t peer, void *stream) {
    t_nccl *n = call->nccl;
    if (can_begin(call))
        end(call, n->f.Recv(data, (size_t)bytes, T_NCCL_UINT8, peer, n->comm, stream), peer);
}

void t_nccl_all_reduce(t_ranks_call *call, const void *from, void *to, int64_t count, torshc_dtype type, void *stream) {
    t_nccl *n = call->nccl;
    if (can_begin(call))
        end(call, n->f.AllReduce(from, to, (size_t)count, type_of(type), T_NCCL_SUM, n->comm, stream_of(call, stream)),
            -1);
}

void t_nccl_all_gather(t_ranks_call *call, const void *from, void *to, int64_t bytes, void *stream) {
    t_nccl *n = call->nccl;
    if (can_begin(call))
        end(call, n->f.AllGather(from, to, (size_t)bytes, T_NCCL_UINT8, n->comm, stream_of(call, stream)), -1);
}

void t_nccl_reduce_scatter(t_ranks_call *call, const void *from, void *to, int64_t count, torshc_dtype type,
                           void *stream) {
    t_nccl *n = call->nccl;
    if (can_begin(call))
        end(call,
            n->f.ReduceScatter(from, to, (size_t)count, type_of(type), T_NCCL_SUM, n->comm, stream_of(call, stream)),
            -1);
}
