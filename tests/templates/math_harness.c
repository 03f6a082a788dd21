/* Runs functions of the vector prelude over arrays.
 *
 *   math_harness            commands from stdin, one a line: NAME N INPUT OUTPUT
 *                           INPUT holds the arguments one after the other, N elements each
 *
 * Every buffer has exactly its size, so that a sanitizer sees an access beyond n lanes.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "t_kernel.h"
#include "t_functions.h"

typedef uint8_t elem_bool;
typedef uint8_t elem_f8e4m3fn, elem_f8e4m3fnuz, elem_f8e5m2, elem_f8e5m2fnuz, elem_f8e8m0, elem_f4e2m1;
typedef uint8_t elem_i4, elem_u4, elem_i2, elem_u2;
typedef uint16_t elem_f16;
typedef uint16_t elem_bf16;
typedef float elem_f32;
typedef double elem_f64;
typedef int8_t elem_i8;
typedef uint8_t elem_u8;
typedef int16_t elem_i16;
typedef uint16_t elem_u16;
typedef int32_t elem_i32;
typedef uint32_t elem_u32;
typedef int64_t elem_i64;
typedef uint64_t elem_u64;

typedef void entry_fn(const unsigned char *in, unsigned char *out, int64_t n);

static int64_t rest(int64_t i, int64_t n) { return n - i < TORSHC_LANES ? n - i : TORSHC_LANES; }

#define ARG(S, k) t_loadn_##S(in + ((k) * n + i) * (int64_t)sizeof(elem_##S), rest(i, n))
#define RUN(NAME, TO, EXPR) \
    static void run_##NAME(const unsigned char *in, unsigned char *out, int64_t n) { \
        for (int64_t i = 0; i < n; i += TORSHC_LANES) \
            t_storen_##TO(out + i * (int64_t)sizeof(elem_##TO), EXPR, rest(i, n)); \
    }

/* ---- what is tested: X(name, dtypes) ------------------------------------------------------ */

#define FLOAT1(X, S) \
    X(neg, S) X(abs, S) X(sign, S) X(floor, S) X(ceil, S) X(round, S) X(trunc, S) X(sqrt, S) X(rsqrt, S) \
    X(exp, S) X(expm1, S) X(log, S) X(log1p, S) X(tanh, S) X(sinh, S) X(cosh, S) \
    X(asinh, S) X(acosh, S) X(atanh, S) X(sin, S) X(cos, S) X(tan, S) X(asin, S) X(acos, S) X(atan, S) \
    X(erf, S) X(sigmoid, S)
#define FLOAT2(X, S) \
    X(add, S) X(sub, S) X(mul, S) X(div, S) X(max, S) X(min, S) X(fmod, S) X(mod, S) X(floordiv, S) X(pow, S) \
    X(copysign, S)
#define INT1(X, S) X(neg, S) X(abs, S) X(sign, S) X(not, S)
#define INT2(X, S) \
    X(add, S) X(sub, S) X(mul, S) X(div, S) X(floordiv, S) X(mod, S) X(fmod, S) X(max, S) X(min, S) X(pow, S) \
    X(and, S) X(or, S) X(xor, S) X(shl, S) X(shr, S)
#define COMPARE(X, S) X(lt, S) X(le, S) X(gt, S) X(ge, S) X(eq, S) X(ne, S)
#define CAST_TO(X, F) \
    X(F, f32) X(F, f64) X(F, i8) X(F, u8) X(F, i16) X(F, u16) X(F, i32) X(F, u32) X(F, i64) X(F, u64) X(F, bool)
#define EACH_INT(X, Y) \
    Y(X, i8) Y(X, u8) Y(X, i16) Y(X, u16) Y(X, i32) Y(X, u32) Y(X, i64) Y(X, u64)
#define EACH(X, Y) Y(X, f32) Y(X, f64) EACH_INT(X, Y)
#define REDUCE(X, S) X(hsum, S) X(hprod, S) X(hmax, S) X(hmin, S)
#define MEMORY(X, S) X(memory, S)

#define ALL(ONE, TWO, CMP, TEST, CAST, SELECT, FOLD, MEM) \
    FLOAT1(ONE, f32) ONE(exp_low, f32) FLOAT1(ONE, f64) INT1(ONE, u8) INT1(ONE, u16) INT1(ONE, u32) INT1(ONE, u64) \
    INT1(ONE, i8) INT1(ONE, i16) INT1(ONE, i32) INT1(ONE, i64) ONE(not, bool) \
    FLOAT2(TWO, f32) FLOAT2(TWO, f64) EACH_INT(TWO, INT2) TWO(and, bool) TWO(or, bool) TWO(xor, bool) \
    TWO(eq, bool) TWO(ne, bool) EACH(CMP, COMPARE) TEST(isnan, f32) TEST(isnan, f64) TEST(isinf, f32) \
    TEST(isinf, f64) EACH(CAST, CAST_TO) CAST_TO(CAST, bool) EACH(SELECT, SELECT_OF) SELECT(bool) \
    EACH(FOLD, REDUCE) EACH(MEM, MEMORY) MEM(memory, bool) MEM(memory, f16) MEM(memory, bf16) NARROW(MEM, MEMORY_OF)
#define MEMORY_OF(X, N, S) X(memory, N)
/* Y(X, type, its type in registers) */
#define NARROW(X, Y) \
    Y(X, f8e4m3fn, f32) Y(X, f8e4m3fnuz, f32) Y(X, f8e5m2, f32) Y(X, f8e5m2fnuz, f32) Y(X, f8e8m0, f32) \
    Y(X, f4e2m1, f32) Y(X, i4, i8) Y(X, u4, u8) Y(X, i2, i8) Y(X, u2, u8)
#define SELECT_OF(X, S) X(S)

#define DEF_ONE(NAME, S) RUN(NAME##_##S, S, t_##NAME##_##S(ARG(S, 0)))
#define DEF_TWO(NAME, S) RUN(NAME##_##S, S, t_##NAME##_##S(ARG(S, 0), ARG(S, 1)))
#define DEF_CMP(NAME, S) RUN(NAME##_##S, bool, t_##NAME##_##S(ARG(S, 0), ARG(S, 1)))
#define DEF_TEST(NAME, S) RUN(NAME##_##S, bool, t_##NAME##_##S(ARG(S, 0)))
#define DEF_CAST(F, S) RUN(cast_##F##_##S, S, t_cast_##F##_##S(ARG(F, 0)))
/* a where a is not 0, else b. */
#define DEF_SELECT(S) RUN(select_##S, S, t_select_##S(t_cast_##S##_bool(ARG(S, 0)), ARG(S, 0), ARG(S, 1)))
/* One result for every whole register of the input. */
#define DEF_FOLD(NAME, S) \
    static void run_##NAME##_##S(const unsigned char *in, unsigned char *out, int64_t n) { \
        for (int64_t i = 0; i + TORSHC_LANES <= n; i += TORSHC_LANES) { \
            const elem_##S r = t_##NAME##_##S(ARG(S, 0)); \
            memcpy(out + i / TORSHC_LANES * (int64_t)sizeof r, &r, sizeof r); \
        } \
    }
/* out = in: reversed twice: by gather, by scatter. */
#define DEF_MEM(NAME, S) \
    static void run_##NAME##_##S(const unsigned char *in, unsigned char *out, int64_t n) { \
        elem_##S *swap = malloc((size_t)n * sizeof *swap); \
        for (int64_t i = 0; i < n; i += TORSHC_LANES) { \
            const int64_t m = rest(i, n); \
            const i64v at = n - 1 - i - t_lanes_i64(); \
            S##r_ v = t_gathern_##S(in, at, m); \
            if (m == TORSHC_LANES) v = t_gather_##S(in, at); \
            if (m == TORSHC_LANES) t_store_##S(swap + i, v); \
            else t_storen_##S(swap + i, v, m); \
        } \
        for (int64_t i = 0; i < n; i += TORSHC_LANES) { \
            const int64_t m = rest(i, n); \
            const i64v at = n - 1 - i - t_lanes_i64(); \
            if (m == TORSHC_LANES) t_scatter_##S(out, at, t_load_##S(swap + i)); \
            else t_scattern_##S(out, at, t_loadn_##S(swap + i, m), m); \
        } \
        free(swap); \
    }
typedef i32v boolr_;
typedef f32v f16r_, bf16r_, f32r_, f8e4m3fnr_, f8e4m3fnuzr_, f8e5m2r_, f8e5m2fnuzr_, f8e8m0r_, f4e2m1r_;
typedef i8v i4r_, i2r_;
typedef u8v u4r_, u2r_;
typedef f64v f64r_;
typedef i8v i8r_;
typedef u8v u8r_;
typedef i16v i16r_;
typedef u16v u16r_;
typedef i32v i32r_;
typedef u32v u32r_;
typedef i64v i64r_;
typedef u64v u64r_;
ALL(DEF_ONE, DEF_TWO, DEF_CMP, DEF_TEST, DEF_CAST, DEF_SELECT, DEF_FOLD, DEF_MEM)
RUN(fma_f32, f32, t_fma_f32(ARG(f32, 0), ARG(f32, 1), ARG(f32, 2)))
RUN(load_f16, f32, t_loadn_f16(in + i * 2, rest(i, n)))
RUN(load_bf16, f32, t_loadn_bf16(in + i * 2, rest(i, n)))
RUN(store_f16, f16, ARG(f32, 0))
RUN(store_bf16, bf16, ARG(f32, 0))
RUN(as_f16, f32, t_decode_f16(t_encode_f16(ARG(f32, 0))))
RUN(as_bf16, f32, t_decode_bf16(t_encode_bf16(ARG(f32, 0))))
#define DEF_NARROW(X, N, S) \
    RUN(load_##N, S, t_loadn_##N(in + i, rest(i, n))) RUN(store_##N, N, ARG(S, 0)) \
    RUN(as_##N, S, t_decode_##N(t_encode_##N(ARG(S, 0))))
NARROW(, DEF_NARROW)
RUN(as_f8e8m0_up, f32, t_as_f8e8m0_up(ARG(f32, 0)))
RUN(as_f8e8m0_nearest, f32, t_as_f8e8m0_nearest(ARG(f32, 0)))

struct entry {
    const char *name;
    int args;
    size_t in, out;
    entry_fn *run;
};
#define ROW(NAME, ARGS, FROM, TO) {#NAME, ARGS, sizeof(elem_##FROM), sizeof(elem_##TO), run_##NAME},
#define ROW_ONE(NAME, S) ROW(NAME##_##S, 1, S, S)
#define ROW_TWO(NAME, S) ROW(NAME##_##S, 2, S, S)
#define ROW_CMP(NAME, S) ROW(NAME##_##S, 2, S, bool)
#define ROW_TEST(NAME, S) ROW(NAME##_##S, 1, S, bool)
#define ROW_CAST(F, S) ROW(cast_##F##_##S, 1, F, S)
#define ROW_SELECT(S) ROW(select_##S, 2, S, S)
#define ROW_NARROW(X, N, S) ROW(load_##N, 1, N, S) ROW(store_##N, 1, S, N) ROW(as_##N, 1, S, S)
static const struct entry entries[] = {
    ALL(ROW_ONE, ROW_TWO, ROW_CMP, ROW_TEST, ROW_CAST, ROW_SELECT, ROW_ONE, ROW_ONE)
    ROW(fma_f32, 3, f32, f32) ROW(load_f16, 1, f16, f32) ROW(load_bf16, 1, bf16, f32) ROW(store_f16, 1, f32, f16)
    ROW(store_bf16, 1, f32, bf16) ROW(as_f16, 1, f32, f32) ROW(as_bf16, 1, f32, f32) NARROW(, ROW_NARROW)
    ROW(as_f8e8m0_up, 1, f32, f32) ROW(as_f8e8m0_nearest, 1, f32, f32)
};
#define ENTRIES (sizeof entries / sizeof entries[0])

static int command(const char *name, int64_t n, const char *from, const char *to) {
    const struct entry *e = entries;
    while (e < entries + ENTRIES && strcmp(e->name, name) != 0) e++;
    if (e == entries + ENTRIES) return fprintf(stderr, "no function %s\n", name), 1;
    const size_t in_size = e->in * (size_t)e->args * (size_t)n, out_size = e->out * (size_t)n;
    unsigned char *in = malloc(in_size), *out = calloc(1, out_size);
    FILE *file = fopen(from, "rb");
    if (!file || fread(in, 1, in_size, file) != in_size) return fprintf(stderr, "cannot read %s\n", from), 1;
    fclose(file);
    e->run(in, out, n);
    file = fopen(to, "wb");
    if (!file || fwrite(out, 1, out_size, file) != out_size) return fprintf(stderr, "cannot write %s\n", to), 1;
    fclose(file);
    free(in);
    free(out);
    return 0;
}

int main(void) {
    char name[64], from[1024], to[1024];
    int64_t n;
    while (scanf("%63s %" SCNd64 " %1023s %1023s", name, &n, from, to) == 4)
        if (command(name, n, from, to)) return 1;
    return 0;
}
