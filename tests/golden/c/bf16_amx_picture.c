/* A convolution of bf16, summed in f32 by tiles, whose left factor is an image: a task copies the rows that it needs with
 * their margins, pixels apart by the stride in a plane each, so that for every tap neighbouring pixels of the result read
 * rows at equal distances.  Pixels are counted along these wider rows; those behind an image's edge are not stored.
 * A pixel of the picture has 4 halves, and a tap reads those of a row of the kernel.
 * Weights in panels [ceil(OC / 16)][steps][taps][words of a step][16], words of two channels.
 * Task: a part of the tiles of a block of output rows of an image by a block of channels. */
#define T_MR 24
#define T_NV 2
#define T_TILE_ROWS 12
#define T_STEP_WORDS 6
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
};

#define N 32
#define IC 3
#define IH 12
#define IW 12
#define OH 6
#define OW 6
#define TAPS 3
#define STEPS 1 /* of a tap */
#define PANEL 512 /* words */
#define GROUPS 1
#define WIDE 7  /* pixels of the result that a row of a plane has room for */
#define ACROSS WIDE /* pixels that are counted of a row */
#define UNIT 8  /* elements from one to the next */
#define PLANE 596 /* elements */
#define X_IMAGE 432
#define X_ROW 12
#define X_PIXEL 1
#define X_CHANNEL 144

/* ---- epilogue ---- */
/* Stores one vector of pixel m from channel n on. */
T_FN void finish(const struct call *c, int64_t m, int64_t n, f32v acc, int64_t count) {
    (void)m, (void)n;
    const int64_t w0 = m;
    const float *b2 = c->buf[2];
    float *b3 = c->buf[3];
    (void)c, (void)count;
    const f32v v0 = acc + t_load_f32(b2 + n);
    t_store_f32(b3 + n + 32 * w0, v0);
}

/* The epilogue of `rows` pixels from `at` of a block on, whose first is pixel m of the result. */
static __attribute__((noinline)) void finish_tile(const struct call *from, int64_t m, int64_t at, int64_t rows, int64_t n,
    const float *sums) {
    void *const buf[] = {from->buf[0], from->buf[1], from->buf[2], from->buf[3]};
    struct call own = *from, *c = &own;
    own.buf = buf;
    for (int64_t r = 0, some; r < rows; r += some, at += some) {
        const int64_t y = at / ACROSS, x = at % ACROSS, end = r + t_imin(OW - x, rows - r); /* of pixels that are not behind the edge */
        const int64_t first = m + y * OW + x - r;
        some = t_imin(ACROSS - x, rows - r);
        if (n + T_NR <= N)
        for (int64_t i = r; i < end; i++)
        T_UNROLL for (int v = 0; v < T_NV; v++)
        finish(c, first + i, n + v * 16, t_load_f32(sums + i * T_NR + v * 16), 16);
        else
        for (int64_t i = r; i < end; i++)
        for (int v = 0; v < T_NV && n + v * 16 < N; v++)
        finish(c, first + i, n + v * 16, t_load_f32(sums + i * T_NR + v * 16), N - n - v * 16);
    }
}

#define BETWEEN 4 /* steps of a pair of tiles between which some pixels of the one before are finished */
#define MADE T_MR /* pixels of a pair */

/* Pixels of a block by a group of channels, as above, whose sums are made, and how many of them are finished. */
struct part {
    int64_t m, at, n;
    int rows, done;
};

static void finish_pixels(const struct call *c, struct part *part, int to, const float *sums) {
    const int rows = (int)t_imin(to, part->rows) - part->done;
    if (rows <= 0) return;
    finish_tile(c, part->m, part->at + part->done, rows, part->n, sums + part->done * T_NR);
    part->done += rows;
}

/* Makes the sums of a pair of tiles, and finishes the pixels of the one before meanwhile. */
static void multiply(const struct call *c, struct part *before, struct part now, struct t_bf16_rows a, struct t_bf16_panels b,
    float *held, float *sums) {
    for (int i = 0; i < STEPS * TAPS; i += BETWEEN) {
        t_bf16_tile_part(now.rows, N - now.n, i, (int)t_imin(i + BETWEEN, STEPS * TAPS), a, b, NULL, held, sums);
        finish_pixels(c, before, ((i + BETWEEN) * MADE + STEPS * TAPS - 1) / (STEPS * TAPS), sums);
    }
    (*before) = now;
}

/* ---- images ---- */
/* Pixels of a plane: input rows and columns from the first that a tap of output pixel 0 may read. */
static const struct plane {
    int h, w;
} planes[] = {{0, 0}, {1, 0}};

/* Where a tap reads. */
static const int32_t places[TAPS] = {0, 596, 56};

/* Pixels of a row of the picture, 4 halves each. */
static void copy_pixels(const struct call *c, const uint16_t *row, int64_t count, uint16_t *out) {
    (void)c;
    int64_t i = 0;
    for (; i + 16 <= count; i += 16) {
        const u32v c0 = T_CONV(t_load_u16(row + i), u32);
        const u32v c1 = T_CONV(t_load_u16(row + i + X_CHANNEL), u32);
        const u32v c2 = T_CONV(t_load_u16(row + i + 2 * X_CHANNEL), u32);
        const u32v low = c0 | c1 << 16, high = c2;
        t_store_u32(out + 4 * i, T_SHUFFLE(low, high, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23));
        t_store_u32(out + 4 * i + 32, T_SHUFFLE(low, high, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31));
    }
    for (; i < count; i++)
    for (int j = 0; j < 4; j++) out[4 * i + j] = j < IC ? row[i + j * X_CHANNEL] : 0;
}

/* Rows of each plane from `from` up to `to`, of those that output rows from h on need. */
static void copy(const struct call *c, const uint16_t *image, int64_t h, int64_t from, int64_t to, uint16_t *all) {
    (void)c;
    for (int p = 0; p < 2; p++)
    for (int64_t y = from; y < to; y++) {
        const int64_t ih = (h + y) * 2 + planes[p].h - 1;
        uint16_t *out = all + p * PLANE + y * (WIDE * UNIT);
        const int64_t all = WIDE * 2, left = t_imin(1, all), count = t_imin(IW, all - left);
        if (ih < 0 || ih >= IH) {
            __builtin_memset(out, 0, 2 * WIDE * UNIT);
            continue;
        }
        __builtin_memset(out, 0, (size_t)left * 8);
        copy_pixels(c, image + ih * X_ROW, count, out + left * 4);
        __builtin_memset(out + (left + count) * 4, 0, (size_t)(all - left - count) * 8);
    }
}

/* What two tiles of pixels read, from pixel `at` of a block on. */
T_FN struct t_bf16_rows rows_at(const struct call *c, const uint16_t *all, int64_t at) {
    (void)c;
    return (struct t_bf16_rows){all + at * UNIT, UNIT, 2 * T_STEP_WORDS, T_TILE_ROWS * UNIT, TAPS, places};
}

/* ---- tasks ---- */
void ke7b67f02d3b5(void *const *buf, const int64_t *dim, void *scratch, int64_t begin, int64_t end) {
    struct call at = {.buf = buf}, *c = &at;
    (void)dim;
    const int64_t h_blocks = 1, n_blocks = 1;
    const int64_t parts = 1;
    int64_t copied = -1, low = 0, high = 0; /* block of which scratch holds some rows of planes */
    _Alignas(64) float sums[T_MR * T_NR], held[T_MR * T_NR] = {0};
    struct part before = {.rows = 0};
    t_bf16_open();
    for (int64_t task = begin; task < end; task++) {
        const int64_t nb = task % n_blocks, part = task / n_blocks % parts, block = task / (n_blocks * parts);
        const int64_t image = block / h_blocks;
        const int64_t h0 = t_cut(OH, h_blocks, block % h_blocks), h1 = t_cut(OH, h_blocks, block % h_blocks + 1);
        const int64_t pixels = (h1 - h0 - 1) * ACROSS + OW, all = (pixels + T_MR - 1) / T_MR;
        const int64_t p0 = t_cut(GROUPS, n_blocks, nb), p1 = t_cut(GROUPS, n_blocks, nb + 1);
        const int64_t t0 = t_cut(all, parts, part), t1 = t_cut(all, parts, part + 1);
        const int64_t y0 = t0 * T_MR / ACROSS, y1 = (t_imin(t1 * T_MR, pixels) - 1) / ACROSS + 1 + 1;
        const uint16_t *x = buf[0];
        const uint32_t *b = buf[1];
        if (task == begin) t_bf16_ahead(&(struct t_bf16_panels){NULL, PANEL, b + p0 * 2 * PANEL, 0, PANEL / 32 << 16, PANEL / 2}, 1);
        if (t0 == t1) continue;
        if (block != copied) copied = block, low = high = y0;
        if (y1 > high) copy(c, x + image * X_IMAGE, h0, high, y1, scratch), high = y1;
        if (y0 < low) copy(c, x + image * X_IMAGE, h0, y0, low, scratch), low = y0;
        const int64_t ahead = task - begin < n_blocks ? t0 : -1; /* the first tile of rows of a call asks for weights */
        for (int64_t t = t0; t < t1; t++)
        for (int64_t p = p0; p < p1; p++) {
            const int64_t rate = t == ahead && p + 1 < GROUPS ? T_STEP_WORDS << 15 : 0; /* of lines of halves of the next group */
            const struct t_bf16_panels panels = {b + p * 2 * PANEL, PANEL, b + (p + 1) * 2 * PANEL, 0, rate, PANEL / 2};
            const int64_t at = t * T_MR, rows = t_imin(T_MR, pixels - at);
            const struct t_bf16_rows a = rows_at(c, scratch, at);
            const int64_t m = (image * OH + h0) * OW;
            multiply(c, &before, (struct part){m, at, p * T_NR, (int)rows, 0}, a, panels, held, sums);

        }
    }
    t_bf16_last(held, sums);
    finish_pixels(c, &before, MADE, sums);
    t_bf16_close();
}
