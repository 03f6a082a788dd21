"""How products are cut into tiles on a device of blocks: the tile, and the pieces that a sum is cut into."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from ..expr import DType

UNKNOWN = (8, 512, 512, 512)  # what products, rows, columns and terms are taken for when only a run knows them
MAX_SPLITS = 32
LANES_M, LANES_N, WARP = 4, 8, 32  # a warp is 4 x 8 threads
LATENCY = 700.0  # clocks from a load to its use
LAUNCH = 4000.0  # clocks of a kernel more, and of its wait for the one before
SUM_BYTES = 1500.0  # bytes of partial sums that all multiprocessors write and read in a clock
LANES_SM = 128.0  # multiply-adds of a multiprocessor in a clock
RESIDENT_THREADS = 512  # threads that a multiprocessor should have room for
FULL_WARPS = 8.0  # warps that keep a multiprocessor busy


@dataclass(frozen=True)
class Device:
    """What the choice of tiles depends on.

    Attributes:
        units: multiprocessors.
        shared: bytes of shared memory of a block.
        tensor: whether there are tensor cores for f16 and bf16.
    """

    units: int = 132
    shared: int = 48 * 1024
    tensor: bool = False


@dataclass(frozen=True)
class GridTile:
    """A block's part of a product, and a thread's.

    Attributes:
        m, n: rows and columns of a block.
        k: terms of the sums in shared memory at a time.
        tm, tn: rows and columns of a thread, multiples of 4.
        worth: part of a multiprocessor's peak that it reaches with enough warps.
    """

    m: int
    n: int
    k: int
    tm: int
    tn: int
    worth: float

    @property
    def warps_n(self) -> int:
        """Warps side by side along the columns."""
        return self.n // (LANES_N * self.tn)

    @property
    def warps(self) -> int:
        return self.m // (LANES_M * self.tm) * self.warps_n

    @property
    def threads(self) -> int:
        return self.warps * WARP

    @property
    def resident(self) -> int:
        """Blocks that a multiprocessor should have room for, which bounds the registers of a thread."""
        return max(1, RESIDENT_THREADS // self.threads)

    def shared(self, size: int) -> int:
        """Bytes of shared memory for elements of `size` bytes."""
        return 2 * self.k * (self.m + self.n + 8) * size


TILES = (
    GridTile(128, 128, 16, 8, 8, 0.75),
    GridTile(128, 128, 8, 8, 8, 0.7),
    GridTile(128, 64, 16, 8, 4, 0.65),
    GridTile(64, 128, 16, 8, 4, 0.65),
    GridTile(64, 64, 16, 4, 4, 0.55),
    GridTile(64, 64, 16, 8, 4, 0.6),
    GridTile(64, 32, 32, 4, 4, 0.55),
    GridTile(32, 64, 32, 4, 4, 0.55),
    GridTile(32, 32, 32, 4, 4, 0.5),
    GridTile(16, 64, 32, 4, 4, 0.5),
    GridTile(16, 32, 32, 4, 4, 0.45),
)


def choose_tile(
    device: Device, sizes: Sequence[int | None], dtype: DType, tiles: Sequence[GridTile] = TILES
) -> tuple[GridTile, int]:
    """The tile, and into how many pieces sums are cut.

    Args:
        sizes: number of products, rows, columns and length of the sums, None where a run decides.
        dtype: element type in shared memory.
    """
    batch, m, n, k = (guess if s is None else max(s, 1) for s, guess in zip(sizes, UNKNOWN, strict=True))
    most = MAX_SPLITS if None not in sizes else 1
    best = None
    for tile in tiles:
        if tile.shared(dtype.size) > device.shared:
            continue
        for splits in (s for s in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32) if s <= most and (s == 1 or s * tile.k * 2 <= k)):
            time = estimate(device, tile, splits, (batch, m, n, k))
            if best is None or time < best[0]:
                best = time, tile, splits
    assert best is not None
    return best[1:]


def estimate(device: Device, tile: GridTile, splits: int, sizes: tuple[int, int, int, int]) -> float:
    """Clocks that a product takes, about: arithmetic of the fullest multiprocessor, or the latency of its loads."""
    batch, m, n, k = sizes
    blocks = batch * ceil(m / tile.m) * ceil(n / tile.n) * splits
    steps = ceil(ceil(k / tile.k) / splits)
    here = ceil(blocks / device.units)
    resident = max(1, min(here, 24 // tile.warps))
    work = here * steps * tile.m * tile.n * tile.k
    rate = LANES_SM * tile.worth * min(1.0, resident * tile.warps / FULL_WARPS)
    waits = ceil(here / resident) * (steps + 2) * LATENCY
    extra = 0.0 if splits == 1 else LAUNCH + splits * batch * m * n * 8 / SUM_BYTES
    return max(work / rate, waits) + extra


__all__ = ["LANES_M", "LANES_N", "TILES", "WARP", "Device", "GridTile", "choose_tile", "estimate"]
