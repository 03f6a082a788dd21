/* Instructions of AMX; T_AMX_STREAM is a load that keeps nothing in the first cache.  clang has builtins for them; immintrin.h takes
 * longer to read than most kernels to compile, so it is for gcc, where that header alone has them. */
#ifndef T_AMX_H
#define T_AMX_H

/* Stands behind each load of a tile and each product: where the other thread of a core is at work too, these take up to two
 * thirds longer when they follow each other closely; a core that has one thread takes no longer for these. */
#define T_AMX_SPACE() __asm__ volatile("nop; nop; nop; nop; nop; nop; nop; nop")

#ifdef __clang__
#define T_AMX_CONFIGURE(tiles) __builtin_ia32_tile_loadconfig(tiles)
#define T_AMX_RELEASE() __builtin_ia32_tilerelease()
#define T_AMX_ZERO(t) __builtin_ia32_tilezero(t)
#define T_AMX_LOAD(t, p, row) __builtin_ia32_tileloadd64(t, (const void *)(p), (size_t)(row))
#define T_AMX_STREAM(t, p, row) __builtin_ia32_tileloaddt164(t, (const void *)(p), (size_t)(row))
#define T_AMX_STORE(t, p, row) __builtin_ia32_tilestored64(t, (void *)(p), (size_t)(row))
#define T_AMX_DOT_BF16(sum, a, b) __builtin_ia32_tdpbf16ps(sum, a, b)
#define T_AMX_DOT_U8_I8(sum, a, b) __builtin_ia32_tdpbusd(sum, a, b)
#else
#include <immintrin.h>
#define T_AMX_CONFIGURE(tiles) _tile_loadconfig(tiles)
#define T_AMX_RELEASE() _tile_release()
#define T_AMX_ZERO(t) _tile_zero(t)
#define T_AMX_LOAD(t, p, row) _tile_loadd(t, p, row)
#define T_AMX_STREAM(t, p, row) _tile_stream_loadd(t, p, row)
#define T_AMX_STORE(t, p, row) _tile_stored(t, p, row)
#define T_AMX_DOT_BF16(sum, a, b) _tile_dpbf16ps(sum, a, b)
#define T_AMX_DOT_U8_I8(sum, a, b) _tile_dpbusd(sum, a, b)
#endif

#endif
