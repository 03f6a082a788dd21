/* The steps of a recurrent network.  What the gates get from the input is there already, [T][N][D][COLUMNS]; a
 * step adds what they get from the state, a product with weights in panels, and computes the cells.
 * Task: a direction by a block of rows of the batch. */
#define T_MR 2
#define T_NV 4
#define T_FEWEST 2
#define T_MOST 2
#define T_FEW_TYPES
#include "t_tile.h"

T_FN f32v t_sigmoid_f32(f32v x) {
    const i32v v0 = (i32v)(x < -104.5f);
    const f32v v1 = t_blend_f32_(v0, t_splat_f32(-104.5f), x);
    const i32v v2 = (i32v)(v1 > 40.0f);
    const f32v v3 = -t_blend_f32_(v2, t_splat_f32(40.0f), v1);
    const f32v v4 = v3 * 1.442695f + 12582912.0f - 12582912.0f;
    const f32v v5 = v3 - v4 * 0.6933594f - v4 * -0.00021219444f;
    const f32v v6 = v5 * (v5 * (v5 * 0.0013818939f + 0.008368704f) + 0.04166829f);
    const f32v v7 = v5 * (v5 * (v5 * (v6 + 0.16666521f) + 0.49999994f) + 1.0f) + 1.0f;
    return 5.421011e-20f / (t_scale_f32(v7, v4 - 64.0f) + 5.421011e-20f);
}

T_FN f32v t_tanh_f32(f32v x) {
    const f32v v0 = t_abs_f32(x);
    const i32v v1 = (i32v)(v0 > 10.0f);
    const f32v v2 = t_blend_f32_(v1, t_splat_f32(10.0f), v0);
    const f32v v3 = v2 * 2.88539f + 12583039.0f;
    const f32v v4 = (f32v)((u32v)v3 << 23u);
    const f32v v5 = v2 - (v3 - 12583039.0f) * 0.3465736f;
    const f32v v6 = v5 * v5;
    const f32v v7 = (v6 * 0.044220604f + (v5 * 0.13389926f + 0.3333463f)) * v6 + (v5 * 0.66666085f + 0.9999999f);
    const f32v v8 = v4 * (v5 + v7 * v6) + (v4 * 0.5f - 0.5f);
    return (f32v)((u32v)(v8 / (v8 + 1.0f)) | ((u32v)x & 0x80000000u));
}

/* The arguments of the kernel, and where a task is. */
struct call {
    void *const *buf;
};

#define TIME 6
#define BATCH 2
enum { HIDDEN = 5, WIDE = 16, ROWS = 2, COLUMNS = 64, DIRECTIONS = 1 };

/* A task on its way through time: arrays [ROWS][WIDE] of the state, and where each row is (-1: at its end). */
struct run {
    float *h;
    float *next;
    float *c;
    int64_t n0, step; /* the first row; the number of the step */
    int count;
    int64_t at[ROWS];
};

/* ---- lengths and states ---- */
/* Stores a vector of the state at position t. */
T_FN void put(const struct call *c, int64_t t, int64_t n, int64_t unit, f32v y, int64_t count) {
    float *b1 = c->buf[1];
    (void)t, (void)n, (void)unit, (void)count;
    if (count >= 16) {
        t_store_f32(b1 + 5 * n + 10 * t + unit, y);
    } else {
        t_storen_f32(b1 + 5 * n + 10 * t + unit, y, count);
    }
}

/* Cells of `rows` rows from r0 on and the units of panel p; sums are what their gates get from the state. */
static void cells_0(const struct call *c, struct run *w, int rows, int r0, int p, const float *sums) {
    const float *gates = (const float *)c->buf[2] + p * T_NR;
    for (int r = 0; r < rows; r++) {
        const int64_t t = w->at[r0 + r], n = w->n0 + r0 + r;
        const float *x = gates + (t * BATCH + n) * (DIRECTIONS * COLUMNS);
        const int64_t unit = p * 16, place = (r0 + r) * WIDE + unit;
        if (unit >= HIDDEN) continue;
        const f32v x0 = t_load_f32(x), r0 = t_load_f32(sums + r * T_NR);
        const f32v x1 = t_load_f32(x + 16), r1 = t_load_f32(sums + r * T_NR + 16);
        const f32v x2 = t_load_f32(x + 32), r2 = t_load_f32(sums + r * T_NR + 32);
        const f32v x3 = t_load_f32(x + 48), r3 = t_load_f32(sums + r * T_NR + 48);
        const f32v old_c = t_load_f32(w->c + place);
        const f32v new_c_0 = (t_sigmoid_f32((x2 + r2)) * old_c) + (t_sigmoid_f32((x0 + r0)) * t_tanh_f32((x3 + r3)));
        const f32v new_c = new_c_0;
        t_store_f32(w->c + place, new_c);
        const f32v new_next_0 = t_sigmoid_f32((x1 + r1)) * t_tanh_f32(new_c);
        const f32v new_next = new_next_0;
        t_store_f32(w->next + place, new_next);
        put(c, t, n, unit, new_next, HIDDEN - unit);
    }
}

/* `rows` rows from r0 on by panel p. */
T_FN void tile_0(const struct call *c, struct run *w, const int rows, int r0, int p) {
    const float *weights = (const float *)c->buf[0] + p * (HIDDEN * T_NR);
    const float *row[T_MR];
    f32v acc[T_MR][T_NV];
    float sums[T_MR * T_NR];
    T_UNROLL for (int r = 0; r < rows; r++) row[r] = w->h + (r0 + r) * WIDE;
    t_tile_open(rows, T_NV, NULL, acc);
    t_tile_fma(rows, T_NV, HIDDEN, row, weights, T_NOTHING_AHEAD, acc);
    t_tile_park(rows, T_NV, sums, acc);
    cells_0(c, w, rows, r0, p, sums);
}

static void phase_0(const struct call *c, struct run *w) {
    const int tiles = (w->count + T_MR - 1) / T_MR;
    for (int t = 0; t < tiles; t++) {
        const int r0 = (int)t_cut(w->count, tiles, t), rows = (int)t_cut(w->count, tiles, t + 1) - r0;
        (void)rows;
        tile_0(c, w, 2, r0, 0);
    }
}

/* ---- tasks ---- */
/* The state at the start. */
static void begin_run(const struct call *c, struct run *w) {
    (void)c;
    for (int r = 0; r < w->count; r++)
    for (int64_t unit = 0; unit < WIDE; unit += 16) {
        t_store_f32(w->h + r * WIDE + unit, (f32v){0});
        t_store_f32(w->c + r * WIDE + unit, (f32v){0});
        t_store_f32(w->next + r * WIDE + unit, (f32v){0});
    }
}

void k8299da795250(void *const *buf, const int64_t *dim, void *scratch, int64_t begin, int64_t end) {
    struct call at = {.buf = buf}, *c = &at;
    (void)dim;
    const int64_t blocks = (BATCH + ROWS - 1) / ROWS;
    for (int64_t task = begin; task < end; task++) {
        const int64_t block = task % blocks, first = t_cut(BATCH, blocks, block);
        struct run run = {.n0 = first, .count = (int)(t_cut(BATCH, blocks, block + 1) - first)}, *w = &run;
        float *memory = scratch;
        w->h = memory;
        w->next = memory + 32;
        w->c = memory + 64;
        const int backward = 0;
        begin_run(c, w);
        for (w->step = 0; w->step < TIME; w->step++) {
            for (int r = 0; r < w->count; r++) {
                const int64_t length = TIME;
                w->at[r] = w->step >= length ? -1 : backward ? length - 1 - w->step : w->step;
            }
            phase_0(c, w);
            float *h = w->h;
            w->h = w->next;
            w->next = h;
        }
    }
}
