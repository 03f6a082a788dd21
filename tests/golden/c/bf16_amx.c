/* c[m][n] = epilogue(sum over k of a[m][k] * b[k][n]) of bf16, summed in f32; b in panels
 * [ceil(N / 16)][ceil(K / 32) * 16][16] of words of two k, zero padded.
 * Task: a block of rows by a block of columns. */
#define T_MR 32
#define T_NV 2
#define T_STEP_WORDS 12
#define T_KEEP_ROWS 1
#define T_FLUSHES 1
#include "t_kernel.h"

T_FN f32v t_decode_bf16(u16v x) {
    return (f32v)(T_CONV(x, u32) << 16u);
}

T_DEF_READS(bf16, f32, u16, uint16_t)

#include "t_bf16_amx.h"

/* The arguments of the kernel, and where a task is. */
struct call {
    void *const *buf;
    int64_t s0, s1, s2;
};

#define M (c->s0)
#define N 40
#define K 48
#define PANEL ((K + 31) / 32 * 256) /* words */
#define A_ROW 48
#define TILES ((c->s0 + 31) / 32)
#define GROUPS 2

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

/* The epilogue of a tile whose sums are [rows][T_NR]. */
static __attribute__((noinline)) void finish_tile(const struct call *from, int rows, int vecs, int64_t m, int64_t n,
    const float *sums) {
    void *const buf[] = {from->buf[0], from->buf[1], from->buf[2], from->buf[3]};
    struct call own = *from, *c = &own;
    own.buf = buf;
    if (vecs == T_NV && n + T_NR <= N) {
        for (int r = 0; r < rows; r++)
        T_UNROLL for (int v = 0; v < T_NV; v++)
        finish(c, m + r, n + v * 16, t_load_f32(sums + r * T_NR + v * 16), 16);
        return;
    }
    for (int r = 0; r < rows; r++) {
        for (int v = 0; v < vecs; v++) {
            const int64_t column = n + v * 16;
            const f32v acc = t_load_f32(sums + r * T_NR + v * 16);
            if (column < N) finish(c, m + r, column, acc, N - column);
        }
    }
}

/* ---- tiles ---- */
/* Asks for the lines that the epilogue of row m of a tile, from column n on, will read and store to. */
T_FN void ask_for_row(const struct call *c, int64_t m, int64_t n) {
    (void)m, (void)n;
    T_FETCH_OUT((float *)c->buf[3], 40 * m + n);
    T_FETCH_OUT((float *)c->buf[3], 40 * m + n + 16);
}

#define STEPS (K / (2 * T_STEP_WORDS))
#define BETWEEN 4 /* steps of a tile between which some rows of the one before are finished */
#define ROWS 8 /* that are finished after each step where both tiles are whole */

/* A tile whose sums are made, where they lie, and how many of its rows are finished; no rows where more is added to its sums. */
struct part {
    int64_t m, p;
    float *sums;
    int rows, done;
};

static void finish_rows(const struct call *c, struct part *part, int to) {
    const int rows = (int)t_imin(to, part->rows) - part->done;
    if (rows <= 0) return;
    finish_tile(c, rows, N - part->p * T_NR <= 16 ? T_NV / 2 : T_NV, part->m + part->done, part->p * T_NR, part->sums + part->done * T_NR);
    part->done += rows;
}

/* Makes the sums of a whole tile, and finishes rows of a whole one: few at a time, which processors do while they multiply. */
static void multiply_whole(const struct call *c, struct part *before, struct part now, int steps, struct t_bf16_rows a,
    struct t_bf16_panels b, const float *start, float *held) {
    const int64_t n = before->p * T_NR;
    for (int i = 0; i < steps; i++) {
        t_bf16_part(2, 2, i, i + 1, a, b, start, held, before->sums);
        for (int r = i * ROWS; r < (i + 1) * ROWS && r < now.rows; r++) ask_for_row(c, now.m + r, now.p * T_NR);
        const int done = before->done;
        if (done >= before->rows) continue;
        for (int r = done; r < done + ROWS; r++)
        T_UNROLL for (int v = 0; v < T_NV; v++)
        finish(c, before->m + r, n + v * 16, t_load_f32(before->sums + r * T_NR + v * 16), 16);
        before->done = done + ROWS;
    }
}

/* Makes the sums of a tile from `start` on by some steps, and finishes the rows of the tile before meanwhile. */
static void multiply(const struct call *c, struct part *before, struct part now, int steps, struct t_bf16_rows a, struct t_bf16_panels b,
    const float *start, float *held) {
    if (M - now.m >= T_MR && (now.p + 1) * T_NR <= N && before->rows % T_MR == 0 && (before->p + 1) * T_NR <= N) {
        multiply_whole(c, before, now, steps, a, b, start, held);
        finish_rows(c, before, T_MR);
    } else {
        for (int i = 0; i < steps; i += BETWEEN) {
            t_bf16_tile_part(t_imin(T_MR, M - now.m), N - now.p * T_NR, i, (int)t_imin(i + BETWEEN, steps), a, b, start, held, before->sums);
            finish_rows(c, before, ((i + BETWEEN) * T_MR + steps - 1) / steps);
        }
    }
    (*before) = now;
}

/* Finishes the last tile. */
static void finish_last(const struct call *c, struct part *before, const float *held) {
    t_bf16_last(held, before->sums);
    finish_rows(c, before, T_MR);
}

/* Copies the rows from m0 up to m1, and zeros below them up to a whole tile. */
static void copy(const struct call *c, const uint16_t *a, int64_t m0, int64_t m1, uint16_t *out) {
    (void)c;
    for (int64_t m = m0; m < m1; m++) __builtin_memcpy(out + (m - m0) * K, a + m * A_ROW, 2 * K);
    __builtin_memset(out + (m1 - m0) * K, 0, (size_t)(T_MR - (m1 - m0)) * (2 * K));
}

/* ---- tasks ---- */
void k53aaa96b8bcd(void *const *buf, const int64_t *dim, void *scratch, int64_t begin, int64_t end) {
    struct call at = {.buf = buf, .s0 = dim[0], .s1 = dim[1], .s2 = dim[2]}, *c = &at;
    const int64_t m_blocks = 1, n_blocks = c->s1, parts = c->s2;
    int64_t copied = -1; /* matrix whose last rows scratch holds */
    _Alignas(64) float sums[T_MR * T_NR], held[T_MR * T_NR] = {0};
    uint16_t *own = scratch; /* rows that are copied */
    struct part before = {.sums = sums};
    t_bf16_open();
    for (int64_t task = begin; task < end; task++) {
        const int64_t nb = task % n_blocks, part = task / n_blocks % parts, block = task / (n_blocks * parts);
        const int64_t mb = block % m_blocks;
        const int64_t low = t_cut(TILES, m_blocks, mb), high = t_cut(TILES, m_blocks, mb + 1);
        const int64_t t0 = low + t_cut(high - low, parts, part), t1 = low + t_cut(high - low, parts, part + 1);
        const int64_t p0 = t_cut(GROUPS, n_blocks, nb), p1 = t_cut(GROUPS, n_blocks, nb + 1);
        const uint16_t *a = buf[0];
        const uint32_t *b = buf[1];
        if (task == begin) t_bf16_ahead(&(struct t_bf16_panels){NULL, PANEL, b + p0 * 2 * PANEL, 0, PANEL / 32 << 16, PANEL / 2}, 1);
        /* Rows are read where they are, but for those of a tile that is not whole: nothing beyond them may be read. */
        if (copied != 0 && M < t1 * T_MR) {
            copy(c, a, M / T_MR * T_MR, M, own);
            copied = 0;
        }
        const int64_t ahead = task - begin < n_blocks ? t0 : -1; /* the first tile of rows of a call asks for weights */
        for (int64_t t = t0; t < t1; t++)
        for (int64_t p = p0; p < p1; p++) {
            const int64_t rate = t == ahead && p + 1 < GROUPS ? T_STEP_WORDS << 15 : 0; /* of lines of halves of the next group */
            const struct t_bf16_panels panels = {b + p * 2 * PANEL, PANEL, b + (p + 1) * 2 * PANEL, 0, rate, PANEL / 2};
            const int64_t m = t * T_MR;
            const int count = (int)t_imin(T_MR, M - m);
            const int64_t row = count == T_MR ? A_ROW : K;
            const struct t_bf16_rows rows = {count == T_MR ? a + m * A_ROW : own, row, 2 * T_STEP_WORDS, 16 * row, 1, NULL};
            multiply(c, &before, (struct part){m, p, sums, count, 0}, STEPS, rows, panels, NULL, held);

        }
    }
    finish_last(c, &before, held);
    t_bf16_close();
}
