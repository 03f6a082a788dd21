/* Metal prelude of generated kernels: t_scalar.h in MSL's words, and sums over a simdgroup.
 *
 * To be compiled with -fno-fast-math: NaN, infinities and signed zeros mean something here.  Functions are those of
 * metal::precise where they are good to 4 ULP (MSL specification, numerical compliance), save tan, which is good to 6;
 * erf, expm1 and log1p do not exist, tanh, atan, atanh (5) and pow (16) are worse: kernels hold these themselves.  There is
 * no f64.  f32 subnormals may count as zero.
 */
#ifndef T_METAL_H
#define T_METAL_H

#include <metal_stdlib>
using namespace metal;

/* What C has in stdint.h; MSL has no long long. */
#ifndef INT64_MIN
#define INT64_MIN T_I64_MIN
#endif
#ifndef UINT64_C
#define UINT64_C(n) n##ul
#endif

#define T_FN static inline
#define T_GLOBAL device
#define T_LOCAL thread
#define T_HAS_F64 0
#define T_BITS_F32(x) as_type<uint32_t>(x)
#define T_FLOAT_U32(u) as_type<float>((uint32_t)(u))
#define T_DECODE_F16(h) ((float)as_type<half>((uint16_t)(h)))
#define T_ENCODE_F16(x) as_type<uint16_t>((half)(x))
#define T_FMA_f32(a, b, c) metal::fma(a, b, c)
#define T_LIB_f32(NAME) metal::precise::NAME
#define T_PLAIN_f32(NAME) metal::NAME
#define T_LIB_LACKS 1

#include "t_scalar.h"

#define T_SHUFFLE_XOR(v, d) simd_shuffle_xor(v, (ushort)(d))
#include "t_warp.h"

/* 2^x, as a weight of attention. */
T_FN float t_weight_f32(float x) { return T_LIB_f32(exp2)(x); }

#endif
