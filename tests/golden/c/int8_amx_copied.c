/* c[m][n] = epilogue(sum over k of a[m][k] * b[k][n]) of u8 and i8, summed in i32; b in panels
 * [ceil(N / 16)][ceil(K / 64) * 16][16] of words of four k, zero padded.
 * A row is what the taps of a pixel of a convolution read. A task copies rows of the image with their margins, WIDTH pixels
 * each: what a row of the kernel reads lies there as it is needed, and pixels as far apart as their rows in a tile.
 * Those that a row of the copy has more than the result are computed too, and not stored.
 * Task: a block of rows by a block of columns. */
#define T_MR 32
#define T_NV 2
#include "t_int8_amx.h"

/* The arguments of the kernel, and where a task is. */
struct call {
    void *const *buf;
};

#define M 40
#define N 24
#define K 288
#define STEPS (3 * RUN)
#define RUN 2 /* steps of a row of the kernel */
#define PANEL (STEPS * 256) /* words */
#define IC 32
#define IH 9
#define IW 8
#define OH 5
#define OW 8
#define X_IMAGE 2304
#define X_ROW 256
#define X_PIXEL 32
#define WIDTH (OW + 2) /* pixels of a row of the copy */
#define PIXEL IC
#define PITCH (WIDTH * PIXEL)
#define GROUPS 1
#define BESIDE 2 /* groups of columns that a tile of rows is multiplied by before the next one */

/* ---- epilogue ---- */
/* Stores one vector of row m from column n on. */
T_FN void finish(const struct call *c, int64_t m, int64_t n, i32v acc, int64_t count) {
    (void)m, (void)n;
    const int64_t w0 = m;
    const int32_t *b3 = c->buf[3];
    uint8_t *b4 = c->buf[4];
    (void)c, (void)count;
    if (count >= 16) {
        const f32v v0 = t_cast_i32_f32((t_sub_i32(acc, t_load_i32(b3 + n)))) * t_splat_f32(0.02f);
        const u8v v1 = t_whole_f32_u8(v0, 3);
        t_store_u8(b4 + n + 24 * w0, v1);
    } else {
        const f32v v0 = t_cast_i32_f32((t_sub_i32(acc, t_loadn_i32(b3 + n, count))));
        const u8v v1 = t_whole_f32_u8((v0 * t_splat_f32(0.02f)), 3);
        t_storen_u8(b4 + n + 24 * w0, v1, count);
    }
}

/* The epilogue of a tile whose sums are [rows][T_NR]. */
static __attribute__((noinline)) void finish_tile(const struct call *from, int rows, int vecs, int64_t m, int64_t n,
    const int32_t *sums) {
    void *const buf[] = {from->buf[0], from->buf[1], from->buf[2], from->buf[3], from->buf[4]};
    struct call own = *from, *c = &own;
    own.buf = buf;
    if (vecs == T_NV && n + T_NR <= N) {
        for (int r = 0; r < rows; r++)
        T_UNROLL for (int v = 0; v < T_NV; v++)
        finish(c, m + r, n + v * 16, t_load_i32(sums + r * T_NR + v * 16), 16);
        return;
    }
    for (int r = 0; r < rows; r++) {
        for (int v = 0; v < vecs; v++) {
            const int64_t column = n + v * 16;
            const i32v acc = t_load_i32(sums + r * T_NR + v * 16);
            if (column < N) finish(c, m + r, column, acc, N - column);
        }
    }
}

/* ---- tiles ---- */
/* Rows of a tile by a group of columns: the first row, their number, and the group. */
struct part {
    int64_t m, p;
    int rows;
    int64_t q, pixel; /* of the copy the first pixel, and of the image the one that pixel 0 of the copy is */
};

/* Sums of one part are stored while those of the next are made. */
struct sums {
    _Alignas(64) int32_t tile[2][T_MR * T_NR];
    struct part part;
    int turn;
};

static void finish_part(const struct call *c, struct sums *s) {
    const int narrow = N - s->part.p * T_NR <= 16;
    const int32_t *tile = s->tile[s->turn];
    for (int r = 0, some; r < s->part.rows; r += some) {
        const int64_t h = (s->part.q + r) / WIDTH, w = (s->part.q + r) % WIDTH;
        some = (int)t_imin((w < OW ? OW : WIDTH) - w, s->part.rows - r);
        if (w < OW) finish_tile(c, some, narrow ? T_NV / 2 : T_NV, s->part.pixel + h * OW + w, s->part.p * T_NR, tile + r * T_NR);
    }
    s->part.rows = 0;
}

/* The weights of a group of columns, and a part for the nth of some tiles of those that are read when these are done. */
static struct t_weights weights_of(const struct call *c, const int32_t *b, int64_t p, int64_t nth, int64_t tiles) {
    (void)c;
    const int32_t *at = b + p * (T_NR / 16 * PANEL);
    const int64_t rate = p + BESIDE < GROUPS ? (8 << 16) / tiles : 0; /* of the 8 lines of half a step */
    return (struct t_weights){at, PANEL, at + BESIDE * (T_NR / 16 * PANEL), nth * STEPS * rate, rate};
}

/* Makes the sums of a part, and finishes the one before. */
static void multiply(const struct call *c, struct sums *s, struct part part, struct t_rows x, struct t_weights w) {
    const int low = part.rows <= 16, narrow = N - part.p * T_NR <= 16;
    int32_t *sums = s->tile[!s->turn];
    if (low && narrow) t_int8_sums(1, 1, x, w, sums);
    else if (low) t_int8_sums(1, 2, x, w, sums);
    else if (narrow) t_int8_sums(2, 1, x, w, sums);
    else t_int8_sums(2, 2, x, w, sums);
    if (s->part.rows) finish_part(c, s);
    s->part = part;
    s->turn = !s->turn;
}

/* Copies what output rows from h0 on read of an image: rows of it that are 2 apart follow each other, and every first of
 * them is `plane` bytes behind the one before. */
static void pack(const struct call *c, const uint8_t *image, int margin, int64_t h0, int64_t rows, int64_t plane, uint8_t *out) {
    const int64_t left = 1, there = t_imin(IW, WIDTH - left), top = h0 * 2 - 1;
    (void)c;
    for (int64_t i = 0; i < rows; i++) {
        const int64_t h = top + i;
        uint8_t *to = out + i % 2 * plane + i / 2 * PITCH;
        if (h < 0 || h >= IH) {
            memset(to, margin, PITCH);
            continue;
        }
        memset(to, margin, left * IC);
        if (X_PIXEL == IC) memcpy(to + left * IC, image + h * X_ROW, there * IC);
        else
        for (int64_t w = 0; w < there; w++) memcpy(to + (left + w) * IC, image + h * X_ROW + w * X_PIXEL, IC);
        memset(to + (left + there) * IC, margin, PITCH - (left + there) * IC);
    }
}

/* ---- tasks ---- */
void kc3b0fa3f6c6e(void *const *buf, const int64_t *dim, void *scratch, int64_t begin, int64_t end) {
    struct call at = {.buf = buf}, *c = &at;
    (void)dim;
    const int64_t m_blocks = 1, n_blocks = 1;
    const int margin = *(const uint8_t *)buf[2];
    const int64_t h_blocks = 1; /* of an image */
    int64_t runs[3];
    int64_t packed = -1; /* block of rows that scratch holds */
    struct sums sums = {.turn = 0};
    t_int8_open();
    for (int64_t task = begin; task < end; task++) {
        const int64_t nb = task % n_blocks, block = task / n_blocks, mb = block % m_blocks;
        const int64_t p0 = t_cut(GROUPS, n_blocks, nb), p1 = t_cut(GROUPS, n_blocks, nb + 1);
        const uint8_t *a = buf[0];
        const int32_t *b = buf[1];
        const int64_t n = mb / h_blocks, h0 = t_cut(OH, h_blocks, mb % h_blocks), rows = t_cut(OH, h_blocks, mb % h_blocks + 1) - h0;
        const int64_t count = rows * WIDTH, plane = (rows + 1) * PITCH;
        if (block != packed) pack(c, a + n * X_IMAGE, margin, h0, (rows - 1) * 2 + 3, plane, scratch);
        packed = block;
        for (int i = 0; i < 3; i++) runs[i] = i % 2 * plane + i / 2 * PITCH;
        for (int64_t p2 = p0; p2 < p1; p2 += BESIDE)
        for (int64_t q = 0; q < count; q += T_MR)
        for (int64_t p = p2; p < t_imin(p1, p2 + BESIDE); p++) {
            const struct part part = {.p = p, .rows = (int)t_imin(T_MR, count - q), .q = q, .pixel = (n * OH + h0) * OW};
            const struct t_rows x = {(const uint8_t *)scratch + q * PIXEL, PIXEL, 64, 16 * PIXEL, runs, 3, RUN};
            multiply(c, &sums, part, x, weights_of(c, b, p, q / T_MR, (count + T_MR - 1) / T_MR));
        }
        if (sums.part.rows) finish_part(c, &sums);
    }
    t_int8_close();
}
