// Small kernels that test_metal.py runs on the emulator.
#include <metal_stdlib>
using namespace metal;

// ---- sum of each row: within simdgroups, then threadgroup memory ----

[[max_total_threads_per_threadgroup(256)]]
kernel void row_sums(device const float *x [[buffer(0)]], device float *sums [[buffer(1)]],
                     constant int64_t *dim [[buffer(2)]], uint row [[threadgroup_position_in_grid]],
                     uint t [[thread_position_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                     uint group [[simdgroup_index_in_threadgroup]]) {
    threadgroup float partial[8];
    const int n = (int)dim[0];
    float sum = 0;
    for (int i = (int)t; i < n; i += 256) sum += x[row * n + i];
    sum = simd_sum(sum);
    if (lane == 0) partial[group] = sum;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (group) return;
    sum = lane < 8 ? partial[lane] : 0.0;
    for (ushort d = 4; d; d /= 2) sum += simd_shuffle_xor(sum, d);
    if (lane == 0) sums[row] = sum;
}

// ---- transposition of 32 x 32 tiles, through memory that the host gives ----

kernel void transpose(const device float *x [[buffer(0)]], device float *y [[buffer(1)]], constant int2 &shape [[buffer(2)]],
                      threadgroup float *tile [[threadgroup(0)]], uint2 g [[threadgroup_position_in_grid]],
                      ushort2 t [[thread_position_in_threadgroup]]) {
    const uint row = g.y * 32 + t.y, column = g.x * 32 + t.x;
    threadgroup float *at = tile + t.y * 33;
    if (row < (uint)shape.x && column < (uint)shape.y) at[t.x] = x[row * shape.y + column];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const uint to_row = g.x * 32 + t.y, to_column = g.y * 32 + t.x;
    if (to_row < (uint)shape.y && to_column < (uint)shape.x) y[to_row * shape.x + to_column] = tile[t.x * 33 + t.y];
}

kernel void unwritten(device float *out [[buffer(0)]], uint i [[thread_position_in_grid]],
                      uint t [[thread_index_in_threadgroup]]) {
    threadgroup float a[64];
    out[i] = a[t];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    a[t] = 1;
}

kernel void last_writer(device int *at [[buffer(0)]], uint i [[thread_position_in_grid]]) { *at = (int)i; }

// Metal wants all threads at a barrier.
kernel void early_exit(uint t [[thread_index_in_threadgroup]]) {
    if (t == 5) return;
    threadgroup_barrier(mem_flags::mem_none);
}

kernel void histogram(device const int *x [[buffer(0)]], device atomic_int *counts [[buffer(1)]],
                      device atomic_float *sum [[buffer(2)]], constant int &n [[buffer(3)]],
                      uint i [[thread_position_in_grid]], uint t [[thread_index_in_threadgroup]]) {
    threadgroup atomic_int mine[10];
    if (t < 10) atomic_store_explicit(&mine[t], 0, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if ((int)i < n) {
        atomic_fetch_add_explicit(&mine[x[i] % 10], 1, memory_order_relaxed);
        atomic_fetch_add_explicit(sum, (float)x[i], memory_order_relaxed);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (t < 10) atomic_fetch_add_explicit(&counts[t], atomic_load_explicit(&mine[t], memory_order_relaxed), memory_order_relaxed);
}

// ---- one simdgroup: c (8 x 8) += a (8 x 16) b^T, b (8 x 16) ----

kernel void product(device const float *a [[buffer(0)]], device const half *b [[buffer(1)]], device float *c [[buffer(2)]]) {
    simdgroup_float8x8 sum, left;
    simdgroup_half8x8 right;
    simdgroup_load(sum, c, 8);
    for (int k = 0; k < 16; k += 8) {
        simdgroup_load(left, a + k, 16);
        simdgroup_load(right, b, 16, ulong2(k, 0), true);
        simdgroup_multiply_accumulate(sum, left, right, sum);
    }
    simdgroup_store(sum, c, 8);
}

// ---- what scalars, vectors and halves do ----

kernel void scalars(device const float4 *x [[buffer(0)]], device float *out [[buffer(1)]], device ushort *bits [[buffer(2)]],
                    uint i [[thread_position_in_grid]]) {
    const float4 v = x[i] * 2.0 + float4(1);
    out[4 * i] = v.x;
    out[4 * i + 1] = precise::exp(min(v.y, 3.0f));
    out[4 * i + 2] = as_type<float>(as_type<uint>(v.z) ^ 0x80000000u);
    out[4 * i + 3] = (float)simd_max((int)i) + simd_shuffle_down((int)i, 1) * 0;
    bits[i] = as_type<ushort>((half)v.w);
}
