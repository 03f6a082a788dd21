/* A kernel: the text of its module, T_FILE, and the launcher of its name, T_KERNEL. */
#include "t_webgpu.h"

#define T_QUOTED(X) #X
#define T_TEXT(X) T_QUOTED(X)

__asm__(".section .rodata\nt_text:\n.incbin \"" T_FILE "\"\n.byte 0\n.text\n");
extern const char t_text[] __attribute__((visibility("hidden")));

static const t_source source = {T_TEXT(T_KERNEL), t_text};

/* In a section that has those of all kernels of the library, side by side. */
static const t_source *const listed __attribute__((section("t_kernels"), used)) = &source;

int T_KERNEL(void *const *buf, const int64_t *dim, int64_t blocks, void *stream);

int T_KERNEL(void *const *buf, const int64_t *dim, int64_t blocks, void *stream)
{
    (void)buf;
    (void)dim;
    (void)blocks; /* all in the step, which `stream` knows */
    return t_webgpu_launch(stream, &listed);
}
