/* Panels [ceil(N / NR)][K][NR] of a matrix known only at run time, zero padded.  Task: a panel. */
#define T_FEW_TYPES
#include "t_kernel.h"

/* The arguments of the kernel, and where a task is. */
struct call {
    void *const *buf;
};

#define N 90
#define K 70
#define NR 48
#define PANELS 2
#define STEP_K 90
#define STEP_N 1

/* One vector of columns, all of k; columns from `count` on are zero. */
static void column(const struct call *c, const float *b, float *out, int64_t count) {
    int64_t i = 0;
    (void)c;
    if (count == 16) {
        for (; i < K; i++) t_store_f32(out + i * NR, t_load_f32(b + i * STEP_K));
    }
    for (; i < K; i++)
    for (int64_t j = 0; j < 16; j++) out[i * NR + j] = j < count ? b[i * STEP_K + j * STEP_N] : 0;
}

void k517d43b2f54b(void *const *buf, const int64_t *dim, void *scratch, int64_t begin, int64_t end) {
    struct call at = {.buf = buf}, *c = &at;
    (void)dim;
    (void)scratch;
    for (int64_t task = begin; task < end; task++) {
        const int64_t first = task % PANELS * NR;
        const float *b = buf[0];
        float *out = (float *)buf[1] + first * K;
        for (int64_t n = first; n < first + NR; n += 16)
        column(c, b + n * STEP_N, out + n - first, t_imax(0, t_imin(16, N - n)));
    }
}
