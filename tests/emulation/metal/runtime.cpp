// The functions of an emulated .metallib; see library.h.
#include <string.h>

#include "kernels.h"
#include "library.h"

extern "C" {
extern const t_emulate::Kernel __start_t_kernels[] __attribute__((weak, visibility("hidden")));
extern const t_emulate::Kernel __stop_t_kernels[] __attribute__((weak, visibility("hidden")));
}

namespace {

constexpr size_t most_shared = 32 << 10;
constexpr int most_groups = 8;

struct Call {
    const t_emulate::Kernel *kernel;
    void *const *buffers;
    void *groups[most_groups];
};

void run_thread(void *context) {
    const Call *call = (const Call *)context;
    call->kernel->entry(call->buffers, call->groups);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const void *t_emulate_find(const char *name) {
    for (const t_emulate::Kernel *kernel = __start_t_kernels; kernel < __stop_t_kernels; ++kernel)
        if (!strcmp(kernel->name, name)) return kernel;
    return nullptr;
}

extern "C" __attribute__((visibility("default"))) const char *t_emulate_name(int index) {
    return index < __stop_t_kernels - __start_t_kernels ? __start_t_kernels[index].name : nullptr;
}

extern "C" __attribute__((visibility("default"))) int t_emulate_dispatch(const void *found, void *const *buffers,
                                                                         const size_t *group_bytes,
                                                                         const uint32_t blocks[3],
                                                                         const uint32_t threads[3]) {
    const t_emulate::Kernel *kernel = (const t_emulate::Kernel *)found;
    const uint64_t total = (uint64_t)threads[0] * threads[1] * threads[2];
    if (!kernel || !total || total > t_emulate::most_threads || !blocks[0] || !blocks[1] || !blocks[2]) return 1;
    Call call = {kernel, buffers, {}};
    size_t dynamic_bytes = 0;
    for (int i = 0; group_bytes && i < most_groups && group_bytes[i]; ++i) {
        if (group_bytes[i] % 16) return 1;  // as Metal asks
        call.groups[i] = t_emulate::dynamic + dynamic_bytes;
        dynamic_bytes += group_bytes[i];
    }
    const size_t shared = (size_t)(kernel->shared_end - kernel->shared_begin) + dynamic_bytes;
    if (shared > most_shared) t_emulate::fail("%s: %zu bytes of threadgroup memory; Metal allows %zu", kernel->name, shared, most_shared);
    t_emulate::Grid grid = {};
    grid.blocks = {blocks[0], blocks[1], blocks[2]};
    grid.threads = {threads[0], threads[1], threads[2]};
    grid.shared_begin = kernel->shared_begin;
    grid.shared_end = kernel->shared_end;
    grid.dynamic_bytes = dynamic_bytes;
    grid.thread = run_thread;
    grid.context = &call;
    grid.all_meet = true;
    t_emulate::run(grid);
    return 0;
}
