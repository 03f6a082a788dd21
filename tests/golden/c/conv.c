/* Channels-last convolution without a copy of the image: output pixels are the rows of a product, and a
 * table of pointers (tap by pixel), made once for a block of pixels, says where each tap of each pixel reads.  Taps in
 * the margin read zeros, and are left out where a whole tile is there.
 * Weights: [panel of T_NR channels][tap][DEPTH][T_NR].
 * Task: a block of pixels by a block of panels. */
#define T_MR 7
#define T_NV 3
#define T_FEWEST 7
#define T_MOST 7
#define T_FEW_TYPES
#include "t_tile.h"

#include <string.h>

/* The arguments of the kernel, and where a task is. */
struct call {
    void *const *buf;
};

#define OH 7
#define OW 7
#define IH 7
#define IW 7
#define OC 24
#define IC 16
#define DEPTH 16
#define X_IMAGE 784
#define X_ROW 112
#define X_PIXEL 16
#define TAPS 9
#define PANELS 1
#define ROWS OH
#define COLUMNS OW
#define PIXELS (ROWS * COLUMNS)
#define TILES ((PIXELS + T_MR - 1) / T_MR)

/* ---- epilogue ---- */
/* Stores one vector of the pixel in row m, from channel n on. */
T_FN void finish(const struct call *c, int64_t m, int64_t n, f32v acc, int64_t count) {
    (void)m, (void)n;
    const int64_t w0 = m;
    float *b2 = c->buf[2];
    (void)c, (void)count;
    if (count >= 16) {
        const f32v v0 = t_max_f32(acc, t_splat_f32(0.0f));
        t_store_f32(b2 + n + 24 * w0, v0);
    } else {
        const f32v v0 = t_max_f32(acc, t_splat_f32(0.0f));
        t_storen_f32(b2 + n + 24 * w0, v0, count);
    }
}

/* ---- where taps read ---- */
/* Where a tap reads: input rows and columns from that of a pixel. */
struct tap {
    int h, w;
};
static const struct tap taps[] = {{0, 0}, {0, 1}, {0, 2}, {1, 0}, {1, 1}, {1, 2}, {2, 0}, {2, 1}, {2, 2}};

/* table[tap][pixel] for the pixels from m0 up to m1, a stretch of an output row after the other. */
static void fill_table(const struct call *c, const float **table, int64_t tap_stride, const float *x,
    const float *zero, const struct tap *tap, int taps, int64_t m0, int64_t m1) {
    int64_t w = m0 % COLUMNS, h = m0 / COLUMNS % ROWS;
    const float *image = x + m0 / (COLUMNS * ROWS) * X_IMAGE;
    (void)c;
    for (int64_t m = m0, count; m < m1; m += count, table += count) {
        count = t_imin(COLUMNS - w, m1 - m);
        for (int t = 0; t < taps; t++) {
            const int64_t ih = h - 1 + tap[t].h, iw = w - 1 + tap[t].w;
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
    const float *zero; /* what taps in the margin read */
    const float *b; /* panel at the first tap and channel */
    int64_t channel0;        /* the first input channel */
    int taps, channels;
};

T_FN void tile(const struct call *c, const int rows, const int vecs, int64_t m, int64_t n, struct step s) {
    f32v acc[T_MR][T_NV];
    t_tile_open(rows, vecs, NULL, acc);
    /* Taps that do not lie in the margin for all pixels, listed first: of a loop that leaves taps out, clang 16 moves the sums
     * of 6 x 4 vectors to memory and back in each step. */
    int some[9], count = 0;
    for (int t = 0; t < s.taps; t++) {
        int inside = 0;
        T_UNROLL for (int r = 0; r < rows; r++) inside |= s.row[t * s.tap_stride + r] != s.zero;
        some[count] = t;
        count += inside;
    }
    for (int i = 0; i < count; i++) {
        const int t = some[i];
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
        tile(c, 7, 2, m, p * T_NR, s);
        s.row += rows;
    }
}

/* ---- tasks ---- */
/* Pixels of the tiles from t0 up to t1, by the panels from q0 up to q1. */
static void block(struct call *c, int64_t t0, int64_t t1, int64_t q0, int64_t q1, int taps,
    const float *const *table, int64_t tap_stride, const float *zero, const float *weights) {
    for (int64_t q = q0; q < q1; q++) {
        struct step s = {.row = table, .tap_stride = tap_stride, .b = weights + q * TAPS * (DEPTH * T_NR), .taps = taps, .channels = IC};
        s.channel0 = 0;
        s.zero = zero;
        panel(c, q % PANELS, t0, t1, s);
    }
}

void k283a31e20f3a(void *const *buf, const int64_t *dim, void *scratch, int64_t begin, int64_t end) {
    struct call at = {.buf = buf}, *c = &at;
    (void)dim;
    const int64_t m_blocks = 1, n_blocks = 1;
    float *zero = scratch;
    const float **table = (const float **)(zero + 64);
    memset(zero, 0, sizeof *zero * 64);
    const int64_t tap_stride = 49;
    for (int64_t task = begin; task < end; task++) {
        const int64_t nb = task % n_blocks, mb = task / n_blocks % m_blocks;
        const float *x = buf[0];
        const float *weights = buf[1];
        const struct tap *tap = taps;
        const int count = 9;
        const int64_t t0 = t_cut(TILES, m_blocks, mb), t1 = t_cut(TILES, m_blocks, mb + 1);
        const int64_t q0 = t_cut(1, n_blocks, nb), q1 = t_cut(1, n_blocks, nb + 1);
        fill_table(c, table, tap_stride, x, zero, tap, count, t_cut(PIXELS, TILES, t0), t_cut(PIXELS, TILES, t1));
        block(c, t0, t1, q0, q1, count, table, tap_stride, zero, weights);
    }
}
