/* Exchanges between the processes that share a model. A message is waited for until it is done or its time is over; what
 * all do together is so when its result is wanted (t_ranks_settle). Then a roll call finds out which processes do not
 * answer, so that the error names them. */
#define _GNU_SOURCE
#include "t_ranks.h"

#include "t_program.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROLL_CALL = 32767, AT_MOST = 0x7fffffff }; /* the last tag that every MPI has; the most bytes at once */

/* A job that is stopped and goes on (by Ctrl-Z, or a machine that others use) has not waited meanwhile: what lies between two
 * looks at an exchange counts for at most `STOPPED` seconds. */
static const double BUSY = 2e-3, ROLL_CALL_SECONDS = 2.0, STOPPED = 0.25;

double t_ranks_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void t_ranks_fail(t_ranks_call *call, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(call->message, sizeof call->message, format, arguments);
    va_end(arguments);
    call->status = TORSHC_E_RANKS;
    call->ranks->broken = 1;
}

void t_ranks_pause(double began) {
    const struct timespec moment = {0, 50000};
    if (t_ranks_now() - began < BUSY)
        sched_yield();
    else
        nanosleep(&moment, NULL);
}

/* Whether a request is done in the seconds that are left, which it takes from them; -1 where it failed. */
static int done_in(torshc_ranks *ranks, void **request, double *left) {
    const double began = t_ranks_now();
    for (double last = began, now;; last = now) {
        int done = 0;
        if (ranks->test(ranks->context, request, &done))
            return -1;
        if (done)
            return 1;
        if (*left <= 0)
            return 0;
        t_ranks_pause(began);
        now = t_ranks_now();
        *left -= now - last < STOPPED ? now - last : STOPPED;
    }
}

/* Asks all others for a sign of life, as all that wait do at about this time, and writes which gave none. What is still
 * under way then is never freed: the job is over. */
static void call_roll(torshc_ranks *ranks, char *text, size_t room) {
    static char alive;
    void **requests = calloc(2 * (size_t)ranks->count, sizeof *requests);
    char *heard = calloc((size_t)ranks->count, 1);
    double left = ROLL_CALL_SECONDS;
    size_t length = 0;
    text[0] = 0;
    for (int32_t r = 0; requests && heard && r < ranks->count; r++) {
        void **of = requests + 2 * r;
        if (r != ranks->rank && (ranks->irecv(ranks->context, heard + r, 1, r, ROLL_CALL, of) ||
                                 ranks->isend(ranks->context, &alive, 1, r, ROLL_CALL, of + 1)))
            of[0] = NULL;
    }
    for (int32_t r = 0; requests && heard && r < ranks->count; r++)
        if (r != ranks->rank && length < room && (!requests[2 * r] || done_in(ranks, requests + 2 * r, &left) != 1))
            length += (size_t)snprintf(text + length, room - length, "%s%d", length ? ", " : "", (int)r);
}

int32_t t_ranks_lost(const torshc_ranks *ranks) {
    return ranks->size >= sizeof *ranks && ranks->lost ? ranks->lost(ranks->context) : -1;
}

void t_ranks_late(t_ranks_call *call, int32_t peer) {
    torshc_ranks *ranks = call->ranks;
    char silent[64];
    call_roll(ranks, silent, sizeof silent);
    if (silent[0])
        t_ranks_fail(call, "rank %s of %d did not answer within %g s", silent, (int)ranks->count, ranks->seconds);
    else if (peer >= 0)
        t_ranks_fail(call, "rank %d of %d is there, but not at this step after %g s", (int)peer, (int)ranks->count,
                     ranks->seconds);
    else
        t_ranks_fail(call, "all %d ranks are there, but not at this step after %g s", (int)ranks->count,
                     ranks->seconds);
}

static void finish(t_ranks_call *call, int began, void **request, int32_t peer) {
    torshc_ranks *ranks = call->ranks;
    double left = ranks->seconds;
    const int done = began ? -1 : done_in(ranks, request, &left);
    if (done == 1)
        return;
    if (done < 0) {
        t_ranks_fail(call, peer < 0 ? "%.150s" : "%.150s (with rank %d)", ranks->message(ranks->context), (int)peer);
        return;
    }
    t_ranks_late(call, peer);
}

/* What all do together goes on while the run does other things. The oldest is waited for where there are too many. */
static void note(t_ranks_call *call, int began, void *request) {
    t_begun *b = call->begun;
    if (began || !b) {
        finish(call, began, &request, -1);
        return;
    }
    if (b->count == T_BEGUN_MOST) {
        finish(call, 0, &b->request[0], -1);
        memmove(b->request, b->request + 1, (size_t)--b->count * sizeof *b->request);
    }
    b->request[b->count++] = request;
}

void t_ranks_settle(t_ranks_call *call) {
    t_begun *b = call->begun;
    if (b->failed)
        finish(call, 1, NULL, -1);
    for (int32_t i = 0; i < b->count && !call->status; i++)
        finish(call, 0, &b->request[i], -1);
    b->count = 0;
}

void t_ranks_go_on(torshc_ranks *ranks, t_begun *b) {
    int done = 0;
    if (b->failed || !b->count)
        return;
    b->failed = ranks->test(ranks->context, &b->request[0], &done);
    if (done && !b->failed)
        memmove(b->request, b->request + 1, (size_t)--b->count * sizeof *b->request);
}

void t_ranks_drop(torshc_ranks *ranks, t_begun *begun) {
    t_ranks_call call = {.ranks = ranks, .begun = begun};
    t_ranks_settle(&call);
}

static int fits(t_ranks_call *call, int64_t size) {
    if (size > AT_MOST)
        t_ranks_fail(call, "%lld bytes or elements at once; at most %d", (long long)size, (int)AT_MOST);
    return size <= AT_MOST;
}

void t_ranks_send(t_ranks_call *call, const void *data, int64_t bytes, int32_t peer, int32_t tag) {
    void *request = NULL;
    if (fits(call, bytes))
        finish(call, call->ranks->isend(call->ranks->context, data, (size_t)bytes, peer, tag, &request), &request,
               peer);
}

void t_ranks_receive(t_ranks_call *call, void *data, int64_t bytes, int32_t peer, int32_t tag) {
    void *request = NULL;
    if (fits(call, bytes))
        finish(call, call->ranks->irecv(call->ranks->context, data, (size_t)bytes, peer, tag, &request), &request,
               peer);
}

void t_ranks_all_reduce(t_ranks_call *call, const void *from, void *to, int64_t count, torshc_dtype type) {
    void *request = NULL;
    if (fits(call, count)) {
        const int began = call->ranks->iallreduce(call->ranks->context, from, to, (size_t)count, type, &request);
        note(call, began, request);
    }
}

void t_ranks_all_gather(t_ranks_call *call, const void *from, void *to, int64_t bytes) {
    void *request = NULL;
    if (fits(call, bytes)) {
        const int began = call->ranks->iallgather(call->ranks->context, from, to, (size_t)bytes, &request);
        note(call, began, request);
    }
}

void t_ranks_reduce_scatter(t_ranks_call *call, const void *from, void *to, int64_t count, torshc_dtype type) {
    void *request = NULL;
    if (fits(call, count)) {
        const int began = call->ranks->ireduce_scatter(call->ranks->context, from, to, (size_t)count, type, &request);
        note(call, began, request);
    }
}

int t_ranks_gather(torshc_ranks *ranks, const void *own, void *all, int64_t bytes) {
    t_ranks_call call = {.ranks = ranks};
    t_ranks_all_gather(&call, own, all, bytes);
    return call.status ? t_fail(call.status, "parts of a state: %s", call.message) : TORSHC_OK;
}
