/* Runs kernels over the memory in a file; run_emulated.py writes it.  Without a C library, which Zig would compile first.
 *
 * The file begins with words: the number of memories and of launches; where each memory ends, and an unreadable page
 * begins; and for each launch its tasks, its scratch and the bytes of it, the numbers of buffers and sizes, and these. */
#include <stddef.h>
#include <stdint.h>

typedef void t_kernel(void *const *buf, const int64_t *dim, void *scratch, int64_t begin, int64_t end);
#include "kernels.h"

enum { PAGE = 4096, BUFFERS = 64, CLOSED = 0, READ_WRITE = 3, SHARED = 1, CURRENT_FOLDER = -100 };
enum { OPENAT = 56, LSEEK = 62, EXIT = 93, MMAP = 222, MPROTECT = 226 };

static int64_t call(int64_t number, int64_t a, int64_t b, int64_t c, int64_t d, int64_t e) {
    register int64_t x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c;
    register int64_t x3 __asm__("x3") = d, x4 __asm__("x4") = e, x5 __asm__("x5") = 0;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
    return x0;
}

/* What compilers call for loops over bytes; without volatile, for these too. */
void *memset(void *to, int value, size_t n) {
    for (size_t i = 0; i < n; i++)
        ((volatile unsigned char *)to)[i] = (unsigned char)value;
    return to;
}

void *memcpy(void *restrict to, const void *restrict from, size_t n) {
    for (size_t i = 0; i < n; i++)
        ((volatile unsigned char *)to)[i] = ((const unsigned char *)from)[i];
    return to;
}

static int run(const char *path) {
    enum { READ_AND_WRITE = 2, TO_END = 2 };
    const int64_t file = call(OPENAT, CURRENT_FOLDER, (int64_t)path, READ_AND_WRITE, 0, 0);
    const int64_t size = call(LSEEK, file, 0, TO_END, 0, 0);
    char *base = (char *)call(MMAP, 0, size, READ_WRITE, SHARED, file);
    const int64_t *word = (const int64_t *)base, memories = word[0], launches = word[1];
    if (file < 0 || size < 0 || (intptr_t)base < 0)
        return 2;
    for (int64_t i = 0; i < memories; i++)
        if (call(MPROTECT, (int64_t)base + word[2 + i], PAGE, CLOSED, 0, 0))
            return 3;
    word += 2 + memories;
    for (int64_t i = 0; i < launches; i++) {
        const int64_t tasks = word[0], bytes = word[2], buffers = word[3];
        const int64_t *dim = word + 5 + buffers;
        char *scratch = bytes ? base + word[1] : NULL;
        void *buf[BUFFERS];
        if (buffers > BUFFERS)
            return 4;
        for (int64_t j = 0; j < buffers; j++)
            buf[j] = base + word[5 + j];
        for (int64_t task = tasks - 1; task >= 0; task--) {
            memset(scratch, 255, (size_t)bytes);
            kernels[i](buf, dim, scratch, task, task + 1);
        }
        word = dim + word[4];
    }
    return 0;
}

__attribute__((used)) static void begin(int64_t *stack) {
    call(EXIT, stack[0] == 2 ? run((const char *)stack[2]) : 1, 0, 0, 0, 0);
}

__asm__(".globl _start\n_start: mov x0, sp\n bl begin\n");
