/* Products of groups of four warps, and barriers that count arrivals (Hopper, sm_90a; PTX ISA, "wgmma", "mbarrier").
 *
 * A group's product reads both factors from shared memory while its threads go on.  A factor's tile has rows of 128 bytes
 * of which packet c (16 bytes) of row r is at packet c ^ r % 8, so that eight rows spread over all banks; the tile begins
 * at a multiple of 1024 bytes.  Rows run along the sum, 64 terms each, or across it: then a tile is blocks of 64 rows
 * (one for each term) of 64 elements, one block after the other.
 */
#ifndef T_GROUP_H
#define T_GROUP_H

#include "t_cuda.h"

/* ---- barriers: a phase ends when as many threads as were given have arrived --------------------- */

T_FN uint32_t t_shared_address(const void *shared) {
#ifdef T_EMULATED
    return t_emulate_shared_address(shared);
#else
    return (uint32_t)__cvta_generic_to_shared(shared);
#endif
}
T_FN void t_barrier_init(uint64_t *barrier, int count) {
#ifdef T_EMULATED
    t_emulate_barrier_init(barrier, count);
#else
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(t_shared_address(barrier)), "r"(count) : "memory");
#endif
}
T_FN void t_barrier_arrive(uint64_t *barrier) {
#ifdef T_EMULATED
    t_emulate_barrier_arrive(barrier);
#else
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(t_shared_address(barrier)) : "memory");
#endif
}
/* Until the phase of this parity has ended: the first has parity 0, and the one before it, of parity 1, has ended. */
T_FN void t_barrier_wait(uint64_t *barrier, int parity) {
#ifdef T_EMULATED
    t_emulate_barrier_wait(barrier, parity);
#else
    uint32_t ended;
    do {
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(ended) : "r"(t_shared_address(barrier)), "r"(parity) : "memory");
    } while (!ended);
#endif
}

/* ---- what products read ------------------------------------------------------------------------- */

/* 16 bytes to shared memory, both addresses aligned to 16; zeros, and nothing is read, unless `inside`. */
T_FN void t_cp_async16_or_zero(void *shared, const void *global, bool inside) {
#ifdef T_EMULATED
    t_emulate_cp_async16_or_zero(shared, global, inside);
#else
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :: "r"(t_shared_address(shared)), "l"(global), "r"(inside ? 16 : 0) : "memory");
#endif
}
/* Matrices in global memory from which the card copies whole tiles to shared memory, without the threads. */
#ifdef T_EMULATED
typedef t_emulate_tensor_map t_tensor_map;
#define T_MAP const t_tensor_map
#else
#include <cuda.h>
typedef CUtensorMap t_tensor_map;
#define T_MAP const __grid_constant__ t_tensor_map
#endif

/* Arrays of 16-bit elements of rank 3 to 5: sizes, and how many bytes lie from row to row and so on.  Addresses and distances
 * are multiples of 16 bytes.  What describes them returns a cudaError_t. */
struct t_map_sizes { int64_t at[5]; };
struct t_map_bytes { int64_t at[4]; };
/* Windows of images: where the first and the last begin along each side, in pixels from the image's first and last, and pixels
 * from window to window; the innermost side first. */
struct t_map_windows { int first[3], last[3], step[3]; };
#ifdef T_EMULATED
static inline void t_map_array(t_tensor_map *map, const void *at, t_map_sizes sizes, t_map_bytes bytes, int rank, int rows) {
    map->base = (const unsigned char *)at, map->rank = rank, map->rows = rows;
    for (int i = 0; i < rank; i++) map->size[i] = sizes.at[i], map->distance[i] = i ? bytes.at[i - 1] : 2;
}
#else
static inline int t_driver_entry(const char *name, void **found) {
    cudaDriverEntryPointQueryResult result;
#if CUDART_VERSION >= 12050
    const cudaError_t error = cudaGetDriverEntryPointByVersion(name, found, 12000, cudaEnableDefault, &result);
#else
    const cudaError_t error = cudaGetDriverEntryPoint(name, found, cudaEnableDefault, &result);
#endif
    return (int)(error != cudaSuccess || (*found && result == cudaDriverEntryPointSuccess) ? error : cudaErrorNotSupported);
}
#endif
/* A copy brings `rows` rows of 64 elements, with zeros beyond the ends. */
static inline int t_map_tiles(t_tensor_map *map, const void *at, t_map_sizes sizes, t_map_bytes bytes, int rank, int rows) {
#ifdef T_EMULATED
    t_map_array(map, at, sizes, bytes, rank, rows);
    return 0;
#else
    typedef CUresult (*encode_t)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                                 const cuuint64_t *, const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave,
                                 CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
    static void *encode;
    if (!encode) {
        const int error = t_driver_entry("cuTensorMapEncodeTiled", &encode);
        if (error) return error;
    }
    for (int i = 0; i < rank; i++) sizes.at[i] += !sizes.at[i]; /* of what is empty, nothing is copied */
    const cuuint32_t box[] = {64, (cuuint32_t)rows, 1, 1, 1}, steps[] = {1, 1, 1, 1, 1};
    const CUresult status = ((encode_t)encode)(
        map, CU_TENSOR_MAP_DATA_TYPE_UINT16, (cuuint32_t)rank, (void *)at, (const cuuint64_t *)sizes.at,
        (const cuuint64_t *)bytes.at, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
        CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return (int)(status == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue);
#endif
}
/* Of images, channels innermost: a copy brings 64 channels of a pixel in each of `rows` windows, one after the other. */
static inline int t_map_images(t_tensor_map *map, const void *at, t_map_sizes sizes, t_map_bytes bytes, int rank, int rows,
                               t_map_windows windows) {
#ifdef T_EMULATED
    t_map_array(map, at, sizes, bytes, rank, rows);
    for (int i = 0; i < rank - 2; i++)
        map->first[i] = windows.first[i], map->last[i] = windows.last[i], map->step[i] = windows.step[i];
    return 0;
#else
    typedef CUresult (*encode_t)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                                 const cuuint64_t *, const int *, const int *, cuuint32_t, cuuint32_t, const cuuint32_t *,
                                 CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                                 CUtensorMapFloatOOBfill);
    static void *encode;
    if (!encode) {
        const int error = t_driver_entry("cuTensorMapEncodeIm2col", &encode);
        if (error) return error;
    }
    for (int i = 0; i < rank; i++) sizes.at[i] += !sizes.at[i];
    cuuint32_t steps[] = {1, 1, 1, 1, 1};
    for (int i = 0; i < rank - 2; i++) steps[i + 1] = (cuuint32_t)windows.step[i];
    const CUresult status = ((encode_t)encode)(
        map, CU_TENSOR_MAP_DATA_TYPE_UINT16, (cuuint32_t)rank, (void *)at, (const cuuint64_t *)sizes.at,
        (const cuuint64_t *)bytes.at, windows.first, windows.last, 64, (cuuint32_t)rows, steps,
        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return (int)(status == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue);
#endif
}
/* One arrival, and a phase that ends only when as many bytes have come. */
T_FN void t_barrier_expect(uint64_t *barrier, int bytes) {
#ifdef T_EMULATED
    t_emulate_barrier_expect(barrier, bytes);
#else
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(t_shared_address(barrier)), "r"(bytes) : "memory");
#endif
}
/* A tile from element `x` of row `y` of matrix `z` on (and of more dimensions), to a multiple of 1024 bytes. */
#ifdef T_EMULATED
#define T_COPY_TILE(RANK, PLACES, ...) \
    const int at[] = {__VA_ARGS__}; \
    t_emulate_copy_tile(shared, map, barrier, at, RANK);
#else
#define T_COPY_TILE(RANK, PLACES, ...) \
    const int at[5] = {__VA_ARGS__}; \
    asm volatile("cp.async.bulk.tensor." #RANK "d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {" PLACES "}], [%2];" \
                 :: "r"(t_shared_address(shared)), "l"(&map), "r"(t_shared_address(barrier)), "r"(at[0]), "r"(at[1]), "r"(at[2]), \
                    "r"(at[3]), "r"(at[4]) : "memory");
#endif
T_FN void t_copy_tile(void *shared, const t_tensor_map &map, uint64_t *barrier, int x, int y, int z) {
    T_COPY_TILE(3, "%3, %4, %5", x, y, z)
}
T_FN void t_copy_tile(void *shared, const t_tensor_map &map, uint64_t *barrier, int x, int y, int z, int u) {
    T_COPY_TILE(4, "%3, %4, %5, %6", x, y, z, u)
}
T_FN void t_copy_tile(void *shared, const t_tensor_map &map, uint64_t *barrier, int x, int y, int z, int u, int v) {
    T_COPY_TILE(5, "%3, %4, %5, %6, %7", x, y, z, u, v)
}
#undef T_COPY_TILE
/* Channels from `c` on of a pixel in each window, from that which begins at x (y, z) of image `n` on: the pixel that is `u` (v,
 * w) away from where it begins. */
#ifdef T_EMULATED
#define T_COPY_PIXELS(RANK, PLACES, TAPS, ...) \
    const int at[] = {__VA_ARGS__}; \
    t_emulate_copy_pixels(shared, map, barrier, at, RANK);
#else
#define T_COPY_PIXELS(RANK, PLACES, TAPS, ...) \
    const int at[8] = {__VA_ARGS__}; \
    asm volatile("cp.async.bulk.tensor." #RANK "d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {" PLACES "}], [%2], {" TAPS "};" \
                 :: "r"(t_shared_address(shared)), "l"(&map), "r"(t_shared_address(barrier)), "r"(at[0]), "r"(at[1]), "r"(at[2]), \
                    "r"(at[3]), "r"(at[4]), "h"((uint16_t)at[RANK]), "h"((uint16_t)at[RANK == 3 ? 3 : RANK + 1]), \
                    "h"((uint16_t)at[RANK == 5 ? 7 : RANK]) : "memory");
#endif
T_FN void t_copy_pixels(void *shared, const t_tensor_map &map, uint64_t *barrier, int c, int x, int n, int u) {
    T_COPY_PIXELS(3, "%3, %4, %5", "%8", c, x, n, u)
}
T_FN void t_copy_pixels(void *shared, const t_tensor_map &map, uint64_t *barrier, int c, int x, int y, int n, int u, int v) {
    T_COPY_PIXELS(4, "%3, %4, %5, %6", "%8, %9", c, x, y, n, u, v)
}
T_FN void t_copy_pixels(void *shared, const t_tensor_map &map, uint64_t *barrier, int c, int x, int y, int z, int n, int u, int v, int w) {
    T_COPY_PIXELS(5, "%3, %4, %5, %6, %7", "%8, %9, %10", c, x, y, z, n, u, v, w)
}
#undef T_COPY_PIXELS
/* What this thread has written to shared memory is there for products, once a barrier is passed. */
T_FN void t_shared_written() {
#ifndef T_EMULATED
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
/* How products are told of a tile: where it is, how many bytes from block to block, 1024 from eight rows to the next eight,
 * packets exchanged as above. */
T_FN uint64_t t_tile(const void *shared, int block = 8192) {
    return (uint64_t)(t_shared_address(shared) >> 4 & 0x3fff) | (uint64_t)(block >> 4) << 16 | (uint64_t)(1024 >> 4) << 32 |
           (uint64_t)1 << 62;
}

/* ---- products ----------------------------------------------------------------------------------- */

T_FN void t_products_begin() {
#ifndef T_EMULATED
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
T_FN void t_products_commit() {
#ifndef T_EMULATED
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}
/* Until at most N groups of products of these warps are on their way. */
template <int N> T_FN void t_products_wait() {
#ifndef T_EMULATED
    asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(N) : "memory");
#endif
}
/* What follows reads the sums only now; at most LEFT later groups of products are on their way. */
template <int LEFT = 0, int N> T_FN void t_products_done(float (&sum)[N][4]) {
    t_products_wait<LEFT>();
#ifndef T_EMULATED
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(sum[i][0]), "+f"(sum[i][1]), "+f"(sum[i][2]), "+f"(sum[i][3])::"memory");
#else
    (void)sum;
#endif
}

/* What was read of another block has come. */
T_FN void t_is_here(float &x) {
#ifndef T_EMULATED
    asm volatile("" : "+f"(x)::"memory");
#else
    (void)x;
#endif
}

/* ---- registers of a thread, given from some warps of a block to others --------------------------- */

template <int N> T_FN void t_fewer_registers() {
#ifndef T_EMULATED
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(N));
#endif
}
template <int N> T_FN void t_more_registers() {
#ifndef T_EMULATED
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(N));
#endif
}

#endif
