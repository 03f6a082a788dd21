/* Inputs of a 3x3 convolution of stride 1, transformed for Winograd's F(4x4, 3x3): [36][tile][GROUPS][TERMS], and for each tile whether
 * inputs are not finite, or so large that a transform might overflow.  Task: a tile. */
#include "t_kernel.h"

/* The arguments of the kernel, and where a task is. */
struct call {
    void *const *buf;
};

#define OH 13
#define OW 13
#define GROUPS 1
#define OC 192 /* of a group, as IC */
#define IH 13
#define IW 13
#define IC 32
#define PARTS 1 /* convolutions of 3x3 taps that it is the sum of */
#define TERMS (PARTS * IC)
#define TILES_H ((OH + 3) / 4)
#define TILES_W ((OW + 3) / 4)
#define V_STEP 528 /* elements from a point to the next, of transformed inputs and of sums */
#define SUM_STEP 3088

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
            d[i] = inside ? t_load_f32(image + (from + i * 416 + j * 32)) : (f32v){0};
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
    const float *image = x + at.n * 5408;
    f32v squares = {0};
    for (int64_t piece = 0; piece < GROUPS * PARTS; piece++, v += IC) { /* a part of a group's channels */
        const int64_t h = at.h - 1, w = at.w - 1;
        const int64_t from = h * 416 + w * 32;
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

void k87ff0912342d(void *const *buf, const int64_t *dim, void *scratch, int64_t begin, int64_t end) {
    struct call at = {.buf = buf}, *c = &at;
    (void)dim;
    const float *x = (const float *)buf[0];
    float *v = buf[1];
    uint8_t *odd = buf[2];
    (void)scratch;
    for (int64_t t = begin; t < end; t++) odd[t] = transform_in(c, x, v + t * (GROUPS * TERMS), t);
}

/* c[m][n] = epilogue(sum over k of a[m][k] * b[k][n]), b in panels [ceil(N / T_NR)][K][T_NR], zero padded.
 * Task: a block of rows by a block of panels of one matrix of a batch. */
#define T_MR 8
#define T_NV 3
#define T_FEWEST 8
#define T_MOST 8
#define T_FEW_TYPES
#include "t_tile.h"

/* The arguments of the kernel, and where a task is. */
struct call {
    void *const *buf;
    int64_t p;
};

#define M 16
#define N 192
#define K 32
#define A_ROW 32
#define TILES 2
#define PANELS 4

/* ---- epilogue ---- */
/* Stores one vector of row m from column n on. */
T_FN void finish(const struct call *c, int64_t m, int64_t n, f32v acc, int64_t count) {
    (void)m, (void)n;
    float *b2 = c->buf[2];
    (void)c, (void)count;
    t_store_f32(b2 + n + 192 * m + 3088 * c->p, acc);
}

/* ---- tiles ---- */
struct step {
    const float *b; /* the panel at the first k */
    struct t_ahead ahead;
    int k;          /* length of the sums; an int, so that no compiler fears an overflow */
};

T_FN void tile(const struct call *c, const int rows, const int vecs, int64_t m, int64_t n, const float *a,
    struct step s) {
    const float *row[T_MR];
    f32v acc[T_MR][T_NV];
    T_UNROLL for (int r = 0; r < rows; r++) row[r] = a + r * A_ROW;
    t_tile_open(rows, vecs, NULL, acc);
    t_tile_fma(rows, vecs, s.k, row, s.b, s.ahead, acc);
    T_UNROLL for (int r = 0; r < rows; r++) {
        T_UNROLL for (int v = 0; v < vecs; v++) {
            const int64_t column = n + v * 16;
            if (column < N) finish(c, m + r, column, acc[r][v], N - column);
        }
    }
}

/* Rows of the tiles from t0 up to t1, by panel p. */
static void panel(const struct call *c, int64_t p, int64_t t0, int64_t t1, const float *a, struct step s) {
    const int64_t base = M / TILES, extra = M % TILES;
    for (int64_t t = t0; t < t1; t++) {
        const int64_t m = t * base + t_imin(t, extra), rows = base + (t < extra);
        (void)rows;
        s.ahead = t_tile_ahead(rows, t - t0, t1 - t0, K * T_NR * (int64_t)sizeof *s.b);
        tile(c, 8, 3, m, p * T_NR, a + m * A_ROW, s);
    }
}

/* ---- tasks ---- */
void k9ede4751f73d(void *const *buf, const int64_t *dim, void *scratch, int64_t begin, int64_t end) {
    struct call at = {.buf = buf}, *c = &at;
    (void)dim;
    const int64_t m_blocks = 1, n_blocks = 4;
    (void)scratch;
    for (int64_t task = begin; task < end; task++) {
        const int64_t mb = task % m_blocks, nb = task / m_blocks % n_blocks;
        const int64_t matrix = task / (m_blocks * n_blocks);
        c->p = matrix;
        const int64_t t0 = t_cut(TILES, m_blocks, mb), t1 = t_cut(TILES, m_blocks, mb + 1);
        const int64_t p0 = t_cut(PANELS, n_blocks, nb), p1 = t_cut(PANELS, n_blocks, nb + 1);
        const float *a = (const float *)buf[0] + 528 * c->p;
        const float *b = (const float *)buf[1] + 6144 * c->p;
        for (int64_t p = p0; p < p1; p++) {
            struct step s = {.b = b + p * (K * T_NR), .k = (int)K};
            panel(c, p, t0, t1, a, s);
        }
    }
}

/* Outputs of a 3x3 convolution of stride 1 by Winograd's F(4x4, 3x3), from the sums of products [36][tile][WIDE]; of tiles whose inputs
 * are not finite or too large, from these and the weights as they are, [panel of T_NR channels][9][IC][T_NR].
 * Task: a tile. */
#define T_NR 48
#include "t_kernel.h"

/* The arguments of the kernel, and where a task is. */
struct call {
    void *const *buf;
};

#define OH 13
#define OW 13
#define GROUPS 1
#define OC 192 /* of a group, as IC */
#define IH 13
#define IW 13
#define IC 32
#define PARTS 1 /* convolutions of 3x3 taps that it is the sum of */
#define TERMS (PARTS * IC)
#define TILES_H ((OH + 3) / 4)
#define TILES_W ((OW + 3) / 4)
#define V_STEP 528 /* elements from a point to the next, of transformed inputs and of sums */
#define SUM_STEP 3088

/* Output tile t of all images: its image, and its first row and column. */
struct place {
    int64_t n, h, w;
};
T_FN struct place place_of(int64_t tile) {
    return (struct place){tile / (TILES_H * TILES_W), tile / TILES_W % TILES_H * 4, tile % TILES_W * 4};
}

#define WIDE 192 /* elements from the sums of a tile to those of the next */

/* Stores one vector of pixel m from channel n on. */
T_FN void finish(const struct call *c, int64_t m, int64_t n, f32v acc, int64_t count) {
    (void)m, (void)n;
    const int64_t w0 = m;
    float *b4 = c->buf[4];
    (void)c, (void)count;
    t_store_f32(b4 + n + 192 * w0, acc);
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
    const float *image = x + at.n * 5408;
    for (int64_t n = n0; n < n0 + channels; n += 16) {
        for (int64_t row = at.h; row < bottom; row++) {
            for (int64_t column = at.w; column < right; column++) {
                f32v acc = {0};
                for (int64_t tap = 0; tap < 9; tap++) {
                    const int64_t h = row - 1 + tap / 3, w = column - 1 + tap % 3;
                    const int inside = h >= 0 && h < IH && w >= 0 && w < IW; /* zeros, too, meet weights that may be infinite */
                    const float *from = inside ? image + (h * 416 + w * 32) : NULL;
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

void k91ef0b36f9e7(void *const *buf, const int64_t *dim, void *scratch, int64_t begin, int64_t end) {
    struct call at = {.buf = buf}, *c = &at;
    (void)dim;
    const float *x = (const float *)buf[0], *sums = buf[1];
    const float *weights = (const float *)buf[3];
    const uint8_t *odd = buf[2];
    (void)scratch;
    for (int64_t t = begin; t < end; t++) {
        if (odd[t]) {
            sum_plainly(c, x, weights, t, 0, GROUPS * OC);
        } else {
            transform_out(c, sums + t * WIDE, t, 0, GROUPS * OC);
        }
    }
}
