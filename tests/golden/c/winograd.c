/* 3x3 convolution of stride 1 by Winograd's F(4x4, 3x3): 36 products for 16 outputs instead of 144 (Lavin and Gray
 * 2015, arXiv:1509.09308), at the points 0, 5/8, 3/2, as many below 0, and infinity.  A block of
 * 4x4 output tiles goes through all three steps, so that the transformed values stay in L2.  Weights: [36][panel of
 * T_NR channels][TERMS][T_NR], already transformed; and [panel][9][IC][T_NR] as they are, for tiles with inputs that are
 * not finite, or so large that a transform might overflow.  Task: a strip of tiles. */
#define T_MR 8
#define T_NV 2
#define T_FEW_TYPES
#include "t_tile.h"

/* The arguments of the kernel, and where a task is. */
struct call {
    void *const *buf;
};

#define PANELS 1
#define TILES 49
#define STRIPS 6
#define PANEL_BLOCK 4 /* panels that are multiplied before they are transformed back */
#define OH 28
#define OW 28
#define GROUPS 1
#define OC 32 /* of a group, as IC */
#define IH 28
#define IW 28
#define IC 32
#define PARTS 1 /* convolutions of 3x3 taps that it is the sum of */
#define TERMS (PARTS * IC)
#define TILES_H ((OH + 3) / 4)
#define TILES_W ((OW + 3) / 4)
#define V_STEP 432 /* elements from a point to the next, of transformed inputs and of sums */
#define SUM_STEP 1680

/* Output tile t of all images: its image, and its first row and column. */
struct place {
    int64_t n, h, w;
};
T_FN struct place place_of(int64_t tile) {
    return (struct place){tile / (TILES_H * TILES_W), tile / TILES_W % TILES_H * 4, tile % TILES_W * 4};
}

#define LARGEST 0x1p100f /* sum of squares of a tile's inputs up to which transforms are safe */

/* One line of B' d: at 0, at each pair of points, and at infinity. */
T_FN void forward(const f32v *d, f32v *out, int64_t out_step) {
    const f32v even0 = -2.25f * d[2] + d[4];
    const f32v odd0 = -1.40625f * d[1] + 0.625f * d[3];
    const f32v even1 = -0.390625f * d[2] + d[4];
    const f32v odd1 = -0.5859375f * d[1] + 1.5f * d[3];
    out[0] = 0.87890625f * d[0] - 2.640625f * d[2] + d[4];
    out[out_step] = even0 + odd0;
    out[2 * out_step] = even0 - odd0;
    out[3 * out_step] = even1 + odd1;
    out[4 * out_step] = even1 - odd1;
    out[5 * out_step] = 0.87890625f * d[1] - 2.640625f * d[3] + d[5];
}

/* The transformed input of a tile: one vector of channels at each point of v; what is outside of rows `top` to `bottom`
 * and columns `left` to `right` is 0.  Returns the sums of squares so far. */
T_FN f32v transform_vector(const struct call *c, const int whole, const float *image, int64_t from, int64_t top,
    int64_t bottom, int64_t left, int64_t right, float *v, int64_t v_step, f32v squares) {
    (void)c;
    f32v e[36];
    T_UNROLL for (int j = 0; j < 6; j++) {
        f32v d[6];
        T_UNROLL for (int i = 0; i < 6; i++) {
            const int inside = whole || (i >= top && i < bottom && j >= left && j < right);
            d[i] = inside ? t_load_f32(image + (from + i * 896 + j * 32)) : (f32v){0};
            squares += d[i] * d[i];
        }
        forward(d, e + j, 6);
    }
    T_UNROLL for (int i = 0; i < 6; i++) {
        f32v o[6];
        forward(e + i * 6, o, 1);
        T_UNROLL for (int j = 0; j < 6; j++) t_store_f32(v + (i * 6 + j) * v_step, o[j]);
    }
    return squares;
}

/* All channels of a tile: v[36][V_STEP] from that tile on.  Returns whether its outputs have to be plain sums. */
static int transform_in(const struct call *c, const float *x, float *v, int64_t tile) {
    const struct place at = place_of(tile);
    const int64_t v_step = V_STEP; /* read once, as stores might change what it is made of */
    const float *image = x + at.n * 25088;
    f32v squares = {0};
    for (int64_t piece = 0; piece < GROUPS * PARTS; piece++, v += IC) { /* a part of a group's channels */
        const int64_t h = at.h - 1, w = at.w - 1;
        const int64_t from = h * 896 + w * 32;
        if (h >= 0 && w >= 0 && h + 6 <= IH && w + 6 <= IW) {
            for (int64_t i = 0; i < IC; i += 16) {
                squares = transform_vector(c, 1, image, from + i, 0, 0, 0, 0, v + i, v_step, squares);
            }
        } else {
            for (int64_t i = 0; i < IC; i += 16) {
                squares = transform_vector(c, 0, image, from + i, -h, IH - h, -w, IW - w, v + i, v_step, squares);
            }
        }
    }
    return !t_hall_bool((i32v)(squares <= LARGEST));
}

#define WIDE 128 /* elements from the sums of a tile to those of the next */

/* Stores one vector of pixel m from channel n on. */
T_FN void finish(const struct call *c, int64_t m, int64_t n, f32v acc, int64_t count) {
    (void)m, (void)n;
    const int64_t w0 = m;
    float *b3 = c->buf[3];
    (void)c, (void)count;
    t_store_f32(b3 + n + 32 * w0, acc);
}

/* One line of A' m: sums of powers of the points. */
T_FN void backward(const f32v *m, f32v *out, int64_t out_step) {
    const f32v s0 = m[1] + m[2], d0 = m[1] - m[2];
    const f32v s1 = m[3] + m[4], d1 = m[3] - m[4];
    out[0] = m[0] + s0 + s1;
    out[out_step] = 0.625f * d0 + 1.5f * d1;
    out[2 * out_step] = 0.390625f * s0 + 2.25f * s1;
    out[3 * out_step] = m[5] + 0.244140625f * d0 + 3.375f * d1;
}

/* The outputs of a tile, for `channels` channels from n0 on, as sums of the terms as they are. */
static __attribute__((noinline)) void sum_plainly(const struct call *c, const float *x, const float *weights,
    int64_t tile, int64_t n0, int64_t channels) {
    const struct place at = place_of(tile);
    const int64_t bottom = t_imin(at.h + 4, OH), right = t_imin(at.w + 4, OW);
    const float *image = x + at.n * 25088;
    for (int64_t n = n0; n < n0 + channels; n += 16) {
        for (int64_t row = at.h; row < bottom; row++) {
            for (int64_t column = at.w; column < right; column++) {
                f32v acc = {0};
                for (int64_t tap = 0; tap < 9; tap++) {
                    const int64_t h = row - 1 + tap / 3, w = column - 1 + tap % 3;
                    const int inside = h >= 0 && h < IH && w >= 0 && w < IW; /* zeros, too, meet weights that may be infinite */
                    const float *from = inside ? image + (h * 896 + w * 32) : NULL;
                    const float *factors = weights + (n * 288 + tap / 3 * 3 + tap % 3);
                    for (int64_t i = 0; i < IC; i++) {
                        float lanes[16];
                        for (int lane = 0; lane < 16; lane++) lanes[lane] = factors[i * 9 + lane * 288];
                        acc += t_splat_f32(inside ? from[i] : 0) * t_load_f32(lanes);
                    }
                }
                finish(c, (at.n * OH + row) * OW + column, n, acc, 16);
            }
        }
    }
}

/* The same from sums[36][SUM_STEP]. */
static void transform_out(const struct call *c, const float *sums, int64_t tile, int64_t n0, int64_t channels) {
    const struct place at = place_of(tile);
    const int64_t sum_step = SUM_STEP, rows = t_imin(4, OH - at.h), columns = t_imin(4, OW - at.w);
    for (int64_t n = 0; n < channels; n += 16) {
        f32v e[24], o[16];
        T_UNROLL for (int j = 0; j < 6; j++) {
            f32v m[6];
            T_UNROLL for (int i = 0; i < 6; i++) m[i] = t_load_f32(sums + (i * 6 + j) * sum_step + n);
            backward(m, e + j, 6);
        }
        T_UNROLL for (int i = 0; i < 4; i++) backward(e + i * 6, o + i * 4, 1);
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
    T_UNROLL for (int r = 0; r < rows; r++) row[r] = v + r * (GROUPS * TERMS);
    t_tile_open(rows, T_NV, NULL, acc);
    t_tile_fma(rows, T_NV, TERMS, row, b, T_NOTHING_AHEAD, acc);
    T_UNROLL for (int r = 0; r < rows; r++) {
        T_UNROLL for (int i = 0; i < T_NV; i++) t_store_f32(out + r * WIDE + i * 16, acc[r][i]);
    }
}

/* The products of all points, for the panels from p0 up to p1. */
static void products(const float *v, const float *weights, float *out, int64_t tiles, int64_t p0, int64_t p1) {
    const int64_t parts = (tiles + T_MR - 1) / T_MR;
    for (int64_t point = 0; point < 36; point++) {
        for (int64_t p = p0; p < p1; p++) {
            const float *b = weights + (point * PANELS + p) * (TERMS * T_NR);
            for (int64_t i = 0; i < parts; i++) {
                const int64_t t = t_cut(tiles, parts, i), rows = t_cut(tiles, parts, i + 1) - t;
                const float *from = v + point * V_STEP + t * (GROUPS * TERMS);
                float *to = out + point * SUM_STEP + t * WIDE + (p - p0) * T_NR;
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

/* All steps of the tiles from t0 up to t1. */
static void block(const struct call *c, const float *x, float *v, int64_t t0, int64_t t1) {
    void *const *buf = c->buf;
    float *sums = v + 36 * V_STEP;
    const float *weights = (const float *)buf[2];
    uint8_t *odd = (uint8_t *)(sums + 36 * SUM_STEP);
    for (int64_t t = t0; t < t1; t++) odd[t - t0] = transform_in(c, x, v + (t - t0) * (GROUPS * TERMS), t);
    for (int64_t p = 0; p < PANELS; p += PANEL_BLOCK) {
        const int64_t last = t_imin(PANELS, p + PANEL_BLOCK), channels = t_imin(GROUPS * OC, last * T_NR) - p * T_NR;
        products(v, buf[1], sums, t1 - t0, p, last);
        for (int64_t t = t0; t < t1; t++) {
            if (odd[t - t0]) {
                sum_plainly(c, x, weights, t, p * T_NR, channels);
            } else {
                transform_out(c, sums + (t - t0) * WIDE, t, p * T_NR, channels);
            }
        }
    }
}

void k7bb5ef4e9fa4(void *const *buf, const int64_t *dim, void *scratch, int64_t begin, int64_t end) {
    struct call at = {.buf = buf}, *c = &at;
    (void)dim;
    const float *x = (const float *)buf[0];
    const int64_t t0 = t_cut(TILES, STRIPS, begin), t1 = t_cut(TILES, STRIPS, end);
    const int64_t blocks = (t1 - t0 + 12) / 13;
    for (int64_t i = 0; i < blocks; i++) block(c, x, scratch, t0 + t_cut(t1 - t0, blocks, i), t0 + t_cut(t1 - t0, blocks, i + 1));
}
