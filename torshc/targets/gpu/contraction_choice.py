"""Which tile a product is cut into on a device of blocks, and the pieces that its sums are cut into."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, inf
from typing import TypeVar

from ...expr import DType
from ...kernels.machine import Choice, Device, Machine
from .contraction_tiles import (
    GROUP_TILES,
    MMA_TILES,
    SINGLE_TILES,
    TF32_GROUP_TILES,
    TF32_TILES,
    THREAD_SUMS,
    TILES,
    AnyTile,
    GridTile,
    GroupTile,
    MmaTile,
    Tf32GroupTile,
    Tf32Tile,
)

# Products, rows, columns and terms that are assumed where they are known only at run time: a short text, so that it is
# fast; pieces of sums are then few, as for a long one they cost more memory traffic than they gain.
UNKNOWN = (8, 128, 512, 512)
SEVERAL = 8  # times what is known of a size is assumed of it, where that is more: images have many pixels
MAX_SPLITS, MAX_SPLITS_UNKNOWN = 32, 4
LATENCY = 700.0  # clocks from a load to its use
LAUNCH = 4000.0  # clocks of a kernel more, and of its wait for the one before
SUM_BYTES = 1500.0  # bytes of partial sums that all multiprocessors write and read in a clock
FULL_WARPS = 8.0  # warps that keep a multiprocessor busy
GROUP_LATENCY, GROUP_LAUNCH, GROUP_SUM_BYTES = 550.0, 3450.0, 3700.0  # as those above, for groups of four warps
GROUP_BYTES = 68.0  # bytes that a block of these is brought in a clock
GROUP_EXACT = 128  # terms of a sum from which on these round no more than sums of f32 do
PIECES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)  # that a sum may be cut into
JOIN_PIECE = 100.0  # clocks more in which a cluster joins its pieces, for each of them
ROOM = {2: 132, 3: 117, 4: 120, 6: 102, 8: 120}  # blocks of clusters of this size that an H100 has at a time
LINE_SUM_BYTES = 750.0  # as GROUP_SUM_BYTES where there is one line of tiles, which waits for the weights' bytes
T = TypeVar("T", bound=AnyTile)


@dataclass(frozen=True)
class Given:
    """What a tuning record says: a tile by its sizes, and pieces of sums; what cannot be had counts as not given."""

    tile: Choice | None = None
    pieces: int = 0

    @classmethod
    def of(cls, machine: Machine) -> Given:
        """The choices that a machine comes with."""
        return cls(machine.choice("tile"), machine.number("splits", 0))


def choose_mma_tile(
    device: Device, sizes: Sequence[int | None], given: Given = Given(), likely: Sequence[int] = UNKNOWN
) -> tuple[MmaTile | GroupTile, int]:
    """The tile of a product on tensor cores; see :func:`choose_tile`."""
    tiles: Sequence[MmaTile | GroupTile] = GROUP_TILES if device.groups else MMA_TILES
    return _choose(device, sizes, tiles, given, likely)


def choose_tile(
    device: Device,
    sizes: Sequence[int | None],
    dtype: DType,
    tf32: int = 0,
    given: Given = Given(),
    likely: Sequence[int] = UNKNOWN,
) -> tuple[GridTile | Tf32Tile | Tf32GroupTile, int]:
    """The tile, and into how many pieces sums are cut.

    Args:
        sizes: number of products, rows, columns and length of the sums, None where known only at run time.
        dtype: element type in shared memory.
        tf32: products of tf32 on tensor cores that may serve for one of f32; 0 for none.
        given: what a tuning record says.
        likely: sizes to choose for where they are not known.
    """
    size = dtype.size
    tensor: list[Tf32Tile | Tf32GroupTile] = [replace(t, products=tf32) for t in TF32_TILES if tf32]
    if device.groups and (tf32 == 1 or (sizes[3] or 0) >= GROUP_EXACT):
        tensor += [replace(t, products=tf32) for t in TF32_GROUP_TILES if tf32]
    tiles = TILES if device.stages > 1 else SINGLE_TILES
    fit = [t for t in tiles if t.shared(size) <= device.shared and t.tm * t.tn * size <= THREAD_SUMS]
    return _choose(device, sizes, [*tensor, *fit], given, likely)


def _choose(
    device: Device, sizes: Sequence[int | None], tiles: Sequence[T], given: Given, likely: Sequence[int]
) -> tuple[T, int]:
    batch, m, n, k = (guess if s is None else max(s, 1) for s, guess in zip(sizes, likely, strict=True))
    most = MAX_SPLITS if None not in sizes else MAX_SPLITS_UNKNOWN
    best = None
    for tile in [t for t in tiles if t.sizes == given.tile] or tiles:
        pieces = [s for s in PIECES if s <= most and (s == 1 or s * tile.k * 2 <= k)]
        for splits in [s for s in pieces if s == given.pieces] or pieces:
            time = estimate(device, tile, splits, (batch, m, n, k))
            if None in sizes and joins(device, tile, splits):
                time = inf  # there may be many more tiles
            if best is None or time < best[0]:
                best = time, tile, splits
    assert best is not None
    return best[1:]


def estimate(device: Device, tile: AnyTile, splits: int, sizes: tuple[int, int, int, int]) -> float:
    """Clocks that a product takes, about: for the fullest multiprocessor arithmetic, or loads, or their latency."""
    batch, m, n, k = sizes
    blocks = batch * ceil(m / tile.m) * ceil(n / tile.n) * splits
    steps = ceil(ceil(k / tile.k) / splits)
    here = ceil(blocks / device.units)
    work = here * steps * tile.m * tile.n * tile.k
    sums = 0 if splits == 1 else splits * batch * m * n * 8
    if isinstance(tile, GroupTile):
        after = 0.0
        if joins(device, tile, splits):
            if blocks > device.units * ROOM[splits] // ROOM[2]:
                return inf  # a block of a cluster has one tile
            tile = replace(tile, cluster=splits)
            after = tile.join + JOIN_PIECE * splits
        elif sums:
            after = GROUP_LAUNCH + sums / (LINE_SUM_BYTES if m <= tile.m else GROUP_SUM_BYTES)
        return _of_groups(tile, here, steps, work / tile.rate, n) + after
    resident = max(1, min(here, tile.fits))
    rate = tile.rate * min(1.0, resident * tile.warps / FULL_WARPS)
    reads = here * steps * (tile.m + tile.n) * tile.k * tile.element / tile.cache
    waits = ceil(here / resident) * (steps / max(tile.stages - 1, 1) + 2) * LATENCY
    return max(work / rate, reads, waits) + here * tile.results + (LAUNCH + sums / SUM_BYTES if sums else 0.0)


def joins(device: Device, tile: AnyTile, pieces: int) -> bool:
    """Whether the blocks that have pieces of a tile's sums join them, as a cluster; else another kernel does."""
    return device.clusters and pieces in ROOM and isinstance(tile, GroupTile) and tile.m * tile.n <= tile.joined


def _of_groups(tile: GroupTile, here: int, steps: int, work: float, columns: int) -> float:
    """Clocks of some tiles in turn: the next are brought meanwhile, and multiplied where groups take turns."""
    reads = here * steps * tile.stage / GROUP_BYTES
    waits = (here * steps / (tile.stages - 1) + 2.6) * GROUP_LATENCY
    busy, last = max(work, reads, waits) + 100 * here, tile.results / tile.cluster
    if columns % tile.packet:
        last *= 4  # results leave one by one
    return max(busy, here * (last + 250)) + 1.3 * last if tile.turns else busy + 0.85 * here * last
