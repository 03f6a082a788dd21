// What device code may call: barriers, shuffles, votes, atomics, conversions.
#pragma once

// ---- the block ----

inline void __syncthreads() { t_emulate::meet_block(false); }
inline int __syncthreads_count(int yes) { return (int)t_emulate::meet_block(yes != 0).yes; }
inline int __syncthreads_or(int yes) { return t_emulate::meet_block(yes != 0).yes != 0; }
inline int __syncthreads_and(int yes) {
    const t_emulate::Votes votes = t_emulate::meet_block(yes != 0);
    return votes.yes == votes.living;
}

// ---- the graph ----

inline void cudaGraphSetConditional(cudaGraphConditionalHandle handle, unsigned value) {
    *(unsigned *)(uintptr_t)handle = value;
}

// ---- the cluster ----

inline void t_emulate_cluster_arrive() { t_emulate::arrive_in_cluster(); }
inline void t_emulate_cluster_wait() { t_emulate::meet_cluster(); }
inline void *t_emulate_in_cluster(const void *at, int rank) { return t_emulate::in_cluster((void *)at, rank); }

// ---- the warp ----

inline void __syncwarp(unsigned mask = 0xffffffffu) { t_emulate::meet_warp(mask, nullptr, nullptr); }
inline unsigned __activemask() { return t_emulate::living_lanes(); }
inline unsigned __ballot_sync(unsigned mask, int yes) { return t_emulate::vote(mask, yes != 0); }
inline int __any_sync(unsigned mask, int yes) { return t_emulate::vote(mask, yes != 0) != 0; }
inline int __all_sync(unsigned mask, int yes) { return t_emulate::vote(mask, yes == 0) == 0; }

// A source outside the lane's own group of `width` lanes is the lane itself.
template <class T> T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
    return t_emulate::shuffle(mask, value, (t_emulate::lane() & ~(width - 1)) | (source & (width - 1)));
}
template <class T> T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32) {
    const int lane = t_emulate::lane(), source = lane ^ bits, last = lane | (width - 1);
    return t_emulate::shuffle(mask, value, source > last ? lane : source);
}
template <class T> T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
    const int lane = t_emulate::lane(), source = lane + (int)delta, last = lane | (width - 1);
    return t_emulate::shuffle(mask, value, source > last ? lane : source);
}
template <class T> T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
    const int lane = t_emulate::lane(), source = lane - (int)delta, first = lane & ~(width - 1);
    return t_emulate::shuffle(mask, value, source < first ? lane : source);
}

// ---- atomics: one thread runs at a time, so that nothing can come between ----

namespace t_emulate {
template <class T> T exchange(T *at, T value) {
    const T old = *at;
    *at = value;
    return old;
}
}  // namespace t_emulate

#define T_ATOMICS(T) \
    inline T atomicAdd(T *at, T x) { return t_emulate::exchange(at, (T)(*at + x)); } \
    inline T atomicExch(T *at, T x) { return t_emulate::exchange(at, x); }
#define T_INTEGER_ATOMICS(T) \
    T_ATOMICS(T) \
    inline T atomicMax(T *at, T x) { return t_emulate::exchange(at, x > *at ? x : *at); } \
    inline T atomicMin(T *at, T x) { return t_emulate::exchange(at, x < *at ? x : *at); } \
    inline T atomicAnd(T *at, T x) { return t_emulate::exchange(at, (T)(*at & x)); } \
    inline T atomicOr(T *at, T x) { return t_emulate::exchange(at, (T)(*at | x)); } \
    inline T atomicCAS(T *at, T old, T x) { return t_emulate::exchange(at, *at == old ? x : *at); }
T_INTEGER_ATOMICS(int)
T_INTEGER_ATOMICS(unsigned)
T_INTEGER_ATOMICS(unsigned long long)
T_ATOMICS(float)
T_ATOMICS(double)
#undef T_ATOMICS
#undef T_INTEGER_ATOMICS
inline int atomicSub(int *at, int x) { return t_emulate::exchange(at, *at - x); }
inline unsigned atomicSub(unsigned *at, unsigned x) { return t_emulate::exchange(at, *at - x); }

inline void __nanosleep(unsigned) { t_emulate::pause(); }  // what a loop that waits for another block does
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}

// ---- scalars ----

namespace t_emulate {
template <class To, class From> To bits(From from) {
    static_assert(sizeof(To) == sizeof(From), "as many bits");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}
}  // namespace t_emulate

inline int __float_as_int(float x) { return t_emulate::bits<int>(x); }
inline unsigned __float_as_uint(float x) { return t_emulate::bits<unsigned>(x); }
inline float __int_as_float(int x) { return t_emulate::bits<float>(x); }
inline float __uint_as_float(unsigned x) { return t_emulate::bits<float>(x); }
inline long long __double_as_longlong(double x) { return t_emulate::bits<long long>(x); }
inline double __longlong_as_double(long long x) { return t_emulate::bits<double>(x); }

template <class T> T __ldg(const T *p) { return *p; }

#define T_MIN_MAX(T) \
    inline T min(T a, T b) { return b < a ? b : a; } \
    inline T max(T a, T b) { return a < b ? b : a; }
T_MIN_MAX(int)
T_MIN_MAX(unsigned)
T_MIN_MAX(long)
T_MIN_MAX(unsigned long)
T_MIN_MAX(long long)
T_MIN_MAX(unsigned long long)
#undef T_MIN_MAX
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }

inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fdividef(float a, float b) { return a / b; }
inline float __expf(float x) { return expf(x); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline int __float2int_rn(float x) { return (int)rintf(x); }
inline int __float2int_rz(float x) { return (int)x; }
