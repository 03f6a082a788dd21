/* softmax(scale * q k' + mask) v over blocks of keys, with a running maximum and sum for each query.
 *
 * Queries come in panels, as wide as a register tile.  Scores lie [key][query], so that the softmax of a panel needs
 * no sum across lanes, k is read where it is, and only q, once, is transposed.  Task: a block of panels. */
#define T_MR 6
#define T_NV 4
#define T_FEW_TYPES
#include "t_tile.h"

#define T_WIDE 8 /* vectors of columns of values that are summed at a time */

/* The arguments of the kernel, and where a task is. */
struct call {
    void *const *buf;
    int64_t i0;
};

enum { DEPTH = 16, WIDTH = 8, ROWS = 64, KEYS = 256, LANES = 16 };
#define Q_ROW 16
#define Q_STEP 1
#define K_ROW 16
#define K_STEP 1
#define V_ROW 8
#define V_STEP 1
#define INF __builtin_inff()

/* This thread's scratch. */
struct workspace {
    float queries[1024];
    float weights[16384];
    float values[16384];
    float factor[64];
    float sums[4096];
    float maximum[64];
    float total[64];
    float inverse[64];
};

/* A block of keys, and the part of k and v that belongs to it. */
struct block {
    int64_t key;
    int count;
    const float *k, *v;
    int64_t k_row, v_row, v_panel; /* elements from key to key, and from one panel of columns to the next */
};

/* A panel of queries on its way through the keys. */
struct panel {
    int64_t row;
    int count, first, last; /* queries; whether the block of keys is the first, the last */
    const float *queries;   /* [DEPTH][T_NR] */
    float *maximum, *total; /* of the scores and weights so far */
    float *sums;            /* of the weighted values so far, [T_NR][64] */
};

/* ---- mask and epilogue ---- */
/* Stores a vector of the result. */
T_FN void finish(const struct call *c, int64_t row, int64_t col, f32v acc, int64_t count) {
    (void)row, (void)col;
    float *b3 = c->buf[3];
    (void)c, (void)count;
    if (count >= 16) {
        t_store_f32(b3 + col + 72 * c->i0 + 8 * row, acc);
    } else {
        t_storen_f32(b3 + col + 72 * c->i0 + 8 * row, acc, count);
    }
}

/* ---- arithmetic ---- */
/* e^x for x <= 0 (and NaN), 0 below the normal range: 2^(n + r), 2^r = 1 + r Q(r) on |r| <= 1/2, error 2^-28. */
T_FN f32v weight_of(f32v x) {
    const f32v low = t_splat_f32(-87.0f);
    const i32v gone = (i32v)(x < low);
    const f32v y = t_blend_f32_(gone, low, x) * 1.44269504088896341f;
    const f32v t = y + 0x1.8p23f;
    const f32v r = y - (t - 0x1.8p23f);
    f32v e = r * 1.532679307e-4f + 1.339102513e-3f;
    e = e * r + 9.618505836e-3f;
    e = e * r + 5.550359562e-2f;
    e = e * r + 2.402264774e-1f;
    e = e * r + 6.931471825e-1f;
    e = e * r + 1.0f;
    return (f32v)((i32v)((u32v)e + ((u32v)t << 23)) & ~gone);
}

/* The larger one; a NaN in `a` is passed over, and shows in the weights instead. */
T_FN f32v larger(f32v a, f32v b) { return t_blend_f32_((i32v)(a > b), a, b); }

/* to[c * T_NR + r] = from[r * stride + c * step] for r < rows, c < columns; 0 for the other r < LANES. */
static void transpose(const float *from, int64_t stride, int64_t step, int rows, int columns, float *to) {
    int c = 0;
    for (; rows >= LANES && step == 1 && c + LANES <= columns; c += LANES) {
        f32v x[LANES];
        T_UNROLL for (int r = 0; r < LANES; r++) x[r] = t_load_f32(from + r * stride + c);
        /* Each round interleaves the halves, {a0 b0 a1 b1 ..}. */
        T_UNROLL for (int round = 1; round < LANES; round *= 2) {
            f32v y[LANES];
            T_UNROLL for (int r = 0; r < LANES / 2; r++) {
                y[2 * r] = __builtin_shufflevector(x[r], x[r + LANES / 2], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
                y[2 * r + 1] = __builtin_shufflevector(x[r], x[r + LANES / 2], 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
            }
            T_UNROLL for (int r = 0; r < LANES; r++) x[r] = y[r];
        }
        T_UNROLL for (int r = 0; r < LANES; r++) t_store_f32(to + (c + r) * T_NR, x[r]);
    }
    for (; c < columns; c++)
    for (int r = 0; r < LANES; r++) to[c * T_NR + r] = r < rows ? from[r * stride + c * step] : 0.0f;
}

/* ---- scores and weights ---- */

/* Scores of `rows` keys from key i of the block on. */
T_FN void score(struct workspace *w, const int rows, const int vecs, const struct block *s, const struct panel *q,
    int i, f32v maximum[T_NV]) {
    const float *at[T_MR];
    f32v acc[T_MR][T_NV];
    T_UNROLL for (int r = 0; r < rows; r++) at[r] = s->k + (i + r) * s->k_row;
    t_tile_open(rows, vecs, NULL, acc);
    /* In one chain, however many queries and keys the tile has. */
    t_tile_chain(32, rows, vecs, DEPTH, at, (const char *)q->queries, T_NOTHING_AHEAD, acc);
    T_UNROLL for (int r = 0; r < rows; r++)
    T_UNROLL for (int v = 0; v < vecs; v++) {
        f32v x = acc[r][v];
        t_store_f32(w->weights + (i + r) * T_NR + v * LANES, x);
        maximum[v] = larger(x, maximum[v]);
    }
}

/* Scores become weights e^(score - maximum); the panel's maximum and sum are brought up to date. */
T_FN void exponentiate(struct workspace *w, const int vecs, const struct block *s, const struct panel *q,
    const f32v *maximum) {
    f32v base[T_NV], sum[T_NV];
    T_UNROLL for (int v = 0; v < vecs; v++) {
        const f32v old = t_load_f32(q->maximum + v * LANES), now = larger(maximum[v], old);
        /* Where nothing is seen yet all weights are e^-inf = 0. */
        base[v] = t_blend_f32_((i32v)(now == -INF), (f32v){0}, now);
        const f32v factor = weight_of(old - base[v]);
        t_store_f32(q->maximum + v * LANES, now);
        t_store_f32(w->factor + v * LANES, factor);
        sum[v] = t_load_f32(q->total + v * LANES) * factor;
    }
    for (int i = 0; i < s->count; i++)
    T_UNROLL for (int v = 0; v < vecs; v++) {
        float *at = w->weights + i * T_NR + v * LANES;
        const f32v e = weight_of(t_load_f32(at) - base[v]);
        t_store_f32(at, e);
        sum[v] += e;
    }
    T_UNROLL for (int v = 0; v < vecs; v++) t_store_f32(q->total + v * LANES, sum[v]);
}

/* Weights of a block for a panel that fills 1 vector. */
static void compute_weights_1(struct workspace *w, const struct block *s, const struct panel *q) {
    const int tiles = (s->count + T_MR - 1) / T_MR;
    f32v maximum[T_NV];
    maximum[0] = t_splat_f32(-INF);
    for (int t = 0; t < tiles; t++) {
        const int i = (int)t_cut(s->count, tiles, t), rows = (int)t_cut(s->count, tiles, t + 1) - i;
        switch (rows) {
            case 1: score(w, 1, 1, s, q, i, maximum); break;
            case 2: score(w, 2, 1, s, q, i, maximum); break;
            case 3: score(w, 3, 1, s, q, i, maximum); break;
            case 4: score(w, 4, 1, s, q, i, maximum); break;
            case 5: score(w, 5, 1, s, q, i, maximum); break;
            case 6: score(w, 6, 1, s, q, i, maximum); break;
        }
    }
    exponentiate(w, 1, s, q, maximum);
}

/* Weights of a block for a panel that fills 2 vectors. */
static void compute_weights_2(struct workspace *w, const struct block *s, const struct panel *q) {
    const int tiles = (s->count + T_MR - 1) / T_MR;
    f32v maximum[T_NV];
    T_UNROLL for (int v = 0; v < 2; v++) maximum[v] = t_splat_f32(-INF);
    for (int t = 0; t < tiles; t++) {
        const int i = (int)t_cut(s->count, tiles, t), rows = (int)t_cut(s->count, tiles, t + 1) - i;
        switch (rows) {
            case 1: score(w, 1, 2, s, q, i, maximum); break;
            case 2: score(w, 2, 2, s, q, i, maximum); break;
            case 3: score(w, 3, 2, s, q, i, maximum); break;
            case 4: score(w, 4, 2, s, q, i, maximum); break;
            case 5: score(w, 5, 2, s, q, i, maximum); break;
            case 6: score(w, 6, 2, s, q, i, maximum); break;
        }
    }
    exponentiate(w, 2, s, q, maximum);
}

/* Weights of a block for a panel that fills 3 vectors. */
static void compute_weights_3(struct workspace *w, const struct block *s, const struct panel *q) {
    const int tiles = (s->count + T_MR - 1) / T_MR;
    f32v maximum[T_NV];
    T_UNROLL for (int v = 0; v < 3; v++) maximum[v] = t_splat_f32(-INF);
    for (int t = 0; t < tiles; t++) {
        const int i = (int)t_cut(s->count, tiles, t), rows = (int)t_cut(s->count, tiles, t + 1) - i;
        switch (rows) {
            case 1: score(w, 1, 3, s, q, i, maximum); break;
            case 2: score(w, 2, 3, s, q, i, maximum); break;
            case 3: score(w, 3, 3, s, q, i, maximum); break;
            case 4: score(w, 4, 3, s, q, i, maximum); break;
            case 5: score(w, 5, 3, s, q, i, maximum); break;
            case 6: score(w, 6, 3, s, q, i, maximum); break;
        }
    }
    exponentiate(w, 3, s, q, maximum);
}

/* Weights of a block for a panel that fills 4 vectors. */
static void compute_weights_4(struct workspace *w, const struct block *s, const struct panel *q) {
    const int tiles = (s->count + T_MR - 1) / T_MR;
    f32v maximum[T_NV];
    T_UNROLL for (int v = 0; v < 4; v++) maximum[v] = t_splat_f32(-INF);
    for (int t = 0; t < tiles; t++) {
        const int i = (int)t_cut(s->count, tiles, t), rows = (int)t_cut(s->count, tiles, t + 1) - i;
        switch (rows) {
            case 1: score(w, 1, 4, s, q, i, maximum); break;
            case 2: score(w, 2, 4, s, q, i, maximum); break;
            case 3: score(w, 3, 4, s, q, i, maximum); break;
            case 4: score(w, 4, 4, s, q, i, maximum); break;
            case 5: score(w, 5, 4, s, q, i, maximum); break;
            case 6: score(w, 6, 4, s, q, i, maximum); break;
        }
    }
    exponentiate(w, 4, s, q, maximum);
}

/* ---- weighted values ---- */

/* acc[r][v] += sum over i < count of a[i][r] * b[i][v], a being [count][T_NR].  b is in panels; a tile of one row may go
 * across several. */
T_FN void mix_tile(const int rows, const int vecs, int count, const float *a, const float *b, int64_t b_row,
    int64_t b_panel, f32v acc[T_MR][T_WIDE]) {
    for (int i = 0; i < count; i++, a += T_NR, b += b_row) {
        f32v x[T_WIDE];
        T_UNROLL for (int v = 0; v < vecs; v++) x[v] = t_load_f32(b + v / T_NV * b_panel + v % T_NV * LANES);
        T_UNROLL for (int r = 0; r < rows; r++) {
            const f32v weight = t_splat_f32(a[r]);
            T_UNROLL for (int v = 0; v < vecs; v++) acc[r][v] += weight * x[v];
        }
    }
}

/* Adds the block's values, weighted, to the sums of `rows` queries from query r0 on, or stores the result. */
T_FN void weigh_values(const struct call *c, const struct workspace *w, const int rows, const int vecs,
    const struct block *s, const struct panel *q, int r0, int64_t col) {
    float *sums = q->sums + r0 * 64 + col;
    f32v acc[T_MR][T_WIDE];
    T_UNROLL for (int r = 0; r < rows; r++)
    T_UNROLL for (int v = 0; v < vecs; v++)
    acc[r][v] = q->first ? (f32v){0} : t_load_f32(sums + r * 64 + v * LANES) * w->factor[r0 + r];
    mix_tile(rows, vecs, s->count, w->weights + r0, s->v + col / T_NR * s->v_panel, s->v_row, s->v_panel, acc);
    T_UNROLL for (int r = 0; r < rows; r++)
    T_UNROLL for (int v = 0; v < vecs; v++) {
        if (!q->last) {
            t_store_f32(sums + r * 64 + v * LANES, acc[r][v]);
            continue;
        }
        const float inverse = w->inverse[r0 + r];
        const f32v y = acc[r][v] * inverse;
        finish(c, q->row + r0 + r, col + v * LANES, y, WIDTH - col - v * LANES);
    }
}

static void weigh_panel(const struct call *c, struct workspace *w, const struct block *s, const struct panel *q) {
    const int tiles = (q->count + T_MR - 1) / T_MR;
    for (int v = 0; q->last && v < T_NR; v += LANES) {
        const f32v total = t_load_f32(q->total + v), inverse = 1.0f / total;
        /* Without keys the result is 0; keys that are all hidden leave 0 / 0. */
        t_store_f32(w->inverse + v, s->key + s->count ? inverse : t_splat_f32(1));
    }
    for (int64_t col = 0; col < WIDTH; col += T_NR)
    for (int t = 0; t < tiles; t++) {
        const int r0 = (int)t_cut(q->count, tiles, t), rows = (int)t_cut(q->count, tiles, t + 1) - r0;
        switch (rows) {
            case 1: weigh_values(c, w, 1, 1, s, q, r0, col); break;
            case 2: weigh_values(c, w, 2, 1, s, q, r0, col); break;
            case 3: weigh_values(c, w, 3, 1, s, q, r0, col); break;
            case 4: weigh_values(c, w, 4, 1, s, q, r0, col); break;
            case 5: weigh_values(c, w, 5, 1, s, q, r0, col); break;
            case 6: weigh_values(c, w, 6, 1, s, q, r0, col); break;
        }
    }
}

/* ---- blocks of keys ---- */

/* The block's values in panels of columns, zeros beyond the last column. */
static void copy_values(const struct call *c, struct workspace *w, struct block *s) {
    (void)c;
    for (int64_t col = 0; col < WIDTH; col += LANES) {
        float *to = w->values + col / T_NR * (KEYS * T_NR) + col % T_NR;
        for (int i = 0; i < s->count; i++, to += T_NR)
        t_store_f32(to, t_loadn_f32(s->v + i * V_ROW + col, WIDTH - col));
    }
    s->v = w->values, s->v_row = T_NR, s->v_panel = KEYS * T_NR;
}

/* A block of keys for n queries from `row` on, of `keys` keys in all. */
static void run_block(const struct call *c, struct workspace *w, struct block s, int64_t row, int n, int64_t keys) {
    for (int r = 0; r < n; r += T_NR) {
        struct panel q = {.row = row + r, .count = n - r < T_NR ? n - r : T_NR, .first = s.key == 0,
            .queries = w->queries + r * DEPTH, .maximum = w->maximum + r, .total = w->total + r,
            .sums = w->sums + r * 64};
        q.last = s.key + s.count >= keys;
        switch ((q.count + LANES - 1) / LANES) {
            case 1: compute_weights_1(w, &s, &q); break;
            case 2: compute_weights_2(w, &s, &q); break;
            case 3: compute_weights_3(w, &s, &q); break;
            case 4: compute_weights_4(w, &s, &q); break;
        }
        weigh_panel(c, w, &s, &q);
    }
}

/* All keys for n queries from `row` on. */
static void run(const struct call *c, struct workspace *w, const float *q, const float *k, const float *v, int64_t row,
    int n) {
    const int64_t keys = 33, blocks = t_imax(1, (keys + KEYS - 1) / KEYS);
    const int64_t size = (keys + blocks * 16 - 1) / (blocks * 16) * 16;
    (void)c;
    for (int r = 0; r < n; r += LANES) {
        transpose(q + (row + r) * Q_ROW, Q_ROW, Q_STEP, n - r, DEPTH, w->queries + r / T_NR * (DEPTH * T_NR) + r % T_NR);
        t_store_f32(w->maximum + r, t_splat_f32(-INF));
        t_store_f32(w->total + r, (f32v){0});
    }
    for (int64_t i = 0; i < blocks; i++) {
        const int64_t key = i * size;
        struct block s = {key, (int)t_imin(size, keys - key), k + key * K_ROW, v + key * V_ROW, K_ROW, V_ROW, T_NR};
        copy_values(c, w, &s);
        run_block(c, w, s, row, n, keys);
    }
}

/* ---- tasks ---- */
void k6c0886d0c24c(void *const *buf, const int64_t *dim, void *scratch, int64_t begin, int64_t end) {
    struct call at = {.buf = buf}, *c = &at;
    (void)dim;
    const int64_t queries = 9, panels = (queries + T_NR - 1) / T_NR;
    const int64_t blocks = (queries + ROWS - 1) / ROWS;
    for (int64_t task = begin; task < end; task++) {
        const int64_t block = task % blocks, row = t_cut(panels, blocks, block) * T_NR;
        const int64_t stop = t_imin(t_cut(panels, blocks, block + 1) * T_NR, queries);
        const int64_t point = task / blocks;
        c->i0 = point;
        const float *q = (const float *)buf[0] + 144 * c->i0;
        const float *k = (const float *)buf[1] + 528 * c->i0;
        const float *v = (const float *)buf[2] + 264 * c->i0;
        run(c, scratch, q, k, v, row, (int)(stop - row));
    }
}
