#include "t_kernel.h"
#include "t_transpose.h"

void k71f4b64a839b(void *const *buf, const int64_t *dim, void *scratch, int64_t begin, int64_t end) {
    (void)dim, (void)scratch;
    const float *b0 = buf[0];
    float *b1 = buf[1];
    const int64_t width = 32, height = 784;
    const int64_t across = (width + 255) / 256, down = (height + 63) / 64;
    for (int64_t task = begin; task < end; task++) {
        const int64_t left = task % across * 256, right = t_imin(left + 256, width);
        const int64_t top = task / across % down * 64, bottom = t_imin(top + 64, height);
        /* Few lines of the result are written side by side: at strides of powers of two they share sets of the caches. */
        for (int64_t start = top; start < bottom; start += 16) {
            for (int64_t column = left; column < right; column += 16) {
                if (column + 16 <= right && start + 16 <= bottom) {
                    f32v t0_square[16];
                    for (int line = 0; line < 16; line++) {
                        const int64_t i1 = column + line, i0 = start;
                        const f32v t0_line_0 = t_load_f32(b0 + i0 + 784 * i1);
                        const f32v t0_line = t0_line_0;
                        t0_square[line] = t0_line;
                    }
                    t_transpose_f32(t0_square);
                    for (int line = 0; line < 16; line++) {
                        const int64_t i1 = column, i0 = start + line;
                        (void)i1, (void)i0;
                        const f32v t0 = t0_square[line];
                        t_store_f32(b1 + 32 * i0 + i1, t0);
                    }
                } else {
                    const int64_t lanes = t_imin(16, right - column), lines = t_imin(16, bottom - start);
                    f32v t0_square[16] = {{0}};
                    for (int line = 0; line < lanes; line++) {
                        const int64_t i1 = column + line, i0 = start;
                        const f32v t0_line_0 = t_loadn_f32(b0 + i0 + 784 * i1, lines);
                        const f32v t0_line = t0_line_0;
                        t0_square[line] = t0_line;
                    }
                    t_transpose_f32(t0_square);
                    for (int line = 0; line < lines; line++) {
                        const int64_t i1 = column, i0 = start + line;
                        (void)i1, (void)i0;
                        const f32v t0 = t0_square[line];
                        t_storen_f32(b1 + 32 * i0 + i1, t0, lanes);
                    }
                }
            }
        }
    }
}

/* Channels-last convolution without a copy of the image: output pixels are the rows of a product, and a
 * table of pointers (tap by pixel), made once for a block of pixels, says where each tap of each pixel reads.  Taps in
 * the margin read zeros, and are left out where a whole tile is there.
 * Weights: [panel of T_NR channels][tap][DEPTH][T_NR].
 * Task: a block of pixels by a block of panels. */
#define T_MR 7
#define T_NV 3
#define T_FEWEST 7
#define T_MOST 7
#include "t_tile.h"

#include <string.h>

/* The arguments of the kernel, and where a task is. */
struct call {
    void *const *buf;
};

#define OH 28
#define OW 28
#define IH 28
#define IW 28
#define OC 48
#define IC 32
#define DEPTH 32
#define X_IMAGE 25088
#define X_ROW 896
#define X_PIXEL 32
#define PANELS 1
#define ROWS OH
#define COLUMNS OW
#define PIXELS (ROWS * COLUMNS)
#define TILES ((PIXELS + T_MR - 1) / T_MR)

/* Stores one vector of the pixel in row m, from channel n on. */
T_FN void finish(const struct call *c, int64_t m, int64_t n, f32v acc, int64_t count) {
    (void)m, (void)n;
    const int64_t w0 = m;
    float *b2 = c->buf[2];
    (void)c, (void)count;
    t_store_f32(b2 + n + 48 * w0, acc);
}

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
    for (int t = 0; t < s.taps; t++) {
        const float *row[T_MR];
        int inside = 0;
        T_UNROLL for (int r = 0; r < rows; r++) inside |= s.row[t * s.tap_stride + r] != s.zero;
        if (!inside) continue;
        T_UNROLL for (int r = 0; r < rows; r++) row[r] = s.row[t * s.tap_stride + r] + s.channel0;
        t_tile_fma(rows, vecs, s.channels, row, s.b + t * (DEPTH * T_NR), acc);
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
        tile(c, 7, 3, m, p * T_NR, s);
        s.row += rows;
    }
}

/* Pixels of the tiles from t0 up to t1, by the panels from q0 up to q1. */
static void block(struct call *c, int64_t t0, int64_t t1, int64_t q0, int64_t q1, int taps,
    const float *const *table, int64_t tap_stride, const float *zero, const float *weights) {
    for (int64_t q = q0; q < q1; q++) {
        struct step s = {.row = table, .tap_stride = tap_stride, .b = weights + q * taps * (DEPTH * T_NR), .taps = taps, .channels = IC};
        s.channel0 = 0;
        s.zero = zero;
        panel(c, q % PANELS, t0, t1, s);
    }
}

void ka0e6a6e5eff6(void *const *buf, const int64_t *dim, void *scratch, int64_t begin, int64_t end) {
    struct call at = {.buf = buf}, *c = &at;
    (void)dim;
    const int64_t m_blocks = 8, n_blocks = 1;
    float *zero = scratch;
    const float **table = (const float **)(zero + 64);
    memset(zero, 0, sizeof *zero * 64);
    const int64_t tap_stride = 98;
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

#include "t_kernel.h"
#include "t_transpose.h"

void k84b44a4dfb9b(void *const *buf, const int64_t *dim, void *scratch, int64_t begin, int64_t end) {
    (void)dim, (void)scratch;
    const float *b0 = buf[0];
    float *b1 = buf[1];
    const int64_t width = 784, height = 48;
    const int64_t across = (width + 255) / 256, down = (height + 63) / 64;
    for (int64_t task = begin; task < end; task++) {
        const int64_t left = task % across * 256, right = t_imin(left + 256, width);
        const int64_t top = task / across % down * 64, bottom = t_imin(top + 64, height);
        /* Few lines of the result are written side by side: at strides of powers of two they share sets of the caches. */
        for (int64_t start = top; start < bottom; start += 16) {
            for (int64_t column = left; column < right; column += 16) {
                if (column + 16 <= right && start + 16 <= bottom) {
                    f32v t0_square[16];
                    for (int line = 0; line < 16; line++) {
                        const int64_t i1 = column + line, i0 = start;
                        const f32v t0_line_0 = t_load_f32(b0 + i0 + 48 * i1);
                        const f32v t0_line = t0_line_0;
                        t0_square[line] = t0_line;
                    }
                    t_transpose_f32(t0_square);
                    for (int line = 0; line < 16; line++) {
                        const int64_t i1 = column, i0 = start + line;
                        (void)i1, (void)i0;
                        const f32v t0 = t0_square[line];
                        t_store_f32(b1 + 784 * i0 + i1, t0);
                    }
                } else {
                    const int64_t lanes = t_imin(16, right - column), lines = t_imin(16, bottom - start);
                    f32v t0_square[16] = {{0}};
                    for (int line = 0; line < lanes; line++) {
                        const int64_t i1 = column + line, i0 = start;
                        const f32v t0_line_0 = t_loadn_f32(b0 + i0 + 48 * i1, lines);
                        const f32v t0_line = t0_line_0;
                        t0_square[line] = t0_line;
                    }
                    t_transpose_f32(t0_square);
                    for (int line = 0; line < lines; line++) {
                        const int64_t i1 = column, i0 = start + line;
                        (void)i1, (void)i0;
                        const f32v t0 = t0_square[line];
                        t_storen_f32(b1 + 784 * i0 + i1, t0, lanes);
                    }
                }
            }
        }
    }
}
