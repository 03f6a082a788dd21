/* Channels-last transposed convolution without a copy of the image: output pixels are the rows of a product, and a
 * table of pointers (tap by pixel), made once for a block of pixels, says where each tap of each pixel reads.  Taps in
 * the margin read zeros.
 * A pixel sums only the taps that reach it, which are those of its phase: (row % 1, column % 2).
 * Weights: [panel of T_NR channels][tap, by phases][DEPTH][T_NR].
 * Task: a block of pixels of a phase by a block of panels; phases of the same pixels follow each other, as they read the same. */
#define T_MR 8
#define T_NV 1
#define T_FEW_TYPES
#include "t_tile.h"

#include <string.h>

/* The arguments of the kernel, and where a task is. */
struct call {
    void *const *buf;
    int64_t row0, column0, rows, columns;
};

#define OH 7
#define OW 14
#define IH 7
#define IW 7
#define OC 8
#define IC 16
#define DEPTH 16
#define X_IMAGE 784
#define X_ROW 112
#define X_PIXEL 16
#define TAPS 2
#define PANELS 1
#define ROWS c->rows
#define COLUMNS c->columns
#define PIXELS (ROWS * COLUMNS)
#define TILES ((PIXELS + T_MR - 1) / T_MR)

/* ---- epilogue ---- */
/* Stores one vector of the pixel in row m, from channel n on. */
T_FN void finish(const struct call *c, int64_t m, int64_t n, f32v acc, int64_t count) {
    (void)m, (void)n;
    const int64_t ow = m % COLUMNS * 2 + c->column0, image = m / (COLUMNS * ROWS);
    const int64_t oh = m / COLUMNS % ROWS + c->row0;
    (void)ow, (void)image, (void)oh;
    float *b2 = c->buf[2];
    (void)c, (void)count;
    if (count >= 16) {
        t_store_f32(b2 + n + 112 * oh + 8 * ow, acc);
    } else {
        t_storen_f32(b2 + n + 112 * oh + 8 * ow, acc, count);
    }
}

/* ---- where taps read ---- */
/* Where a tap reads: input rows and columns from that of a pixel. */
struct tap {
    int h, w;
};
static const struct tap taps0[] = {{0, 0}};
static const struct tap taps1[] = {{0, 0}};
static const struct {
    int row, column; /* the first output pixel */
    int taps;
    const struct tap *tap;
    int64_t weights; /* offset in a panel */
} phases[] = {
    {0, 0, 1, taps0, 0},
    {0, 1, 1, taps1, 256},
};

/* table[tap][pixel] for the pixels from m0 up to m1, a stretch of an output row after the other. */
static void fill_table(const struct call *c, const float **table, int64_t tap_stride, const float *x,
    const float *zero, const struct tap *tap, int taps, int64_t m0, int64_t m1) {
    int64_t w = m0 % COLUMNS, h = m0 / COLUMNS % ROWS;
    const float *image = x + m0 / (COLUMNS * ROWS) * X_IMAGE;
    (void)c;
    for (int64_t m = m0, count; m < m1; m += count, table += count) {
        count = t_imin(COLUMNS - w, m1 - m);
        for (int t = 0; t < taps; t++) {
            const int64_t ih = h + tap[t].h, iw = w + tap[t].w;
            const int64_t width = ih >= 0 && ih < IH ? IW : 0;
            const int64_t first = ih * X_ROW + iw * X_PIXEL;
            const float **to = table + t * tap_stride;
            for (int64_t i = 0; i < count; i++) {
                const int64_t at = iw + i;
                to[i] = at >= 0 && at < width ? image + (first + i * X_PIXEL) : zero;
            }
        }
        w = 0;
        if (++h < ROWS) continue;
        h = 0;
        image += X_IMAGE;
    }
}

/* ---- tiles ---- */
struct step {
    const float *const *row; /* table at the tile's first pixel and tap */
    int64_t tap_stride;      /* from a tap to the next there */
    const float *b; /* panel at the first tap and channel */
    int64_t channel0;        /* the first input channel */
    int taps, channels;
};

T_FN void tile(const struct call *c, const int rows, const int vecs, int64_t m, int64_t n, struct step s) {
    f32v acc[T_MR][T_NV];
    t_tile_open(rows, vecs, NULL, acc);
    for (int t = 0; t < s.taps; t++) {
        const float *row[T_MR];
        T_UNROLL for (int r = 0; r < rows; r++) row[r] = s.row[t * s.tap_stride + r] + s.channel0;
        t_tile_fma(rows, vecs, s.channels, row, s.b + t * (DEPTH * T_NR), T_NOTHING_AHEAD, acc);
    }
    T_UNROLL for (int r = 0; r < rows; r++) {
        T_UNROLL for (int v = 0; v < vecs; v++) {
            const int64_t channel = n + v * 16;
            if (channel < OC) finish(c, m + r, channel, acc[r][v], OC - channel);
        }
    }
}

/* Pixels of the tiles from t0 up to t1, by panel p of a group. */
static void panel(const struct call *c, int64_t p, int64_t t0, int64_t t1, struct step s) {
    const int64_t base = PIXELS / TILES, extra = PIXELS % TILES;
    for (int64_t t = t0; t < t1; t++) {
        const int64_t m = t * base + t_imin(t, extra), rows = base + (t < extra);
        switch (rows) {
            case 8: tile(c, 8, 1, m, p * T_NR, s); break;
            case 7: tile(c, 7, 1, m, p * T_NR, s); break;
            case 6: tile(c, 6, 1, m, p * T_NR, s); break;
            case 5: tile(c, 5, 1, m, p * T_NR, s); break;
            case 4: tile(c, 4, 1, m, p * T_NR, s); break;
            case 3: tile(c, 3, 1, m, p * T_NR, s); break;
            case 2: tile(c, 2, 1, m, p * T_NR, s); break;
            case 1: tile(c, 1, 1, m, p * T_NR, s); break;
        }
        s.row += rows;
    }
}

/* ---- tasks ---- */
/* Pixels of the tiles from t0 up to t1, by the panels from q0 up to q1. */
static void block(struct call *c, int64_t t0, int64_t t1, int64_t q0, int64_t q1, int taps,
    const float *const *table, int64_t tap_stride, const float *weights) {
    for (int64_t q = q0; q < q1; q++) {
        struct step s = {.row = table, .tap_stride = tap_stride, .b = weights + q * TAPS * (DEPTH * T_NR), .taps = taps, .channels = IC};
        s.channel0 = 0;
        panel(c, q % PANELS, t0, t1, s);
    }
}

void k912f9484a28d(void *const *buf, const int64_t *dim, void *scratch, int64_t begin, int64_t end) {
    struct call at = {.buf = buf}, *c = &at;
    (void)dim;
    const int64_t m_blocks = 1, n_blocks = 1;
    float *zero = scratch;
    const float **table = (const float **)(zero + 64);
    memset(zero, 0, sizeof *zero * 64);
    const int64_t tap_stride = 56;
    for (int64_t task = begin; task < end; task++) {
        const int64_t nb = task % n_blocks, mb = task / (n_blocks * 2);
        const float *x = buf[0];
        const float *weights = buf[1];
        const int64_t phase = task / n_blocks % 2;
        c->row0 = phases[phase].row;
        c->column0 = phases[phase].column;
        c->rows = t_imax(0, OH - c->row0);
        c->columns = t_imax(0, (OW - c->column0 + 1) / 2);
        if (PIXELS == 0) continue;
        const struct tap *tap = phases[phase].tap;
        const int count = phases[phase].taps;
        weights += phases[phase].weights;
        const int64_t t0 = t_cut(TILES, m_blocks, mb), t1 = t_cut(TILES, m_blocks, mb + 1);
        const int64_t q0 = t_cut(1, n_blocks, nb), q1 = t_cut(1, n_blocks, nb + 1);
        fill_table(c, table, tap_stride, x, zero, tap, count, t_cut(PIXELS, TILES, t0), t_cut(PIXELS, TILES, t1));
        block(c, t0, t1, q0, q1, count, table, tap_stride, weights);
    }
}
