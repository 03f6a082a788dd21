/* 3x3 convolution of stride 1 by Winograd's F(4x4, 3x3): 36 products for 16 outputs instead of 144 (Lavin and Gray
 * 2015, arXiv:1509.09308).  A task takes a block of 4x4 output tiles through all three steps, so that the transformed
 * values stay in L2.  Weights: [36][panel of T_NR channels][IC][T_NR], already transformed.
 * Task: a block of tiles by a block of channels. */
#define T_MR 8
#define T_NV 3
#include "t_tile.h"

/* The arguments of the kernel, and where a task is. */
struct call {
    void *const *buf;
};

#define OH 28
#define OW 28
#define OC 32
#define IH 28
#define IW 28
#define IC 32
#define TILES_H ((OH + 3) / 4)
#define TILES_W ((OW + 3) / 4)
#define PANELS 1
#define BLOCK 49 /* the most tiles of a task */
#define PANEL_BLOCK 4 /* panels that are multiplied before they are transformed back */
#define WIDE (PANEL_BLOCK * T_NR)

/* Stores one vector of pixel m from channel n on. */
T_FN void finish(const struct call *c, int64_t m, int64_t n, f32v acc, int64_t count) {
    (void)m, (void)n;
    const int64_t w0 = m;
    float *b2 = c->buf[2];
    (void)c, (void)count;
    t_store_f32(b2 + n + 32 * w0, acc);
}

/* One line of B' d. */
T_FN void forward(const f32v *d, int64_t step, f32v *out, int64_t out_step) {
    const f32v a = d[4 * step] - 4 * d[2 * step], b = d[3 * step] - 4 * d[step];
    const f32v e = d[4 * step] - d[2 * step], f = 2 * (d[3 * step] - d[step]);
    out[0] = 4 * d[0] - 5 * d[2 * step] + d[4 * step];
    out[out_step] = a + b;
    out[2 * out_step] = a - b;
    out[3 * out_step] = e + f;
    out[4 * out_step] = e - f;
    out[5 * out_step] = 4 * d[step] - 5 * d[3 * step] + d[5 * step];
}

/* One line of A' m. */
T_FN void backward(const f32v *m, int64_t step, f32v *out, int64_t out_step) {
    const f32v s = m[step] + m[2 * step], d = m[step] - m[2 * step];
    const f32v u = m[3 * step] + m[4 * step], v = m[3 * step] - m[4 * step];
    out[0] = m[0] + s + u;
    out[out_step] = d + 2 * v;
    out[2 * out_step] = s + 4 * u;
    out[3 * out_step] = d + 8 * v + m[5 * step];
}

/* Output tile t of all images: its first row and column, and its image. */
struct place {
    int64_t n, h, w;
};
T_FN struct place place_of(int64_t tile) {
    return (struct place){tile / (TILES_H * TILES_W), tile / TILES_W % TILES_H * 4, tile % TILES_W * 4};
}

/* The transformed input of a tile: v[36][BLOCK][IC] at tile t of the block. */
static void transform_in(const float *x, float *v, int64_t tile, int64_t t) {
    const struct place at = place_of(tile);
    const int64_t h0 = at.h - 1, w0 = at.w - 1;
    const float *image = x + at.n * 25088;
    for (int64_t channel = 0; channel < IC; channel += 16) {
        f32v d[36], e[36];
        for (int64_t i = 0; i < 6; i++) {
            for (int64_t j = 0; j < 6; j++) {
                const int64_t h = h0 + i, w = w0 + j;
                const int inside = h >= 0 && h < IH && w >= 0 && w < IW;
                const int64_t from = h * 896 + w * 32 + channel;
                d[i * 6 + j] = inside ? t_load_f32(image + from) : (f32v){0};
            }
        }
        T_UNROLL for (int j = 0; j < 6; j++) forward(d + j, 6, e + j, 6);
        T_UNROLL for (int i = 0; i < 6; i++) {
            f32v o[6];
            forward(e + i * 6, 1, o, 1);
            T_UNROLL for (int j = 0; j < 6; j++) t_store_f32(v + ((i * 6 + j) * BLOCK + t) * IC + channel, o[j]);
        }
    }
}

/* The outputs of a tile, for `channels` channels from n0 on, from sums[36][BLOCK][WIDE]. */
static void transform_out(const struct call *c, const float *sums, int64_t tile, int64_t t, int64_t n0,
    int64_t channels) {
    const struct place at = place_of(tile);
    const int64_t rows = t_imin(4, OH - at.h), columns = t_imin(4, OW - at.w);
    for (int64_t n = 0; n < channels; n += 16) {
        f32v m[6], e[24], o[16];
        T_UNROLL for (int j = 0; j < 6; j++) {
            T_UNROLL for (int i = 0; i < 6; i++) m[i] = t_load_f32(sums + ((i * 6 + j) * BLOCK + t) * WIDE + n);
            backward(m, 1, e + j, 6);
        }
        T_UNROLL for (int i = 0; i < 4; i++) backward(e + i * 6, 1, o + i * 4, 1);
        for (int64_t i = 0; i < rows; i++) {
            for (int64_t j = 0; j < columns; j++) {
                finish(c, (at.n * OH + at.h + i) * OW + at.w + j, n0 + n, o[i * 4 + j], 16);
            }
        }
    }
}

T_FN void product(const int rows, const float *v, const float *b, float *out) {
    const float *row[T_MR];
    f32v acc[T_MR][T_NV];
    T_UNROLL for (int r = 0; r < rows; r++) row[r] = v + r * IC;
    t_tile_open(rows, T_NV, NULL, acc);
    t_tile_fma(rows, T_NV, IC, row, b, acc);
    T_UNROLL for (int r = 0; r < rows; r++) {
        T_UNROLL for (int i = 0; i < T_NV; i++) t_store_f32(out + r * WIDE + i * 16, acc[r][i]);
    }
}

/* The products of all 36 points, for the panels from p0 up to p1. */
static void products(const float *v, const float *weights, float *out, int64_t tiles, int64_t p0, int64_t p1) {
    const int64_t parts = (tiles + T_MR - 1) / T_MR;
    for (int64_t point = 0; point < 36; point++) {
        for (int64_t p = p0; p < p1; p++) {
            const float *b = weights + (point * PANELS + p) * (IC * T_NR);
            for (int64_t i = 0; i < parts; i++) {
                const int64_t t = t_cut(tiles, parts, i), rows = t_cut(tiles, parts, i + 1) - t;
                const float *from = v + (point * BLOCK + t) * IC;
                float *to = out + (point * BLOCK + t) * WIDE + (p - p0) * T_NR;
                switch (rows) {
                    case 8: product(8, from, b, to); break;
                    case 7: product(7, from, b, to); break;
                    case 6: product(6, from, b, to); break;
                    case 5: product(5, from, b, to); break;
                    case 4: product(4, from, b, to); break;
                    case 3: product(3, from, b, to); break;
                    case 2: product(2, from, b, to); break;
                    case 1: product(1, from, b, to); break;
                }
            }
        }
    }
}

void k8f7f3d80f919(void *const *buf, const int64_t *dim, void *scratch, int64_t begin, int64_t end) {
    struct call at = {.buf = buf}, *c = &at;
    (void)dim;
    float *v = scratch, *sums = v + 36 * BLOCK * IC;
    for (int64_t task = begin; task < end; task++) {
        const int64_t tb = 0, nb = task;
        const int64_t t0 = t_cut(49, 1, tb), t1 = t_cut(49, 1, tb + 1);
        const int64_t p1 = t_cut(PANELS, 1, nb + 1);
        for (int64_t t = t0; t < t1; t++) transform_in((const float *)buf[0], v, t, t - t0);
        for (int64_t p = t_cut(PANELS, 1, nb); p < p1; p += PANEL_BLOCK) {
            const int64_t last = t_imin(p1, p + PANEL_BLOCK), channels = t_imin(OC, last * T_NR) - p * T_NR;
            products(v, buf[1], sums, t1 - t0, p, last);
            for (int64_t t = t0; t < t1; t++) transform_out(c, sums, t, t - t0, p * T_NR, channels);
        }
    }
}
