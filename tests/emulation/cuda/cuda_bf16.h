// bfloat16: bits and conversions, to nearest even.
#pragma once
#include "cuda_runtime.h"

struct __nv_bfloat16 {
    unsigned short bits;
};

inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) { return {bits}; }
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 h) { return h.bits; }
inline float __bfloat162float(__nv_bfloat16 h) { return __uint_as_float((unsigned)h.bits << 16); }
inline __nv_bfloat16 __float2bfloat16_rn(float x) {
    const unsigned word = __float_as_uint(x);
    if ((word & 0x7fffffffu) > 0x7f800000u) return {0x7fffu};
    return {(unsigned short)((word + 0x7fffu + (word >> 16 & 1u)) >> 16)};
}
inline __nv_bfloat16 __float2bfloat16(float x) { return __float2bfloat16_rn(x); }
