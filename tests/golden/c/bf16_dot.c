/* c[m][n] = epilogue(sum over k of a[m][k] * b[k][n]) of bf16, summed in f32; b in panels
 * [ceil(N / 16)][ceil(K / 32) * 16][16] of words of two k, zero padded.
 * Task: a block of rows by a block of columns. */
#define T_MR 8
#define T_NV 3
#define T_BF16_DOT 1
#define T_FLUSHES 1
#include "t_kernel.h"

T_FN f32v t_decode_bf16(u16v x) {
    return (f32v)(T_CONV(x, u32) << 16u);
}

T_DEF_READS(bf16, f32, u16, uint16_t)

#include "t_bf16_vectors.h"

/* The arguments of the kernel, and where a task is. */
struct call {
    void *const *buf;
    int64_t s0;
};

#define M (c->s0)
#define N 40
#define K 48
#define PANEL ((K + 31) / 32 * 256) /* words */
#define A_ROW 48
#define TILES ((c->s0 + 7) / 8)
#define GROUPS 1

/* ---- epilogue ---- */
/* Stores one vector of row m from column n on. */
T_FN void finish(const struct call *c, int64_t m, int64_t n, f32v acc, int64_t count) {
    (void)m, (void)n;
    const float *b2 = c->buf[2];
    float *b3 = c->buf[3];
    (void)c, (void)count;
    if (count >= 16) {
        const f32v v0 = t_max_f32((acc + t_load_f32(b2 + n)), t_splat_f32(0.0f));
        t_store_f32(b3 + 40 * m + n, v0);
    } else {
        const f32v v0 = t_max_f32((acc + t_loadn_f32(b2 + n, count)), t_splat_f32(0.0f));
        t_storen_f32(b3 + 40 * m + n, v0, count);
    }
}

/* The epilogue of a tile whose sums are [rows][T_NR]. */
static __attribute__((noinline)) void finish_tile(const struct call *c, int rows, int vecs, int64_t m, int64_t n,
    const float *sums) {
    for (int r = 0; r < rows; r++) {
        for (int v = 0; v < vecs; v++) {
            const int64_t column = n + v * 16;
            const f32v acc = t_load_f32(sums + r * T_NR + v * 16);
            if (column < N) finish(c, m + r, column, acc, N - column);
        }
    }
}

/* ---- tiles ---- */
T_FN void tile(const struct call *c, const int rows, const int vecs, int64_t m, int64_t n, const uint16_t *a,
    const uint32_t *b) {
    _Alignas(64) float sums[T_MR * T_NR];
    t_bf16_sums(rows, vecs, (int)K, a, A_ROW, b, PANEL, sums);
    finish_tile(c, rows, vecs, m, n, sums);
}

/* ---- tasks ---- */
void ke135f6de2c6a(void *const *buf, const int64_t *dim, void *scratch, int64_t begin, int64_t end) {
    struct call at = {.buf = buf, .s0 = dim[0]}, *c = &at;
    const int64_t m_blocks = t_imin(((c->s0 + 7) / 8), t_imax(1, ((c->s0 + 48) / 96))), n_blocks = 1;
    (void)scratch;
    for (int64_t task = begin; task < end; task++) {
        const int64_t nb = task % n_blocks, block = task / n_blocks, mb = block % m_blocks;
        const int64_t t0 = t_cut(TILES, m_blocks, mb), t1 = t_cut(TILES, m_blocks, mb + 1);
        const int64_t p0 = t_cut(GROUPS, n_blocks, nb), p1 = t_cut(GROUPS, n_blocks, nb + 1);
        const uint16_t *a = buf[0];
        const uint32_t *b = buf[1];
        for (int64_t p = p0; p < p1; p++) {
            const uint32_t *group = b + p * (T_NR / 16 * PANEL);
            for (int64_t t = t0; t < t1; t++) {
                const int64_t m = t_cut(M, TILES, t);
                const int64_t rows = t_cut(M, TILES, t + 1) - m;
                (void)rows;
                switch (rows) {
                    case 8: tile(c, 8, 3, m, p * T_NR, a + m * A_ROW, group); break;
                    case 7: tile(c, 7, 3, m, p * T_NR, a + m * A_ROW, group); break;
                    case 6: tile(c, 6, 3, m, p * T_NR, a + m * A_ROW, group); break;
                    case 5: tile(c, 5, 3, m, p * T_NR, a + m * A_ROW, group); break;
                    case 4: tile(c, 4, 3, m, p * T_NR, a + m * A_ROW, group); break;
                    case 3: tile(c, 3, 3, m, p * T_NR, a + m * A_ROW, group); break;
                    case 2: tile(c, 2, 3, m, p * T_NR, a + m * A_ROW, group); break;
                    case 1: tile(c, 1, 3, m, p * T_NR, a + m * A_ROW, group); break;
                }
            }
        }
    }
}
