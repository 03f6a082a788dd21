#include "fibers.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <algorithm>
#include <deque>
#include <mutex>
#include <utility>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#define T_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define T_ASAN 1
#endif
#endif
#ifdef T_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#else
#define __asan_poison_memory_region(at, bytes) ((void)(at), (void)(bytes))
#define __asan_unpoison_memory_region(at, bytes) ((void)(at), (void)(bytes))
#endif

// t_emulate_switch(save, load): stores the stack pointer to *save, after the registers that a call must keep, and goes on
// where `load` was stored.
#if defined(__x86_64__)
extern "C" void t_emulate_switch(void **save, void *load) __attribute__((visibility("hidden")));
asm(R"(
    .text
    .hidden t_emulate_switch
    .globl t_emulate_switch
    .type t_emulate_switch, @function
t_emulate_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size t_emulate_switch, . - t_emulate_switch
)");
static void *first_frame(unsigned char *top, void (*entry)()) {
    void **frame = (void **)top - 8;  // six registers, the return address, and the slot that aligns the stack
    memset(frame, 0, 64);
    frame[6] = (void *)entry;
    return frame;
}
#elif defined(__aarch64__)
extern "C" void t_emulate_switch(void **save, void *load) __attribute__((visibility("hidden")));
asm(R"(
    .text
    .hidden t_emulate_switch
    .globl t_emulate_switch
    .type t_emulate_switch, %function
t_emulate_switch:
    sub sp, sp, #160
    stp x19, x20, [sp]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x2, sp
    str x2, [x0]
    mov sp, x1
    ldp x19, x20, [sp]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
    .size t_emulate_switch, . - t_emulate_switch
)");
static void *first_frame(unsigned char *top, void (*entry)()) {
    void **frame = (void **)top - 20;
    memset(frame, 0, 160);
    frame[11] = (void *)entry;  // x30
    return frame;
}
#else
#error "the emulator switches fibers on x86-64 and aarch64 only"
#endif

namespace t_emulate {

Here here;
alignas(1024) unsigned char dynamic[most_dynamic];

void forbid(const void *at, size_t bytes) { __asan_poison_memory_region(at, bytes); }
void allow(const void *at, size_t bytes) { __asan_unpoison_memory_region(at, bytes); }

void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "emulator: ");
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    va_end(arguments);
    fflush(stderr);
    abort();
}

namespace {

constexpr size_t page = 4096 * 16, stack_bytes = 512 << 10;  // page: a multiple of any page size

struct Fiber {
    void *saved;
    unsigned char *stack;
    void *fake_stack;  // of the address sanitizer
};

enum State : unsigned char { unstarted, ready, at_block, at_warp, paused, done };
const char *const state_names[] = {"not started",                 "ready", "at a barrier of the block",
                                   "at an operation of the warp", "in a loop that waits for another block", "done"};

struct Thread {
    State state;
    bool vote;
    uint32_t mask;
    Operation operation;
    void *mine;
    Fiber *fiber;
    size_t meeting;  // arrivals in each block of the cluster that end the meeting that the thread came to last
};

struct Block {
    uint3 place;
    int living = 0;
    std::vector<Thread> threads;
    std::vector<unsigned char> fixed, dynamic;  // its shared memory while others run
    size_t arrived = 0;                         // threads at meetings of the cluster, of all together
};

constexpr int most_idle_rounds = 1000;  // in which all that a grid does is to pause

std::mutex one_grid;
const Grid *grid;
Block *block;             // that runs
std::vector<Block> *all_blocks;
Thread *threads;          // its own
int order[most_threads];  // in which the threads run, in this round
int count, position;
bool skipped[most_threads / warp_threads];  // warps that do not run in this round
Votes votes;
Fiber scheduler, *running;
std::deque<Fiber> fibers;  // stay where they are
std::vector<Fiber *> idle;

struct Order {
    enum { forward, reverse, random } kind;
    uint64_t seed;

    unsigned draw(unsigned n) {  // splitmix64
        uint64_t z = seed += 0x9e3779b97f4a7c15u;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        return (unsigned)((z ^ (z >> 31)) % n);
    }
    template <class T> void shuffle(T *items, unsigned n) {
        for (unsigned i = n; i > 1; --i) std::swap(items[i - 1], items[draw(i)]);
    }
} rule;

void read_rule() {
    static uint64_t launches;
    const char *text = getenv("T_EMULATE_ORDER");
    if (!text || !*text || !strcmp(text, "forward")) {
        rule = {Order::forward, 0};
    } else if (!strcmp(text, "reverse")) {
        rule = {Order::reverse, 0};
    } else if (!strncmp(text, "random:", 7)) {
        rule = {Order::random, strtoull(text + 7, nullptr, 10) * 1000003 + launches++};
    } else {
        fail("T_EMULATE_ORDER is forward, reverse or random:SEED, not %s", text);
    }
}

#ifdef T_ASAN
struct {  // the stack of whoever started the grid
    const void *bottom;
    size_t bytes;
} caller;
#endif

void switch_fiber(Fiber *from, Fiber *to) {
#ifdef T_ASAN
    const bool back = to == &scheduler;
    __sanitizer_start_switch_fiber(&from->fake_stack, back ? caller.bottom : to->stack, back ? caller.bytes : stack_bytes);
    t_emulate_switch(&from->saved, to->saved);
    const void *bottom;
    size_t bytes;
    __sanitizer_finish_switch_fiber(from->fake_stack, &bottom, &bytes);
    if (from != &scheduler) caller = {bottom, bytes};
#else
    t_emulate_switch(&from->saved, to->saved);
#endif
}

void place(int thread) {
    const unsigned index = (unsigned)thread, x = here.threads.x, y = here.threads.y;
    here.index = index;
    here.thread = index < x ? uint3{index, 0, 0} : uint3{index % x, index / x % y, index / x / y};
}

// A fiber runs threads until one has to wait or those that follow have started already.
void fiber_main() {
#ifdef T_ASAN
    __sanitizer_finish_switch_fiber(nullptr, &caller.bottom, &caller.bytes);
#endif
    for (;;) {
        for (;;) {
            place(order[position]);
            threads[order[position]].fiber = running;
            grid->thread(grid->context);
            threads[order[position]].state = done;
            --block->living;
            const int next = position + 1;
            if (next == count || threads[order[next]].state != unstarted || skipped[order[next] / warp_threads]) break;
            position = next;
        }
        idle.push_back(running);
        switch_fiber(running, &scheduler);
    }
}

Fiber *take_fiber() {
    if (!idle.empty()) {
        Fiber *fiber = idle.back();
        idle.pop_back();
        return fiber;
    }
    void *memory = mmap(nullptr, stack_bytes + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) fail("no memory for the stack of a thread");
    mprotect(memory, page, PROT_NONE);
    const size_t number = fibers.size();
    fibers.emplace_back();
    Fiber *fiber = &fibers.back();
    fiber->stack = (unsigned char *)memory + page;
    // Stacks begin at different cache lines, or all threads would use the same few sets of the cache.
    fiber->saved = first_frame(fiber->stack + stack_bytes - number % 256 * 320, fiber_main);
    return fiber;
}

// Gives back all stacks. Where all threads of a grid have one they are many, of the mappings that a process may have.
void drop_fibers() {
    for (const Fiber &fiber : fibers) {
        allow(fiber.stack, stack_bytes);
        munmap(fiber.stack - page, stack_bytes + page);
    }
    idle.clear();
    fibers.clear();
}

// A library that is closed leaves none behind.
struct AtTheEnd {
    ~AtTheEnd() { drop_fibers(); }
} at_the_end;

void run_round() {
    if (rule.kind == Order::random) {
        rule.shuffle(order, (unsigned)count);
        for (bool &skip : skipped) skip = count > warp_threads && rule.draw(4) == 0;
    }
    for (position = 0; position < count; ++position) {
        const int index = order[position];
        Thread &thread = threads[index];
        if (thread.state > ready || skipped[index / warp_threads]) continue;
        running = thread.state == ready ? thread.fiber : take_fiber();
        place(index);
        switch_fiber(&scheduler, running);
    }
}

bool release_block() {
    unsigned waiting = 0, yes = 0;
    for (int i = 0; i < count; ++i) {
        if (threads[i].state != at_block) continue;
        ++waiting;
        yes += threads[i].vote;
    }
    if (!waiting || (int)waiting != block->living) return false;
    if (grid->all_meet && block->living != count)
        fail("a barrier that %d of %d threads do not reach", count - block->living, count);
    votes = {waiting, yes};
    for (int i = 0; i < count; ++i)
        if (threads[i].state == at_block) threads[i].state = ready;
    return true;
}

// Releases the lanes of a warp that meet with the same mask and operation, if they are all there.
bool release_lanes(Thread *warp, int lanes, const Thread &first) {
    void *mine[warp_threads] = {};
    for (int i = 0; i < lanes; ++i) {
        const Thread &other = warp[i];
        if (!(first.mask >> i & 1) || other.state == done) continue;
        if (other.state != at_warp || other.mask != first.mask || other.operation != first.operation) return false;
        mine[i] = other.mine;
    }
    if (first.operation) first.operation(mine);
    for (int i = 0; i < lanes; ++i)
        if (mine[i]) warp[i].state = ready;
    return true;
}

bool release_warps() {
    bool released = false;
    for (int base = 0; base < count; base += warp_threads) {
        const int lanes = count - base < warp_threads ? count - base : warp_threads;
        for (int i = 0; i < lanes; ++i)
            if (threads[base + i].state == at_warp) released |= release_lanes(threads + base, lanes, threads[base + i]);
    }
    return released;
}

[[noreturn]] void fail_stuck() {
    int states[done + 1] = {};
    for (int i = 0; i < count; ++i) ++states[threads[i].state];
    if (states[paused])
        fail("block (%u, %u, %u) waits for other blocks in vain: %d threads are %s%s", here.block.x, here.block.y, here.block.z,
             states[paused], state_names[paused],
             grid->together ? "" : "; the grid was not launched with cudaLaunchCooperativeKernel, so that its blocks need not run at the same time");
    fail("block (%u, %u, %u) is stuck: %d threads %s, %d %s, %d %s", here.block.x, here.block.y, here.block.z, states[at_block],
         state_names[at_block], states[at_warp], state_names[at_warp], states[done], state_names[done]);
}

bool any_in(State first, State last) {
    for (int i = 0; i < count; ++i)
        if (threads[i].state >= first && threads[i].state <= last) return true;
    return false;
}

size_t fixed_bytes() { return (size_t)(grid->shared_end - grid->shared_begin); }

// Makes a block the one that runs; it starts with the shared memory of nobody.
void enter(Block &next) {
    block = &next;
    threads = next.threads.data();
    here.block = next.place;
}

void start(Block &next, size_t number) {
    const uint3 &n = grid->blocks;
    next.place = {(unsigned)(number % n.x), (unsigned)(number / n.x % n.y), (unsigned)(number / n.x / n.y)};
    next.living = count;
    next.threads.assign((size_t)count, Thread{});
    enter(next);
    if (fixed_bytes()) memset(grid->shared_begin, 0xff, fixed_bytes());
    memset(dynamic, 0xff, grid->dynamic_bytes);
}

void save_shared() {
    block->fixed.assign(grid->shared_begin, grid->shared_end);
    block->dynamic.assign(dynamic, dynamic + grid->dynamic_bytes);
}

void restore_shared() {
    if (fixed_bytes()) memcpy(grid->shared_begin, block->fixed.data(), fixed_bytes());
    memcpy(dynamic, block->dynamic.data(), grid->dynamic_bytes);
}

// Runs the block until all its threads have returned, wait or have paused; gives whether any did more than to pause.
bool run_turn() {
    const int before = block->living;
    bool released = false;
    for (int i = 0; i < count; ++i) {
        if (threads[i].state == paused) threads[i].state = ready;
        order[i] = rule.kind == Order::reverse ? count - 1 - i : i;
    }
    for (;;) {
        run_round();
        if (!block->living) return true;
        const bool all = release_block(), some = release_warps();
        released |= all || some;
        if (all || some || any_in(unstarted, ready)) continue;
        if (!any_in(paused, paused)) fail_stuck();
        return released || block->living < before;
    }
}

void run_alone(size_t number) {
    static Block one;
    start(one, number);
    for (int idle_rounds = 0; one.living;)
        if ((idle_rounds = run_turn() ? 0 : idle_rounds + 1) > most_idle_rounds) fail_stuck();
}

// Blocks in turn, each with its shared memory, until all have returned.
void run_together(std::vector<size_t> numbers) {
    std::vector<Block> blocks(numbers.size());
    all_blocks = &blocks;
    for (size_t number : numbers) {
        start(blocks[number], number);
        save_shared();
    }
    for (int idle_rounds = 0; !numbers.empty();) {
        bool moved = false;
        if (rule.kind == Order::random) rule.shuffle(numbers.data(), (unsigned)numbers.size());
        for (size_t number : numbers) {
            enter(blocks[number]);
            restore_shared();
            moved |= run_turn();
            save_shared();
        }
        if ((idle_rounds = moved ? 0 : idle_rounds + 1) > most_idle_rounds) fail_stuck();
        const auto ended = [&](size_t n) { return !blocks[n].living; };
        numbers.erase(std::remove_if(numbers.begin(), numbers.end(), ended), numbers.end());
    }
    drop_fibers();
}

}  // namespace

Votes meet_block(bool vote) {
    Thread &me = threads[here.index];
    me.vote = vote;
    me.state = at_block;
    switch_fiber(running, &scheduler);
    return votes;
}

// The blocks of the running one's cluster.
static Block *cluster() { return &(*all_blocks)[(size_t)(block - all_blocks->data()) / grid->cluster * grid->cluster]; }

// Each thread comes to as many meetings as any other, so that of the last one all have been at.
void arrive_in_cluster() {
    threads[here.index].meeting = (block->arrived / (size_t)count + 1) * (size_t)count;
    ++block->arrived;
}

void meet_cluster() {
    Block *const blocks = cluster();
    for (unsigned i = 0; i < grid->cluster; ++i)
        while (blocks[i].arrived < threads[here.index].meeting) pause();
}

void *in_cluster(void *at, int rank) {
    Block &other = cluster()[rank];
    if (!other.living) fail("shared memory of block (%u, %u, %u), which has ended", other.place.x, other.place.y, other.place.z);
    const ptrdiff_t place = (const unsigned char *)at - grid->shared_begin, behind = (const unsigned char *)at - dynamic;
    const bool fixed = place >= 0 && (size_t)place < fixed_bytes();
    if (!fixed && (behind < 0 || (size_t)behind >= grid->dynamic_bytes)) fail("what is read in another block is not in shared memory");
    if (&other == block) return at;
    return fixed ? other.fixed.data() + place : other.dynamic.data() + behind;
}

void meet_warp(uint32_t mask, Operation operation, void *mine) {
    if (!(mask >> lane() & 1)) fail("lane %d is not in the mask 0x%08x of its own operation", lane(), mask);
    char nothing;
    Thread &me = threads[here.index];
    me.mask = mask;
    me.operation = operation;
    me.mine = mine ? mine : &nothing;
    me.state = at_warp;
    switch_fiber(running, &scheduler);
}

void pause() {
    threads[here.index].state = paused;
    switch_fiber(running, &scheduler);
}

uint32_t living_lanes() {
    uint32_t mask = 0;
    const int base = (int)here.index / warp_threads * warp_threads;
    for (int i = 0; i < warp_threads && base + i < count; ++i) mask |= (uint32_t)(threads[base + i].state != done) << i;
    return mask;
}

void run(const Grid &what) {
    std::lock_guard<std::mutex> lock(one_grid);
    grid = &what;
    count = (int)(what.threads.x * what.threads.y * what.threads.z);
    here.threads = what.threads;
    here.blocks = what.blocks;
    read_rule();
    memset(skipped, 0, sizeof skipped);
    allow(dynamic, sizeof dynamic);
    forbid(dynamic + what.dynamic_bytes, sizeof dynamic - what.dynamic_bytes);
    std::vector<size_t> numbers((size_t)what.blocks.x * what.blocks.y * what.blocks.z);
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = rule.kind == Order::reverse ? numbers.size() - 1 - i : i;
    if (rule.kind == Order::random) rule.shuffle(numbers.data(), (unsigned)numbers.size());
    if (what.together) return run_together(std::move(numbers));
    for (size_t number : numbers) run_alone(number);
}

}  // namespace t_emulate
