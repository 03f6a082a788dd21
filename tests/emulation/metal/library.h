// What an emulated .metallib is for a host: a shared library that runs its kernels. Used by t_device_emulated.cpp in
// place of MTLLibrary, MTLComputePipelineState and a compute encoder.
//
//     void *library = dlopen("default.metallib", RTLD_NOW | RTLD_LOCAL);
//     auto find = (t_emulate_find_kernel *)dlsym(library, "t_emulate_find");
//     auto dispatch = (t_emulate_dispatch_kernel *)dlsym(library, "t_emulate_dispatch");
//     const void *kernel = find("k12ab");                      // NULL: no such kernel
//     int status = dispatch(kernel, buffers, groups, blocks, threads);
#pragma once
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef const void *t_emulate_find_kernel(const char *name);

// Runs a grid of `blocks` threadgroups of `threads` threads (x, y, z). buffers[i] is what [[buffer(i)]] points to, NULL
// where there is none; group_bytes[i] the length of [[threadgroup(i)]], up to the first 0. Both may be NULL.
// Gives 0, or 1 when the grid is not possible.
typedef int t_emulate_dispatch_kernel(const void *kernel, void *const *buffers, const size_t *group_bytes,
                                      const uint32_t blocks[3], const uint32_t threads[3]);

#ifdef __cplusplus
}
#endif
