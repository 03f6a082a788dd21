#include "t_kernel.h"
#include "t_pick.h"

void kcecfd3794f10(void *const *buf, const int64_t *dim, void *scratch, int64_t begin, int64_t end) {
    (void)dim;
    const float *b0 = buf[0];
    float *b1 = buf[1];
    const int64_t width = 60, lines = 120;
    const int64_t columns = 64, together = 546;
    const int64_t pieces = (lines + together - 1) / together;
    unsigned char *space = scratch;
    int64_t *const table0 = (int64_t *)space, *const start0 = table0 + columns;
    int32_t *const step0 = (int32_t *)(start0 + columns);
    space += 20 * columns;
    int64_t *const table1 = (int64_t *)space, *const start1 = table1 + columns;
    int32_t *const step1 = (int32_t *)(start1 + columns);
    space += 20 * columns;
    float *const weight0 = (float *)space;
    space += 4 * columns;
    float *const weight1 = (float *)space;
    space += 4 * columns;
    void *rows0[2];
    int64_t keys0[2];
    for (int i = 0; i < 2; i++, space += 4 * columns) rows0[i] = space;
    int near = T_FAR;
    const int64_t low = 0, size = width;
    for (int64_t task = begin, piece = -1; task < end; task++) {
        if (task / pieces != piece) {
            piece = task / pieces;
            for (int64_t column = 0; column < size; column += 16) {
                const int64_t i2 = low + column;
                {
                    const i64v offset_0 = t_max_i64(t_splat_i64(0), ((t_splat_i64(2 * i2 - 1) + 2 * t_lanes_i64()) >> 2));
                    const i64v offset = offset_0;
                    t_store_i64(table0 + column, offset);
                }
                {
                    const i64v offset_0 = t_add_i64(((t_splat_i64(2 * i2 - 1) + 2 * t_lanes_i64()) >> 2), t_splat_i64(1));
                    const i64v offset_1 = t_min_i64(offset_0, t_splat_i64(29));
                    const i64v offset = offset_1;
                    t_store_i64(table1 + column, offset);
                }
                {
                    const f32v weight_0 = t_cast_i32_f32(t_cast_i64_i32(((t_splat_i64(2 * i2 - 1) + 2 * t_lanes_i64()) & 3)));
                    const f32v weight_1 = t_splat_f32(1.0f) - (weight_0 / t_splat_f32(4.0f));
                    const f32v weight = weight_1;
                    t_store_f32(weight0 + column, weight);
                }
                {
                    const f32v weight_0 = t_cast_i32_f32(t_cast_i64_i32(((t_splat_i64(2 * i2 - 1) + 2 * t_lanes_i64()) & 3)));
                    const f32v weight_1 = weight_0 / t_splat_f32(4.0f);
                    const f32v weight = weight_1;
                    t_store_f32(weight1 + column, weight);
                }
            }
            for (near = T_NEAREST; near > T_FAR; near--) {
                const int64_t span = near == T_NEARER ? 8 : 16;
                int is_near = 1;
                is_near &= t_windows(table0, start0, step0, size, span);
                is_near &= t_windows(table1, start1, step1, size, span);
                if (is_near) break;
            }
            for (int i = 0; i < 2; i++) keys0[i] = INT64_MIN;
        }
        const int64_t first = task % pieces * together, last = t_imin(first + together, lines);
        int64_t i0;
        int64_t i1;
        {
            i1 = first % 40;
            int64_t rest = first / 40;
            i0 = rest;
        }
        for (int64_t line = first; line < last; line++) {
            const f32v f0_0 = t_cast_i32_f32(t_splat_i32((int32_t)(t_imod((2 * i1 - 1), 4))));
            const f32v f0_1 = t_splat_f32(1.0f) - (f0_0 / t_splat_f32(4.0f));
            const f32v f0 = f0_1;
            const f32v f1_0 = t_cast_i32_f32(t_splat_i32((int32_t)(t_imod((2 * i1 - 1), 4))));
            const f32v f1_1 = f1_0 / t_splat_f32(4.0f);
            const f32v f1 = f1_1;
            const int64_t wanted0[] = {600 * i0 + 30 * t_imax(0, t_idiv((2 * i1 - 1), 4)), 600 * i0 + 30 * t_imin((t_idiv((2 * i1 - 1), 4) + 1), 19), };
            for (int i = 0; i < 2; i++) {
                if (!t_keep(rows0, keys0, wanted0, i, 2, 1)) continue;
                float *const row = rows0[i];
                const int64_t from0 = keys0[i];
                if (near) {
                    for (int64_t column = 0; column < size; column += 16) {
                        const int64_t i2 = low + column;
                        (void)i2;
                        const f32v g0 = t_pick_f32(&b0[from0] + start0[column / 16], t_load_i32(step0 + column), near);
                        const f32v g1 = t_pick_f32(&b0[from0] + start1[column / 16], t_load_i32(step1 + column), near);
                        const f32v w0 = t_load_f32(weight0 + column);
                        const f32v w1 = t_load_f32(weight1 + column);
                        const f32v value_0 = (g0 * w0) + (g1 * w1);
                        const f32v value = value_0;
                        t_store_f32(row + column, value);
                    }
                } else {
                    for (int64_t column = 0; column < size; column += 16) {
                        const int64_t i2 = low + column;
                        (void)i2;
                        const f32v g0 = t_gather_f32(&b0[from0], t_load_i64(table0 + column));
                        const f32v g1 = t_gather_f32(&b0[from0], t_load_i64(table1 + column));
                        const f32v w0 = t_load_f32(weight0 + column);
                        const f32v w1 = t_load_f32(weight1 + column);
                        const f32v value_0 = (g0 * w0) + (g1 * w1);
                        const f32v value = value_0;
                        t_store_f32(row + column, value);
                    }
                }
            }
            {
                int64_t column = 0;
                for (; column + 16 <= size; column += 16) {
                    const int64_t i2 = low + column;
                    const f32v r0_0 = t_load_f32((float *)rows0[0] + column);
                    const f32v r0_1 = t_load_f32((float *)rows0[1] + column);
                    const f32v v0 = (r0_0 * f0) + (r0_1 * f1);
                    t_store_f32(b1 + 2400 * i0 + 60 * i1 + i2, v0);
                }
                const int64_t left = size - column;
                if (left > 0) {
                    const int64_t i2 = low + column;
                    const f32v r0_0 = t_load_f32((float *)rows0[0] + column);
                    const f32v r0_1 = t_load_f32((float *)rows0[1] + column);
                    const f32v v0 = (r0_0 * f0) + (r0_1 * f1);
                    t_storen_f32(b1 + 2400 * i0 + 60 * i1 + i2, v0, left);
                }
            }
            /* The next row. */
            if (++i1 == 40) {
                i1 = 0;
                if (++i0 == 3) {
                    i0 = 0;
                }
            }
        }
    }
}
