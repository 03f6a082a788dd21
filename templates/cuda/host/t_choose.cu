// Graphs in which the card chooses a form: a kernel compares inputs in its memory, and of as many conditional nodes behind
// it as there are forms that a run may take, one has its steps run. From CUDA 12.4 on. A node with a body for each form
// (SWITCH, from 12.8 on) takes as long on an H200: 66.5 us a run of 50 short kernels for 67.0, and 50 without a choice.
#include "t_card.h"
#include "t_choice.h"

#if CUDART_VERSION >= 12040

// Of each thread a packet of 16 bytes, as the time is that of waiting for memory once.
enum { THREADS = 1024, BLOCKS = 64 };

static_assert((int)CASES == (int)T_CASES, "as many graphs as cases");

struct t_handles {
    cudaGraphConditionalHandle of[T_CASES];
};

static __device__ bool differs(const t_compared &x, uint64_t first, uint64_t step) {
    const uint64_t packets = x.bytes / 16, rest = packets * 16 + first;
    const ulonglong2 *at = (const ulonglong2 *)x.at;
    bool other = rest < x.bytes && x.at[rest] != (unsigned char)(x.pattern >> 8 * (rest % 8));
    for (uint64_t i = first; i < packets; i += step) {
        const ulonglong2 v = at[i];
        other |= v.x != x.pattern || v.y != x.pattern;
    }
    return other;
}

// The last block that comes here takes the form, and leaves zeros for the next run.
static __device__ void choose(const t_chain &chain, const t_handles &handles, t_counts *counts, int forms) {
    const unsigned failed = atomicExch(&counts->failed, 0u) | chain.missed;
    const int taken = __ffs((int)~failed) - 1;
    counts->arrived = 0;
    for (int k = 0; k < chain.cases; k++)
        cudaGraphSetConditional(handles.of[k], chain.place[k] == taken);
    for (int k = 0; k < taken; k++)
        counts->runs[forms + chain.form[k]]++;
    counts->runs[chain.form[taken]]++;
}

static __global__ void __launch_bounds__(THREADS)
    t_choose(const __grid_constant__ t_chain chain, const __grid_constant__ t_handles handles, t_counts *counts,
             int forms) {
    __shared__ unsigned failed;
    if (threadIdx.x == 0)
        failed = 0;
    __syncthreads();
    const uint64_t first = (uint64_t)blockIdx.x * THREADS + threadIdx.x, step = (uint64_t)gridDim.x * THREADS;
    unsigned other = 0;
    for (int k = 0; k < chain.compared; k++)
        other |= (unsigned)differs(chain.of[k], first, step) << chain.of[k].place;
    if (other)
        atomicOr(&failed, other);
    __syncthreads();
    if (threadIdx.x)
        return;
    if (failed)
        atomicOr(&counts->failed, failed);
    __threadfence();
    if (atomicAdd(&counts->arrived, 1u) == gridDim.x - 1) {
        __threadfence();
        choose(chain, handles, counts, forms);
    }
}

static unsigned blocks_of(const t_chain *chain) {
    uint64_t most = 1;
    for (int32_t k = 0; k < chain->compared; k++)
        most = chain->of[k].bytes > most ? chain->of[k].bytes : most;
    const uint64_t blocks = (most + 16 * THREADS - 1) / (16 * THREADS);
    return (unsigned)(blocks < BLOCKS ? blocks : BLOCKS);
}

static cudaError_t begin_part(t_device *d, cudaGraph_t graph) {
    return cudaStreamBeginCaptureToGraph(d->recorder, graph, nullptr, nullptr, 0, cudaStreamCaptureModeThreadLocal);
}

// A node whose body is empty as yet, behind another.
static cudaError_t add_case(t_device *d, cudaGraphNode_t behind, cudaGraphConditionalHandle handle, cudaGraph_t *body) {
    cudaGraphNode_t node;
    cudaGraphNodeParams params = {};
    params.type = cudaGraphNodeTypeConditional;
    params.conditional.handle = handle;
    params.conditional.type = cudaGraphCondTypeIf;
    params.conditional.size = 1;
#if CUDART_VERSION >= 13000
    const cudaError_t error = cudaGraphAddNode(&node, d->whole, &behind, nullptr, 1, &params);
#else
    const cudaError_t error = cudaGraphAddNode(&node, d->whole, &behind, 1, &params);
#endif
    *body = error == cudaSuccess ? params.conditional.phGraph_out[0] : nullptr;
    return error;
}

int t_choose_open(t_device *d) {
    int driver = 0;
    d->chooses = d->graphs_allowed && cudaDriverGetVersion(&driver) == cudaSuccess && driver >= 12040;
    (void)cudaGetLastError();
    return d->chooses;
}

int t_choose_begin(t_device *d, const t_chain *chain, t_counts *counts, int32_t forms) {
    if (!d->recording)
        return T_UNCHOSEN;
    t_current current(d->ordinal);
    t_handles handles = {};
    cudaGraph_t graph = nullptr;
    cudaGraphNode_t chooses = nullptr;
    size_t nodes = 1;
    cudaError_t error = cudaStreamEndCapture(d->recorder, &d->whole);  // nothing is in it yet
    for (int32_t k = 0; k < chain->cases && error == cudaSuccess; k++)
        error = cudaGraphConditionalHandleCreate(&handles.of[k], d->whole, 0, 0);
    if (error == cudaSuccess)
        error = begin_part(d, d->whole);
    if (error == cudaSuccess) {
        t_choose<<<blocks_of(chain), THREADS, 0, d->recorder>>>(*chain, handles, counts, forms);
        error = cudaGetLastError();
        const cudaError_t ended = cudaStreamEndCapture(d->recorder, &graph);
        error = error == cudaSuccess ? ended : error;
    }
    if (error == cudaSuccess)
        error = cudaGraphGetNodes(d->whole, &chooses, &nodes);
    for (int32_t k = 0; k < chain->cases && error == cudaSuccess; k++)
        error = add_case(d, chooses, handles.of[k], &d->cases[k]);
    return t_check_call(d, error, "recording a choice");
}

int t_choose_case(t_device *d, int32_t k) {
    t_current current(d->ordinal);
    cudaGraph_t graph = nullptr;
    cudaError_t error = k ? cudaStreamEndCapture(d->recorder, &graph) : cudaSuccess;
    if (error == cudaSuccess)
        error = begin_part(d, d->cases[k]);
    return t_check_call(d, error, "recording a form");
}

#else

int t_choose_open(t_device *) { return 0; }
int t_choose_begin(t_device *, const t_chain *, t_counts *, int32_t) { return T_UNCHOSEN; }
int t_choose_case(t_device *, int32_t) { return T_UNCHOSEN; }

#endif

int t_chooses(const t_device *d) { return d->chooses; }
