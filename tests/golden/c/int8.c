/* c[m][n] = epilogue(sum over k of a[m][k] * b[k][n]), b in panels [ceil(N / T_NR)][(K + 3) / 4][T_NR] of words of four k, zero padded.
 * Task: a block of rows by a block of panels. */
#define T_MR 8
#define T_NV 3
#define T_FEWEST 1
#define T_MOST 8
#include "t_dot.h"

/* The arguments of the kernel, and where a task is. */
struct call {
    void *const *buf;
    int64_t s0;
};

#define M (c->s0)
#define N 40
#define K 70
#define A_ROW 70
#define TILES ((c->s0 + 7) / 8)
#define PANELS 1

/* ---- epilogue ---- */
/* Stores one vector of row m from column n on. */
T_FN void finish(const struct call *c, int64_t m, int64_t n, i32v acc, int64_t count) {
    (void)m, (void)n;
    const int32_t *b2 = c->buf[2];
    float *b3 = c->buf[3];
    (void)c, (void)count;
    if (count >= 16) {
        const f32v v0 = t_cast_i32_f32((t_sub_i32(acc, t_load_i32(b2 + n)))) * t_splat_f32(0.02f);
        const f32v v1 = t_level_f32(v0, 3) * t_splat_f32(0.02f);
        t_store_f32(b3 + 40 * m + n, v1);
    } else {
        const f32v v0 = t_cast_i32_f32((t_sub_i32(acc, t_loadn_i32(b2 + n, count))));
        const f32v v1 = t_level_f32((v0 * t_splat_f32(0.02f)), 3) * t_splat_f32(0.02f);
        t_storen_f32(b3 + 40 * m + n, v1, count);
    }
}

/* ---- tiles ---- */
struct step {
    const int32_t *b; /* the panel at the first k */
    int k;          /* length of the sums; an int, so that no compiler fears an overflow */
};

T_FN void tile(const struct call *from, const int rows, const int vecs, int64_t m, int64_t n, const uint8_t *a,
    struct step s) {
    void *const buf[] = {from->buf[0], from->buf[1], from->buf[2], from->buf[3]};
    struct call own = *from, *c = &own;
    own.buf = buf;
    const uint8_t *row[T_MR];
    i32v acc[T_MR][T_NV];
    T_UNROLL for (int r = 0; r < rows; r++) row[r] = a + r * A_ROW;
    t_dot_open(rows, vecs, acc);
    t_dot_fma(rows, vecs, s.k, row, s.b, T_NOTHING_AHEAD, acc);
    T_UNROLL for (int r = 0; r < rows; r++) {
        T_UNROLL for (int v = 0; v < vecs; v++) {
            const int64_t column = n + v * 16;
            if (column < N) finish(c, m + r, column, acc[r][v], N - column);
        }
    }
}

/* Rows of the tiles from t0 up to t1, by panel p. */
static void panel(const struct call *c, int64_t p, int64_t t0, int64_t t1, const uint8_t *a, struct step s) {
    const int64_t base = M / TILES, extra = M % TILES;
    for (int64_t t = t0; t < t1; t++) {
        const int64_t m = t * base + t_imin(t, extra), rows = base + (t < extra);
        (void)rows;
        switch (rows) {
            case 8: tile(c, 8, 3, m, p * T_NR, a + m * A_ROW, s); break;
            case 7: tile(c, 7, 3, m, p * T_NR, a + m * A_ROW, s); break;
            case 6: tile(c, 6, 3, m, p * T_NR, a + m * A_ROW, s); break;
            case 5: tile(c, 5, 3, m, p * T_NR, a + m * A_ROW, s); break;
            case 4: tile(c, 4, 3, m, p * T_NR, a + m * A_ROW, s); break;
            case 3: tile(c, 3, 3, m, p * T_NR, a + m * A_ROW, s); break;
            case 2: tile(c, 2, 3, m, p * T_NR, a + m * A_ROW, s); break;
            case 1: tile(c, 1, 3, m, p * T_NR, a + m * A_ROW, s); break;
        }
    }
}

/* ---- tasks ---- */
void k9fea22a2272b(void *const *buf, const int64_t *dim, void *scratch, int64_t begin, int64_t end) {
    struct call at = {.buf = buf, .s0 = dim[0]}, *c = &at;
    const int64_t m_blocks = t_imin(((c->s0 + 7) / 8), t_imax(1, ((c->s0 + 48) / 96))), n_blocks = 1;
    (void)scratch;
    for (int64_t task = begin; task < end; task++) {
        const int64_t mb = task % m_blocks, nb = task / m_blocks % n_blocks;
        const int64_t t0 = t_cut(TILES, m_blocks, mb), t1 = t_cut(TILES, m_blocks, mb + 1);
        const int64_t p0 = t_cut(PANELS, n_blocks, nb), p1 = t_cut(PANELS, n_blocks, nb + 1);
        const uint8_t *a = buf[0];
        const int32_t *b = buf[1];
        for (int64_t p = p0; p < p1; p++) {
            struct step s = {.b = b + p * ((K + 3) / 4 * T_NR), .k = (int)K};
            panel(c, p, t0, t1, a, s);
        }
    }
}
