/* A kernel: the text of its module, T_FILE, in a section that has those of all kernels of the library side by side. */
#include "t_webgpu.h"

#define T_QUOTED(X) #X
#define T_TEXT(X) T_QUOTED(X)

__asm__(".section .rodata\nt_text:\n.incbin \"" T_FILE "\"\n.byte 0\n.text\n");
extern const char t_text[] __attribute__((visibility("hidden")));

static const t_source source __attribute__((section("t_kernels"), used)) = {T_TEXT(T_KERNEL), t_text};
