/* Products of bytes, u8 by i8, by tiles of 16 x 16 sums of i32, as processors with AMX-INT8 have them; compiled for others,
 * the same sums in plain C. They are exact, so both give the same numbers.
 *
 * A tile of the left factor has 16 rows of 64 bytes, which lie where the caller says; the right factor is in panels of 16
 * words of four k. A step adds 64 terms to each sum.
 */
#ifndef T_INT8_AMX_H
#define T_INT8_AMX_H

#include "t_dot.h"

#include <string.h>

/* Where the tiles of the left factor lie, in bytes: from a row to the next, from a step to the next, from 16 rows to the
 * next 16; and the first of each run of `steps` steps. */
struct t_rows {
    const uint8_t *a;
    int64_t row, step, below;
    const int64_t *runs;
    int count, steps;
};

/* Two panels of the right factor, and two that are multiplied later, whose halves are asked for from line `line` on, `rate`
 * lines a step, both times 65,536. */
struct t_weights {
    const int32_t *at;
    int64_t panel;
    const int32_t *next;
    int64_t line, rate;
};

#ifdef __AMX_INT8__
#include "t_amx.h"

/* Tiles 0 to 3 are sums, two by two; 4 and 5 of the left factor, 6 and 7 of the right one. */
T_FN void t_int8_open(void) {
    struct {
        uint8_t palette, start, reserved[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } tiles = {.palette = 1};
    for (int i = 0; i < 8; i++) tiles.bytes[i] = 64, tiles.rows[i] = 16;
    T_AMX_CONFIGURE(&tiles);
}

/* A tile that is left in use makes every switch of threads slower. */
T_FN void t_int8_close(void) { T_AMX_RELEASE(); }

/* sums[T_NR] rows of `down` x `across` tiles: sums of 64 terms a step. */
T_FN void t_int8_sums(const int down, const int across, struct t_rows x, struct t_weights w, int32_t *sums) {
    const int32_t *b = w.at;
    const int row = T_NR * (int)sizeof(int32_t);
    T_AMX_ZERO(0);
    if (across > 1) T_AMX_ZERO(1);
    if (down > 1) T_AMX_ZERO(2);
    if (down > 1 && across > 1) T_AMX_ZERO(3);
    for (int run = 0; run < x.count; run++) {
        const uint8_t *a = x.a + x.runs[run];
        for (int i = 0; i < x.steps; i++, a += x.step, b += 256) {
            T_AMX_LOAD(6, b, 64);
            T_AMX_SPACE();
            if (across > 1) T_AMX_LOAD(7, b + w.panel, 64);
            T_AMX_SPACE();
            T_AMX_LOAD(4, a, x.row);
            T_AMX_SPACE();
            if (down > 1) T_AMX_LOAD(5, a + x.below, x.row);
            T_AMX_SPACE();
            T_AMX_DOT_U8_I8(0, 4, 6);
            T_AMX_SPACE();
            if (down > 1) T_AMX_DOT_U8_I8(2, 5, 6);
            T_AMX_SPACE();
            if (across > 1) T_AMX_DOT_U8_I8(1, 4, 7);
            T_AMX_SPACE();
            if (down > 1 && across > 1) T_AMX_DOT_U8_I8(3, 5, 7);
            T_AMX_SPACE();
            w.line = t_panels_ahead(1, (const uint32_t *)w.next, w.panel, w.panel / 2, w.line, w.rate);
            if (i % 8 == 3 && i > 3) T_AMX_STORE(0, sums, row); /* see t_bf16_stay_awake_ */
        }
    }
    T_AMX_STORE(0, sums, row);
    if (across > 1) T_AMX_STORE(1, sums + 16, row);
    if (down > 1) T_AMX_STORE(2, sums + 16 * T_NR, row);
    if (down > 1 && across > 1) T_AMX_STORE(3, sums + 16 * T_NR + 16, row);
}
#else
T_FN void t_int8_open(void) {}
T_FN void t_int8_close(void) {}

static __attribute__((noinline, unused)) void t_int8_sums(int down, int across, struct t_rows x, struct t_weights w,
                                                          int32_t *sums) {
    for (int r = 0; r < 16 * down; r++)
        for (int n = 0; n < 16 * across; n += TORSHC_LANES) {
            const uint8_t *from = x.a + r / 16 * x.below + r % 16 * x.row;
            const int32_t *by = w.at + n / 16 * w.panel + n % 16;
            i32v acc = {0};
            for (int i = 0; i < x.count * x.steps; i++) {
                const uint8_t *at = from + x.runs[i / x.steps] + i % x.steps * x.step;
                for (int q = 0; q < 16; q++) acc = t_dot4(acc, t_quad(at + 4 * q, 4), t_load_i32(by + 256 * i + 16 * q));
            }
            t_store_i32(sums + r * T_NR + n, acc);
        }
}
#endif

/* Bytes of row `row` of a block of rows into its tiles, from place `at` of its `depth` on; `fill` where there are none. */
T_FN void t_int8_put(const uint8_t *a, int fill, int count, int at, int depth, int64_t row, uint8_t *out) {
    out += row / 16 * 16 * depth + row % 16 * 64;
    for (int i = 0, some; i < count; i += some) {
        uint8_t *to = out + (at + i) / 64 * 1024 + (at + i) % 64;
        some = (int)t_imin(64 - (at + i) % 64, count - i);
        if (!a) memset(to, fill, (size_t)some);
        else if (some == 64) memcpy(to, a + i, 64);
        else memcpy(to, a + i, (size_t)some);
    }
}

#endif
