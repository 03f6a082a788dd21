// Barriers, functions of a simdgroup, and matrices of 8 x 8 that a simdgroup holds together.
#pragma once

namespace metal {

enum class mem_flags { mem_none = 0, mem_device = 1, mem_threadgroup = 2, mem_texture = 4 };
inline mem_flags operator|(mem_flags a, mem_flags b) { return (mem_flags)((int)a | (int)b); }

inline void threadgroup_barrier(mem_flags) { t_emulate::meet_block(false); }
inline void simdgroup_barrier(mem_flags) { t_emulate::meet_warp(0xffffffffu, nullptr, nullptr); }

// ---- values of other threads; of a thread that is not there: bytes of 0xff ----

template <class T> T simd_shuffle(T x, ushort lane) { return t_emulate::shuffle(0xffffffffu, x, lane % 32); }
template <class T> T simd_broadcast(T x, ushort lane) { return simd_shuffle(x, lane); }
template <class T> T simd_shuffle_xor(T x, ushort bits) { return simd_shuffle(x, (ushort)(t_emulate::lane() ^ bits)); }
template <class T> T simd_shuffle_down(T x, ushort delta) {  // beyond the end the value is undefined: bytes of 0xff
    const int source = t_emulate::lane() + delta;
    const T value = simd_shuffle(x, (ushort)source);
    if (source < 32) return value;
    T undefined;
    memset(&undefined, 0xff, sizeof undefined);
    return undefined;
}
template <class T> T simd_shuffle_up(T x, ushort delta) {
    const int source = t_emulate::lane() - delta;
    const T value = simd_shuffle(x, (ushort)(source & 31));
    if (source >= 0) return value;
    T undefined;
    memset(&undefined, 0xff, sizeof undefined);
    return undefined;
}
inline bool simd_any(bool yes) { return t_emulate::vote(0xffffffffu, yes) != 0; }
inline bool simd_all(bool yes) { return t_emulate::vote(0xffffffffu, !yes) == 0; }

// ---- reductions over the threads that are there ----

template <class T> struct Reduced {
    T value;
};
#define T_REDUCTION(NAME, COMBINE) \
    template <class T> void NAME##_all(void *const lanes[32]) { \
        bool first = true; \
        T a = T(), b; \
        for (int i = 0; i < 32; ++i) { \
            if (!lanes[i]) continue; \
            b = *(T *)lanes[i]; \
            a = first ? b : (T)(COMBINE); \
            first = false; \
        } \
        for (int i = 0; i < 32; ++i) \
            if (lanes[i]) *(T *)lanes[i] = a; \
    } \
    template <class T> T NAME(T x) { \
        t_emulate::meet_warp(0xffffffffu, NAME##_all<T>, &x); \
        return x; \
    }
T_REDUCTION(simd_sum, a + b)
T_REDUCTION(simd_product, a * b)
T_REDUCTION(simd_max, max(a, b))
T_REDUCTION(simd_min, min(a, b))
T_REDUCTION(simd_and, a & b)
T_REDUCTION(simd_or, a | b)
T_REDUCTION(simd_xor, a ^ b)
#undef T_REDUCTION

// ---- matrices: each thread holds two neighbours of a row ----

template <class T, int R = 8, int C = 8> struct simdgroup_matrix {
    static_assert(R == 8 && C == 8, "matrices of simdgroups are 8 x 8");
    T held[2];
    simdgroup_matrix() = default;
    explicit simdgroup_matrix(T x) : held{x, x} {}
    T (&thread_elements())[2] { return held; }
};
typedef simdgroup_matrix<float> simdgroup_float8x8;
typedef simdgroup_matrix<half> simdgroup_half8x8;

template <class T, int R, int C> simdgroup_matrix<T, R, C> make_filled_simdgroup_matrix(T x) { return simdgroup_matrix<T, R, C>(x); }

inline int simdgroup_row(int lane) { return (lane / 16) * 4 + lane / 2 % 4; }
inline int simdgroup_column(int lane) { return lane / 8 % 2 * 4 + lane % 2 * 2; }

// Origin is (column, row). All threads of the simdgroup have to come.
template <class T, class P>
void simdgroup_load(simdgroup_matrix<T> &m, const P *from, ulong stride = 8, ulong2 origin = ulong2(0), bool transpose = false) {
    simdgroup_barrier(mem_flags::mem_none);
    for (int e = 0; e < 2; ++e) {
        const ulong row = (ulong)simdgroup_row(t_emulate::lane()), column = (ulong)(simdgroup_column(t_emulate::lane()) + e);
        const ulong r = (transpose ? column : row) + origin.y, c = (transpose ? row : column) + origin.x;
        m.held[e] = (T)from[r * stride + c];
    }
}
template <class T, class P>
void simdgroup_store(const simdgroup_matrix<T> &m, P *to, ulong stride = 8, ulong2 origin = ulong2(0), bool transpose = false) {
    for (int e = 0; e < 2; ++e) {
        const ulong row = (ulong)simdgroup_row(t_emulate::lane()), column = (ulong)(simdgroup_column(t_emulate::lane()) + e);
        const ulong r = (transpose ? column : row) + origin.y, c = (transpose ? row : column) + origin.x;
        to[r * stride + c] = (P)m.held[e];
    }
    simdgroup_barrier(mem_flags::mem_none);
}

template <class D, class A, class B> struct SimdgroupProduct {
    D *d;
    const A *a;
    const B *b;
};
template <class D, class A, class B> void simdgroup_product_all(void *const lanes[32]) {
    float a[8][8], b[8][8];
    for (int lane = 0; lane < 32; ++lane) {
        const auto *mine = (const SimdgroupProduct<D, A, B> *)lanes[lane];
        if (!mine) t_emulate::fail("a product of matrices without thread %d of the simdgroup", lane);
        for (int e = 0; e < 2; ++e) {
            a[simdgroup_row(lane)][simdgroup_column(lane) + e] = (float)mine->a[e];
            b[simdgroup_row(lane)][simdgroup_column(lane) + e] = (float)mine->b[e];
        }
    }
    for (int lane = 0; lane < 32; ++lane)
        for (int e = 0; e < 2; ++e) {
            D &d = ((SimdgroupProduct<D, A, B> *)lanes[lane])->d[e];
            float sum = (float)d;
            for (int k = 0; k < 8; ++k) sum = ::fmaf(a[simdgroup_row(lane)][k], b[k][simdgroup_column(lane) + e], sum);
            d = (D)sum;
        }
}
// d = a b + c
template <class D, class A, class B, class C>
void simdgroup_multiply_accumulate(simdgroup_matrix<D> &d, const simdgroup_matrix<A> &a, const simdgroup_matrix<B> &b,
                                   const simdgroup_matrix<C> &c) {
    D sum[2] = {(D)c.held[0], (D)c.held[1]};
    SimdgroupProduct<D, A, B> mine = {sum, a.held, b.held};
    t_emulate::meet_warp(0xffffffffu, simdgroup_product_all<D, A, B>, &mine);
    d.held[0] = sum[0];
    d.held[1] = sum[1];
}
template <class D, class A, class B>
void simdgroup_multiply(simdgroup_matrix<D> &d, const simdgroup_matrix<A> &a, const simdgroup_matrix<B> &b) {
    simdgroup_multiply_accumulate(d, a, b, simdgroup_matrix<D>(D(0)));
}

}  // namespace metal
