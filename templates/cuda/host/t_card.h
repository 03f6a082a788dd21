// The state of a card, and what the parts of the device layer in CUDA share: t_device.cu opens cards and holds memory,
// t_copies.cu moves data, t_graphs.cu runs steps and records them.
#ifndef T_CARD_H
#define T_CARD_H

#include "t_device.h"

#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>

// Host data goes through page-locked memory in pieces, so that copying a piece and moving the one before overlap.
// Graphs are of runs whose symbols and addresses came before: of as many sets of tensors as callers take in turn, or of as
// many sizes as a profile saw.
enum { SLOTS = 8, GRAPHS = 32, KNOWN = 256, CASES = 5 };
static const size_t SLOT_BYTES = size_t(1) << 20;

struct t_slot {
    unsigned char *pinned;
    cudaEvent_t done;   // recorded behind the slot's copy
    bool busy;          // `done` has not been waited for
    unsigned char *to;  // of a download: where the data goes
    size_t bytes;
};

struct t_graph {
    int64_t *key;
    int32_t count;
    cudaGraphExec_t exec;  // NULL: the key was seen once
    cudaGraph_t source;    // of one in which the card chooses among forms: it has what says which; else NULL
    bool unfit;            // recording failed
    uint64_t used;
};

// Makes a card current for as long as it lives.
struct t_current {
    int was = -1;
    explicit t_current(int ordinal) {
        if (cudaGetDevice(&was) != cudaSuccess || was == ordinal)
            was = -1;
        else
            cudaSetDevice(ordinal);
    }
    ~t_current() {
        if (was >= 0)
            cudaSetDevice(was);
    }
};

struct t_device {
    int ordinal;
    bool own_stream;  // and not the caller's
    cudaStream_t stream;
    cudaStream_t recorder;  // never used by anybody else, whatever other threads do meanwhile
    cudaStream_t target;    // where launches go: `stream` or `recorder`
    cudaStream_t beside;    // for exchanges that go on while kernels run; made when one comes
    cudaEvent_t turn;       // where one of the two waits for the other
    bool forked;            // `target` has not waited for `beside`
    t_slot slots[SLOTS];
    unsigned next;
    t_graph *graphs;
    int graph_count;
    t_graph *recording;
    cudaGraph_t whole;         // where the card chooses among forms, the graph that these are parts of
    cudaGraph_t cases[CASES];  // their graphs, which belong to it
    bool graphs_allowed, chooses;
    uint64_t clock;
    cudaEvent_t *marks;
    int32_t mark_count;
    int (*check)(void *context, double began);  // asked while work is waited for; NULL: nobody is
    void (*end)(void *context);                 // ends the work that is given up
    void *context;
    bool given_up, stuck;  // `stuck`: the work has not ended even so
    cudaError_t lost;      // an error that only a new process mends
    // Addresses that the driver said are this card's, each at a place that it decides: asking takes a quarter of a
    // microsecond for each tensor of a call.  What t_device_free gives back is forgotten; callers' own memory is not.
    unsigned char *known[KNOWN];
};

// ---- t_device.cu ----

// The status and message of a failed call; `what` says what it was for.
int t_fail_call(t_device *d, cudaError_t error, int status, const char *what);

// TORSHC_E_DRIVER where a call failed.
int t_check_call(t_device *d, cudaError_t error, const char *what);

// TORSHC_E_LAUNCH after an error that only a new process mends.
int t_check_lost(const t_device *d);

// Whether the caller records what is put into its stream.
bool t_is_captured(t_device *d);

// Wait for all work in the stream, or for what an event is behind. TORSHC_E_RANKS where the work is given up, as other ranks
// do not answer.
int t_wait_for_stream(t_device *d, const char *what);
int t_wait_for_event(t_device *d, cudaEvent_t event, const char *what);

// ---- t_graphs.cu ----

void t_forget(t_graph *graph);

#endif
