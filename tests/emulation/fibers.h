// Runs a grid of threads on the CPU: what the emulations of CUDA and Metal share.
//
// Blocks run one after the other, or, where they may wait for each other, in turns. The threads of a block are fibers that
// run in turn, each until it waits for others. A thread that never waits costs a function call: it runs on the stack of
// the one before it.
//
// T_EMULATE_ORDER=forward|reverse|random:SEED is the order of blocks, and of threads between two waits. Results that
// depend on it show a race. In random order warps also run ahead of each other.
#pragma once
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

struct uint3 {
    unsigned x, y, z;
};

namespace t_emulate {

constexpr int warp_threads = 32, most_threads = 1024;
constexpr size_t most_dynamic = 227 << 10;  // bytes

struct Here {
    uint3 thread, block, threads, blocks;
    unsigned index;  // of the thread in its block
};
extern Here here;  // the thread that runs

struct Grid {
    uint3 blocks, threads;
    unsigned char *shared_begin, *shared_end;  // static shared memory: filled with 0xff before each block
    size_t dynamic_bytes;                      // of `dynamic`, likewise
    void (*thread)(void *context);             // what a thread does
    void *context;
    bool all_meet = false;  // barriers of the block are for all its threads: none may have returned
    unsigned cluster = 1;   // blocks that read each other's shared memory, and run together
    bool together = false;  // all blocks run at the same time: each until its threads wait or pause, and in turn
};
void run(const Grid &grid);

extern unsigned char dynamic[most_dynamic];  // the block's dynamic shared memory

// All living threads of the block meet, each with a vote. A thread that has returned is not waited for.
struct Votes {
    unsigned living, yes;
};
Votes meet_block(bool vote);

// All threads of the blocks of a cluster meet: each arrives, and later waits for the others.
void arrive_in_cluster();
void meet_cluster();
// Where another block of the cluster has what is at `at` in this one's shared memory.
void *in_cluster(void *at, int rank);

// The living lanes of `mask` meet, with the same mask and operation; `operation` is then called once, with what each lane
// brought (null for lanes that are not there), and may write results into it.
typedef void (*Operation)(void *const lanes[warp_threads]);
void meet_warp(uint32_t mask, Operation operation, void *mine);

// What a loop that waits for another block calls: others run before this thread goes on. Aborts when they can do nothing
// either.
void pause();

uint32_t living_lanes();  // of the running thread's warp

// The address sanitizer, where it is on, reports every access between the two.
void forbid(const void *at, size_t bytes);
void allow(const void *at, size_t bytes);

[[noreturn]] void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));  // prints and aborts

inline int lane() { return (int)(here.index % warp_threads); }

}  // namespace t_emulate

#pragma GCC visibility pop
