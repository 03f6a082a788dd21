"""Which tile a product is cut into on a device of blocks, and the pieces that its sums are cut into."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, inf
from typing import Any

import numpy as np
import numpy.typing as npt

from ...expr import DType, Expr, const
from ...kernels.machine import Choice, Device, Machine
from .contraction_tiles import (
    GROUP_TILES,
    MMA_TILES,
    ROUNDED_GROUP_TILES,
    SINGLE_TILES,
    TF32_GROUP_TILES,
    TF32_SINGLE_TILES,
    TF32_TILES,
    THREAD_SUMS,
    TILES,
    AnyTile,
    GroupTile,
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
# Times as long as counted that tiles of single warps and threads take on an H200, where groups are an alternative: 1.35
# to 2.5 times were measured of 29 products and gradients of a MobileNet in f32, of few terms or columns.
BESIDE_GROUPS = 1.5
GROUP_LATENCY, GROUP_LAUNCH, GROUP_SUM_BYTES = 550.0, 3450.0, 3700.0  # as those above, for groups of four warps
GROUP_BYTES = 68.0  # bytes that a block of these is brought in a clock
# Times as long tiles take to come where results leave one by one: 4096 x 50257 x 768 of halves took 789 us on an H200
# by tiles of 128 x 128 and 1,200 us by those of 64 x 128, which is as their bytes are.
GROUP_BUSY = 2.5
# Terms from which on sums of three products of tf32 are as exact as those of f32, whose own rounding grows: by single
# warps, and by groups, whose tensor cores round toward zero for 32 terms on end.
EXACT, GROUP_EXACT = 64, 96
PIECES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)  # that a sum may be cut into
MORE_PIECES = (48, 64, 96, 128)  # of sums over all pixels of a batch, as those of gradients of weights are
LONG_PIECE = 2048  # terms of these at the least
TURNS = 3  # in which multiprocessors may take blocks, where pieces are counted so that they fill them
FILLING_PIECE, SHORT = 512, 4  # terms of such a piece at the least; fewer pieces are tried anyway
JOIN_PIECE = 100.0  # clocks more in which a cluster joins its pieces, for each of them
ROOM = {2: 132, 3: 117, 4: 120, 6: 102, 8: 120}  # blocks of clusters of this size that an H100 has at a time
LINE_SUM_BYTES = 750.0  # as GROUP_SUM_BYTES where there is one line of tiles, which waits for the weights' bytes
# What a choice more for ranges of sizes is to gain by the estimate, as each is a kernel to compile: a part of the time,
# on average over sizes by how much they count. Convolutions of a model are many, each of a few nodes; products of rows
# are few. A kernel more that joins pieces of sums is small.
GAIN_IMAGES, GAIN_ROWS, GAIN_JOINED = 0.0095, 0.003, 0.4  # the last: as much as so much of a choice
USUAL, OTHER = 8.0, 0.5  # how much powers of two count of these numbers of images and of rows, and others
USUAL_IMAGES, USUAL_ROWS = range(1, 65), range(16, 8193)
SAME = 1.01  # times the best of these choices that one takes which goes on for a range
# Multiples of a size's unit at which choices are compared: tiles begin at multiples of 16, 64 and 128, and from some
# thousands on differ little.
_SAMPLES = (
    *range(1, 17), *range(20, 32, 4), *range(32, 128, 16), *range(128, 1024, 64), *range(1024, 4096, 256),
    *range(4096, 16384, 1024), *range(16384, 65537, 8192),
)  # fmt: skip
_FARTHEST, _IMAGES = 65536, 64  # the largest size at which they are compared, and at least so many times the unit

Several = npt.NDArray[np.float64]  # floats, as products of large sizes have no end
Sizes = tuple[int | Several, int | Several, int | Several, int | Several]  # products, rows, columns, terms
Clocks = Any  # a float for each of several sizes, or one


@dataclass(frozen=True)
class Given:
    """What a tuning record says: a tile by its sizes, and pieces of sums; what cannot be had counts as not given."""

    tile: Choice | None = None
    pieces: int = 0

    @classmethod
    def of(cls, machine: Machine) -> Given:
        """The choices that a machine comes with."""
        return cls(machine.choice("tile"), machine.number("splits", 0))


@dataclass(frozen=True)
class Cut:
    """How a product is cut, for some of the sizes that only a run knows.

    Attributes:
        tile, pieces: what a block computes, and into how many pieces sums are cut.
        ranges: of the sizes that it is for, each the first and the last; None where there is no end.
    """

    tile: AnyTile
    pieces: int
    ranges: tuple[tuple[int, int | None], ...] = ((0, None),)

    def holds(self, size: Expr) -> Expr:
        """The condition that a size is in one of the ranges."""
        found = const(False)
        for first, last in self.ranges:
            within = size >= first if first else const(True)
            found = found | (within if last is None else within & (size <= last))
        return found


def mma_tiles(device: Device) -> tuple[AnyTile, ...]:
    """The tiles of a product of halves on tensor cores."""
    return GROUP_TILES if device.groups else MMA_TILES


def float_tiles(
    device: Device,
    dtype: DType,
    terms: int | None,
    tf32: int = 0,
    across: bool = False,
    rounded: bool = False,
    loose: bool = False,
) -> tuple[AnyTile, ...]:
    """The tiles of a product of floats.

    Args:
        dtype: element type in shared memory.
        terms: of a sum, None where known only at run time.
        tf32: products of tf32 on tensor cores that may serve for one of f32; 0 for none.
        across: whether both factors lie across the sum.
        rounded: whether both are tf32 and lie along it.
        loose: whether short sums may round as many times as those of `GROUP_EXACT` terms.
    """
    if rounded:
        return ROUNDED_GROUP_TILES
    size = dtype.size
    tensor: list[AnyTile] = [replace(t, products=tf32) for t in TF32_TILES if tf32]
    if device.groups and (tf32 == 1 or loose or (terms or 0) >= GROUP_EXACT):
        groups = TF32_SINGLE_TILES if tf32 == 1 else TF32_GROUP_TILES
        tensor += [replace(t, across=across) for t in groups if tf32]
    tiles = TILES if device.stages > 1 else SINGLE_TILES
    fit = [t for t in tiles if t.shared(size) <= device.shared and t.tm * t.tn * size <= THREAD_SUMS]
    return (*tensor, *fit)


def choose(
    device: Device,
    sizes: Sequence[int | None],
    tiles: Sequence[AnyTile],
    given: Given = Given(),
    likely: Sequence[int] = UNKNOWN,
) -> tuple[AnyTile, int]:
    """The tile, and into how many pieces sums are cut.

    Args:
        sizes: number of products, rows, columns and length of the sums, None where known only at run time.
        tiles: those that serve.
        given: what a tuning record says.
        likely: sizes to choose for where they are not known.
    """
    batch, m, n, k = (guess if s is None else max(s, 1) for s, guess in zip(sizes, likely, strict=True))
    best = None
    known = None not in sizes
    choices = _choices(tiles, k, given, MAX_SPLITS if known else MAX_SPLITS_UNKNOWN, more=known)
    if known and not given.pieces:
        choices += _filling(device, dict.fromkeys(tile for tile, _ in choices), (batch, m, n, k))
    for tile, splits in choices:
        time = float(estimate(device, tile, splits, (batch, m, n, k)))
        if not known and joins(device, tile, splits):
            time = inf  # there may be many more tiles
        if best is None or time < best[0]:
            best = time, tile, splits
    assert best is not None
    return best[1:]


@lru_cache(maxsize=256)
def choose_by_size(
    device: Device, sizes: tuple[int | None, ...], tiles: tuple[AnyTile, ...], given: Given = Given(), unit: int = 1
) -> tuple[Cut, ...]:
    """What to choose for ranges of the one size that only a run knows, which is no length of sums.

    Those that gain more than a kernel costs serve all sizes, and each goes on while it is about the best of them.

    Args:
        unit: the size is a multiple of this.
    """
    place = sizes.index(None)
    choices = _choices(tiles, sizes[3] or 1, given, MAX_SPLITS)
    numbers = [n for n in _SAMPLES if n <= _IMAGES or n * unit <= _FARTHEST]
    samples = [n * unit for n in numbers]
    asked = _with(sizes, place, np.array(samples, float))
    times = np.transpose([estimate(device, *c, asked) for c in choices])
    times[-1] = [t if c[1] == 1 else inf for t, c in zip(times[-1], choices, strict=True)]  # memory has an end
    usual, gain = (USUAL_IMAGES, GAIN_IMAGES) if unit > 1 else (USUAL_ROWS, GAIN_ROWS)
    counts = np.array([USUAL if n in usual and n.bit_count() == 1 else OTHER for n in numbers])
    counts[-1] = USUAL  # all beyond it, which take longest, have the same choice
    prices = np.array([gain * (1 + GAIN_JOINED * (s > 1 and not joins(device, tile, s))) for tile, s in choices])
    kept = worth_their_kernels(times, counts / counts.sum(), prices)
    near = times <= SAME * times[:, kept].min(axis=1, keepdims=True)
    found: list[tuple[int, int]] = []  # the last sample, and the choice
    start = 0
    while start < len(samples):
        reach = {c: next((i for i in range(start, len(samples)) if not near[i, c]), len(samples)) for c in kept}
        best = max(kept, key=lambda c: (reach[c], -times[start, c]))
        start = reach[best]
        found.append((start - 1, best))
    ranges: dict[int, list[tuple[int, int | None]]] = {}
    first = 0
    for end, c in found:
        last = samples[end] if end + 1 < len(samples) else None
        ranges.setdefault(c, []).append((first, last))
        first = samples[end] + 1
    return tuple(Cut(*choices[c], tuple(r)) for c, r in ranges.items())


def _choices(
    tiles: Sequence[AnyTile], k: int, given: Given, most: int, more: bool = False
) -> list[tuple[AnyTile, int]]:
    """Tiles with pieces of sums of `k` terms: `most` of them, or more where sums are long."""
    found: list[tuple[AnyTile, int]] = []
    for tile in [t for t in tiles if t.sizes == given.tile] or tiles:
        pieces = [s for s in PIECES if s <= most and (s == 1 or s * tile.k * 2 <= k)]
        pieces += [s for s in MORE_PIECES if more and s * LONG_PIECE <= k]
        found += [(tile, s) for s in [s for s in pieces if s == given.pieces] or pieces]
    return found


def _filling(
    device: Device, tiles: Iterable[AnyTile], sizes: tuple[int, int, int, int]
) -> Iterator[tuple[AnyTile, int]]:
    """Tiles with the most pieces of long sums that all multiprocessors have at a time, or in a few turns."""
    batch, m, n, k = sizes
    for tile in tiles:
        blocks = batch * ceil(m / tile.m) * ceil(n / tile.n)
        pieces = {turns * device.units // blocks for turns in range(1, TURNS + 1)}
        yield from ((tile, s) for s in sorted(pieces) if SHORT < s <= MORE_PIECES[-1] and s * FILLING_PIECE <= k)


def _with(sizes: Sequence[int | None], place: int, size: Several) -> Sizes:
    batch, m, n, k = (size if i == place else max(s or 1, 1) for i, s in enumerate(sizes))
    return batch, m, n, k


def worth_their_kernels(times: Several, counts: Several, prices: Several) -> list[int]:
    """Choices such that one more, one fewer or another in place of one would lose more than it gains.

    Args:
        times: of each choice (columns) at each sample (rows); infinite where it cannot be.
        counts: how much each sample counts, in all 1.
        prices: of each choice, as parts of the time.
    """
    longer = counts[:, None] * (times / times.min(axis=1, keepdims=True))
    kept, least = list[int](), inf
    while True:
        found = least, kept
        for some in (kept, *([c for c in kept if c != old] for old in kept)):
            taken, price = longer[:, some].min(axis=1, initial=inf), float(prices[some].sum())
            more = np.minimum(taken[:, None], longer).sum(axis=0) + prices + price
            one = int(np.argmin(more))
            found = min(found, (float(taken.sum()) + price, some), (float(more[one]), [*some, one]))
        if found[0] >= least:
            return kept
        least, kept = found


def estimate(device: Device, tile: AnyTile, splits: int, sizes: Sizes) -> Clocks:
    """Clocks that a product takes, about: for the fullest multiprocessor arithmetic, or loads, or their latency."""
    batch, m, n, k = sizes
    blocks = batch * _parts(m, tile.m) * _parts(n, tile.n) * splits
    steps = _parts(_parts(k, tile.k), splits)
    here = _parts(blocks, device.units)
    work = here * steps * (tile.m * tile.n * tile.k)
    sums = batch * m * n * (splits * 8)
    if isinstance(tile, GroupTile):
        if joins(device, tile, splits):
            clocks = _of_groups(replace(tile, cluster=splits), here, steps, work / tile.rate, n)
            fit = blocks <= device.units * ROOM[splits] // ROOM[2]  # a block of a cluster has one tile
            return np.where(fit, clocks + (tile.join + JOIN_PIECE * splits), inf)
        clocks = _of_groups(tile, here, steps, work / tile.rate, n)
        rate = np.where(m <= tile.m, LINE_SUM_BYTES, GROUP_SUM_BYTES)
        return clocks + (GROUP_LAUNCH + sums / rate) if splits > 1 else clocks
    resident = np.minimum(np.maximum(here, 1), tile.fits)
    rate = tile.rate * np.minimum(1.0, resident * tile.warps / FULL_WARPS)
    reads = here * steps * ((tile.m + tile.n) * tile.k * tile.element) / tile.cache
    waits = _parts(here, resident) * (steps / max(tile.stages - 1, 1) + 2) * LATENCY
    clocks = np.maximum(np.maximum(work / rate, reads), waits) + here * tile.results
    clocks = clocks * (BESIDE_GROUPS if device.groups else 1.0)
    return clocks + (LAUNCH + sums / SUM_BYTES) if splits > 1 else clocks


def _parts(size: Any, each: Any) -> Any:
    """How many parts of a size there are; of a number or of several."""
    return -(-size // each)


def joins(device: Device, tile: AnyTile, pieces: int) -> bool:
    """Whether the blocks that have pieces of a tile's sums join them, as a cluster; else another kernel does."""
    return (
        device.clusters
        and pieces in ROOM
        and isinstance(tile, GroupTile)
        and tile.n >= 64
        and tile.m * tile.n <= tile.joined
    )


def _of_groups(tile: GroupTile, here: Any, steps: Any, work: Any, columns: int | Several) -> Clocks:
    """Clocks of some tiles in turn: the next are brought meanwhile, and multiplied where groups take turns."""
    reads = here * steps * tile.stage / GROUP_BYTES
    waits = (here * steps / (tile.stages - 1) + 2.6) * GROUP_LATENCY
    one_by_one = columns % tile.packet != 0  # results leave so
    busy = np.maximum(np.maximum(work, reads), waits) + 100 * here
    busy = np.where(one_by_one, np.maximum(busy, GROUP_BUSY * reads), busy)
    last = np.where(one_by_one, 4, 1) * (tile.results / tile.cluster)
    return np.maximum(busy, here * (last + 250)) + 1.3 * last if tile.turns else busy + 0.85 * here * last
