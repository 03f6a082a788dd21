/* softmax(scale * q k' + mask) v of 3 queries, which only wait for keys and values: these are read once, where they
 * lie.  Scores lie [query][key].  A block of keys has a running maximum and sum.
 * Task: 256 keys of a point of the batch; attention_few_join.c.j2 joins what they leave. */
#define T_FEW_TYPES
#include "t_kernel.h"
#include "t_sums.h"
T_ROWS_ADD

/* The arguments of the kernel, and where a task is. */
struct call {
    void *const *buf;
    int64_t i0;
};

enum { DEPTH = 16, WIDTH = 8, QUERIES = 3, KEYS = 32, LANES = 16 };
enum { DEEP = (DEPTH + LANES - 1) / LANES, WIDE = (WIDTH + LANES - 1) / LANES }; /* vectors */
enum { ROWS = QUERIES < 4 ? QUERIES : 4, VECTORS = WIDE < 4 ? WIDE : 4 };         /* of a tile of sums */
/* Asks L2 for what lies some keys ahead, as a Xeon with products of f16 reads 1.25 to 1.5 times as fast then; a Zen 4, whose own
 * requests suffice, takes an eighth longer. */
#ifdef __AVX512FP16__
#define ASK_AHEAD(p, row) T_FETCH_FAR(p, 32 * (row))
#else
#define ASK_AHEAD(p, row) (void)0
#endif
#define Q_ROW 16
#define Q_STEP 1
#define K_ROW 16
#define V_ROW 8
#define INF __builtin_inff()

/* This thread's scratch: queries, scores that become weights, and what keys so far have left of each query. */
struct workspace {
    float queries[QUERIES * DEEP * LANES], weights[QUERIES * KEYS], sums[QUERIES * WIDE * LANES], total[QUERIES * LANES];
    float maximum[QUERIES], factor[QUERIES];
};

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

/* ---- scores and weights ---- */

/* Products of queries with a key, not yet summed over lanes. */
T_FN void multiply_key(const struct workspace *w, const float *key, f32v sums[QUERIES]) {
    T_UNROLL for (int r = 0; r < QUERIES; r++) sums[r] = (f32v){0};
    for (int d = 0; d < DEPTH / LANES; d++) {
        const f32v x = t_load_f32(key + d * LANES);
        ASK_AHEAD(key + d * LANES, K_ROW);
        T_UNROLL for (int r = 0; r < QUERIES; r++) sums[r] += x * t_load_f32(w->queries + (r * DEEP + d) * LANES);
    }
}

/* Scores of `count` keys from `key` on, all queries.  Keys are read once, in order, as a processor foresees. */
static void compute_scores(const struct call *c, struct workspace *w, const float *k, const float *v, int64_t key, int count) {
    (void)c, (void)key, (void)v;
    for (int i = 0; i < count; i += LANES) {
        const int left = count - i < LANES ? count - i : LANES;
        f32v parts[QUERIES][LANES], sums[QUERIES];
        for (int j = 0; j < LANES; j++) {
            const int row = i + (j < left ? j : left - 1);
            multiply_key(w, k + row * K_ROW, sums);
            T_UNROLL for (int r = 0; r < QUERIES; r++) parts[r][j] = sums[r];
        }
        for (int r = 0; r < QUERIES; r++) {
            f32v x = t_hadd_rows_f32(parts[r]);
            t_store_f32(w->weights + r * KEYS + i, left == LANES ? x : t_select_f32(t_first_bool(left), x, t_splat_f32(-INF)));
        }
    }
}

/* Scores become weights e^(score - maximum); maximum and sum of each query are brought up to date. */
static void exponentiate(struct workspace *w, int count) {
    for (int r = 0; r < QUERIES; r++) {
        float *weights = w->weights + r * KEYS, high = w->maximum[r];
        f32v top = t_splat_f32(-INF);
        for (int i = 0; i < count; i += LANES) {
            const f32v x = t_load_f32(weights + i);
            top = t_blend_f32_((i32v)(x > top), x, top); /* a NaN is passed over, and shows in the weights instead */
        }
        for (int i = 0; i < LANES; i++) high = top[i] > high ? top[i] : high;
        /* Where nothing is seen yet all weights are e^-inf = 0. */
        const float base = high == -INF ? 0.0f : high;
        const f32v factor = weight_of(t_splat_f32(w->maximum[r] - base));
        f32v total = t_load_f32(w->total + r * LANES) * factor;
        for (int i = 0; i < count; i += LANES) {
            const f32v e = weight_of(t_load_f32(weights + i) - base);
            t_store_f32(weights + i, e);
            total += e;
        }
        t_store_f32(w->total + r * LANES, total);
        w->maximum[r] = high, w->factor[r] = factor[0];
    }
}

/* ---- weighted values ---- */

/* Adds `count` values, weighted, to the sums of `rows` queries and `vecs` vectors. */
T_FN void weigh_tile(struct workspace *w, const int rows, const int vecs, const float *v, int count, int r0, int v0) {
    float *sums = w->sums + (r0 * WIDE + v0) * LANES;
    const float *weights = w->weights + r0 * KEYS;
    f32v acc[ROWS][VECTORS];
    T_UNROLL for (int r = 0; r < rows; r++)
    T_UNROLL for (int n = 0; n < vecs; n++)
    acc[r][n] = t_load_f32(sums + (r * WIDE + n) * LANES) * w->factor[r0 + r];
    v += v0 * LANES;
    for (int i = 0; i < count; i++, v += V_ROW) {
        f32v x[VECTORS];
        T_UNROLL for (int n = 0; n < vecs; n++) x[n] = v0 + n < WIDTH / LANES ? t_load_f32(v + n * LANES) : t_loadn_f32(v + n * LANES, WIDTH % LANES);
        T_UNROLL for (int n = 0; n < vecs; n++) ASK_AHEAD(v + n * LANES, V_ROW);
        T_UNROLL for (int r = 0; r < rows; r++) {
            const f32v weight = t_splat_f32(weights[r * KEYS + i]);
            T_UNROLL for (int n = 0; n < vecs; n++) acc[r][n] += weight * x[n];
        }
    }
    T_UNROLL for (int r = 0; r < rows; r++)
    T_UNROLL for (int n = 0; n < vecs; n++) t_store_f32(sums + (r * WIDE + n) * LANES, acc[r][n]);
}

static void weigh_values(struct workspace *w, const float *v, int count) {
    weigh_tile(w, 3, 1, v, count, 0, 0);
}

/* The keys from `key` up to `stop`. */
static void run(const struct call *c, struct workspace *w, const float *q, const float *k, const float *v, int64_t key, int64_t stop) {
    __builtin_memset(w, 0, sizeof *w);
    for (int r = 0; r < QUERIES; r++) {
        w->maximum[r] = -INF;
        for (int d = 0; d < DEPTH; d++) w->queries[r * DEEP * LANES + d] = q[r * Q_ROW + d * Q_STEP];
    }
    for (; key < stop; key += KEYS) {
        const int count = (int)t_imin(KEYS, stop - key);
        compute_scores(c, w, k + key * K_ROW, v + key * V_ROW, key, count);
        exponentiate(w, count);
        weigh_values(w, v + key * V_ROW, count);
    }
}

/* ---- tasks ---- */
void kfcd817cf7537(void *const *buf, const int64_t *dim, void *scratch, int64_t begin, int64_t end) {
    struct call at = {.buf = buf}, *c = &at;
    (void)dim;
    const int64_t keys = 600;
    const int64_t parts = 3;
    struct workspace *w = scratch;
    for (int64_t task = begin; task < end; task++) {
        const int64_t point = task / parts, key = task % parts * 256, stop = t_imin(key + 256, keys);
        c->i0 = point;
        const float *q = (const float *)buf[0] + 48 * c->i0;
        const float *k = (const float *)buf[1] + 9600 * c->i0;
        const float *v = (const float *)buf[2] + 4800 * c->i0;
        run(c, w, q, k, v, key, stop);
        float *left = (float *)buf[3] + task * 54;
        for (int r = 0; r < QUERIES; r++, left += WIDE * LANES + 2) {
            left[0] = w->maximum[r], left[1] = t_hsum_f32(t_load_f32(w->total + r * LANES));
            __builtin_memcpy(left + 2, w->sums + r * WIDE * LANES, WIDE * LANES * sizeof(float));
        }
    }
}

/* What tasks of attention_few.c.j2 left of the keys of each query, joined: each part is weighed by its largest score, in
 * order.  Task: some points of the batch. */
#define T_FEW_TYPES
#include "t_kernel.h"

/* The arguments of the kernel, and where a task is. */
struct call {
    void *const *buf;
    int64_t i0;
};

enum { WIDTH = 8, QUERIES = 3, LANES = 16, ROW = 18, LEFT = QUERIES * ROW };
enum { WIDE = (WIDTH + LANES - 1) / LANES }; /* vectors */
#define INF __builtin_inff()

/* ---- mask and epilogue ---- */
/* Stores a vector of the result. */
T_FN void finish(const struct call *c, int64_t row, int64_t col, f32v acc, int64_t count) {
    (void)row, (void)col;
    float *b1 = c->buf[1];
    (void)c, (void)count;
    if (count >= 16) {
        t_store_f32(b1 + col + 24 * c->i0 + 8 * row, acc);
    } else {
        t_storen_f32(b1 + col + 24 * c->i0 + 8 * row, acc, count);
    }
}

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

/* A query of a point: of each of `parts` the largest score, the sum of weights, and sums of columns lie from `left` on. */
static void join(const struct call *c, const float *left, int64_t parts, int64_t keys, int r) {
    float high = -INF, total = 0;
    (void)keys;
    for (int64_t i = 0; i < parts; i++) high = left[i * LEFT] > high ? left[i * LEFT] : high;
    const float base = high == -INF ? 0.0f : high; /* where nothing is seen */
    f32v sums[WIDE];
    for (int n = 0; n < WIDE; n++) sums[n] = (f32v){0};
    for (int64_t i = 0; i < parts; i++, left += LEFT) {
        const f32v weight = weight_of(t_splat_f32(left[0] - base));
        total += weight[0] * left[1];
        for (int n = 0; n < WIDE; n++) sums[n] += weight * t_load_f32(left + 2 + n * LANES);
    }
    const float inverse = keys ? 1.0f / total : 1.0f;
    for (int n = 0; n < WIDE; n++)
    finish(c, r, n * LANES, sums[n] * inverse, WIDTH - n * LANES);
}

/* ---- tasks ---- */
void k65e493456cce(void *const *buf, const int64_t *dim, void *scratch, int64_t begin, int64_t end) {
    struct call at = {.buf = buf}, *c = &at;
    (void)dim;
    const int64_t points = 2, parts = 3, keys = 600;
    (void)scratch;
    for (int64_t point = begin * 32; point < t_imin(end * 32, points); point++) {
        c->i0 = point;
        const float *left = (const float *)buf[0] + point * parts * LEFT;
        for (int r = 0; r < QUERIES; r++) join(c, left + r * ROW, parts, keys, r);
    }
}
