"""Which tile a product is cut into, and whether a cluster or another kernel joins the pieces of its sums."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import ceil

import numpy as np
import pytest

from torshc.expr import F32, const
from torshc.kernels.machine import Device
from torshc.targets.gpu.contraction_choice import (
    ROOM,
    choose,
    choose_by_size,
    estimate,
    float_tiles,
    joins,
    mma_tiles,
    worth_their_kernels,
)
from torshc.targets.gpu.contraction_factor import as_bool
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
    tile, splits = choose(HOPPER, (1, *size), mma_tiles(HOPPER))
    assert (tile.m * tile.n, splits, joins(HOPPER, tile, splits)) == (sums, pieces, clustered)


@pytest.mark.parametrize(
    ("size", "pieces"), [((512, 512, 512), 3), ((384, 768, 3072), 3), ((128, 768, 768), 8)], ids=str
)
def test_pieces_of_floats(size: tuple[int, int, int], pieces: int) -> None:
    tile, splits = choose(HOPPER, (1, *size), float_tiles(HOPPER, F32, size[-1], 3))
    assert (tile.m, tile.n, splits, joins(HOPPER, tile, splits)) == (128, 64, pieces, True)


@pytest.mark.parametrize("rows", [1, 40, 64, 130, 200, 500, 1000])
@pytest.mark.parametrize("terms", [256, 1024, 5000, 20000])
def test_clusters_run_at_the_same_time(rows: int, terms: int) -> None:
    """A block of a cluster has one tile, so that there are no more of them than a card has at a time."""
    for columns in (64, 500, 1024, 4096):
        size = (1, rows, columns, terms)
        for tiles in (mma_tiles(HOPPER), float_tiles(HOPPER, F32, terms, 3)):
            tile, splits = choose(HOPPER, size, tiles)
            if joins(HOPPER, tile, splits):
                assert ceil(rows / tile.m) * ceil(columns / tile.n) * splits <= ROOM[splits]


def test_sizes_of_a_run_form_no_clusters() -> None:
    """There may be many more tiles than are assumed."""
    for size in ((1, None, 4096, 4096), (None, 64, 768, 3072)):
        assert not joins(HOPPER, *choose(HOPPER, size, mma_tiles(HOPPER)))


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


@pytest.mark.parametrize("unit", [1, 49, 3136, 200000])
@pytest.mark.parametrize("floats", [False, True])
@pytest.mark.parametrize("shape", [(768, 768), (768, 3072), (1000, 2048)], ids=str)
def test_sizes_choose_a_kernel(shape: tuple[int, int], floats: bool, unit: int) -> None:
    """Each size has one choice of a few, that takes little longer than the best, and the last leaves no sums."""
    tiles = float_tiles(HOPPER, F32, shape[1], 3) if floats else mma_tiles(HOPPER)
    cuts = choose_by_size(HOPPER, (1, None, *shape), tiles, unit=unit)
    assert len(cuts) <= 10 and len({(c.tile, c.pieces) for c in cuts}) == len(cuts)
    ends = sorted(r for c in cuts for r in c.ranges)
    assert ends[0][0] == 0 and ends[-1][1] is None
    assert all(last is not None and last + 1 == first for (_, last), (first, _) in pairwise(ends))
    slower = []
    for rows in (n * unit for n in (1, 2, 7, 40, 64, 128, 500, 1000, 4096, 6304)):
        (cut,) = (c for c in cuts if as_bool(c.holds(const(rows))))
        best = choose(HOPPER, (1, rows, *shape), tiles)
        slower.append(
            estimate(HOPPER, cut.tile, cut.pieces, (1, rows, *shape)) / estimate(HOPPER, *best, (1, rows, *shape))
        )
        if joins(HOPPER, cut.tile, cut.pieces):
            assert ceil(rows / cut.tile.m) * ceil(shape[0] / cut.tile.n) * cut.pieces <= ROOM[cut.pieces]
    # With every tile there would be 20 kernels; those of a few are 1.00 to 1.06 of the best over all sizes, which are
    # taken alike here.
    assert float(np.mean(slower)) < 1.06
    assert as_bool(cuts[0].holds(const(1 << 40))) is (cuts[0].ranges[-1][1] is None)
    assert all(c.pieces == 1 for c in cuts if c.ranges[-1][1] is None)


def test_no_choice_is_one_too_many() -> None:
    """Each is a kernel to compile: it gains more than its price over all others."""
    times = np.array([[1.0, 9.0, 9.0, 1.01], [9.0, 1.0, 9.0, 1.03], [9.0, 9.0, 1.0, 1.2], [9.0, 9.0, 1.1, 1.0]])
    counts, prices = np.full(4, 0.25), np.ones(4)
    assert worth_their_kernels(times, counts, 0.08 * prices) == [3]
    assert sorted(worth_their_kernels(times, counts, 0.03 * prices)) == [2, 3]
    assert sorted(worth_their_kernels(times, counts, 0.002 * prices)) == [0, 1, 2, 3]
    assert sorted(worth_their_kernels(times, np.array([0.7, 0.1, 0.1, 0.1]), 0.03 * prices)) == [3]
    assert worth_their_kernels(np.where(times == 1.01, np.inf, times), counts, 0.03 * prices)[0] != 3


@pytest.mark.parametrize(
    ("unit", "usual"), [(1, (128, 512, 1024, 4096, 8192)), (196, (1, 8, 32)), (3136, (1, 8, 32))], ids=str
)
@pytest.mark.parametrize("floats", [False, True])
def test_usual_sizes_take_what_is_near_the_best_for_them(unit: int, usual: tuple[int, ...], floats: bool) -> None:
    """By the estimate, though kernels are left out that gain little over all sizes."""
    tiles = float_tiles(HOPPER, F32, 1024, 3) if floats else mma_tiles(HOPPER)
    cuts = choose_by_size(HOPPER, (1, None, 256, 1024), tiles, unit=unit)
    longer = []
    for number in usual:
        size = (1, number * unit, 256, 1024)
        (cut,) = (c for c in cuts if as_bool(c.holds(const(number * unit))))
        best = estimate(HOPPER, *choose(HOPPER, size, tiles), size)
        longer.append(estimate(HOPPER, cut.tile, cut.pieces, size) / best)
    assert float(np.mean(longer)) <= 1.03
