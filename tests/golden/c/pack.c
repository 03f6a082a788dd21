/* Panels [ceil(N / NR)][K][NR] of a matrix known only at run time, zero padded.  Task: a panel. */
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

void kf4d34affc308(void *const *buf, const int64_t *dim, void *scratch, int64_t begin, int64_t end) {
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

/* c[m][n] = epilogue(sum over k of a[m][k] * b[k][n]), b in panels [ceil(N / T_NR)][K][T_NR], zero padded.
 * Task: a block of rows by a block of panels. */
#define T_MR 8
#define T_NV 3
#define T_FEWEST 7
#define T_MOST 8
#include "t_tile.h"

/* The arguments of the kernel, and where a task is. */
struct call {
    void *const *buf;
};

#define M 65
#define N 90
#define K 70
#define A_ROW 70
#define TILES 9
#define PANELS 2

/* Stores one vector of row m from column n on. */
T_FN void finish(const struct call *c, int64_t m, int64_t n, f32v acc, int64_t count) {
    (void)m, (void)n;
    float *b2 = c->buf[2];
    (void)c, (void)count;
    if (count >= 16) {
        t_store_f32(b2 + 90 * m + n, acc);
    } else {
        t_storen_f32(b2 + 90 * m + n, acc, count);
    }
}

struct step {
    const float *b; /* the panel at the first k */
    int k;          /* length of the sums; an int, so that no compiler fears an overflow */
};

T_FN void tile(const struct call *c, const int rows, const int vecs, int64_t m, int64_t n, const float *a,
    struct step s) {
    const float *row[T_MR];
    f32v acc[T_MR][T_NV];
    T_UNROLL for (int r = 0; r < rows; r++) row[r] = a + r * A_ROW;
    t_tile_open(rows, vecs, NULL, acc);
    t_tile_fma(rows, vecs, s.k, row, s.b, acc);
    T_UNROLL for (int r = 0; r < rows; r++) {
        T_UNROLL for (int v = 0; v < vecs; v++) {
            const int64_t column = n + v * 16;
            if (column < N) finish(c, m + r, column, acc[r][v], N - column);
        }
    }
}

/* Rows of the tiles from t0 up to t1, by panel p. */
static void panel(const struct call *c, int64_t p, int64_t t0, int64_t t1, const float *a, struct step s) {
    const int64_t base = M / TILES, extra = M % TILES;
    for (int64_t t = t0; t < t1; t++) {
        const int64_t m = t * base + t_imin(t, extra), rows = base + (t < extra);
        (void)rows;
        switch (rows) {
            case 7: tile(c, 7, 3, m, p * T_NR, a + m * A_ROW, s); break;
            case 8: tile(c, 8, 3, m, p * T_NR, a + m * A_ROW, s); break;
        }
    }
}

void kf002f579de70(void *const *buf, const int64_t *dim, void *scratch, int64_t begin, int64_t end) {
    struct call at = {.buf = buf}, *c = &at;
    (void)dim;
    const int64_t m_blocks = 1, n_blocks = 1;
    (void)scratch;
    for (int64_t task = begin; task < end; task++) {
        const int64_t mb = task % m_blocks, nb = task / m_blocks % n_blocks;
        const int64_t t0 = t_cut(TILES, m_blocks, mb), t1 = t_cut(TILES, m_blocks, mb + 1);
        const int64_t p0 = t_cut(PANELS, n_blocks, nb), p1 = t_cut(PANELS, n_blocks, nb + 1);
        const float *a = buf[0];
        const float *b = buf[1];
        for (int64_t p = p0; p < p1; p++) {
            struct step s = {.b = b + p * (K * T_NR), .k = (int)K};
            panel(c, p, t0, t1, a, s);
        }
    }
}
