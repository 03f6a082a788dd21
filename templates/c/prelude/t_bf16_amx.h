/* Products of bf16 by tiles of 16 x 16 sums, or of fewer rows, as processors with AMX-BF16 have them; compiled for others,
 * the same sums in plain C.
 *
 * The left factor is packed in tiles [16][32], one after the other along k, and these along the rows; the right one is in
 * panels of 16 words of two k.  A step adds 32 terms to each sum: those of even k and those of odd k apart, each by fused
 * multiply-adds in order, and these two then joined.  All of it is f32, rounded to nearest even; numbers below 2^-126,
 * read or made, are zeros of their sign.
 */
#ifndef T_HALF_TILES_H
#define T_HALF_TILES_H

#include "t_tile.h"

#ifndef T_STEP_WORDS
#define T_STEP_WORDS 16 /* of two k, that a step takes */
#endif
#define T_STEP (16 * T_STEP_WORDS) /* words of a panel */
#ifndef T_TILE_ROWS
#define T_TILE_ROWS 16 /* of a left factor, and of sums */
#endif
#define T_BELOW (T_TILE_ROWS * T_NR) /* sums of a tile's rows */

/* Rows of a left factor: elements from a row to the next, from 32 k to the next, and from a tile to that below it.  Of a
 * convolution each of the taps reads such rows, from its place on: a step of all taps, whose rows are much the same, before
 * the next. */
struct t_bf16_rows {
    const uint16_t *at;
    int64_t row, step, below;
    int taps;
    const int32_t *places;
};

/* Rows in tiles. */
T_FN struct t_bf16_rows t_bf16_packed(const uint16_t *at, int64_t depth) {
    return (struct t_bf16_rows){at, 32, 512, 16 * depth, 1, NULL};
}

/* Two panels of a right factor, and where the two lie that are multiplied next, whose lines are asked for meanwhile, as memory
 * that is read where it is needed comes at half its rate or less: from line `line` of each on, `rate` lines a step, both
 * times 65,536; and as many from `half` words behind these on, where that is not 0.  Lines are asked for in their order in
 * memory, which the processor reads ahead in, and of several places at once faster than of one. */
struct t_bf16_panels {
    const uint32_t *at;
    int64_t panel;
    const uint32_t *next;
    int64_t line, rate, half;
};

/* Weights are asked for into the first cache, though it drops most of them again: that takes 7 % less time than to ask for them into
 * the second cache alone. A kernel whose weights stay in the first cache for several tiles says T_PANELS_FAR. */
#ifndef T_PANELS_FAR
#define T_PANELS_FAR 0
#endif

/* The lines of some steps. */
T_FN void t_bf16_ahead(struct t_bf16_panels *b, int64_t steps) {
    b->line = t_panels_ahead(T_PANELS_FAR, b->next, b->panel, b->half, b->line, b->rate * steps);
}

#ifdef __AMX_BF16__
#include "t_amx.h"

/* Tiles 0 to 3 are sums, two by two; 4 and 5 of the left factor, 6 and 7 of the right one. */
T_FN void t_bf16_open(void) {
    struct {
        uint8_t palette, start, reserved[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } tiles = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        tiles.bytes[i] = i / 2 == 2 ? 4 * T_STEP_WORDS : 64;
        tiles.rows[i] = i / 2 == 3 ? T_STEP_WORDS : T_TILE_ROWS;
    }
    T_AMX_CONFIGURE(&tiles);
}

/* A tile that is left in use makes every switch of threads slower. */
T_FN void t_bf16_close(void) { T_AMX_RELEASE(); }

/* Stores sums that are not whole after some steps: on Xeons with tiles a store that comes 0.7 us after the last one or later
 * holds up what follows for 0.25 us. */
T_FN void t_bf16_stay_awake_(int step, float *sums) {
    if (step % 8 == 3 && step > 3) T_AMX_STORE(0, sums, T_NR * (int)sizeof(float));
}

/* sums[T_NR] rows of `down` x `across` tiles: sums of `steps` times 32 terms, of each tap. */
T_FN void t_bf16_sums(const int down, const int across, int steps, struct t_bf16_rows a, struct t_bf16_panels b,
                      float *sums) {
    const int row = T_NR * (int)sizeof(float);
    T_AMX_ZERO(0);
    if (across > 1) T_AMX_ZERO(1);
    if (down > 1) T_AMX_ZERO(2);
    if (down > 1 && across > 1) T_AMX_ZERO(3);
    for (int i = 0; i < steps; i++, a.at += a.step) {
        for (int t = 0; t < a.taps; t++, b.at += T_STEP) {
            const uint16_t *from = a.at + (a.places ? a.places[t] : 0);
            t_bf16_ahead(&b, 1);
            T_AMX_LOAD(6, b.at, 64);
            T_AMX_SPACE();
            if (across > 1) T_AMX_LOAD(7, b.at + b.panel, 64);
            T_AMX_SPACE();
            T_AMX_LOAD(4, from, a.row * 2);
            T_AMX_SPACE();
            if (down > 1) T_AMX_LOAD(5, from + a.below, a.row * 2);
            T_AMX_SPACE();
            T_AMX_DOT_BF16(0, 4, 6);
            T_AMX_SPACE();
            if (down > 1) T_AMX_DOT_BF16(2, 5, 6);
            T_AMX_SPACE();
            if (across > 1) T_AMX_DOT_BF16(1, 4, 7);
            T_AMX_SPACE();
            if (down > 1 && across > 1) T_AMX_DOT_BF16(3, 5, 7);
            T_AMX_SPACE();
            t_bf16_stay_awake_(i * a.taps + t, sums);
        }
    }
    T_AMX_STORE(0, sums, row);
    if (across > 1) T_AMX_STORE(1, sums + 16, row);
    if (down > 1) T_AMX_STORE(2, sums + T_BELOW, row);
    if (down > 1 && across > 1) T_AMX_STORE(3, sums + T_BELOW + 16, row);
}
/* A factor that is read again for the next tile is to stay in the first cache, where it has room; what passes that cache by
 * comes from the second one at a higher rate. */
#ifdef T_KEEP_ROWS
#define T_LOAD_ROWS T_AMX_LOAD
#else
#define T_LOAD_ROWS T_AMX_STREAM
#endif
#ifdef T_KEEP_WEIGHTS
#define T_LOAD_WEIGHTS T_AMX_LOAD
#else
#define T_LOAD_WEIGHTS T_AMX_STREAM
#endif

/* The same in parts, of all steps of all taps those from `from` up to `to`: the sums stay in their tiles, from `start` on, or 0
 * where that is NULL. In the first step what these held before goes to `before`, a tile behind each product, as four stores at
 * once hold up the loads behind them; `held` is where there are no tiles. */
T_FN void t_bf16_part(const int down, const int across, int from, int to, struct t_bf16_rows a, struct t_bf16_panels b,
                      const float *start, float *held, float *before) {
    const int row = T_NR * (int)sizeof(float);
    int tap = from % a.taps;
    (void)held;
    a.at += from / a.taps * a.step;
    b.at += from * T_STEP;
    b.line += from * b.rate;
    for (int i = from; i < to; i++, b.at += T_STEP) {
        const int first = i == 0;
        const uint16_t *rows = a.at + (a.places ? a.places[tap] : 0);
        T_LOAD_WEIGHTS(6, b.at, 64);
        T_AMX_SPACE();
        if (across > 1) T_LOAD_WEIGHTS(7, b.at + b.panel, 64);
        T_AMX_SPACE();
        T_LOAD_ROWS(4, rows, a.row * 2);
        T_AMX_SPACE();
        if (down > 1) T_LOAD_ROWS(5, rows + a.below, a.row * 2);
        T_AMX_SPACE();
        if (first) {
            T_AMX_STORE(0, before, row);
            if (start) T_AMX_LOAD(0, start, row);
            else T_AMX_ZERO(0);
        }
        T_AMX_DOT_BF16(0, 4, 6);
        T_AMX_SPACE();
        if (first) {
            T_AMX_STORE(2, before + T_BELOW, row);
            if (start) T_AMX_LOAD(2, start + T_BELOW, row);
            else T_AMX_ZERO(2);
        }
        if (down > 1) T_AMX_DOT_BF16(2, 5, 6);
        T_AMX_SPACE();
        if (first) {
            T_AMX_STORE(1, before + 16, row);
            if (start) T_AMX_LOAD(1, start + 16, row);
            else T_AMX_ZERO(1);
        }
        if (across > 1) T_AMX_DOT_BF16(1, 4, 7);
        T_AMX_SPACE();
        if (first) {
            T_AMX_STORE(3, before + T_BELOW + 16, row);
            if (start) T_AMX_LOAD(3, start + T_BELOW + 16, row);
            else T_AMX_ZERO(3);
        }
        if (down > 1 && across > 1) T_AMX_DOT_BF16(3, 5, 7);
        T_AMX_SPACE();
        t_bf16_ahead(&b, 1);
        if (++tap == a.taps) tap = 0, a.at += a.step;
    }
}

/* What the tiles hold. */
T_FN void t_bf16_last(const float *held, float *sums) {
    const int row = T_NR * (int)sizeof(float);
    (void)held;
    T_AMX_STORE(0, sums, row);
    T_AMX_STORE(1, sums + 16, row);
    T_AMX_STORE(2, sums + T_BELOW, row);
    T_AMX_STORE(3, sums + T_BELOW + 16, row);
}
#else
T_FN void t_bf16_open(void) {}
T_FN void t_bf16_close(void) {}

/* Numbers below 2^-126 as zeros. */
T_FN f32v t_flush_(f32v x) {
    const u32v w = (u32v)x;
    return (f32v)(w & ((u32v)((w & 0x7f800000) != 0) | 0x80000000));
}

/* L sums of a row: 32 terms each. */
T_FN f32v t_bf16_step_(f32v acc, const uint16_t *a, const uint32_t *b) {
    f32v even = {0}, odd = {0};
    for (int i = 0; i < T_STEP_WORDS; i++) {
        const u32v w = t_load_u32(b + 16 * i);
        const f32v x = t_flush_(t_splat_bf16(a + 2 * i)), y = t_flush_(t_splat_bf16(a + 2 * i + 1));
        even = t_flush_(even + x * t_flush_((f32v)(w << 16)));
        odd = t_flush_(odd + y * t_flush_((f32v)(w & 0xffff0000)));
    }
    return t_flush_(acc + t_flush_(even + odd));
}

static __attribute__((noinline, unused)) void t_bf16_sums(int down, int across, int steps, struct t_bf16_rows a,
                                                          struct t_bf16_panels b, float *sums) {
    for (int r = 0; r < T_TILE_ROWS * down; r++)
        for (int n = 0; n < 16 * across; n += TORSHC_LANES) {
            const uint16_t *from = a.at + r / T_TILE_ROWS * a.below + r % T_TILE_ROWS * a.row;
            const uint32_t *by = b.at + n / 16 * b.panel + n % 16;
            f32v acc = {0};
            for (int i = 0; i < steps; i++)
                for (int t = 0; t < a.taps; t++, by += T_STEP)
                    acc = t_bf16_step_(acc, from + (a.places ? a.places[t] : 0) + i * a.step, by);
            t_store_f32(sums + r * T_NR + n, acc);
        }
}
static __attribute__((noinline, unused)) void t_bf16_part(int down, int across, int from, int to, struct t_bf16_rows a,
                                                          struct t_bf16_panels b, const float *start, float *held,
                                                          float *before) {
    if (from == 0) {
        __builtin_memcpy(before, held, sizeof(float) * 2 * T_BELOW);
        if (start) __builtin_memcpy(held, start, sizeof(float) * 2 * T_BELOW);
        else __builtin_memset(held, 0, sizeof(float) * 2 * T_BELOW);
    }
    for (int r = 0; r < T_TILE_ROWS * down; r++)
        for (int n = 0; n < 16 * across; n += TORSHC_LANES) {
            const uint16_t *by_row = a.at + r / T_TILE_ROWS * a.below + r % T_TILE_ROWS * a.row;
            const uint32_t *by = b.at + n / 16 * b.panel + n % 16;
            f32v acc = t_load_f32(held + r * T_NR + n);
            for (int i = from; i < to; i++)
                acc = t_bf16_step_(acc, by_row + i / a.taps * a.step + (a.places ? a.places[i % a.taps] : 0), by + i * T_STEP);
            t_store_f32(held + r * T_NR + n, acc);
        }
}

T_FN void t_bf16_last(const float *held, float *sums) { __builtin_memcpy(sums, held, sizeof(float) * 2 * T_BELOW); }
#endif

/* The same for up to 32 rows and columns: whole tiles of them. */
static __attribute__((unused)) void t_bf16_tile(int64_t rows, int64_t columns, int steps, struct t_bf16_rows a,
                                                struct t_bf16_panels b, float *sums) {
    if (rows <= T_TILE_ROWS && columns <= 16) t_bf16_sums(1, 1, steps, a, b, sums);
    else if (rows <= T_TILE_ROWS) t_bf16_sums(1, 2, steps, a, b, sums);
    else if (columns <= 16) t_bf16_sums(2, 1, steps, a, b, sums);
    else t_bf16_sums(2, 2, steps, a, b, sums);
}

static __attribute__((unused)) void t_bf16_tile_part(int64_t rows, int64_t columns, int from, int to, struct t_bf16_rows a,
                                                     struct t_bf16_panels b, const float *start, float *held, float *before) {
    if (rows <= T_TILE_ROWS && columns <= 16) t_bf16_part(1, 1, from, to, a, b, start, held, before);
    else if (rows <= T_TILE_ROWS) t_bf16_part(1, 2, from, to, a, b, start, held, before);
    else if (columns <= 16) t_bf16_part(2, 1, from, to, a, b, start, held, before);
    else t_bf16_part(2, 2, from, to, a, b, start, held, before);
}

/* Elements of row `row` of a block of rows into its tiles, from place `at` of its `depth` on; zeros where there are none. */
T_FN void t_bf16_put(const uint16_t *a, int count, int at, int depth, int64_t row, uint16_t *out) {
    out += row / 16 * 16 * depth + row % 16 * 32;
    for (int i = 0, some; i < count; i += some) {
        uint16_t *to = out + (at + i) / 32 * 512 + (at + i) % 32;
        some = (int)t_imin(32 - (at + i) % 32, count - i);
        if (a && some == 32) __builtin_memcpy(to, a + i, 64);
        else
            for (int j = 0; j < some; j++) to[j] = a ? a[i + j] : 0;
    }
}

#endif
