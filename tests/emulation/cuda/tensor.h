// What PTX does for a whole warp: products on tensor cores, ldmatrix, asynchronous copies. Fragments lie as in the PTX
// ISA, "Matrix fragments for mma". Sums are taken in double and rounded once; the hardware truncates more.
#pragma once
#include "cuda_bf16.h"
#include "cuda_fp16.h"

namespace t_emulate {

struct Half {
    static constexpr int per_word = 2;
    static float value(uint32_t word, int i) { return __half2float({(unsigned short)(word >> 16 * i)}); }
};
struct Bfloat {
    static constexpr int per_word = 2;
    static float value(uint32_t word, int i) { return __uint_as_float(i ? word & 0xffff0000u : word << 16); }
};
struct Tf32 {  // the low 13 bits are not read
    static constexpr int per_word = 1;
    static float value(uint32_t word, int) { return __uint_as_float(word & ~0x1fffu); }
};

struct Mma {
    float *d;
    const uint32_t *a, *b;
};

// d (16 x 8) += a (16 x 8 P) b (8 P x 8), where P elements are in a word. Thread 4 g + t of the warp holds
//   d[2 i + j]          row g + 8 i, column 2 t + j
//   a[i + 2 k]          row g + 8 i, columns P t + 4 P k and on
//   b[k]                rows P t + 4 P k and on, column g
template <class Type> void mma_all(void *const lanes[warp_threads]) {
    constexpr int P = Type::per_word, depth = 8 * P;
    float a[16][depth], b[depth][8];
    for (int lane = 0; lane < warp_threads; ++lane) {
        const Mma *mine = (const Mma *)lanes[lane];
        if (!mine) fail("mma without lane %d of the warp", lane);
        const int g = lane / 4, t = lane % 4;
        for (int k = 0; k < 2; ++k)
            for (int e = 0; e < P; ++e) {
                const int inner = P * t + 4 * P * k + e;
                for (int i = 0; i < 2; ++i) a[g + 8 * i][inner] = Type::value(mine->a[i + 2 * k], e);
                b[inner][g] = Type::value(mine->b[k], e);
            }
    }
    for (int lane = 0; lane < warp_threads; ++lane) {
        for (int e = 0; e < 4; ++e) {
            const int row = lane / 4 + 8 * (e / 2), column = 2 * (lane % 4) + e % 2;
            float &d = ((Mma *)lanes[lane])->d[e];
            double sum = d;
            for (int k = 0; k < depth; ++k) sum += (double)a[row][k] * b[k][column];
            d = (float)sum;
        }
    }
}

template <class Type> void mma(float d[4], const uint32_t a[4], const uint32_t b[2]) {
    Mma mine = {d, a, b};
    meet_warp(0xffffffffu, mma_all<Type>, &mine);
}

struct Ldmatrix {
    uint32_t *words;
    const void *row;
};

// Thread 8 m + r names row r of matrix m (8 x 8 of 16 bits), and gets in words[m] columns 2 t, 2 t + 1 of row g; of the
// transpose if `trans`.
template <int count, bool trans> void ldmatrix_all(void *const lanes[warp_threads]) {
    uint16_t rows[8 * count][8];
    for (int lane = 0; lane < warp_threads; ++lane) {
        const Ldmatrix *mine = (const Ldmatrix *)lanes[lane];
        if (!mine) fail("ldmatrix without lane %d of the warp", lane);
        if (lane >= 8 * count) continue;
        if ((uintptr_t)mine->row % 16) fail("ldmatrix: the row of lane %d is not aligned to 16 bytes", lane);
        memcpy(rows[lane], mine->row, 16);
    }
    for (int lane = 0; lane < warp_threads; ++lane)
        for (int m = 0; m < count; ++m) {
            uint32_t word = 0;
            for (int e = 0; e < 2; ++e) {
                const int g = lane / 4, c = 2 * (lane % 4) + e;
                word |= (uint32_t)(trans ? rows[8 * m + c][g] : rows[8 * m + g][c]) << 16 * e;
            }
            ((Ldmatrix *)lanes[lane])->words[m] = word;
        }
}

template <int count, bool trans> void ldmatrix(uint32_t *words, const void *row) {
    Ldmatrix mine = {words, row};
    meet_warp(0xffffffffu, ldmatrix_all<count, trans>, &mine);
}

}  // namespace t_emulate

inline void t_emulate_mma_m16n8k16_f16(float d[4], const uint32_t a[4], const uint32_t b[2]) { t_emulate::mma<t_emulate::Half>(d, a, b); }
inline void t_emulate_mma_m16n8k16_bf16(float d[4], const uint32_t a[4], const uint32_t b[2]) { t_emulate::mma<t_emulate::Bfloat>(d, a, b); }
inline void t_emulate_mma_m16n8k8_tf32(float d[4], const uint32_t a[4], const uint32_t b[2]) { t_emulate::mma<t_emulate::Tf32>(d, a, b); }

inline void t_emulate_ldmatrix_x4(uint32_t r[4], const void *shared) { t_emulate::ldmatrix<4, false>(r, shared); }
inline void t_emulate_ldmatrix_x4_trans(uint32_t r[4], const void *shared) { t_emulate::ldmatrix<4, true>(r, shared); }
inline void t_emulate_ldmatrix_x2(uint32_t r[2], const void *shared) { t_emulate::ldmatrix<2, false>(r, shared); }
inline void t_emulate_ldmatrix_x2_trans(uint32_t r[2], const void *shared) { t_emulate::ldmatrix<2, true>(r, shared); }

// Done at once: a missing wait is not found.
inline void t_emulate_cp_async16(void *to, const void *from) {
    if (((uintptr_t)to | (uintptr_t)from) % 16) t_emulate::fail("cp.async: an address is not aligned to 16 bytes");
    memcpy(to, from, 16);
}
