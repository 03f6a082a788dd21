// Metal's scalar functions, from the C library.
#pragma once

namespace metal {

template <class To, class From> To as_type(From from) {
    static_assert(sizeof(To) == sizeof(From), "as_type keeps the size");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}

#define T_EACH_FUNCTION(X) \
    X(exp) X(exp2) X(exp10) X(log) X(log2) X(log10) X(sin) X(cos) X(tan) X(asin) X(acos) X(atan) X(sinh) X(cosh) X(tanh) \
    X(asinh) X(acosh) X(atanh) X(sqrt) X(floor) X(ceil) X(trunc) X(round) X(rint) X(fabs)
#define T_EACH_FUNCTION2(X) X(pow) X(fmod) X(atan2) X(copysign) X(fmin) X(fmax) X(fdim)

inline float rsqrt(float x) { return 1.0f / ::sqrtf(x); }
#define T_FUNCTION(NAME) \
    inline float NAME(float x) { return ::NAME##f(x); }
#define T_FUNCTION2(NAME) \
    inline float NAME(float x, float y) { return ::NAME##f(x, y); }
T_EACH_FUNCTION(T_FUNCTION)
T_EACH_FUNCTION2(T_FUNCTION2)
#undef T_FUNCTION
#undef T_FUNCTION2
inline float fma(float a, float b, float c) { return ::fmaf(a, b, c); }
inline float ldexp(float x, int n) { return ::ldexpf(x, n); }
inline float powr(float x, float y) { return ::powf(x, y); }

// Both variants are the C library's: the emulator tells nothing of the errors of fast functions.
#define T_USE(NAME) using metal::NAME;
namespace precise {
T_EACH_FUNCTION(T_USE)
T_EACH_FUNCTION2(T_USE)
using metal::fma;
using metal::rsqrt;
}  // namespace precise
namespace fast {
T_EACH_FUNCTION(T_USE)
T_EACH_FUNCTION2(T_USE)
using metal::fma;
using metal::rsqrt;
}  // namespace fast
#undef T_USE
#undef T_EACH_FUNCTION
#undef T_EACH_FUNCTION2

// Of floats, the one that is not NaN.
template <class T> T min(T a, T b) { return b < a || a != a ? b : a; }
template <class T> T max(T a, T b) { return a < b || a != a ? b : a; }
template <class T> T clamp(T x, T low, T high) { return min(max(x, low), high); }
template <class T> T select(T otherwise, T chosen, bool c) { return c ? chosen : otherwise; }
template <class T> T abs(T x) { return x < 0 ? T(-x) : x; }
inline float abs(float x) { return ::fabsf(x); }
inline float sign(float x) { return x > 0 ? 1.0f : x < 0 ? -1.0f : x == 0 ? x : 0.0f; }
inline float saturate(float x) { return clamp(x, 0.0f, 1.0f); }
inline float mix(float a, float b, float t) { return a + (b - a) * t; }
inline bool isnan(float x) { return __builtin_isnan(x); }
inline bool isinf(float x) { return __builtin_isinf(x); }
inline bool isfinite(float x) { return __builtin_isfinite(x); }
inline bool signbit(float x) { return __builtin_signbit(x); }

template <class T> T popcount(T x) { return T(__builtin_popcountll((unsigned long long)x & (~0ull >> (64 - 8 * sizeof(T))))); }
inline uint clz(uint x) { return x ? (uint)__builtin_clz(x) : 32; }
inline int clz(int x) { return (int)clz((uint)x); }
inline uint ctz(uint x) { return x ? (uint)__builtin_ctz(x) : 32; }
inline uint mulhi(uint a, uint b) { return (uint)((ulong)a * b >> 32); }
inline int mulhi(int a, int b) { return (int)((long)a * b >> 32); }

}  // namespace metal

#undef isnan
#undef isinf
#undef isfinite
#undef signbit
#ifndef INFINITY
#define INFINITY __builtin_inff()
#endif
