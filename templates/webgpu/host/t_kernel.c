/* Kernel T_KERNEL: the text of its module, T_FILE, in a section that has those of all kernels of the library. */
#include "t_webgpu.h"

__asm__(".section .rodata\nt_text:\n.incbin \"" T_FILE "\"\n.byte 0\n.text\n");
extern const char t_text[] __attribute__((visibility("hidden")));

static const t_source source __attribute__((section("t_kernels"), used)) = {T_KERNEL, t_text};
