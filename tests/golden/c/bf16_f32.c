/* c[m][n] = epilogue(sum over k of a[m][k] * b[k][n]), b in panels [ceil(N / 16)][ceil(K / 32) * 16][16] of words of two k of
 * bf16, zero padded.
 * Task: a block of rows by a block of panels. */
#define T_MR 8
#define T_NV 3
#define T_FEWEST 1
#define T_MOST 8
#define T_FEW_TYPES
#include "t_bf16_panels.h"

/* The arguments of the kernel, and where a task is. */
struct call {
    void *const *buf;
    int64_t s0;
};

#define M (c->s0)
#define N 40
#define K 48
#define CHUNK 48 /* of k, whose weights tiles read as floats */
#define PANEL ((K + 31) / 32 * 256) /* words */
#define A_ROW 48
#define TILES ((c->s0 + 7) / 8)
#define PANELS 1

/* ---- epilogue ---- */
/* Stores one vector of row m from column n on. */
T_FN void finish(const struct call *c, int64_t m, int64_t n, f32v acc, int64_t count) {
    (void)m, (void)n;
    const float *b2 = c->buf[2];
    float *b3 = c->buf[3];
    (void)c, (void)count;
    if (count >= 16) {
        const f32v v0 = t_max_f32((acc + t_load_f32(b2 + n)), t_splat_f32(0.0f));
        t_store_f32(b3 + 40 * m + n, v0);
    } else {
        const f32v v0 = t_max_f32((acc + t_loadn_f32(b2 + n, count)), t_splat_f32(0.0f));
        t_storen_f32(b3 + 40 * m + n, v0, count);
    }
}

/* ---- tiles ---- */
struct step {
    const uint32_t *b; /* the panels at the first k */
    float *floats; /* of the tile's columns */
    float *part; /* scratch for the tile's sums between blocks of k */
    int first, last;
    int k;          /* length of the sums; an int, so that no compiler fears an overflow */
};

T_FN void tile(const struct call *from, const int rows, const int vecs, const int keeps, int64_t m, int64_t n, const float *a,
    struct step s) {
    void *const buf[] = {from->buf[0], from->buf[1], from->buf[2], from->buf[3]};
    struct call own = *from, *c = &own;
    own.buf = buf;
    const float *row[T_MR];
    f32v acc[T_MR][T_NV];
    T_UNROLL for (int r = 0; r < rows; r++) row[r] = a + r * A_ROW;
    t_tile_open(rows, vecs, s.first ? NULL : s.part, acc);
    if (keeps) {
        t_bf16_fma(rows, vecs, 1, s.k, row, s.b, PANEL, n, s.floats, acc);
    } else {
        t_tile_chain(T_SUM_BITS, rows, vecs, s.k, row, (const char *)s.floats, T_NOTHING_AHEAD, acc);
    }
    if (!s.last) {
        t_tile_park(rows, vecs, s.part, acc);
        return;
    }
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
        if (t == t0) {
            switch (rows) {
                case 8: tile(c, 8, 3, 1, m, p * T_NR, a + m * A_ROW, s); break;
                case 7: tile(c, 7, 3, 1, m, p * T_NR, a + m * A_ROW, s); break;
                case 6: tile(c, 6, 3, 1, m, p * T_NR, a + m * A_ROW, s); break;
                case 5: tile(c, 5, 3, 1, m, p * T_NR, a + m * A_ROW, s); break;
                case 4: tile(c, 4, 3, 1, m, p * T_NR, a + m * A_ROW, s); break;
                case 3: tile(c, 3, 3, 1, m, p * T_NR, a + m * A_ROW, s); break;
                case 2: tile(c, 2, 3, 1, m, p * T_NR, a + m * A_ROW, s); break;
                case 1: tile(c, 1, 3, 1, m, p * T_NR, a + m * A_ROW, s); break;
            }
        } else {
            switch (rows) {
                case 8: tile(c, 8, 3, 0, m, p * T_NR, a + m * A_ROW, s); break;
                case 7: tile(c, 7, 3, 0, m, p * T_NR, a + m * A_ROW, s); break;
                case 6: tile(c, 6, 3, 0, m, p * T_NR, a + m * A_ROW, s); break;
                case 5: tile(c, 5, 3, 0, m, p * T_NR, a + m * A_ROW, s); break;
                case 4: tile(c, 4, 3, 0, m, p * T_NR, a + m * A_ROW, s); break;
                case 3: tile(c, 3, 3, 0, m, p * T_NR, a + m * A_ROW, s); break;
                case 2: tile(c, 2, 3, 0, m, p * T_NR, a + m * A_ROW, s); break;
                case 1: tile(c, 1, 3, 0, m, p * T_NR, a + m * A_ROW, s); break;
            }
        }
        s.part += rows * T_NR;
    }
}

/* ---- tasks ---- */
void k8d94bcd1dd87(void *const *buf, const int64_t *dim, void *scratch, int64_t begin, int64_t end) {
    struct call at = {.buf = buf, .s0 = dim[0]}, *c = &at;
    const int64_t m_blocks = t_imin(((c->s0 + 7) / 8), t_imax(1, ((c->s0 + 96) / 192))), n_blocks = 1;
    float *floats = scratch, *sums = floats + CHUNK * T_NR; /* of weights; of tiles between their chunks */
    for (int64_t task = begin; task < end; task++) {
        const int64_t mb = task % m_blocks, nb = task / m_blocks % n_blocks;
        const int64_t t0 = t_cut(TILES, m_blocks, mb), t1 = t_cut(TILES, m_blocks, mb + 1);
        const int64_t p0 = t_cut(PANELS, n_blocks, nb), p1 = t_cut(PANELS, n_blocks, nb + 1);
        const float *a = buf[0];
        const uint32_t *b = buf[1];
        for (int64_t p = p0; p < p1; p++) {
            struct step s = {.b = b, .k = (int)K};
            s.part = sums;
            s.first = s.last = 1;
            for (int64_t i = 0; i < K; i += CHUNK) {
                const int some = (int)t_imin(CHUNK, K - i);
                struct step piece = s;
                piece.b = b + i / 2 * 16;
                piece.floats = floats;
                piece.k = some;
                piece.first = i == 0;
                piece.last = i + some >= K;
                panel(c, p, t0, t1, a + i, piece);
            }
        }
    }
}
