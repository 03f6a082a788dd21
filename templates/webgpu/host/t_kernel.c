/* A kernel: the text of its module, T_FILE, and the launcher of its name, T_KERNEL. */
#include "t_webgpu.h"

__asm__(".section .rodata\nt_text:\n.incbin \"" T_FILE "\"\nt_text_end:\n.text\n");
extern const char t_text[] __attribute__((visibility("hidden"))), t_text_end[] __attribute__((visibility("hidden")));

int T_KERNEL(void *const *buf, const int64_t *dim, int64_t blocks, void *stream);

int T_KERNEL(void *const *buf, const int64_t *dim, int64_t blocks, void *stream)
{
    (void)buf;
    (void)dim;
    (void)blocks; /* all in the step, which `stream` knows */
    return t_webgpu_launch(stream, t_text, (size_t)(t_text_end - t_text));
}
