#define T_INDEX int
#include "t_cuda.h"
#include "t_group.h"
#include "t_packet.h"

extern "C" __global__ void __launch_bounds__(512, 1) k7bf854727004_kernel(const float *b0, const float *b1, float *b2, T_MAP a_map, T_MAP b_map) {
    const int block = blockIdx.x;
    const int tid = threadIdx.x;
    t_next_may_start();
    extern __shared__ __align__(1024) unsigned char memory[];
    (void)b0;
    (void)b1;
    uint64_t *const full = (uint64_t *)(memory + 196608), *const empty = full + 6, *const parted = empty + 6;
    /* ---- barriers of the stages ---- */
    if (tid == 0) {
        for (int i = 0; i < 6; i++) {
            t_barrier_init(&full[i], 1);
            t_barrier_init(&empty[i], 384);
            t_barrier_init(&parted[i], 4);
        }
        t_shared_written();
    }
    __syncthreads();
    const int units = 128;
    int stage = 0, parity = 0;
    /* ---- threads that bring tiles ---- */
    if (tid < 128) {
        t_fewer_registers<56>();
        for (int unit = block; tid == 0 && unit < units; unit += gridDim.x) {
            const int rows = 1024, columns = 1024;
            const int tiles_m = (rows + 127) / 128, tiles_n = (columns + 63) / 64;
            const int tile_at = unit, above = tile_at / (16 * tiles_n) * 16;
            const int height = tiles_m - above < 16 ? tiles_m - above : 16, within = tile_at - above * tiles_n;
            const int tile_n = within / height, tile_m = above + within % height;
            const int steps = 16;
            const int first = 0, last = steps;
            t_wait_for_earlier_with(tile_m | tile_n); /* what a tile is has been computed before */
#pragma unroll 1
            for (int s = first; s < last; s++) {
                t_barrier_wait(&empty[stage], parity ^ 1);
                const int now = stage * 32768;
                {
                    t_barrier_expect(&full[stage], 24576);
                    t_copy_tile(memory + now, a_map, &full[stage], (int)(s * 64), (int)(tile_m * 128), (int)0);
                    t_copy_tile(memory + now + 16384, b_map, &full[stage], (int)(s * 64), (int)(tile_n * 64), (int)0);
                }
                if (++stage == 6) stage = 0, parity ^= 1;
            }
        }
    } else if (tid < 256) {
        t_fewer_registers<56>();
        for (int unit = block; unit < units; unit += gridDim.x) {
            const int steps = 16;
            const int first = 0, last = steps;
#pragma unroll 1
            for (int s = first; s < last; s++) {
                t_barrier_wait(&full[stage], parity);
                uint4 *const whole = (uint4 *)(memory + stage * 32768 + 16384) + (tid - 128);
#pragma unroll
                for (int i = 0; i < 512; i += 128) {
                    const uint4 x = whole[i];
                    whole[i + 512] = make_uint4(t_tf32_rest(x.x), t_tf32_rest(x.y), t_tf32_rest(x.z), t_tf32_rest(x.w));
                }
                t_shared_written();
                __syncwarp();
                if (tid % 32 == 0) t_barrier_arrive(&parted[stage]);
                t_barrier_arrive(&empty[stage]);
                if (++stage == 6) stage = 0, parity ^= 1;
            }
        }
    } else {
        /* ---- warps that multiply ---- */
        t_more_registers<200>();
        const int warp = tid / 32 - 8, lane = tid % 32;
        float *const own = (float *)(memory + 196752) + warp * 576;
        for (int unit = block; unit < units; unit += gridDim.x) {
            const int rows = 1024, columns = 1024;
            const int tiles_m = (rows + 127) / 128, tiles_n = (columns + 63) / 64;
            const int tile_at = unit, above = tile_at / (16 * tiles_n) * 16;
            const int height = tiles_m - above < 16 ? tiles_m - above : 16, within = tile_at - above * tiles_n;
            const int tile_n = within / height, tile_m = above + within % height;
            const int steps = 16;
            const int first = 0, last = steps;
            t_wait_for_earlier();
            /* ---- sums of a tile ---- */
            float sum[8][4] = {};
#pragma unroll 1
            for (int s = first; s < last; s++) {
                t_barrier_wait(&full[stage], parity);
                const unsigned char *const rows_at = memory + stage * 32768 + (warp * 16 + lane % 16) * 128;
                const uint64_t b = t_tile(memory + stage * 32768 + 16384), b_rest = b + 512;
                uint32_t x[4][4], x_rest[4][4];
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    t_ldmatrix_x4(x[i], rows_at + ((2 * i + lane / 16) ^ (lane % 8)) * 16);
#pragma unroll
                    for (int e = 0; e < 4; e++) {
                        t_split_tf32(x[i][e], x_rest[i][e]);
                    }
                }
                float part[8][4] = {};
                t_barrier_wait(&parted[stage], parity);
                t_products_begin();
#pragma unroll
                for (int i = 0; i < 4; i++) {
#ifdef T_EMULATED
                    t_emulate_wgmma_registers_tf32<64, false>(part, x_rest[i], b + i * 2);
#else
                    asm volatile("wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32 {"
                            "%0, %1, %2, %3, "
                            "%4, %5, %6, %7, "
                            "%8, %9, %10, %11, "
                            "%12, %13, %14, %15, "
                            "%16, %17, %18, %19, "
                            "%20, %21, %22, %23, "
                            "%24, %25, %26, %27, "
                            "%28, %29, %30, %31"
                            "}, {" "%32, %33, %34, %35}, %36, 1, 1, 1;"
                        : "+f"(part[0][0]), "+f"(part[0][1]), "+f"(part[0][2]), "+f"(part[0][3]),
                        "+f"(part[1][0]), "+f"(part[1][1]), "+f"(part[1][2]), "+f"(part[1][3]),
                        "+f"(part[2][0]), "+f"(part[2][1]), "+f"(part[2][2]), "+f"(part[2][3]),
                        "+f"(part[3][0]), "+f"(part[3][1]), "+f"(part[3][2]), "+f"(part[3][3]),
                        "+f"(part[4][0]), "+f"(part[4][1]), "+f"(part[4][2]), "+f"(part[4][3]),
                        "+f"(part[5][0]), "+f"(part[5][1]), "+f"(part[5][2]), "+f"(part[5][3]),
                        "+f"(part[6][0]), "+f"(part[6][1]), "+f"(part[6][2]), "+f"(part[6][3]),
                        "+f"(part[7][0]), "+f"(part[7][1]), "+f"(part[7][2]), "+f"(part[7][3])
                        : "r"(x_rest[i][0]), "r"(x_rest[i][1]), "r"(x_rest[i][2]), "r"(x_rest[i][3]), "l"(b + i * 2));
#endif
                }
#pragma unroll
                for (int i = 0; i < 4; i++) {
#ifdef T_EMULATED
                    t_emulate_wgmma_registers_tf32<64, false>(part, x[i], b_rest + i * 2);
#else
                    asm volatile("wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32 {"
                            "%0, %1, %2, %3, "
                            "%4, %5, %6, %7, "
                            "%8, %9, %10, %11, "
                            "%12, %13, %14, %15, "
                            "%16, %17, %18, %19, "
                            "%20, %21, %22, %23, "
                            "%24, %25, %26, %27, "
                            "%28, %29, %30, %31"
                            "}, {" "%32, %33, %34, %35}, %36, 1, 1, 1;"
                        : "+f"(part[0][0]), "+f"(part[0][1]), "+f"(part[0][2]), "+f"(part[0][3]),
                        "+f"(part[1][0]), "+f"(part[1][1]), "+f"(part[1][2]), "+f"(part[1][3]),
                        "+f"(part[2][0]), "+f"(part[2][1]), "+f"(part[2][2]), "+f"(part[2][3]),
                        "+f"(part[3][0]), "+f"(part[3][1]), "+f"(part[3][2]), "+f"(part[3][3]),
                        "+f"(part[4][0]), "+f"(part[4][1]), "+f"(part[4][2]), "+f"(part[4][3]),
                        "+f"(part[5][0]), "+f"(part[5][1]), "+f"(part[5][2]), "+f"(part[5][3]),
                        "+f"(part[6][0]), "+f"(part[6][1]), "+f"(part[6][2]), "+f"(part[6][3]),
                        "+f"(part[7][0]), "+f"(part[7][1]), "+f"(part[7][2]), "+f"(part[7][3])
                        : "r"(x[i][0]), "r"(x[i][1]), "r"(x[i][2]), "r"(x[i][3]), "l"(b_rest + i * 2));
#endif
                }
#pragma unroll
                for (int i = 0; i < 4; i++) {
#ifdef T_EMULATED
                    t_emulate_wgmma_registers_tf32<64, false>(part, x[i], b + i * 2);
#else
                    asm volatile("wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32 {"
                            "%0, %1, %2, %3, "
                            "%4, %5, %6, %7, "
                            "%8, %9, %10, %11, "
                            "%12, %13, %14, %15, "
                            "%16, %17, %18, %19, "
                            "%20, %21, %22, %23, "
                            "%24, %25, %26, %27, "
                            "%28, %29, %30, %31"
                            "}, {" "%32, %33, %34, %35}, %36, 1, 1, 1;"
                        : "+f"(part[0][0]), "+f"(part[0][1]), "+f"(part[0][2]), "+f"(part[0][3]),
                        "+f"(part[1][0]), "+f"(part[1][1]), "+f"(part[1][2]), "+f"(part[1][3]),
                        "+f"(part[2][0]), "+f"(part[2][1]), "+f"(part[2][2]), "+f"(part[2][3]),
                        "+f"(part[3][0]), "+f"(part[3][1]), "+f"(part[3][2]), "+f"(part[3][3]),
                        "+f"(part[4][0]), "+f"(part[4][1]), "+f"(part[4][2]), "+f"(part[4][3]),
                        "+f"(part[5][0]), "+f"(part[5][1]), "+f"(part[5][2]), "+f"(part[5][3]),
                        "+f"(part[6][0]), "+f"(part[6][1]), "+f"(part[6][2]), "+f"(part[6][3]),
                        "+f"(part[7][0]), "+f"(part[7][1]), "+f"(part[7][2]), "+f"(part[7][3])
                        : "r"(x[i][0]), "r"(x[i][1]), "r"(x[i][2]), "r"(x[i][3]), "l"(b + i * 2));
#endif
                }
                t_products_commit();
                t_products_done(part);
                t_barrier_arrive(&empty[stage]);
#pragma unroll
                for (int i = 0; i < 32; i++) sum[i / 4][i % 4] += part[i / 4][i % 4];
                if (++stage == 6) stage = 0, parity ^= 1;
            }
            const int warp_row = warp * 16, warp_column = 0;
            float *const sums = (float *)sum;
            uint32_t least = ~0u, most = 0;
#pragma unroll
            for (int i = 0; i < 32; i++) t_tf32_sizes(sums[i], least, most);
            if (t_tf32_are_doubtful(least, most)) {
#pragma unroll 1
                for (int which = 0; which < 32; which++) {
                    const int row = tile_m * 128 + warp_row + which / 32 * 16 + lane / 4 + which / 2 % 2 * 8;
                    const int column = tile_n * 64 + warp_column + which / 4 % 8 * 8 + lane % 4 * 2 + which % 2;
                    float total = sums[0];
                    if (t_tf32_is_doubtful(total) && row < rows && column < columns) {
                        const int m0 = row;
                        const int n0 = column;
                        total = 0.0f;
#pragma unroll 1
                        for (int s = first; s < last; s++) {
                            const int at_k = s * 32;
#pragma unroll 1
                            for (int place = at_k; place < at_k + 32 && place < 512; place++) {
                                const int k0 = place;
                                const float x = b0[k0 + 512 * m0], y = b1[k0 + 512 * n0];
                                total = T_FMA_f32(x, y, total);
                            }
                        }
                    }
#pragma unroll
                    for (int i = 1; i < 32; i++) sums[i - 1] = sums[i];
                    sums[31] = total;
                }
            }

            /* ---- results ---- */
            /* Each warp passes its rows through shared memory, eight rows of 64 columns at a time, so that neighbours in memory come
            together. Where 16 bytes of a row go keeps lanes on banks of their own. */
#pragma unroll
            for (int h = 0; h < 8; h += 8)
#pragma unroll
            for (int lower = 0; lower < 2; lower++) {
                __syncwarp();
#pragma unroll
                for (int i = 0; i < 8; i++) *(float2 *)(own + lane / 4 * 72 + ((2 * i + lane % 4 / 2) ^ (i / 4)) * 4 + lane % 2 * 2) = make_float2(sum[h + i][2 * lower], sum[h + i][2 * lower + 1]);
                __syncwarp();
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    const int line = lane / 8 + 4 * i;
                    const float4 *const four = (const float4 *)(own + line * 72 + lane % 8 * 8);
                    const float4 low = four[lane / 4 % 2], high = four[lane / 4 % 2 ^ 1];
                    const float eight[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
                    const int row = tile_m * 128 + warp * 16 + 8 * lower + line, column = tile_n * 64 + 8 * h + lane % 8 * 8;
                    const int m0 = row;
                    const int n0 = column;
                    float q0[8];
#pragma unroll
                    for (int j = 0; j < 8; j++) {
                        q0[j] = eight[j];
                    }
                    t_write8(b2 + 1024 * m0 + n0, q0);
                }
            }
        }
    }
}

extern "C" int k7bf854727004(void *const *buf, const int64_t *dim, int64_t blocks, void *stream) {
    (void)dim;
    t_tensor_map a_map;
    const int a_failed = t_map_tiles(&a_map, (const uint16_t *)buf[0], {1024, 1024, 1}, {2048, 2097152}, 3, 128);
    if (a_failed) return a_failed;
    t_tensor_map b_map;
    const int b_failed = t_map_tiles(&b_map, (const uint16_t *)buf[1], {1024, 1024, 1}, {2048, 2097152}, 3, 64);
    if (b_failed) return b_failed;
    if (blocks > 132) blocks = 132;
    const cudaError_t status = cudaFuncSetAttribute(k7bf854727004_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 215184);
    if (status != cudaSuccess) return (int)status;
    T_LAUNCH(k7bf854727004_kernel, (unsigned)blocks, 512, 215184, (cudaStream_t)stream, (const float *)buf[0], (const float *)buf[1], (float *)buf[2], a_map, b_map);
    return (int)cudaGetLastError();
}
