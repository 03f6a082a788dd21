/* c[m][n] = epilogue(sum over k of a[m][k] * b[k][n]) of bf16, summed in f32; b in panels
 * [ceil(N / 16)][ceil(K / 32) * 16][16] of words of two k, zero padded.
 * Task: a block of rows by a block of columns. */
#define T_MR 8
#define T_NV 3
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
#define DEPTH ((K + 1) / 2 * 2) /* elements of a packed row */
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

/* ---- tiles ---- */
struct step {
    const void *b; /* group of columns, floats or words of halves */
    int64_t row;   /* elements from a row to the next */
    int k;
};

T_FN void tile(const struct call *c, const int rows, const int vecs, const int wide, int64_t m, int64_t n, const float *a, struct step s) {
    const float *row[T_MR];
    f32v acc[T_MR][T_NV];
    T_UNROLL for (int r = 0; r < rows; r++) row[r] = a + r * s.row;
    t_tile_open(rows, vecs, NULL, acc);
    if (wide) {
        t_tile_chain(T_SUM_BITS, rows, vecs, s.k, row, s.b, T_NOTHING_AHEAD, acc);
    } else {
        t_bf16_fma(rows, vecs, s.k, row, s.b, PANEL, acc);
    }
    T_UNROLL for (int r = 0; r < rows; r++) {
        T_UNROLL for (int v = 0; v < vecs; v++) {
            const int64_t column = n + v * 16;
            if (column < N) finish(c, m + r, column, acc[r][v], N - column);
        }
    }
}

/* Packs the rows from m0 up to m1. */
static void pack(const struct call *c, const uint16_t *a, int64_t m0, int64_t m1, float *out) {
    (void)c;
    for (int64_t m = m0; m < m1; m++) {
        t_bf16_put(a + m * A_ROW, (int)K, 0, DEPTH, m - m0, out);
        t_bf16_put(NULL, (int)(DEPTH - K), (int)K, DEPTH, m - m0, out);
    }
}

/* ---- tasks ---- */
void ka29a977c10da(void *const *buf, const int64_t *dim, void *scratch, int64_t begin, int64_t end) {
    struct call at = {.buf = buf, .s0 = dim[0]}, *c = &at;
    const int64_t m_blocks = t_imin(((c->s0 + 7) / 8), t_imax(1, ((c->s0 + 96) / 192))), n_blocks = 1;
    int64_t packed = -1; /* block of rows that scratch holds */
    float *own = scratch; /* rows that are packed */
    float *floats = own + (512 * t_idiv((((c->s0 + 7) / 8) - 1), t_imin(((c->s0 + 7) / 8), t_imax(1, ((c->s0 + 96) / 192)))) + 512); /* of a group of columns */
    for (int64_t task = begin; task < end; task++) {
        const int64_t nb = task % n_blocks, block = task / n_blocks, mb = block % m_blocks;
        const int64_t t0 = t_cut(TILES, m_blocks, mb), t1 = t_cut(TILES, m_blocks, mb + 1);
        const int64_t p0 = t_cut(GROUPS, n_blocks, nb), p1 = t_cut(GROUPS, n_blocks, nb + 1);
        const uint16_t *a = buf[0];
        const uint32_t *b = buf[1];
        const int64_t m0 = t_cut(M, TILES, t0);
        const int wide = t1 - t0 >= 4;
        if (block != packed) pack(c, a, m0, t_imin(M, t_cut(M, TILES, t1)), own);
        packed = block;
        for (int64_t p = p0; p < p1; p++) {
            const uint32_t *group = b + p * (T_NR / 16 * PANEL);
            struct step s = {.b = group, .row = DEPTH, .k = (int)DEPTH};
            if (wide) {
                s.b = floats;
                t_bf16_widen(T_NV, s.k, group, PANEL, floats);
            }
            /* What is widened next: memory is asked for it while tiles multiply. */
            const uint32_t *next = group + T_NR / 16 * PANEL;
            const int64_t lines = p + 1 < GROUPS ? DEPTH / 2 : 0;
            for (int64_t t = t0; t < t1; t++) {
                const int64_t m = t_cut(M, TILES, t), rows = t_cut(M, TILES, t + 1) - m;
                if (wide) t_bf16_ask(next, PANEL, lines * (t - t0) / (t1 - t0), lines * (t - t0 + 1) / (t1 - t0));
                const float *row = own + (m - m0) * DEPTH;
                (void)rows;
                switch (rows) {
                    case 8: tile(c, 8, 3, wide, m, p * T_NR, row, s); break;
                    case 7: tile(c, 7, 3, wide, m, p * T_NR, row, s); break;
                    case 6: tile(c, 6, 3, wide, m, p * T_NR, row, s); break;
                    case 5: tile(c, 5, 3, wide, m, p * T_NR, row, s); break;
                    case 4: tile(c, 4, 3, wide, m, p * T_NR, row, s); break;
                    case 3: tile(c, 3, 3, wide, m, p * T_NR, row, s); break;
                    case 2: tile(c, 2, 3, wide, m, p * T_NR, row, s); break;
                    case 1: tile(c, 1, 3, wide, m, p * T_NR, row, s); break;
                }
            }
        }
    }
}
