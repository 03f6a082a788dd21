"""Tiles of products: what they ask memory for while they sum."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support import compilers
from torshc.base.resources import templates

FLAGS = ["-O1", "-std=gnu11", "-Wno-psabi", "-DTORSHC_LANES=4", "-DT_FEW_TYPES"]
PANELS = """
#include <stdio.h>
static char asked[1 << 20];
static const char *first;
#define __builtin_prefetch(p, ...) asked[((const char *)(p) - first) / 64] = 1
#define T_MR 2
#define T_NV 4
#include "t_tile.h"

int main(void) {
    static float rows[2 * K], panel[K * T_NR] __attribute__((aligned(64)));
    const float *row[T_MR] = {rows, rows + K};
    const int64_t lines = (int64_t)sizeof panel / 64;
    int64_t inside = 0, behind = 0;
    first = (const char *)panel;
    for (int t = 0; t < TILES; t++) {
        f32v acc[T_MR][T_NV];
        t_tile_open(2, T_NV, NULL, acc);
        t_tile_fma(2, T_NV, K, row, panel, t_tile_ahead(2, t, TILES, (int64_t)sizeof panel), acc);
    }
    for (int64_t i = 0; i < (int64_t)sizeof asked; i++) {
        if (i >= lines && i < 2 * lines) inside += asked[i];
        else behind += asked[i];
    }
    printf("%d %d %d\\n", (int)lines, (int)inside, (int)behind);
}
"""


@pytest.mark.parametrize("compiler", ["clang", "gcc"])
@pytest.mark.parametrize(("tiles", "depth"), [(2, 64), (3, 128), (7, 128), (16, 256), (24, 768)])
def test_tiles_by_a_panel_ask_for_all_lines_of_the_next(tiles: int, depth: int, compiler: str, tmp_path: Path) -> None:
    """Each for a part of its own, so that few lines of what lies behind it are asked for too."""
    source, program = tmp_path / "panels.c", tmp_path / "panels"
    source.write_text(PANELS)
    flags = [*FLAGS, f"-DTILES={tiles}", f"-DK={depth}", "-I", str(templates("c") / "prelude")]
    compilers.build([compilers.needed(compiler).cc, *flags, source, "-o", program, "-lm"])
    printed = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    lines, inside, behind = map(int, printed.split())
    assert inside == lines
    assert behind <= lines / 8


LONE = """
#include <stdio.h>
#define T_MR 8
#define T_NV 4
#include "t_tile.h"

int main(void) {
    t_waiting_ahead = 512;
    printf("%d %d\\n", (int)t_tile_ahead(6, 0, 1, 1).bytes, (int)t_tile_ahead(7, 0, 1, 1).bytes);
}
"""


def test_a_lone_tile_of_few_rows_asks_as_far_ahead_as_the_processor_wants(tmp_path: Path) -> None:
    source, program = tmp_path / "lone.c", tmp_path / "lone"
    source.write_text(LONE)
    compilers.build(
        [compilers.needed().cc, *FLAGS, "-I", str(templates("c") / "prelude"), source, "-o", program, "-lm"]
    )
    assert subprocess.run([program], capture_output=True, text=True, check=True).stdout == "512 4096\n"


ROWS = """
#include <stdio.h>
static char rows_asked;
static const char *first, *behind;
#define __builtin_prefetch(p, ...) rows_asked |= (const char *)(p) >= first && (const char *)(p) < behind
#define T_MR 2
#define T_NV 4
#include "t_tile.h"

int main(void) {
    static float rows[2 * K], panel[K * T_NR] __attribute__((aligned(64)));
    const float *row[T_MR] = {rows, rows + K};
    volatile int64_t some = 0;
    f32v acc[T_MR][T_NV];
    struct t_ahead ahead = t_tile_ahead(2, 0, 3, (int64_t)sizeof panel);
    first = (const char *)rows, behind = (const char *)(rows + 2 * K), ahead.some = some;
    t_tile_open(2, T_NV, NULL, acc);
    t_tile_fma(2, T_NV, K, row, panel, ahead, acc);
    printf("%d\\n", rows_asked);
}
"""


@pytest.mark.parametrize(("flag", "asked"), [("-DT_ROWS_AHEAD=0", 0), ("-DT_ROWS_AHEAD=1", 1)])
def test_a_kernel_says_whether_tiles_ask_for_rows(flag: str, asked: int, tmp_path: Path) -> None:
    """Also where a compiler cannot see that tiles have none to ask for: the loop would spill its sums."""
    source, program = tmp_path / "rows.c", tmp_path / "rows"
    source.write_text(ROWS)
    flags = [*FLAGS, flag, "-DK=64", "-I", str(templates("c") / "prelude")]
    compilers.build([compilers.needed().cc, *flags, source, "-o", program, "-lm"])
    assert int(subprocess.run([program], capture_output=True, text=True, check=True).stdout) == asked
