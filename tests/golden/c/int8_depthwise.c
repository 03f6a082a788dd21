/* Depthwise convolution of bytes, channels-last, summed in i32.  A tile is a few neighbouring pixels of a row by one vector
 * of channels.  Bytes of up to four kernel rows are joined in words, each of which serves every tap that it belongs to.
 * Rows outside the image read a row of the margin's byte; columns whose window crosses the border take the slower `edge`.
 * Weights: [vector of channels][ceil(KH / 4)][KW][lanes] in words.  Task: (image, block of channels, block of rows). */
#define T_MR 1
#define T_NV 1
#include "t_dot.h"

#include <string.h>

/* The arguments of the kernel, and where a task is. */
struct call {
    void *const *buf;
};

#define OH 9
#define OW 8
#define IH 9
#define IW 8
#define CHANNELS 16
#define VECTORS 1
#define KH 3
#define KW 3
#define FOURS ((KH + 3) / 4)
#define PAD_H 1
#define PAD_W 1
#define X_ROW 128
#define X_PIXEL 16

/* ---- epilogue ---- */
/* Stores one vector of pixel m from channel n on. */
T_FN void finish(const struct call *c, int64_t m, int64_t n, i32v acc, int64_t count) {
    (void)m, (void)n;
    const int64_t w0 = m;
    const int32_t *b3 = c->buf[3];
    uint8_t *b4 = c->buf[4];
    (void)c, (void)count;
    const f32v v0 = t_cast_i32_f32((t_sub_i32(acc, t_load_i32(b3 + n)))) * t_splat_f32(0.02f);
    const u8v v1 = t_whole_f32_u8(v0, 3);
    t_store_u8(b4 + n + 16 * w0, v1);
}

/* ---- tiles ---- */
/* An output row: where each kernel row reads, from the first column on, and its step from a pixel to the next. */
struct row {
    const uint8_t *x[KH];
    int64_t step[KH], pixel;
    const uint8_t *margin;
};

/* Bytes that up to four kernel rows from row `first` on read at a column, or in the margin. */
T_FN u32v t_joined(const struct row *s, const int first, int64_t column, int64_t n, int64_t count, const int inside) {
    u32v word = {0};
    T_UNROLL for (int i = 0; i < 4; i++) {
        if (first + i >= KH) continue;
        const uint8_t *from = inside ? s->x[first + i] + column * s->step[first + i] : s->margin;
        word |= (u32v)T_CONV(t_loadn_u8(from + n, count), i32) << 8 * i;
    }
    return word;
}

/* `cols` pixels from column w on, the vector of channels that starts at n. */
T_FN void tile(const struct call *c, const int cols, const struct row *s, int64_t w, int64_t n, int64_t count) {
    const int32_t *taps = (const int32_t *)c->buf[1] + n * (FOURS * KW);
    const int64_t column = w - PAD_W;
    i32v acc[4];
    T_UNROLL for (int i = 0; i < cols; i++) acc[i] = (i32v){0};
    T_UNROLL for (int four = 0; four < FOURS; four++, taps += KW * 16) {
        u32v in[6];
        T_UNROLL for (int j = 0; j < (cols - 1) + 3; j++) in[j] = t_joined(s, 4 * four, column + j, n, count, 1);
        T_UNROLL for (int j = 0; j < KW; j++) {
            const i32v tap = t_load_i32(taps + j * 16);
            T_UNROLL for (int i = 0; i < cols; i++) acc[i] = t_dot4(acc[i], in[i + j], tap);
        }
    }
    T_UNROLL for (int i = 0; i < cols; i++) finish(c, s->pixel + w + i, n, acc[i], count);
}

static void edge(const struct call *c, const struct row *s, int64_t w, int64_t n, int64_t count) {
    const int32_t *taps = (const int32_t *)c->buf[1] + n * (FOURS * KW);
    i32v acc = {0};
    T_UNROLL for (int four = 0; four < FOURS; four++) {
        for (int j = 0; j < KW; j++, taps += 16) {
            const int64_t column = w - PAD_W + j;
            acc = t_dot4(acc, t_joined(s, 4 * four, column, n, count, column >= 0 && column < IW), t_load_i32(taps));
        }
    }
    finish(c, s->pixel + w, n, acc, count);
}

T_FN void pixels(const struct call *c, const struct row *s, int64_t w, int64_t cols, int64_t n, int64_t count) {
    switch (cols) {
        case 1: tile(c, 1, s, w, n, count); break;
        case 2: tile(c, 2, s, w, n, count); break;
        case 3: tile(c, 3, s, w, n, count); break;
        case 4: tile(c, 4, s, w, n, count); break;
    }
}

/* ---- rows ---- */
/* The channels of the vectors from v0 up to v1; the columns from inner0 up to inner1 see no border. */
static void line(const struct call *from, const struct row *s, int64_t v0, int64_t v1) {
    void *const buf[] = {from->buf[0], from->buf[1], from->buf[2], from->buf[3], from->buf[4]};
    struct call own = *from, *c = &own;
    own.buf = buf;
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
void k70ce9208bc37(void *const *buf, const int64_t *dim, void *scratch, int64_t begin, int64_t end) {
    struct call at = {.buf = buf}, *c = &at;
    (void)dim;
    const int64_t h_blocks = 1, c_blocks = 1;
    memset(scratch, *(const uint8_t *)buf[2], CHANNELS);
    for (int64_t task = begin; task < end; task++) {
        const int64_t hb = task % h_blocks, cb = task / h_blocks % c_blocks, n = task / (h_blocks * c_blocks);
        const int64_t v0 = t_cut(VECTORS, c_blocks, cb), v1 = t_cut(VECTORS, c_blocks, cb + 1);
        for (int64_t h = t_cut(OH, h_blocks, hb); h < t_cut(OH, h_blocks, hb + 1); h++) {
            const uint8_t *image = (const uint8_t *)buf[0] + n * 1152;
            struct row s = {.pixel = (n * OH + h) * OW, .margin = scratch};
            for (int i = 0; i < KH; i++) {
                const int64_t ih = h - PAD_H + i, inside = ih >= 0 && ih < IH;
                s.x[i] = inside ? image + ih * X_ROW : s.margin;
                s.step[i] = inside ? X_PIXEL : 0;
            }
            line(c, &s, v0, v1);
        }
    }
}
