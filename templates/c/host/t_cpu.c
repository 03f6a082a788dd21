/* Which instructions this processor and its system have, asked of the processor itself: what compilers offer for it
 * (__builtin_cpu_supports) needs a support library that not every toolchain brings. */
#include "t_program.h"

#if defined(__x86_64__)
#include <cpuid.h>

enum { EAX, EBX, ECX, EDX };

typedef struct {
    const char *name;
    unsigned leaf, subleaf, reg, bit;
    unsigned state; /* bits of XCR0: registers that the system must save */
} feature;

enum { YMM = 0x06, ZMM = 0xe6 };

static const feature features[] = {
    {"sse2", 1, 0, EDX, 26, 0},          {"sse3", 1, 0, ECX, 0, 0},          {"ssse3", 1, 0, ECX, 9, 0},
    {"sse4.1", 1, 0, ECX, 19, 0},        {"sse4.2", 1, 0, ECX, 20, 0},       {"popcnt", 1, 0, ECX, 23, 0},
    {"movbe", 1, 0, ECX, 22, 0},         {"avx", 1, 0, ECX, 28, YMM},        {"f16c", 1, 0, ECX, 29, YMM},
    {"fma", 1, 0, ECX, 12, YMM},         {"bmi", 7, 0, EBX, 3, 0},           {"bmi2", 7, 0, EBX, 8, 0},
    {"lzcnt", 0x80000001, 0, ECX, 5, 0}, {"avx2", 7, 0, EBX, 5, YMM},        {"avxvnni", 7, 1, EAX, 4, YMM},
    {"avx512f", 7, 0, EBX, 16, ZMM},     {"avx512dq", 7, 0, EBX, 17, ZMM},   {"avx512cd", 7, 0, EBX, 28, ZMM},
    {"avx512bw", 7, 0, EBX, 30, ZMM},    {"avx512vl", 7, 0, EBX, 31, ZMM},   {"avx512vnni", 7, 0, ECX, 11, ZMM},
    {"avx512bf16", 7, 1, EAX, 5, ZMM},   {"avx512fp16", 7, 0, EDX, 23, ZMM},
};

static unsigned saved_state(void)
{
    unsigned a, b, c, d, low, high;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c >> 27 & 1)) /* OSXSAVE: XGETBV may be used */
        return 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

int t_cpu_has(const char *name)
{
    for (size_t i = 0; i < sizeof features / sizeof *features; i++) {
        const feature *f = &features[i];
        unsigned r[4] = {0, 0, 0, 0};
        if (strcmp(f->name, name) != 0)
            continue;
        if (f->state && (saved_state() & f->state) != f->state)
            return 0;
        return __get_cpuid_count(f->leaf, f->subleaf, &r[EAX], &r[EBX], &r[ECX], &r[EDX]) && (r[f->reg] >> f->bit & 1);
    }
    return 0;
}
#else
int t_cpu_has(const char *name)
{
    (void)name; /* what torshc compiles for elsewhere, every processor of the architecture has */
    return 1;
}
#endif
