/* Convolution of few channels (an image): the rows that a task needs are copied once, padded, to planes of scratch
 * [IC][ROWS_IN][WIDTH], from any strides; a tap of a tile of neighbouring pixels is then a constant offset from one
 * pointer.  Weights: [panel of T_NR channels][IC][KH][KW][T_NR].  Task: a block of output rows of an image. */
#define T_MR 8
#define T_NV 3
#define T_FEW_TYPES
#include "t_tile.h"

#include <string.h>

/* The arguments of the kernel, and where a task is. */
struct call {
    void *const *buf;
};

#define OH 6
#define OW 6
#define OC 32
#define IH 12
#define IW 12
#define IC 3
#define KH 3
#define KW 3
#define ROWS_IN 7
#define WIDTH 13
#define TILES 1

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

/* ---- padded rows of the image ---- */
/* planes[channel][i][j] = x[channel][row0 + i][j - left], zero outside the image. */
static void fill_planes(const struct call *c, float *planes, const float *x, int64_t row0) {
    const int64_t left = t_imax(0, t_imin(1, WIDTH)), skip = t_imax(0, -1);
    const int64_t inside = t_imax(0, t_imin(WIDTH - left, IW - skip));
    (void)c;
    for (int64_t channel = 0; channel < IC; channel++) {
        for (int64_t i = row0; i < row0 + ROWS_IN; i++, planes += WIDTH) {
            if (i < 0 || i >= IH) {
                memset(planes, 0, sizeof(float) * (size_t)WIDTH);
                continue;
            }
            const float *from = x + channel * 144 + i * 12 + skip;
            for (int64_t j = 0; j < left; j++) planes[j] = 0;
            for (int64_t j = 0; j < inside; j++) planes[left + j] = from[j];
            for (int64_t j = left + inside; j < WIDTH; j++) planes[j] = 0;
        }
    }
}

/* ---- tiles ---- */
/* `from` is the tile's first tap in the first plane. */
T_FN void tile(const struct call *c, const int rows, const int vecs, int64_t m, int64_t n, const float *from,
    const float *b) {
    f32v acc[T_MR][T_NV];
    t_tile_open(rows, vecs, NULL, acc);
    for (int ic = 0; ic < IC; ic++) {
        for (int kh = 0; kh < KH; kh++) {
            const float *line = from + (ic * ROWS_IN + kh) * WIDTH;
            /* Not unrolled: compilers would hoist loads across taps and spill. */
            T_ROLLED for (int kw = 0; kw < KW; kw++, b += T_NR) {
                const float *at = line + kw;
                f32v col[T_NV];
                /* Hidden: at a stride of 1 compilers would keep pixels for the next tap, and move them from register to register. */
                __asm__("" : "+r"(at));
                T_UNROLL for (int v = 0; v < vecs; v++) col[v] = t_load_f32(b + v * 16);
                T_UNROLL for (int r = 0; r < rows; r++) {
                    const f32v x = t_splat_f32(at[r * 2]);
                    T_UNROLL for (int v = 0; v < vecs; v++) acc[r][v] += x * col[v];
                }
            }
        }
    }
    T_UNROLL for (int r = 0; r < rows; r++) {
        T_UNROLL for (int v = 0; v < vecs; v++) {
            const int64_t channel = n + v * 16;
            if (channel < OC) finish(c, m + r, channel, acc[r][v], OC - channel);
        }
    }
}

/* Panel p of a row of pixels that starts at pixel m. */
static void line(const struct call *c, const float *planes, int64_t m, int64_t p) {
    const float *b = (const float *)c->buf[1] + p * (IC * KH * KW * T_NR);
    const int64_t base = OW / TILES, extra = OW % TILES;
    for (int64_t t = 0; t < TILES; t++) {
        const int64_t w = t * base + t_imin(t, extra), rows = base + (t < extra);
        (void)rows;
        tile(c, 6, 2, m + w, p * T_NR, planes + w * 2, b);
    }
}

/* ---- tasks ---- */
void k379a56154c17(void *const *buf, const int64_t *dim, void *scratch, int64_t begin, int64_t end) {
    struct call at = {.buf = buf}, *c = &at;
    (void)dim;
    const int64_t h_blocks = 2;
    float *planes = scratch;
    for (int64_t task = begin; task < end; task++) {
        const int64_t n = task / h_blocks, hb = task % h_blocks;
        const int64_t h0 = t_cut(OH, h_blocks, hb), h1 = t_cut(OH, h_blocks, hb + 1);
        const float *x = (const float *)buf[0] + n * 432;
        fill_planes(c, planes, x, h0 * 2 - 1);
        for (int64_t h = h0; h < h1; h++) {
            line(c, planes + (h - h0) * 2 * WIDTH, (n * OH + h) * OW, 0);
        }
    }
}
