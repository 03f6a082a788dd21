"""Which tile a product is cut into, and whether a cluster or another kernel joins the pieces of its sums."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

import pytest

from torshc.expr import F32
from torshc.kernels.machine import Device
from torshc.targets.gpu.contraction_choice import ROOM, choose_mma_tile, choose_tile, joins
from torshc.targets.gpu.contraction_tiles import GROUP_TILES, MMA_TILES, TF32_GROUP_TILES, GroupTile

HOPPER = Device(132, 48 * 1024, tensor=True, tensor_f32=True, groups=True, clusters=True)


@pytest.mark.parametrize(
    ("size", "sums", "pieces", "clustered"),
    [
        ((64, 4096, 4096), 64 * 64, 2, True),  # half of the multiprocessors have a tile
        ((16, 4096, 4096), 64 * 64, 2, True),
        ((128, 768, 3072), 64 * 64, 4, True),
        ((128, 768, 768), 64 * 64, 1, False),  # too few terms to gain by it
        ((256, 1024, 4096), 64 * 128, 4, False),  # larger tiles, which another kernel joins as fast
    ],
    ids=str,
)
def test_pieces_of_halves(size: tuple[int, int, int], sums: int, pieces: int, clustered: bool) -> None:
    """As an H100 is fastest."""
    tile, splits = choose_mma_tile(HOPPER, (1, *size))
    assert (tile.m * tile.n, splits, joins(HOPPER, tile, splits)) == (sums, pieces, clustered)


@pytest.mark.parametrize(
    ("size", "pieces"), [((512, 512, 512), 3), ((384, 768, 3072), 3), ((128, 768, 768), 8)], ids=str
)
def test_pieces_of_floats(size: tuple[int, int, int], pieces: int) -> None:
    tile, splits = choose_tile(HOPPER, (1, *size), F32, 3)
    assert (tile.m, tile.n, splits, joins(HOPPER, tile, splits)) == (128, 64, pieces, True)


@pytest.mark.parametrize("rows", [1, 40, 64, 130, 200, 500, 1000])
@pytest.mark.parametrize("terms", [256, 1024, 5000, 20000])
def test_clusters_run_at_the_same_time(rows: int, terms: int) -> None:
    """A block of a cluster has one tile, so that there are no more of them than a card has at a time."""
    for columns in (64, 500, 1024, 4096):
        size = (1, rows, columns, terms)
        for tile, splits in (choose_mma_tile(HOPPER, size), choose_tile(HOPPER, size, F32, 3)):
            if joins(HOPPER, tile, splits):
                assert ceil(rows / tile.m) * ceil(columns / tile.n) * splits <= ROOM[splits]


def test_sizes_of_a_run_form_no_clusters() -> None:
    """There may be many more tiles than are assumed."""
    for size in ((1, None, 4096, 4096), (None, 64, 768, 3072)):
        assert not joins(HOPPER, *choose_mma_tile(HOPPER, size))


def test_which_tiles_clusters_join() -> None:
    small, large = (next(t for t in reversed(GROUP_TILES) if t.m == t.n == side) for side in (64, 128))
    assert joins(HOPPER, small, 8) and joins(HOPPER, TF32_GROUP_TILES[1], 3)
    assert not joins(HOPPER, small, 1) and not joins(HOPPER, small, 12) and not joins(HOPPER, large, 2)
    assert not joins(replace(HOPPER, clusters=False), small, 2) and not joins(HOPPER, MMA_TILES[0], 2)


@pytest.mark.parametrize("tile", [*GROUP_TILES, *TF32_GROUP_TILES], ids=str)
def test_room_in_shared_memory(tile: GroupTile) -> None:
    """A block has at most 227 KiB; what a cluster joins lies there beside the stages, of which there are several."""
    for pieces in (1, *(n for n in ROOM if joins(HOPPER, tile, n))):
        clustered = replace(tile, cluster=pieces)
        assert clustered.shared(2) <= 227 * 1024 and clustered.stages >= 3
        assert clustered.begun % 16 == 0 and clustered.lines * pieces * 64 >= tile.m * tile.n
