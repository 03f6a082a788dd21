/* softmax(scale * q k' + mask) v of bf16 over blocks of keys, with a running maximum and sum for each query, by tiles of
 * sums in f32.
 *
 * Queries come in panels, as wide as two tiles.  Scores lie [key][query], so that the softmax of a panel needs no sum across
 * lanes: keys are the left factor, queries the right one.  Weights, rounded to bf16, are the right factor of values whose
 * columns are the rows of the left one, and results are turned last.  Task: a block of panels. */
#define T_MR 32
#define T_NV 2
#define T_FLUSHES 1
#include "t_kernel.h"

T_FN f32v t_decode_bf16(u16v x) {
    return (f32v)(T_CONV(x, u32) << 16u);
}

T_DEF_READS(bf16, f32, u16, uint16_t)

#include "t_bf16_amx.h"
#include "t_bf16_pack.h"

/* The arguments of the kernel, and where a task is. */
struct call {
    void *const *buf;
    int64_t i0;
};

enum { DEPTH = 16, DEEP = 32, WIDTH = 8, WIDE = 16, ROWS = 32, KEYS = 256, LANES = 16 };
#define Q_ROW 16
#define K_ROW 16
#define V_ROW 8
#define INF __builtin_inff()

/* This thread's scratch. */
struct workspace {
    uint32_t queries[512];
    uint32_t weights[4096];
    uint16_t keys[8192];
    uint16_t values[4096];
    float scores[8192];
    float block[1024];
    float turned[1024];
    float factor[32];
    float sums[512];
    float maximum[32];
    float total[32];
    float inverse[32];
};

/* A block of keys. */
struct block {
    int64_t key;
    int count;
};

/* A panel of queries on its way through the keys. */
struct panel {
    int64_t row;
    int count, first, last;  /* queries; whether the block of keys is the first, the last */
    const uint32_t *queries; /* two panels of words */
    float *maximum, *total;  /* of the scores and weights so far */
    float *sums;             /* of the weighted values so far, [WIDE][T_NR] */
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
/* 2^x for x <= 0 (and NaN), 0 from 2^-127 down: 2^(n + r), 2^r = 1 + r Q(r) on |r| <= 1/2, error 2^-13, as weights are rounded
 * to bf16. */
T_FN f32v weight_of(f32v x) {
    const f32v low = t_splat_f32(-127.0f), power = x;
    const f32v y = t_blend_f32_((i32v)(power < low), low, power);
    const f32v t = y + 0x1.8p23f;
    const f32v r = y - (t - 0x1.8p23f);
    f32v e = r * 5.5008258e-2f + 2.4220958e-1f;
    e = e * r + 6.9328285e-1f;
    e = e * r + 1.0f;
    return (f32v)((u32v)e + ((u32v)t << 23));
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

/* A panel's scores of key i, from lane v on, scaled and masked, as powers of 2. */
T_FN f32v score_of(const struct workspace *w, const struct block *s, const struct panel *q, int i, int v) {
    f32v x = t_load_f32(w->scores + i * T_NR + v) * 1.44269504088896341f;
    (void)s, (void)q;
    return x;
}

/* The largest score from lane v on, of even keys and of odd ones beside each other, as each waits for the one before. */
T_FN f32v largest_score(const struct workspace *w, const struct block *s, const struct panel *q, int v) {
    f32v even = t_splat_f32(-INF), odd = even;
    int i = 0;
    for (; i + 2 <= s->count; i += 2) {
        even = larger(score_of(w, s, q, i, v), even);
        odd = larger(score_of(w, s, q, i + 1, v), odd);
    }
    if (i < s->count) even = larger(score_of(w, s, q, i, v), even);
    return larger(even, odd);
}

/* Scores become weights 2^(score - maximum), of two keys to a word; the panel's maximum and sum are brought up to date.  What
 * is summed is what values are multiplied with. */
T_FN void exponentiate(struct workspace *w, const struct block *s, const struct panel *q, int v, f32v maximum) {
    const f32v old = t_load_f32(q->maximum + v), now = larger(maximum, old);
    /* Where nothing is seen yet all weights are 0, of -inf. */
    const f32v base = t_blend_f32_((i32v)(now == -INF), (f32v){0}, now);
    const f32v factor = weight_of(old - base);
    f32v even = t_load_f32(q->total + v) * factor, odd = {0};
    uint32_t *words = w->weights + v / 16 * (KEYS * 8) + v % 16;
    int i = 0;
    for (; i < s->count; i += 2) {
        const f32v first = weight_of(score_of(w, s, q, i, v) - base);
        const f32v second = i + 1 < s->count ? weight_of(score_of(w, s, q, i + 1, v) - base) : (f32v){0};
        const u32v word = t_bf16_pair(first, second);
        t_store_u32(words + i * 8, word);
        even += (f32v)(word << 16);
        odd += (f32v)(word & 0xffff0000);
    }
    for (; i % 32; i += 2) t_store_u32(words + i * 8, (u32v){0});
    t_store_f32(q->maximum + v, now);
    t_store_f32(w->factor + v, factor);
    t_store_f32(q->total + v, even + odd);
}

static void compute_weights(struct workspace *w, const struct block *s, const struct panel *q) {
    for (int i = 0; i < s->count; i += 32)
    t_bf16_tile(s->count - i, q->count, DEEP / 32, t_bf16_packed(w->keys + i * DEEP, DEEP),
        (struct t_bf16_panels){q->queries, DEEP * 8, q->queries, 0, 0, 0}, w->scores + i * T_NR);
    for (int v = 0; v < q->count; v += LANES) exponentiate(w, s, q, v, largest_score(w, s, q, v));
}

/* ---- weighted values ---- */

/* Adds the block's values, weighted, to the sums, or stores the result. */
static void weigh_values(const struct call *c, struct workspace *w, const struct block *s, const struct panel *q) {
    const int steps = (s->count + 31) / 32;
    for (int v = 0; q->last && v < T_NR; v += LANES) {
        const f32v total = t_load_f32(q->total + v), inverse = 1.0f / total;
        /* Without keys the result is 0; keys that are all hidden leave 0 / 0. */
        t_store_f32(w->inverse + v, s->key + s->count ? inverse : t_splat_f32(1));
    }
    for (int col = 0; col < WIDTH; col += 32) {
        const int columns = WIDE - col < 32 ? WIDE - col : 32;
        t_bf16_tile(columns, q->count, steps, t_bf16_packed(w->values + col * KEYS, KEYS),
            (struct t_bf16_panels){w->weights, KEYS * 8, w->weights, 0, 0, 0}, w->block);
        for (int j = 0; j < columns; j++)
        for (int v = 0; v < q->count; v += LANES) {
            float *sums = q->sums + (col + j) * T_NR + v, *block = w->block + j * T_NR + v;
            f32v acc = t_load_f32(block);
            if (!q->first) acc += t_load_f32(sums) * t_load_f32(w->factor + v);
            if (q->last) {
                const f32v inverse = t_load_f32(w->inverse + v);
                acc *= inverse;
            }
            t_store_f32(q->last ? block : sums, acc);
        }
        if (!q->last) continue;
        for (int j = 0; j < columns; j += LANES)
        for (int v = 0; v < q->count; v += LANES)
        transpose(w->block + j * T_NR + v, T_NR, 1, LANES, LANES, w->turned + v * T_NR + j);
        for (int r = 0; r < q->count; r++)
        for (int j = 0; j < columns && col + j < WIDTH; j += LANES)
        finish(c, q->row + r, col + j, t_load_f32(w->turned + r * T_NR + j), WIDTH - col - j);
    }
}

/* ---- blocks of keys ---- */

/* The block's keys and values as left factors. */
static void pack(const struct call *c, struct workspace *w, const struct block *s, const uint16_t *k, const uint16_t *v) {
    const int steps = (s->count + 31) / 32;
    (void)c;
    for (int i = 0; i < steps * 32; i++) {
        t_bf16_put(i < s->count ? k + i * K_ROW : NULL, DEPTH, 0, DEEP, i, w->keys);
        t_bf16_put(NULL, DEEP - DEPTH, DEPTH, DEEP, i, w->keys);
    }
    for (int col = 0; col < WIDE; col += 16)
    for (int i = 0; i < steps; i++)
    t_bf16_turn_columns(v + 32 * i * V_ROW + col, V_ROW, WIDTH - col, s->count - 32 * i,
        w->values + col * KEYS + i * 512);
}

/* All keys for n queries from `row` on; a single block of them may be packed already. */
static void run(const struct call *c, struct workspace *w, const uint16_t *q, const uint16_t *k, const uint16_t *v,
    int64_t row, int n, int packed) {
    const int64_t keys = 33, blocks = t_imax(1, (keys + KEYS - 1) / KEYS);
    const int64_t size = (keys + blocks * 32 - 1) / (blocks * 32) * 32;
    for (int r = 0; r < n; r += 16) t_bf16_turn_rows(q + (row + r) * Q_ROW, Q_ROW, n - r, DEPTH, w->queries + r * (DEEP / 2));
    for (int r = 0; r < n; r += LANES) {
        t_store_f32(w->maximum + r, t_splat_f32(-INF));
        t_store_f32(w->total + r, (f32v){0});
    }
    for (int64_t i = 0; i < blocks; i++) {
        const int64_t key = i * size;
        const struct block all = {key, (int)t_imin(size, keys - key)};
        if (!packed || blocks > 1) pack(c, w, &all, k + key * K_ROW, v + key * V_ROW);
        for (int r = 0; r < n; r += T_NR) {
            struct panel to = {.row = row + r, .count = n - r < T_NR ? n - r : T_NR, .first = key == 0,
                .queries = w->queries + r * (DEEP / 2), .maximum = w->maximum + r, .total = w->total + r,
                .sums = w->sums + r * WIDE};
            struct block s = all;
            to.last = key + s.count >= keys;
            compute_weights(w, &s, &to);
            weigh_values(c, w, &s, &to);
        }
    }
}

/* ---- tasks ---- */
void k5878b28e2e97(void *const *buf, const int64_t *dim, void *scratch, int64_t begin, int64_t end) {
    struct call at = {.buf = buf}, *c = &at;
    (void)dim;
    const int64_t queries = 9, panels = (queries + T_NR - 1) / T_NR;
    const int64_t blocks = (queries + ROWS - 1) / ROWS;
    t_bf16_open();
    const uint16_t *keys = NULL, *values = NULL; /* of the task before */
    for (int64_t task = begin; task < end; task++) {
        const int64_t block = task % blocks, row = t_cut(panels, blocks, block) * T_NR;
        const int64_t stop = t_imin(t_cut(panels, blocks, block + 1) * T_NR, queries);
        const int64_t point = task / blocks;
        c->i0 = point;
        const uint16_t *q = (const uint16_t *)buf[0] + 144 * c->i0;
        const uint16_t *k = (const uint16_t *)buf[1] + 528 * c->i0;
        const uint16_t *v = (const uint16_t *)buf[2] + 264 * c->i0;
        run(c, scratch, q, k, v, row, (int)(stop - row), k == keys && v == values);
        keys = k, values = v;
    }
    t_bf16_close();
}
