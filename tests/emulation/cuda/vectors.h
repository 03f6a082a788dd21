// CUDA's vector types, aligned as there.
#pragma once

#define T_VECTORS(T, NAME, ALIGN2, ALIGN4) \
    struct alignas(ALIGN2) NAME##2 { T x, y; }; \
    struct alignas(ALIGN4) NAME##4 { T x, y, z, w; }; \
    inline NAME##2 make_##NAME##2(T x, T y) { return {x, y}; } \
    inline NAME##4 make_##NAME##4(T x, T y, T z, T w) { return {x, y, z, w}; }
T_VECTORS(float, float, 8, 16)
T_VECTORS(double, double, 16, 16)
T_VECTORS(int, int, 8, 16)
T_VECTORS(unsigned, uint, 8, 16)
T_VECTORS(short, short, 4, 8)
T_VECTORS(unsigned short, ushort, 4, 8)
T_VECTORS(signed char, char, 2, 4)
T_VECTORS(unsigned char, uchar, 2, 4)
T_VECTORS(long long, longlong, 16, 16)
T_VECTORS(unsigned long long, ulonglong, 16, 16)
#undef T_VECTORS

struct float3 {
    float x, y, z;
};
struct int3 {
    int x, y, z;
};
inline float3 make_float3(float x, float y, float z) { return {x, y, z}; }
inline int3 make_int3(int x, int y, int z) { return {x, y, z}; }
inline uint3 make_uint3(unsigned x, unsigned y, unsigned z) { return {x, y, z}; }
