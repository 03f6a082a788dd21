/* Depthwise convolution, channels-last.  A tile is a few neighbouring pixels of a row by one vector of channels: each
 * input vector is loaded once and serves every tap that it belongs to.  Rows outside the image are skipped; only the
 * columns whose window crosses the border take the slower `edge`.
 * Weights: [vector of channels][KH][KW][lanes].  Task: (image, block of channels, block of rows). */
#define T_MR 1
#define T_NV 1
#define T_FEW_TYPES
#include "t_tile.h"

/* The arguments of the kernel, and where a task is. */
struct call {
    void *const *buf;
};

#define OH 7
#define OW 7
#define IH 7
#define IW 7
#define CHANNELS 16
#define VECTORS 1
#define KH 3
#define KW 3
#define PAD_H 1
#define PAD_W 1
#define X_ROW 112
#define X_PIXEL 16

/* ---- epilogue ---- */
/* Stores one vector of pixel m from channel n on. */
T_FN void finish(const struct call *c, int64_t m, int64_t n, f32v acc, int64_t count) {
    (void)m, (void)n;
    const int64_t w0 = m;
    float *b2 = c->buf[2];
    (void)c, (void)count;
    t_store_f32(b2 + n + 16 * w0, acc);
}

/* ---- tiles ---- */
/* First and past-the-last tap that fall inside 0..size-1 for a window that starts at i. */
T_FN int64_t tap_begin(int64_t i, int64_t step) { return i < 0 ? (-i + step - 1) / step : 0; }
T_FN int64_t tap_end(int64_t i, int64_t size, int64_t taps, int64_t step) {
    return i < size ? t_imin(taps, (size - 1 - i) / step + 1) : 0;
}

/* An output row: x is the input row of its first tap, the taps in the image are those from kh0 up to kh1. */
struct row {
    const float *x;
    int64_t kh0, kh1, pixel;
};

/* `cols` pixels from column w on, the vector of channels that starts at n. */
T_FN void tile(const struct call *c, const int cols, struct row s, int64_t w, int64_t n, int64_t count) {
    const float *taps = (const float *)c->buf[1] + n * (KH * KW);
    const float *x = s.x + (w - PAD_W) * X_PIXEL + n;
    f32v acc[4];
    T_UNROLL for (int i = 0; i < cols; i++) acc[i] = (f32v){0};
    for (int64_t kh = s.kh0; kh < s.kh1; kh++, x += X_ROW) {
        f32v in[6];
        T_UNROLL for (int j = 0; j < (cols - 1) + 3; j++) in[j] = t_loadn_f32(x + j * X_PIXEL, count);
        T_UNROLL for (int j = 0; j < KW; j++) {
            const f32v tap = t_load_f32(taps + (kh * KW + j) * 16);
            T_UNROLL for (int i = 0; i < cols; i++) acc[i] += in[i + j] * tap;
        }
    }
    T_UNROLL for (int i = 0; i < cols; i++) finish(c, s.pixel + w + i, n, acc[i], count);
}

static void edge(const struct call *c, struct row s, int64_t w, int64_t n, int64_t count) {
    const int64_t i = w - PAD_W, kw0 = tap_begin(i, 1), kw1 = tap_end(i, IW, KW, 1);
    const float *taps = (const float *)c->buf[1] + n * (KH * KW);
    f32v acc = {0};
    for (int64_t kh = s.kh0; kh < s.kh1; kh++) {
        const float *x = s.x + (kh - s.kh0) * X_ROW + n;
        for (int64_t kw = kw0; kw < kw1; kw++) {
            acc += t_loadn_f32(x + (i + kw) * X_PIXEL, count) * t_load_f32(taps + (kh * KW + kw) * 16);
        }
    }
    finish(c, s.pixel + w, n, acc, count);
}

T_FN void pixels(const struct call *c, struct row s, int64_t w, int64_t cols, int64_t n, int64_t count) {
    switch (cols) {
        case 1: tile(c, 1, s, w, n, count); break;
        case 2: tile(c, 2, s, w, n, count); break;
        case 3: tile(c, 3, s, w, n, count); break;
        case 4: tile(c, 4, s, w, n, count); break;
    }
}

/* ---- rows ---- */
/* The channels of the vectors from v0 up to v1; the columns from inner0 up to inner1 see no border. */
static void line(const struct call *c, struct row s, int64_t v0, int64_t v1) {
    const int64_t last = IW + PAD_W - 3;
    const int64_t inner0 = t_imax(0, t_imin(OW, PAD_W));
    const int64_t inner1 = t_imax(inner0, t_imin(OW, last < 0 ? 0 : last + 1));
    const int64_t tiles = (inner1 - inner0 + 3) / 4, full = t_imin(v1, CHANNELS / 16);
    for (int64_t w = 0; w < inner0; w++) {
        for (int64_t v = v0; v < v1; v++) edge(c, s, w, v * 16, t_imin(16, CHANNELS - v * 16));
    }
    for (int64_t t = 0; t < tiles; t++) {
        const int64_t w = inner0 + t_cut(inner1 - inner0, tiles, t);
        const int64_t cols = inner0 + t_cut(inner1 - inner0, tiles, t + 1) - w;
        for (int64_t v = v0; v < full; v++) pixels(c, s, w, cols, v * 16, 16);
    }
    for (int64_t w = inner1; w < OW; w++) {
        for (int64_t v = v0; v < v1; v++) edge(c, s, w, v * 16, t_imin(16, CHANNELS - v * 16));
    }
}

/* ---- tasks ---- */
void kfd0bff40934c(void *const *buf, const int64_t *dim, void *scratch, int64_t begin, int64_t end) {
    struct call at = {.buf = buf}, *c = &at;
    (void)dim;
    const int64_t h_blocks = 1, c_blocks = 1;
    (void)scratch;
    for (int64_t task = begin; task < end; task++) {
        const int64_t hb = task % h_blocks, cb = task / h_blocks % c_blocks, n = task / (h_blocks * c_blocks);
        const int64_t v0 = t_cut(VECTORS, c_blocks, cb), v1 = t_cut(VECTORS, c_blocks, cb + 1);
        for (int64_t h = t_cut(OH, h_blocks, hb); h < t_cut(OH, h_blocks, hb + 1); h++) {
            const int64_t i = h - PAD_H, kh0 = tap_begin(i, 1);
            const float *x = (const float *)buf[0] + n * 784 + (i + kh0) * X_ROW;
            const struct row s = {x, kh0, tap_end(i, IH, KH, 1), (n * OH + h) * OW};
            line(c, s, v0, v1);
        }
    }
}
