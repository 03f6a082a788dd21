/* Kernel T_KERNEL: the text of its module, T_FILE. T_SUBGROUPS says whether it is for devices with subgroups, for which a
 * kernel may have another text. A section holds the addresses of all kernels' texts, as compilers align these apart. */
#include "t_webgpu.h"

__asm__(".section .rodata\nt_text:\n.incbin \"" T_FILE "\"\n.byte 0\n.text\n");
extern const char t_text[] __attribute__((visibility("hidden")));

static const t_source source = {T_KERNEL, t_text, T_SUBGROUPS};
static const t_source *const entry __attribute__((section("t_kernels"), used)) = &source;
