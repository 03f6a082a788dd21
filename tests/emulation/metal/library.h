// What an emulated .metallib is for a host: a shared library that runs its kernels. Used by t_device_emulated.cpp in
// place of MTLLibrary, MTLComputePipelineState and a compute encoder. bin/xcrun embeds its bytes where the linker of
// macOS would make a section of them (-sectcreate).
//
//     void *library = t_emulate_open_metallib();               // NULL: see dlerror; dlclose it
//     auto find = (t_emulate_find_kernel *)dlsym(library, "t_emulate_find");
//     auto dispatch = (t_emulate_dispatch_kernel *)dlsym(library, "t_emulate_dispatch");
//     const void *kernel = find("k12ab");                      // NULL: no such kernel
//     int status = dispatch(kernel, buffers, groups, blocks, threads);
#pragma once
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef const void *t_emulate_find_kernel(const char *name);
typedef const char *t_emulate_name_kernel(int index);  // t_emulate_name: NULL behind the last

// Runs a grid of `blocks` threadgroups of `threads` threads (x, y, z). buffers[i] is what [[buffer(i)]] points to, NULL
// where there is none; group_bytes[i] the length of [[threadgroup(i)]], up to the first 0. Both may be NULL.
// Gives 0, or 1 when the grid is not possible.
typedef int t_emulate_dispatch_kernel(const void *kernel, void *const *buffers, const size_t *group_bytes,
                                      const uint32_t blocks[3], const uint32_t threads[3]);

extern const unsigned char t_emulate_metallib[] __attribute__((weak, visibility("hidden")));
extern const unsigned char t_emulate_metallib_end[] __attribute__((weak, visibility("hidden")));

// Loads the embedded library from a file that is removed at once: the loader takes files of one name for one library.
// NULL when none is embedded, or it cannot be loaded.
static inline void *t_emulate_open_metallib(void) {
    const unsigned char *at = t_emulate_metallib;
    char path[] = "/tmp/metallib-XXXXXX";
    const int file = at ? mkstemp(path) : -1;
    if (file < 0) return NULL;
    while (at < t_emulate_metallib_end) {
        const ssize_t written = write(file, at, (size_t)(t_emulate_metallib_end - at));
        if (written <= 0) break;
        at += written;
    }
    close(file);
    void *library = at == t_emulate_metallib_end ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    unlink(path);
    return library;
}

#ifdef __cplusplus
}
#endif
