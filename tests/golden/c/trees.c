#include "t_kernel.h"

typedef struct {
    float value;
    int32_t feature, next, what;
} t_node;

enum { WAYS = 16, STEPS = 4, TREES = 1, TARGETS = 1 };

/* The node behind one, and a leaf behind itself; `lost`: whether the row may hold NaN. */
T_FN int32_t step(const t_node *nodes, int32_t at, const float *row, const int lost) {
    const t_node *n = nodes + at;
    const float x = row[n->feature];
    const int holds = x <= n->value;
    if (lost) return n->next + (holds | ((x != x) & (n->what >> 30)));
    return n->next + holds;
}

/* Ways from nodes to leaves; rows lie `stride` apart, 0 where all ways are of one row. */
T_FN void descend(const t_node *nodes, int32_t *at, const float *row, int64_t stride, int32_t depth, const int lost) {
    for (; depth > 0; depth -= STEPS) {
        int32_t moved = 0;
        for (int s = 1; s < STEPS; s++) {
            for (int j = 0; j < WAYS; j++) at[j] = step(nodes, at[j], row + j * stride, lost);
        }
        for (int j = 0; j < WAYS; j++) {
            const int32_t to = step(nodes, at[j], row + j * stride, lost);
            moved |= to ^ at[j];
            at[j] = to;
        }
        if (!moved) return;
    }
}

T_FN void add_leaf(float *sum, const float *weight) {
    for (int j = 0; j < TARGETS; j++) {
        sum[j] += weight[j];
    }
}

/* All trees of some rows. */
T_FN void walk(const t_node *nodes, const int32_t *roots, const float *weights, const float *from, int64_t stride, int64_t count, float *sums, const int lost) {
    const int64_t whole = count / WAYS * WAYS;
    for (int t = 0; whole > 0 && t < TREES; t++) {
        for (int64_t r = 0; r < whole; r += WAYS) {
            int32_t at[WAYS];
            for (int j = 0; j < WAYS; j++) at[j] = roots[2 * t];
            descend(nodes, at, from + r * stride, stride, roots[2 * t + 1], lost);
            for (int j = 0; j < WAYS; j++) add_leaf(sums + (r + j) * TARGETS, weights + (int64_t)nodes[at[j]].what * TARGETS);
        }
    }
    for (int64_t r = whole; r < count; r++) {
        for (int t = 0; t < TREES; t += WAYS) {
            int32_t at[WAYS], depth = 0;
            for (int j = 0; j < WAYS; j++) {
                const int32_t *tree = roots + 2 * (t + j < TREES ? t + j : TREES - 1);
                at[j] = tree[0];
                depth = tree[1] > depth ? tree[1] : depth;
            }
            descend(nodes, at, from + r * stride, 0, depth, lost);
            for (int j = 0; j < WAYS && t + j < TREES; j++) add_leaf(sums + r * TARGETS, weights + (int64_t)nodes[at[j]].what * TARGETS);
        }
    }
}

void k5d1061142056(void *const *buf, const int64_t *dim, void *scratch, int64_t begin, int64_t end) {
    (void)dim;
    const float *b0 = buf[0];
    const int32_t *b1 = buf[1];
    const int32_t *b2 = buf[2];
    const float *b3 = buf[3];
    float *b4 = buf[4];
    const int64_t s0 = dim[0];
    const t_node *nodes = (const void *)b1;
    const int64_t count = s0, rows = 256, stride = 4;
    float *sums = scratch;
    for (int64_t task = begin; task < end; task++) {
        const int64_t first = task * rows, last = t_imin(first + rows, count);
        const float *from = b0 + first * stride;
        for (int64_t i = 0; i < (last - first) * TARGETS; i++) sums[i] = 0.0f;
        int lost = 0;
        for (int64_t r = 0; r < last - first; r++) {
            for (int64_t f = 0; f < 4; f++) lost |= from[r * stride + f] != from[r * stride + f];
        }
        if (lost) walk(nodes, b2, b3, from, stride, last - first, sums, 1);
        else walk(nodes, b2, b3, from, stride, last - first, sums, 0);
        int64_t n0 = first;
        for (; n0 + 16 <= last; n0 += 16) {
            const f32v acc = t_load_f32(sums + (n0 - first));
            t_store_f32(b4 + n0, acc);
        }
        const int64_t left = last - n0;
        if (left > 0) {
            const f32v acc = t_load_f32(sums + (n0 - first));
            t_storen_f32(b4 + n0, acc, left);
        }
    }
}
