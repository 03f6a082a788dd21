// Half precision: bits and conversions. Rounds to nearest even; below 2^-14 by adding 0.5, whose last place is the
// smallest half.
#pragma once
#include "cuda_runtime.h"

struct __half {
    unsigned short bits;
};
typedef __half half;

inline __half __ushort_as_half(unsigned short bits) { return {bits}; }
inline unsigned short __half_as_ushort(__half h) { return h.bits; }

inline float __half2float(__half h) {
    const unsigned body = (h.bits & 0x7fffu) << 13, sign = (h.bits & 0x8000u) << 16;
    const float finite = __uint_as_float(body) * 5192296858534827628530496329220096.0f;  // 2^112 moves the exponent
    const bool is_finite = (h.bits & 0x7c00u) != 0x7c00u;
    return __uint_as_float((is_finite ? __float_as_uint(finite) : body | 0x7f800000u) | sign);
}

inline __half __float2half_rn(float x) {
    const unsigned word = __float_as_uint(x), sign = word >> 16 & 0x8000u, a = word & 0x7fffffffu;
    unsigned bits;
    if (a > 0x7f800000u) bits = 0x7fffu;
    else if (a >= 0x477ff000u) bits = 0x7c00u;
    else if (a < 0x38800000u) bits = __float_as_uint(__uint_as_float(a) + 0.5f) - 0x3f000000u;
    else bits = (a + 0xfffu + (a >> 13 & 1u) - (112u << 23)) >> 13;
    return {(unsigned short)(sign | bits)};
}
inline __half __float2half(float x) { return __float2half_rn(x); }
