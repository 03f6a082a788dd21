/* Which version of the model runs here, by the instructions that this processor and its system have. The processor
 * itself is asked: what compilers offer for it (__builtin_cpu_supports) needs a support library that not every toolchain
 * brings. */
#define _GNU_SOURCE
#include "t_program.h"

#include <stdatomic.h>
#include <stdlib.h>

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

enum { EAX, EBX, ECX, EDX };

typedef struct {
    const char *name;
    unsigned leaf, subleaf, reg, bit;
    unsigned state; /* bits of XCR0: registers that the system must save */
} feature;

enum { YMM = 0x06, ZMM = 0xe6, TILES = 0x60000 };

static const feature features[] = {
    {"sse2", 1, 0, EDX, 26, 0},          {"sse3", 1, 0, ECX, 0, 0},          {"ssse3", 1, 0, ECX, 9, 0},
    {"sse4.1", 1, 0, ECX, 19, 0},        {"sse4.2", 1, 0, ECX, 20, 0},       {"popcnt", 1, 0, ECX, 23, 0},
    {"movbe", 1, 0, ECX, 22, 0},         {"avx", 1, 0, ECX, 28, YMM},        {"f16c", 1, 0, ECX, 29, YMM},
    {"fma", 1, 0, ECX, 12, YMM},         {"bmi", 7, 0, EBX, 3, 0},           {"bmi2", 7, 0, EBX, 8, 0},
    {"lzcnt", 0x80000001, 0, ECX, 5, 0}, {"avx2", 7, 0, EBX, 5, YMM},        {"avxvnni", 7, 1, EAX, 4, YMM},
    {"avx512f", 7, 0, EBX, 16, ZMM},     {"avx512dq", 7, 0, EBX, 17, ZMM},   {"avx512cd", 7, 0, EBX, 28, ZMM},
    {"avx512bw", 7, 0, EBX, 30, ZMM},    {"avx512vl", 7, 0, EBX, 31, ZMM},   {"avx512vnni", 7, 0, ECX, 11, ZMM},
    {"avx512bf16", 7, 1, EAX, 5, ZMM},   {"avx512fp16", 7, 0, EDX, 23, ZMM}, {"amx-tile", 7, 0, EDX, 24, TILES},
    {"amx-bf16", 7, 0, EDX, 22, TILES},  {"amx-int8", 7, 0, EDX, 25, TILES},
};

static unsigned saved_state(void) {
    unsigned a, b, c, d, low, high;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c >> 27 & 1)) /* OSXSAVE: XGETBV may be used */
        return 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

/* Whether the system lets this process use tiles. Linux is asked, for all threads at once; it refuses where a thread has a
 * signal stack too small for them. */
static int tiles_are_allowed(void) {
#if defined(__linux__)
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XTILEDATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XTILEDATA) == 0;
#else
    return 0;
#endif
}

static int has(const char *name) {
    for (size_t i = 0; i < sizeof features / sizeof *features; i++) {
        const feature *f = &features[i];
        unsigned r[4] = {0, 0, 0, 0};
        if (strcmp(f->name, name) != 0)
            continue;
        if (f->state && (saved_state() & f->state) != f->state)
            return 0;
        if (!__get_cpuid_count(f->leaf, f->subleaf, &r[EAX], &r[EBX], &r[ECX], &r[EDX]) || !(r[f->reg] >> f->bit & 1))
            return 0;
        return f->state != TILES || tiles_are_allowed();
    }
    return 0;
}
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>

enum { HWCAP = 16, HWCAP2 = 26 }; /* AT_HWCAP and AT_HWCAP2, which older headers lack */

static const struct {
    const char *name;
    unsigned long kind;
    unsigned bit;
} features[] = {{"dotprod", HWCAP, 20}, {"i8mm", HWCAP2, 13}, {"bf16", HWCAP2, 14}};

static int has(const char *name) {
    for (size_t i = 0; i < sizeof features / sizeof *features; i++)
        if (strcmp(features[i].name, name) == 0)
            return getauxval(features[i].kind) >> features[i].bit & 1;
    return 0;
}
#else
static int has(const char *name) {
    (void)name; /* what torshc compiles for elsewhere, every processor of the architecture has */
    return 1;
}
#endif

/* Who lacks a feature. */
static const char *who(const char *feature) {
    return strcmp(feature, "amx-tile") == 0 ? "this processor, or Linux for this process," : "this processor";
}

static const char *lacking(const t_version *v) {
    const char *const *name = v->needs;
    while (*name && has(*name))
        name++;
    return *name;
}

/* What TORSHC_ISA names, or NULL; a library of one version has no choice. */
static const char *wanted(void) {
    const char *name = t_version_count > 1 ? getenv("TORSHC_ISA") : NULL;
    return name && *name ? name : NULL;
}

/* The number of the best version that runs here, or -1. */
static int32_t choose(void) {
    const char *name = wanted();
    for (int32_t i = 0; i < t_version_count; i++)
        if ((!name || strcmp(name, t_versions[i].isa) == 0) && !lacking(&t_versions[i]))
            return i;
    return -1;
}

/* How many bytes ahead a tile asks that only waits for memory, see t_tile.h.  A Xeon looks less far by itself: asked so, it
 * multiplies 4 rows 1.5 to 1.9 times faster.  A core of AMD waits for fewer lines that it is asked for than of those that its own
 * prefetchers ask for, and these stop where it is asked far ahead: 1.4 to 1.7 times slower on a Zen 4. */
atomic_int t_waiting_ahead = 4096;
enum { AMD_AHEAD = 512 };

static int is_amd(void) {
#if defined(__x86_64__)
    unsigned most, name[3] = {0};
    return __get_cpuid(0, &most, &name[0], &name[2], &name[1]) &&
           (memcmp(name, "AuthenticAMD", 12) == 0 || memcmp(name, "HygonGenuine", 12) == 0);
#else
    return 0;
#endif
}

/* Chosen once: steps and weights of a model are of one version as long as the library is loaded. */
static const t_version *chosen(void) {
    enum { NOT_YET = -2 };
    static atomic_int number = NOT_YET;
    int now = atomic_load(&number);
    if (now == NOT_YET) {
        const int found = choose();
        if (is_amd())
            atomic_store(&t_waiting_ahead, AMD_AHEAD);
        now = atomic_compare_exchange_strong(&number, &now, found) ? found : now;
    }
    return now < 0 ? NULL : &t_versions[now];
}

const t_program *t_the_program(void) {
    const t_version *v = chosen();
    return (v ? v : &t_versions[t_version_count - 1])->program;
}

const char *torshc_isa(void) {
    const t_version *v = chosen();
    return v ? v->isa : "";
}

int t_check_processor(void) {
    const t_version *last = &t_versions[t_version_count - 1];
    const char *name = wanted();
    if (chosen())
        return TORSHC_OK;
    if (!name)
        return t_fail(TORSHC_E_CPU, "%s lacks %s, which the library was compiled for (%s)", who(lacking(last)),
                      lacking(last), last->isa);
    for (int32_t i = 0; i < t_version_count; i++)
        if (strcmp(name, t_versions[i].isa) == 0)
            return t_fail(TORSHC_E_CPU, "TORSHC_ISA is %s, but %s lacks %s", name, who(lacking(&t_versions[i])),
                          lacking(&t_versions[i]));
    return t_fail(TORSHC_E_CPU, "TORSHC_ISA is %.40s, which this library has no version for; its lowest is %s", name,
                  last->isa);
}
