// Small kernels that test_cuda.py runs on the emulator. Every function with a launch takes device pointers.
#include <cuda_fp16.h>

#define API extern "C" __attribute__((visibility("default")))

// ---- sum of each row: shuffles, then shared memory ----

__global__ void __launch_bounds__(256) row_sums(const float *x, float *sums, int n) {
    __shared__ float partial[8];
    float sum = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) sum += x[(size_t)blockIdx.x * n + i];
    for (int d = 16; d; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x >= 32) return;  // the other warps leave before the barriers of the first
    sum = threadIdx.x < 8 ? partial[threadIdx.x] : 0.0f;
    __syncwarp();
    for (int d = 4; d; d /= 2) sum += __shfl_down_sync(0xffffffffu, sum, d);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}
API int run_row_sums(const float *x, float *sums, int rows, int n) {
    row_sums<<<rows, 256>>>(x, sums, n);
    return cudaGetLastError();
}

// ---- transposition of 32 x 32 tiles; without the barrier it is a race ----

__global__ void transpose(const float *x, float *y, int rows, int columns, int barrier) {
    __shared__ float tile[32][33];
    const int row = blockIdx.y * 32 + threadIdx.y, column = blockIdx.x * 32 + threadIdx.x;
    if (row < rows && column < columns) tile[threadIdx.y][threadIdx.x] = x[row * columns + column];
    if (barrier) __syncthreads();
    const int to_row = blockIdx.x * 32 + threadIdx.y, to_column = blockIdx.y * 32 + threadIdx.x;
    if (to_row < columns && to_column < rows) y[to_row * rows + to_column] = tile[threadIdx.x][threadIdx.y];
}
API int run_transpose(const float *x, float *y, int rows, int columns, int barrier) {
    const dim3 grid((columns + 31) / 32, (rows + 31) / 32), block(32, 32);
    transpose<<<grid, block>>>(x, y, rows, columns, barrier);
    return cudaGetLastError();
}

// ---- races between warps of a block, and between blocks ----

__global__ void last_writer(int *at) {
    if (threadIdx.x % 32 == 0) *at = threadIdx.x / 32 + 100 * blockIdx.x;
}
#define LAUNCH(KERNEL, GRID, BLOCK, ...) KERNEL<<<GRID, BLOCK>>>(__VA_ARGS__)
API int run_last_writer(int *at) {
    LAUNCH(last_writer, 7, 128, at);
    return cudaGetLastError();
}

// A warp reads what its neighbour wrote before the last shuffle: right only where warps keep step.
__global__ void out_of_step(int *out) {
    __shared__ int steps[2];
    const int warp = threadIdx.x / 32;
    int sum = 1;
    for (int d = 1; d < 32; d *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
    if (threadIdx.x % 32 == 0) steps[warp] = sum;
    __syncwarp();
    out[threadIdx.x] = steps[1 - warp];
}
API int run_out_of_step(int *out) {
    out_of_step<<<1, 64>>>(out);
    return cudaGetLastError();
}

// ---- unwritten memory, deadlock ----

__global__ void unwritten(float *fixed, float *dynamic_) {
    __shared__ float a[64];
    extern __shared__ __align__(16) float b[];
    fixed[blockIdx.x * 64 + threadIdx.x] = a[threadIdx.x];
    dynamic_[blockIdx.x * 64 + threadIdx.x] = b[threadIdx.x];
    __syncthreads();
    a[threadIdx.x] = b[threadIdx.x] = 1.0f;
}
API int run_unwritten(float *fixed, float *dynamic_) {
    unwritten<<<2, 64, 64 * sizeof(float)>>>(fixed, dynamic_);
    return cudaGetLastError();
}

__global__ void stuck() {
    if (threadIdx.x == 0) __syncwarp();
    else __syncthreads();
}
API int run_stuck() {
    stuck<<<1, 64>>>();
    return cudaDeviceSynchronize();
}

// ---- votes, shuffles of parts of a warp, atomics ----

__global__ void votes(unsigned *out) {
    const unsigned lane = threadIdx.x;
    unsigned *mine = out + 8 * lane;
    mine[0] = __ballot_sync(0xffffffffu, lane % 3 == 0);
    mine[1] = (unsigned)(__any_sync(0xffffffffu, lane == 7) + 2 * __all_sync(0xffffffffu, lane < 31));
    mine[2] = (unsigned)__syncthreads_count(lane % 5 == 0);
    mine[3] = (unsigned)(__syncthreads_or(lane == 9) + 2 * __syncthreads_and(lane != 9));
    mine[4] = lane < 16 ? __shfl_sync(0x0000ffffu, lane, 3) : __shfl_sync(0xffff0000u, lane, 20);
    mine[5] = (unsigned)__shfl_up_sync(0xffffffffu, (long long)lane << 33, 1, 8) + (unsigned)(__shfl_up_sync(0xffffffffu, (long long)lane << 33, 1, 8) >> 33);
    mine[7] = __activemask();  // before the last operation, for which all lanes must be there
    mine[6] = __shfl_sync(0xffffffffu, lane, lane + 1, 4);
}
API int run_votes(unsigned *out) {
    votes<<<1, 32>>>(out);
    return cudaGetLastError();
}

__global__ void histogram(const int *x, int n, int *counts, float *sum, unsigned long long *largest) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    atomicAdd(&counts[x[i] % 10], 1);
    atomicAdd(sum, (float)x[i]);
    atomicMax(largest, (unsigned long long)x[i]);
}
API int run_histogram(const int *x, int n, int *counts, float *sum, unsigned long long *largest) {
    histogram<<<(n + 127) / 128, 128>>>(x, n, counts, sum, largest);
    return cudaGetLastError();
}

// ---- tensor cores: one warp, operands in row-major memory, fragments as in the PTX ISA ----

// Words at (row, column) of a matrix of 16-bit elements with `width` columns.
__device__ unsigned pair(const unsigned short *x, int first, int second) { return x[first] | (unsigned)x[second] << 16; }

template <bool bf16> __global__ void mma16(const unsigned short *a, const unsigned short *b, float *d) {
    const int g = threadIdx.x >> 2, t = threadIdx.x & 3;
    const unsigned fa[4] = {pair(a, g * 16 + 2 * t, g * 16 + 2 * t + 1), pair(a, (g + 8) * 16 + 2 * t, (g + 8) * 16 + 2 * t + 1),
                            pair(a, g * 16 + 2 * t + 8, g * 16 + 2 * t + 9), pair(a, (g + 8) * 16 + 2 * t + 8, (g + 8) * 16 + 2 * t + 9)};
    const unsigned fb[2] = {pair(b, 2 * t * 8 + g, (2 * t + 1) * 8 + g), pair(b, (2 * t + 8) * 8 + g, (2 * t + 9) * 8 + g)};
    float fd[4];
    for (int i = 0; i < 4; ++i) fd[i] = d[(g + i / 2 * 8) * 8 + 2 * t + i % 2];
    if (bf16) t_emulate_mma_m16n8k16_bf16(fd, fa, fb);
    else t_emulate_mma_m16n8k16_f16(fd, fa, fb);
    for (int i = 0; i < 4; ++i) d[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = fd[i];
}
API int run_mma16(const unsigned short *a, const unsigned short *b, float *d, int bf16) {
    if (bf16) mma16<true><<<1, 32>>>(a, b, d);
    else mma16<false><<<1, 32>>>(a, b, d);
    return cudaGetLastError();
}

__global__ void mma_tf32(const float *a, const float *b, float *d) {
    const int g = threadIdx.x >> 2, t = threadIdx.x & 3;
    const float fa[4] = {a[g * 8 + t], a[(g + 8) * 8 + t], a[g * 8 + t + 4], a[(g + 8) * 8 + t + 4]};
    const float fb[2] = {b[t * 8 + g], b[(t + 4) * 8 + g]};
    unsigned wa[4], wb[2];
    for (int i = 0; i < 4; ++i) wa[i] = __float_as_uint(fa[i]);
    for (int i = 0; i < 2; ++i) wb[i] = __float_as_uint(fb[i]);
    float fd[4];
    for (int i = 0; i < 4; ++i) fd[i] = d[(g + i / 2 * 8) * 8 + 2 * t + i % 2];
    t_emulate_mma_m16n8k8_tf32(fd, wa, wb);
    for (int i = 0; i < 4; ++i) d[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = fd[i];
}
API int run_mma_tf32(const float *a, const float *b, float *d) {
    mma_tf32<<<1, 32>>>(a, b, d);
    return cudaGetLastError();
}

// Four 8 x 8 matrices, one below the other: out[matrix][thread] is the word of each thread.
__global__ void ldmatrix(const unsigned short *x, unsigned *out, int trans) {
    __shared__ __align__(16) unsigned short rows[32][8];
    t_emulate_cp_async16(rows[threadIdx.x], x + 8 * threadIdx.x);
    __syncwarp();
    unsigned words[4];
    if (trans) t_emulate_ldmatrix_x4_trans(words, rows[threadIdx.x]);
    else t_emulate_ldmatrix_x4(words, rows[threadIdx.x]);
    for (int m = 0; m < 4; ++m) out[32 * m + threadIdx.x] = words[m];
}
API int run_ldmatrix(const unsigned short *x, unsigned *out, int trans) {
    ldmatrix<<<1, 32>>>(x, out, trans);
    return cudaGetLastError();
}

// An 8 x 8 matrix transposed: a word of each thread.
__global__ void transpose_words(const unsigned *x, unsigned *out) { out[threadIdx.x] = t_emulate_transpose(x[threadIdx.x]); }
API int run_transpose_words(const unsigned *x, unsigned *out) {
    transpose_words<<<1, 32>>>(x, out);
    return cudaGetLastError();
}

// ---- half precision ----

__global__ void halves(const float *x, unsigned short *bits, float *back, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const __half h = __float2half_rn(x[i]);
    bits[i] = __half_as_ushort(h);
    back[i] = __half2float(__ushort_as_half(bits[i]));
}
API int run_halves(const float *x, unsigned short *bits, float *back, int n) {
    halves<<<(n + 255) / 256, 256>>>(x, bits, back, n);
    return cudaGetLastError();
}

// ---- limits, graphs, streams ----

__global__ void big(float *out) {
    extern __shared__ float room[];
    room[threadIdx.x + 15000] = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = room[15000 + (threadIdx.x ^ 1)];
}
API int run_big(float *out, int ask) {
    const int bytes = 15064 * (int)sizeof(float);
    if (ask) cudaFuncSetAttribute(big, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    big<<<1, 64, bytes>>>(out);
    return cudaGetLastError();
}

__global__ void add(float *x, float y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] += y;
}
API int run_add(float *x, float y, int n, int blocks, int threads, void *stream) {
    add<<<blocks, threads, 0, (cudaStream_t)stream>>>(x, y, n);
    return cudaGetLastError();
}

// Records x += 1, x += 2 and the copy to `host`, plays it `times` times; host gets the last x.
API int run_graph(float *x, float *host, int n, int times, float *before) {
    cudaStream_t stream, side;
    cudaEvent_t fork, join;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaStreamCaptureStatus status;
    if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) || cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking)) return -1;
    if (cudaEventCreateWithFlags(&fork, cudaEventDisableTiming) || cudaEventCreateWithFlags(&join, cudaEventDisableTiming)) return -2;
    if (cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal)) return -3;
    add<<<(n + 63) / 64, 64, 0, stream>>>(x, 1.0f, n);
    if (cudaEventRecord(fork, stream) || cudaStreamWaitEvent(side, fork, 0)) return -4;
    add<<<(n + 63) / 64, 64, 0, side>>>(x, 2.0f, n);
    if (cudaEventRecord(join, side) || cudaStreamWaitEvent(stream, join, 0)) return -5;
    if (cudaMemcpyAsync(host, x, n * sizeof(float), cudaMemcpyDeviceToHost, stream)) return -6;
    if (cudaStreamIsCapturing(side, &status) || status != cudaStreamCaptureStatusActive) return -7;
    if (cudaStreamEndCapture(stream, &graph)) return -8;
    if (cudaMemcpy(before, x, n * sizeof(float), cudaMemcpyDeviceToHost)) return -9;
    if (cudaGraphInstantiate(&exec, graph, 0) || cudaGraphDestroy(graph)) return -10;
    for (int i = 0; i < times; ++i)
        if (cudaGraphLaunch(exec, stream)) return -11;
    if (cudaStreamSynchronize(stream) || cudaGraphExecDestroy(exec)) return -12;
    return cudaStreamDestroy(stream) || cudaStreamDestroy(side) || cudaEventDestroy(fork) || cudaEventDestroy(join);
}

static __global__ void choose(cudaGraphConditionalHandle first, cudaGraphConditionalHandle second, const float *x) {
    cudaGraphSetConditional(first, x[0] < 4);
    cudaGraphSetConditional(second, x[0] >= 4);
}

// Records x += 1 for the case that the first of x is below 4, and else x -= 8, and plays that.
API int run_choice(float *x, int n, int times) {
    cudaStream_t stream;
    cudaGraph_t graph, part;
    cudaGraphExec_t exec;
    cudaGraphNode_t behind, node;
    cudaGraphConditionalHandle handles[2];
    size_t count = 1;
    if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)) return -1;
    if (cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) || cudaStreamEndCapture(stream, &graph)) return -2;
    for (auto &handle : handles)
        if (cudaGraphConditionalHandleCreate(&handle, graph, 0, 0)) return cudaGetLastError();
    if (cudaStreamBeginCaptureToGraph(stream, graph, nullptr, nullptr, 0, cudaStreamCaptureModeThreadLocal)) return -3;
    choose<<<1, 1, 0, stream>>>(handles[0], handles[1], x);
    if (cudaStreamEndCapture(stream, &part) || cudaGraphGetNodes(graph, &behind, &count) || count != 1) return -4;
    for (int k = 0; k < 2; ++k) {
        cudaGraphNodeParams params = {};
        params.type = cudaGraphNodeTypeConditional;
        params.conditional.handle = handles[k];
        params.conditional.type = cudaGraphCondTypeIf;
        params.conditional.size = 1;
        if (cudaGraphAddNode(&node, graph, &behind, nullptr, 1, &params)) return -5;
        cudaGraph_t body = params.conditional.phGraph_out[0];
        if (cudaStreamBeginCaptureToGraph(stream, body, nullptr, nullptr, 0, cudaStreamCaptureModeThreadLocal)) return -6;
        add<<<(n + 63) / 64, 64, 0, stream>>>(x, k ? -8.0f : 1.0f, n);
        if (cudaStreamEndCapture(stream, &part)) return -7;
    }
    if (cudaGraphInstantiate(&exec, graph, 0)) return -8;
    for (int i = 0; i < times; ++i)
        if (cudaGraphLaunch(exec, stream)) return -9;
    if (cudaStreamSynchronize(stream) || cudaGraphExecDestroy(exec) || cudaGraphDestroy(graph)) return -10;
    return cudaStreamDestroy(stream);
}

// A wait spoils a recording.
API int run_spoilt_capture() {
    cudaStream_t stream;
    cudaGraph_t graph;
    if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) || cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal)) return -1;
    if (cudaStreamSynchronize(stream) != cudaErrorStreamCaptureUnsupported) return -2;
    const cudaError_t error = cudaStreamEndCapture(stream, &graph);
    cudaStreamDestroy(stream);
    cudaGetLastError();
    return error;
}

// Nanoseconds between two events around a launch.
API int run_events(float *x, int n, float *milliseconds) {
    cudaEvent_t from, to;
    if (cudaEventCreate(&from) || cudaEventCreate(&to)) return -1;
    cudaEventRecord(from);
    add<<<(n + 63) / 64, 64>>>(x, 1.0f, n);
    cudaEventRecord(to);
    if (cudaEventElapsedTime(milliseconds, from, to) != cudaErrorNotReady) return -2;
    if (cudaEventSynchronize(to) || cudaEventElapsedTime(milliseconds, from, to)) return -3;
    return cudaEventDestroy(from) || cudaEventDestroy(to);
}

// ---- blocks that wait for each other ----

// value[r + 1][block][thread] = value[r][block + 1][thread + 1] + value[0][block][thread]: what a block needs of the next
// one comes through `slots` [rounds][blocks][64], 64 bits each, with the number of the round in the upper half.
__global__ void relay(volatile unsigned long long *slots, int *out, int rounds) {
    __shared__ int own[64];
    extern __shared__ int next[];
    const int thread = threadIdx.x, block = blockIdx.x, blocks = gridDim.x;
    own[thread] = next[thread] = 1000 * block + thread;
    for (int r = 0; r < rounds; ++r) {
        volatile unsigned long long *now = slots + r * blocks * 64;
        __syncthreads();
        now[block * 64 + thread] = (unsigned long long)(r + 1) << 32 | (unsigned)next[thread];
        unsigned long long seen;
        while ((seen = now[(block + 1) % blocks * 64 + (thread + 1) % 64]) >> 32 != (unsigned)(r + 1)) __nanosleep(20);
        next[thread] = (int)(unsigned)seen + own[thread];
    }
    out[block * 64 + thread] = next[thread];
}
API int run_relay(unsigned long long *slots, int *out, int rounds, int blocks, int together, void *stream) {
    const size_t room = 64 * sizeof(int);
    void *arguments[] = {&slots, &out, &rounds};
    if (cudaMemsetAsync(slots, 0, (size_t)rounds * blocks * 64 * sizeof *slots, (cudaStream_t)stream)) return -1;
    if (!together) relay<<<blocks, 64, room, (cudaStream_t)stream>>>(slots, out, rounds);
    else (void)cudaLaunchCooperativeKernel(relay, blocks, 64, arguments, room, (cudaStream_t)stream);
    return cudaGetLastError();
}
// The same, recorded and played twice.
API int run_recorded_relay(unsigned long long *slots, int *out, int rounds, int blocks) {
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) || cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal)) return -2;
    if (run_relay(slots, out, rounds, blocks, 1, stream) || cudaStreamEndCapture(stream, &graph)) return -3;
    if (cudaGraphInstantiate(&exec, graph, 0) || cudaGraphDestroy(graph)) return -4;
    if (cudaGraphLaunch(exec, stream) || cudaGraphLaunch(exec, stream) || cudaStreamSynchronize(stream)) return -5;
    return cudaGraphExecDestroy(exec) || cudaStreamDestroy(stream);
}

__global__ void in_vain(volatile int *at) {
    while (at[blockIdx.x] != 1) __nanosleep(20);
}
API int run_in_vain(int *at) {
    void *arguments[] = {&at};
    (void)cudaLaunchCooperativeKernel(in_vain, 3, 32, arguments);
    return cudaDeviceSynchronize();
}

// ---- the interface, for ctypes ----

API int api_malloc(void **at, size_t bytes) { return cudaMalloc(at, bytes); }
API int api_free(void *at) { return cudaFree(at); }
API int api_malloc_host(void **at, size_t bytes) { return cudaMallocHost(at, bytes); }
API int api_free_host(void *at) { return cudaFreeHost(at); }
API int api_copy(void *to, const void *from, size_t bytes, int kind) { return cudaMemcpy(to, from, bytes, (cudaMemcpyKind)kind); }
API int api_copy_async(void *to, const void *from, size_t bytes, int kind, void *stream) {
    return cudaMemcpyAsync(to, from, bytes, (cudaMemcpyKind)kind, (cudaStream_t)stream);
}
API int api_stream(void **stream) { return cudaStreamCreateWithFlags((cudaStream_t *)stream, cudaStreamNonBlocking); }
API int api_wait(void *stream) { return cudaStreamSynchronize((cudaStream_t)stream); }
API int api_count(int *count) { return cudaGetDeviceCount(count); }
API int api_last_error() { return cudaGetLastError(); }
API const char *api_error_name(int error) { return cudaGetErrorName((cudaError_t)error); }
