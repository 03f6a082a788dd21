// Atomics: one thread runs at a time, so that nothing can come between.
#pragma once

namespace metal {

enum memory_order { memory_order_relaxed };

template <class T> struct atomic {
    static_assert(sizeof(T) == 4, "no atomics of this size");
    T value;
};
typedef atomic<int> atomic_int;
typedef atomic<uint> atomic_uint;
typedef atomic<float> atomic_float;

template <class T> T atomic_load_explicit(const volatile atomic<T> *at, memory_order) { return at->value; }
template <class T> void atomic_store_explicit(volatile atomic<T> *at, T x, memory_order) { at->value = x; }

#define T_ATOMIC(NAME, RESULT) \
    template <class T> T atomic_##NAME##_explicit(volatile atomic<T> *at, typename same_type<T>::type x, memory_order) { \
        const T old = at->value; \
        at->value = (T)(RESULT); \
        return old; \
    }
T_ATOMIC(exchange, x)
T_ATOMIC(fetch_add, old + x)
T_ATOMIC(fetch_sub, old - x)
T_ATOMIC(fetch_max, x > old ? x : old)
T_ATOMIC(fetch_min, x < old ? x : old)
T_ATOMIC(fetch_and, old & x)
T_ATOMIC(fetch_or, old | x)
T_ATOMIC(fetch_xor, old ^ x)
#undef T_ATOMIC

template <class T>
bool atomic_compare_exchange_weak_explicit(volatile atomic<T> *at, T *expected, T x, memory_order, memory_order) {
    const T old = at->value;
    const bool same = memcmp(&old, expected, sizeof old) == 0;
    if (same) at->value = x;
    else *expected = old;
    return same;
}

}  // namespace metal
