// Metal's vector types: members, indices, arithmetic by elements. No swizzles.
#pragma once

namespace metal {

template <class T, int N> struct vec;
template <class T> struct alignas(2 * sizeof(T)) vec<T, 2> {
    T x, y;
    vec() = default;
    explicit vec(T s) : x(s), y(s) {}
    vec(T x, T y) : x(x), y(y) {}
    template <class U> explicit vec(const vec<U, 2> &v) : x(T(v.x)), y(T(v.y)) {}
    T &operator[](int i) { return (&x)[i]; }
    T operator[](int i) const { return (&x)[i]; }
};
template <class T> struct alignas(4 * sizeof(T)) vec<T, 3> {
    T x, y, z;
    vec() = default;
    explicit vec(T s) : x(s), y(s), z(s) {}
    vec(T x, T y, T z) : x(x), y(y), z(z) {}
    template <class U> explicit vec(const vec<U, 3> &v) : x(T(v.x)), y(T(v.y)), z(T(v.z)) {}
    T &operator[](int i) { return (&x)[i]; }
    T operator[](int i) const { return (&x)[i]; }
};
template <class T> struct alignas(4 * sizeof(T)) vec<T, 4> {
    T x, y, z, w;
    vec() = default;
    explicit vec(T s) : x(s), y(s), z(s), w(s) {}
    vec(T x, T y, T z, T w) : x(x), y(y), z(z), w(w) {}
    template <class U> explicit vec(const vec<U, 4> &v) : x(T(v.x)), y(T(v.y)), z(T(v.z)), w(T(v.w)) {}
    T &operator[](int i) { return (&x)[i]; }
    T operator[](int i) const { return (&x)[i]; }
};

template <class T> struct same_type {
    typedef T type;
};
#define T_OPERATOR(OP) \
    template <class T, int N> vec<T, N> operator OP(vec<T, N> a, const vec<T, N> &b) { \
        for (int i = 0; i < N; ++i) a[i] = T(a[i] OP b[i]); \
        return a; \
    } \
    template <class T, int N> vec<T, N> operator OP(vec<T, N> a, typename same_type<T>::type b) { return a OP vec<T, N>(b); } \
    template <class T, int N> vec<T, N> operator OP(typename same_type<T>::type a, const vec<T, N> &b) { return vec<T, N>(a) OP b; } \
    template <class T, int N, class U> vec<T, N> &operator OP##=(vec<T, N> &a, const U &b) { return a = a OP b; }
T_OPERATOR(+)
T_OPERATOR(-)
T_OPERATOR(*)
T_OPERATOR(/)
T_OPERATOR(&)
T_OPERATOR(|)
T_OPERATOR(^)
T_OPERATOR(<<)
T_OPERATOR(>>)
#undef T_OPERATOR
template <class T, int N> vec<T, N> operator-(vec<T, N> a) { return vec<T, N>(T(0)) - a; }

template <class T> struct packed4 {
    T x, y, z, w;
    operator vec<T, 4>() const { return {x, y, z, w}; }
};
template <class T> struct packed2 {
    T x, y;
    operator vec<T, 2>() const { return {x, y}; }
};

#define T_NAMES(T, NAME) \
    typedef vec<T, 2> NAME##2; \
    typedef vec<T, 3> NAME##3; \
    typedef vec<T, 4> NAME##4; \
    typedef packed2<T> packed_##NAME##2; \
    typedef packed4<T> packed_##NAME##4;
T_NAMES(float, float)
T_NAMES(half, half)
T_NAMES(int, int)
T_NAMES(uint, uint)
T_NAMES(short, short)
T_NAMES(ushort, ushort)
T_NAMES(signed char, char)
T_NAMES(uchar, uchar)
T_NAMES(long, long)
T_NAMES(ulong, ulong)
#undef T_NAMES

template <class T, int N> T dot(const vec<T, N> &a, const vec<T, N> &b) {
    T sum = a[0] * b[0];
    for (int i = 1; i < N; ++i) sum += a[i] * b[i];
    return sum;
}

}  // namespace metal

// Positions, which the emulator keeps as its own uint3.
namespace t_emulate {
template <class T> struct Position<metal::vec<T, 2>> {
    static metal::vec<T, 2> of(uint3 p) { return {T(p.x), T(p.y)}; }
};
template <class T> struct Position<metal::vec<T, 3>> {
    static metal::vec<T, 3> of(uint3 p) { return {T(p.x), T(p.y), T(p.z)}; }
};
}  // namespace t_emulate
