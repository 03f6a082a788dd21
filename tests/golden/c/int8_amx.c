/* c[m][n] = epilogue(sum over k of a[m][k] * b[k][n]) of u8 and i8, summed in i32; b in panels
 * [ceil(N / 16)][ceil(K / 64) * 16][16] of words of four k, zero padded.
 * Rows are read as they lie, a step of 64 k whole: what is read beyond K is multiplied by zeros. Those at the end, where
 * nothing may be read behind them or there are fewer than a tile has, are packed.
 * Task: a block of rows by a block of columns. */
#define T_MR 32
#define T_NV 2
#include "t_int8_amx.h"

/* The arguments of the kernel, and where a task is. */
struct call {
    void *const *buf;
    int64_t s0, s1;
};

#define M (c->s0)
#define N 40
#define K 70
#define STEPS ((K + 63) / 64)
#define DEPTH (STEPS * 64)  /* bytes of a packed row */
#define PANEL (STEPS * 256) /* words */
#define A_ROW 70
#define TILES ((c->s0 + 31) / 32)
#define GROUPS 2
#define BESIDE 2 /* groups of columns that a tile of rows is multiplied by before the next one */

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

/* The epilogue of a tile whose sums are [rows][T_NR]. */
static __attribute__((noinline)) void finish_tile(const struct call *from, int rows, int vecs, int64_t m, int64_t n,
    const int32_t *sums) {
    void *const buf[] = {from->buf[0], from->buf[1], from->buf[2], from->buf[3]};
    struct call own = *from, *c = &own;
    own.buf = buf;
    if (vecs == T_NV && n + T_NR <= N) {
        for (int r = 0; r < rows; r++)
        T_UNROLL for (int v = 0; v < T_NV; v++)
        finish(c, m + r, n + v * 16, t_load_i32(sums + r * T_NR + v * 16), 16);
        return;
    }
    for (int r = 0; r < rows; r++) {
        for (int v = 0; v < vecs; v++) {
            const int64_t column = n + v * 16;
            const i32v acc = t_load_i32(sums + r * T_NR + v * 16);
            if (column < N) finish(c, m + r, column, acc, N - column);
        }
    }
}

/* ---- tiles ---- */
/* Rows of a tile by a group of columns: the first row, their number, and the group. */
struct part {
    int64_t m, p;
    int rows;
};

/* Sums of one part are stored while those of the next are made. */
struct sums {
    _Alignas(64) int32_t tile[2][T_MR * T_NR];
    struct part part;
    int turn;
};

static void finish_part(const struct call *c, struct sums *s) {
    const int narrow = N - s->part.p * T_NR <= 16;
    const int32_t *tile = s->tile[s->turn];
    finish_tile(c, s->part.rows, narrow ? T_NV / 2 : T_NV, s->part.m, s->part.p * T_NR, tile);
    s->part.rows = 0;
}

/* The weights of a group of columns, and a part for the nth of some tiles of those that are read when these are done. */
static struct t_weights weights_of(const struct call *c, const int32_t *b, int64_t p, int64_t nth, int64_t tiles) {
    (void)c;
    const int32_t *at = b + p * (T_NR / 16 * PANEL);
    const int64_t rate = p + BESIDE < GROUPS ? (8 << 16) / tiles : 0; /* of the 8 lines of half a step */
    return (struct t_weights){at, PANEL, at + BESIDE * (T_NR / 16 * PANEL), nth * STEPS * rate, rate};
}

/* Makes the sums of a part, and finishes the one before. */
static void multiply(const struct call *c, struct sums *s, struct part part, struct t_rows x, struct t_weights w) {
    const int low = part.rows <= 16, narrow = N - part.p * T_NR <= 16;
    int32_t *sums = s->tile[!s->turn];
    if (low && narrow) t_int8_sums(1, 1, x, w, sums);
    else if (low) t_int8_sums(1, 2, x, w, sums);
    else if (narrow) t_int8_sums(2, 1, x, w, sums);
    else t_int8_sums(2, 2, x, w, sums);
    if (s->part.rows) finish_part(c, s);
    s->part = part;
    s->turn = !s->turn;
}

/* Packs the rows from m0 up to m1 in tiles. */
static void pack(const struct call *c, const uint8_t *a, int64_t m0, int64_t m1, uint8_t *out) {
    (void)c;
    for (int64_t m = m0; m < m1; m++) {
        t_int8_put(a + m * A_ROW, 0, (int)K, 0, DEPTH, m - m0, out);
        t_int8_put(NULL, 0, (int)(DEPTH - K), (int)K, DEPTH, m - m0, out);
    }
    for (int64_t m = m1; (m - m0) % 16; m++) t_int8_put(NULL, 0, DEPTH, 0, DEPTH, m - m0, out);
}

/* ---- tasks ---- */
void k3874d41f7afe(void *const *buf, const int64_t *dim, void *scratch, int64_t begin, int64_t end) {
    struct call at = {.buf = buf, .s0 = dim[0], .s1 = dim[1]}, *c = &at;
    const int64_t m_blocks = t_imin(((c->s0 + 31) / 32), t_imax(1, ((c->s0 + 384) / 768))), n_blocks = c->s1;
    /* Tiles whose rows are read as they lie. */
    const int64_t there = t_imax(0, M - (DEPTH - K + A_ROW - 1) / A_ROW) / T_MR;
    const int64_t runs[1] = {0};
    int64_t packed = -1; /* block of rows that scratch holds */
    struct sums sums = {.turn = 0};
    t_int8_open();
    for (int64_t task = begin; task < end; task++) {
        const int64_t nb = task % n_blocks, block = task / n_blocks, mb = block % m_blocks;
        const int64_t p0 = t_cut(GROUPS, n_blocks, nb), p1 = t_cut(GROUPS, n_blocks, nb + 1);
        const uint8_t *a = buf[0];
        const int32_t *b = buf[1];
        const int64_t t0 = t_cut(TILES, m_blocks, mb), t1 = t_cut(TILES, m_blocks, mb + 1);
        const int64_t first = t_imin(t_imax(t0, there), t1); /* tile that is packed */
        if (block != packed) pack(c, a, first * T_MR, t_imin(M, t1 * T_MR), scratch);
        packed = block;
        for (int64_t p2 = p0; p2 < p1; p2 += BESIDE)
        for (int64_t t = t0; t < t1; t++)
        for (int64_t p = p2; p < t_imin(p1, p2 + BESIDE); p++) {
            const struct part part = {.m = t * T_MR, .p = p, .rows = (int)t_imin(T_MR, M - t * T_MR)};
            struct t_rows x = {a + t * (T_MR * A_ROW), A_ROW, 64, 16 * A_ROW, runs, 1, STEPS};
            if (t >= first) x = (struct t_rows){(const uint8_t *)scratch + (t - first) * (T_MR * DEPTH), 64, 1024, 16 * DEPTH, runs, 1, STEPS};
            multiply(c, &sums, part, x, weights_of(c, b, p, t - t0, t1 - t0));
        }
        if (sums.part.rows) finish_part(c, &sums);
    }
    t_int8_close();
}
