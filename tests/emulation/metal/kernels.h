// How kernels of a .metal file are found and run: bin/xcrun writes an entry and a row of the table for each.
#pragma once
#include "../fibers.h"

#ifndef T_EMULATE_UNIT  // bin/xcrun names each translation unit
#define T_EMULATE_UNIT "none"
#endif

#pragma GCC visibility push(hidden)
extern "C" {
extern unsigned char t_emulate_shared_begin[] __asm__("__start_t_shared_" T_EMULATE_UNIT) __attribute__((weak));
extern unsigned char t_emulate_shared_end[] __asm__("__stop_t_shared_" T_EMULATE_UNIT) __attribute__((weak));
}

namespace t_emulate {

struct Kernel {
    const char *name;
    // Calls the kernel for the running thread: buffers by index, threadgroup memory by index.
    void (*entry)(void *const *buffers, void *const *groups);
    unsigned char *shared_begin, *shared_end;
};

// A position as a kernel declares it: uint, ushort, uint2, uint3.
template <class T> struct Position {
    static T of(uint3 p) { return T(p.x); }
};
inline uint3 in_grid() {
    return {here.block.x * here.threads.x + here.thread.x, here.block.y * here.threads.y + here.thread.y,
            here.block.z * here.threads.z + here.thread.z};
}
inline uint3 times(uint3 a, uint3 b) { return {a.x * b.x, a.y * b.y, a.z * b.z}; }
inline uint3 single(unsigned x) { return {x, 1, 1}; }

}  // namespace t_emulate
#pragma GCC visibility pop
