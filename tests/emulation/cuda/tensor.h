// What PTX does for a whole warp: products on tensor cores, ldmatrix, asynchronous copies. Fragments lie as in the PTX
// ISA, "Matrix fragments for mma". Sums are taken in double and rounded toward zero, as on the cards, where terms lose bits too.
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

// The float next to x, no larger in size.
inline float toward_zero(double x) {
    const float near = (float)x;
    return isfinite(x) && fabs((double)near) > fabs(x) ? nextafterf(near, 0.0f) : near;
}

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
            d = toward_zero(sum);
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

// Each lane's word has columns 2 t, 2 t + 1 of row g, and becomes that of the transpose.
inline void transpose_all(void *const lanes[warp_threads]) {
    uint16_t rows[8][8];
    for (int lane = 0; lane < warp_threads; ++lane) {
        if (!lanes[lane]) fail("movmatrix without lane %d of the warp", lane);
        for (int e = 0; e < 2; ++e) rows[lane / 4][2 * (lane % 4) + e] = (uint16_t)(*(uint32_t *)lanes[lane] >> 16 * e);
    }
    for (int lane = 0; lane < warp_threads; ++lane) {
        const int g = lane / 4, c = 2 * (lane % 4);
        *(uint32_t *)lanes[lane] = rows[c][g] | (uint32_t)rows[c + 1][g] << 16;
    }
}

}  // namespace t_emulate

inline void t_emulate_mma_m16n8k16_f16(float d[4], const uint32_t a[4], const uint32_t b[2]) { t_emulate::mma<t_emulate::Half>(d, a, b); }
inline void t_emulate_mma_m16n8k16_bf16(float d[4], const uint32_t a[4], const uint32_t b[2]) { t_emulate::mma<t_emulate::Bfloat>(d, a, b); }
inline void t_emulate_mma_m16n8k8_tf32(float d[4], const uint32_t a[4], const uint32_t b[2]) { t_emulate::mma<t_emulate::Tf32>(d, a, b); }

inline void t_emulate_ldmatrix_x4(uint32_t r[4], const void *shared) { t_emulate::ldmatrix<4, false>(r, shared); }
inline void t_emulate_ldmatrix_x4_trans(uint32_t r[4], const void *shared) { t_emulate::ldmatrix<4, true>(r, shared); }
inline void t_emulate_ldmatrix_x2(uint32_t r[2], const void *shared) { t_emulate::ldmatrix<2, false>(r, shared); }
inline uint32_t t_emulate_transpose(uint32_t x) {
    t_emulate::meet_warp(0xffffffffu, t_emulate::transpose_all, &x);
    return x;
}
inline void t_emulate_ldmatrix_x2_trans(uint32_t r[2], const void *shared) { t_emulate::ldmatrix<2, true>(r, shared); }

// ---- groups of four warps: products from shared memory, barriers that count arrivals ----

namespace t_emulate {

// What 8 bytes of shared memory hold of a barrier: arrivals that are missing in this phase, how many make one, bytes that are
// missing, its parity.
struct Barrier {
    uint16_t missing, count;
    int32_t bytes : 31;
    uint32_t parity : 1;
};
static_assert(sizeof(Barrier) == 8, "as large as the hardware's");

// The element at (line, term) of a tile that a descriptor names; lines are rows of the first factor, columns of the second.
// Swizzled by 128 bytes: packet c of a row of 128 bytes is at packet c ^ (its address / 128) % 8.
template <class Type> float element(uint64_t tile, bool across, int line, int term) {
    if (tile >> 62 != 1) fail("wgmma: a tile that is not swizzled by 128 bytes");
    constexpr uint32_t size = 4 / Type::per_word;
    if (size > 2 && across) fail("wgmma: only 16-bit elements may lie across the sum");
    const uint32_t start = (uint32_t)(tile & 0x3fff) << 4, block = (uint32_t)(tile >> 16 & 0x3fff) << 4, eight = (uint32_t)(tile >> 32 & 0x3fff) << 4;
    uint32_t at = across ? start + line / 64 * block + term / 8 * eight + term % 8 * 128 + line % 64 * size
                         : start + line / 8 * eight + line % 8 * 128 + term * size;
    at ^= (at / 128 % 8) * 16;
    if (at + size > most_dynamic) fail("wgmma: a tile ends beyond shared memory");
    uint32_t bits = 0;
    memcpy(&bits, dynamic + at, size);
    return Type::value(bits, 0);
}

// Each thread sums its own elements: with lane = 4 g + t and warp w of the group, d[h][2 i + j] is row 16 w + g + 8 i,
// column 8 h + 2 t + j. A product that is not waited for is not found.
template <class Type, bool b_across, int H> void add_row(float (&d)[H][4], int i, const float row[], uint64_t b) {
    for (int h = 0; h < H; ++h)
        for (int j = 0; j < 2; ++j) {
            double sum = d[h][2 * i + j];
            for (int k = 0; k < 8 * Type::per_word; ++k) sum += (double)row[k] * element<Type>(b, b_across, 8 * h + 2 * (lane() % 4) + j, k);
            d[h][2 * i + j] = toward_zero(sum);
        }
}

template <class Type, bool a_across, bool b_across, int H> void wgmma(float (&d)[H][4], uint64_t a, uint64_t b) {
    meet_warp(0xffffffffu, nullptr, nullptr);
    const int warp = (int)(here.index / warp_threads % 4), g = lane() / 4;
    for (int i = 0; i < 2; ++i) {
        float row[8 * Type::per_word];
        for (int k = 0; k < 8 * Type::per_word; ++k) row[k] = element<Type>(a, a_across, 16 * warp + g + 8 * i, k);
        add_row<Type, b_across>(d, i, row, b);
    }
}

}  // namespace t_emulate

inline uint32_t t_emulate_shared_address(const void *shared) {
    const ptrdiff_t at = (const unsigned char *)shared - t_emulate::dynamic;
    if (at < 0 || (size_t)at >= t_emulate::most_dynamic) t_emulate::fail("an address that is not in dynamic shared memory");
    return (uint32_t)at;
}
inline void t_emulate_barrier_init(uint64_t *at, int count) {
    const t_emulate::Barrier fresh = {(uint16_t)count, (uint16_t)count, 0, 0};
    memcpy(at, &fresh, sizeof fresh);
}
// Arrivals, and bytes that are expected, or have come if they are less than none.
inline void t_emulate_barrier_change(uint64_t *at, int arrivals, int bytes) {
    t_emulate::Barrier b;
    memcpy(&b, at, sizeof b);
    if (b.count == 0 || b.missing < arrivals) t_emulate::fail("a barrier in shared memory that was never made");
    b.missing = (uint16_t)(b.missing - arrivals);
    b.bytes += bytes;
    if (!b.missing && !b.bytes) b.missing = b.count, b.parity ^= 1;
    memcpy(at, &b, sizeof b);
}
inline void t_emulate_barrier_arrive(uint64_t *at) { t_emulate_barrier_change(at, 1, 0); }
inline void t_emulate_barrier_expect(uint64_t *at, int bytes) { t_emulate_barrier_change(at, 1, bytes); }
inline void t_emulate_barrier_wait(uint64_t *at, int parity) {
    t_emulate::Barrier b;
    for (memcpy(&b, at, sizeof b); (int)b.parity == parity; memcpy(&b, at, sizeof b)) t_emulate::pause();
}
template <int N, bool a_across, bool b_across> void t_emulate_wgmma_f16(float (&d)[N / 8][4], uint64_t a, uint64_t b) {
    t_emulate::wgmma<t_emulate::Half, a_across, b_across>(d, a, b);
}
template <int N, bool a_across, bool b_across> void t_emulate_wgmma_bf16(float (&d)[N / 8][4], uint64_t a, uint64_t b) {
    t_emulate::wgmma<t_emulate::Bfloat, a_across, b_across>(d, a, b);
}
template <int N, bool a_across, bool b_across> void t_emulate_wgmma_tf32(float (&d)[N / 8][4], uint64_t a, uint64_t b) {
    t_emulate::wgmma<t_emulate::Tf32, a_across, b_across>(d, a, b);
}

// The first factor in registers, as those of mma: the four threads of a row exchange what they have of it.
namespace t_emulate {
template <class Type, bool b_across, int H> void wgmma_registers(float (&d)[H][4], const uint32_t a[4], uint64_t b) {
    constexpr int P = Type::per_word;
    const int first = lane() & ~3;
    for (int i = 0; i < 2; ++i) {
        float row[8 * P];
        for (int k = 0; k < 2; ++k)
            for (int from = 0; from < 4; ++from) {
                const uint32_t word = shuffle(0xffffffffu, a[i + 2 * k], first + from);
                for (int e = 0; e < P; ++e) row[4 * P * k + P * from + e] = Type::value(word, e);
            }
        add_row<Type, b_across>(d, i, row, b);
    }
}
}  // namespace t_emulate
template <int N, bool b_across> void t_emulate_wgmma_registers_f16(float (&d)[N / 8][4], const uint32_t a[4], uint64_t b) {
    t_emulate::wgmma_registers<t_emulate::Half, b_across>(d, a, b);
}
template <int N, bool b_across> void t_emulate_wgmma_registers_bf16(float (&d)[N / 8][4], const uint32_t a[4], uint64_t b) {
    t_emulate::wgmma_registers<t_emulate::Bfloat, b_across>(d, a, b);
}

template <int N, bool b_across> void t_emulate_wgmma_registers_tf32(float (&d)[N / 8][4], const uint32_t a[4], uint64_t b) {
    t_emulate::wgmma_registers<t_emulate::Tf32, b_across>(d, a, b);
}

// ---- asynchronous copies ----

// Done at once: a missing wait is not found.
inline void t_emulate_cp_async16(void *to, const void *from) {
    if (((uintptr_t)to | (uintptr_t)from) % 16) t_emulate::fail("cp.async: an address is not aligned to 16 bytes");
    memcpy(to, from, 16);
}
inline void t_emulate_cp_async16_or_zero(void *to, const void *from, bool inside) {
    if (inside) return t_emulate_cp_async16(to, from);
    if ((uintptr_t)to % 16) t_emulate::fail("cp.async: an address is not aligned to 16 bytes");
    memset(to, 0, 16);
}

// An array of 16-bit elements: sizes in elements, distances in bytes, rows of a copy.
struct t_emulate_tensor_map {
    const unsigned char *base;
    int rank, rows;
    int64_t size[5], distance[5];
    int first[3], last[3], step[3];
};
inline void t_emulate_check_map(const void *to, const t_emulate_tensor_map &map, int rank) {
    if ((uintptr_t)to % 1024) t_emulate::fail("a tile that does not begin at a multiple of 1024 bytes");
    if (rank != map.rank) t_emulate::fail("a copy of rank %d of an array of rank %d", rank, map.rank);
    if ((uintptr_t)map.base % 16) t_emulate::fail("an array that is not aligned to 16 bytes");
    for (int d = 1; d < rank; ++d)
        if (map.distance[d] % 16) t_emulate::fail("an array whose rows are not aligned to 16 bytes");
}
// A row of 64 elements, of which packet c of row r is put at c ^ r % 8; zeros beyond the ends.
inline void t_emulate_copy_row(void *to, const t_emulate_tensor_map &map, int r, const int64_t *at) {
    for (int c = 0; c < 64; ++c) {
        uint16_t value = 0;
        const unsigned char *from = map.base;
        bool inside = true;
        for (int d = 0; d < map.rank; ++d) {
            const int64_t place = at[d] + (d == 0 ? c : 0);
            inside = inside && place >= 0 && place < map.size[d];
            from += place * map.distance[d];
        }
        if (inside) memcpy(&value, from, 2);
        memcpy((unsigned char *)to + r * 128 + (c / 8 ^ r % 8) * 16 + c % 8 * 2, &value, 2);
    }
}
inline void t_emulate_copy_tile(void *to, const t_emulate_tensor_map &map, uint64_t *barrier, const int *at, int rank) {
    t_emulate_check_map(to, map, rank);
    t_emulate_barrier_change(barrier, 0, -map.rows * 128);
    for (int r = 0; r < map.rows; ++r) {
        int64_t place[5];
        for (int d = 0; d < rank; ++d) place[d] = at[d] + (d == 1 ? r : 0);
        t_emulate_copy_row(to, map, r, place);
    }
}
// A pixel of each window: they go on along the first side until its last, then along the next, then to the next image.
inline void t_emulate_copy_pixels(void *to, const t_emulate_tensor_map &map, uint64_t *barrier, const int *at, int rank) {
    t_emulate_check_map(to, map, rank);
    t_emulate_barrier_change(barrier, 0, -map.rows * 128);
    int64_t window[5];
    for (int d = 0; d < rank; ++d) window[d] = at[d];
    for (int d = 1; d < rank - 1; ++d)
        if (window[d] < map.first[d - 1] || window[d] > map.size[d] - 1 + map.last[d - 1])
            t_emulate::fail("a window that begins outside of where windows may begin");
    for (int r = 0; r < map.rows; ++r) {
        int64_t place[5];
        for (int d = 0; d < rank; ++d) place[d] = window[d] + (d > 0 && d < rank - 1 ? at[rank + d - 1] : 0);
        t_emulate_copy_row(to, map, r, place);
        int d = 1;
        for (; d < rank - 1; ++d) {
            window[d] += map.step[d - 1];
            if (window[d] <= map.size[d] - 1 + map.last[d - 1]) break;
            window[d] = map.first[d - 1];
        }
        if (d == rank - 1) ++window[d];
    }
}
