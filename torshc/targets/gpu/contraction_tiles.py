"""The tiles that products are cut into on a device of blocks."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import ClassVar

from ...kernels.machine import Choice
from .grid import WARP

LANES_M, LANES_N = 4, 8  # a warp is 4 x 8 threads
# Bytes that a multiprocessor gets from the second cache in a clock, where all warps ask and multiply.
CACHE_BYTES = 28.0
LANES_SM = 128.0  # multiply-adds of a multiprocessor in a clock
TENSOR_SM = 2048.0  # those of its tensor cores, of 16-bit floats
TF32_SM = TENSOR_SM / 2  # and of tf32
UNIT_SHARED, BLOCK_SHARED = 220 * 1024, 96 * 1024  # bytes of shared memory for tensor cores: of all blocks, of one
MAX_STAGES = 4
GROUP_SHARED, MOST_STAGES = 227 * 1024, 8  # bytes of shared memory of a block that has a multiprocessor to itself
SINGLE = 0.45  # part of what a tile is worth for three products of tf32 that it is for one, which waits for its factors
THREAD_SUMS = 256  # bytes of sums that a thread has registers for
RESIDENT_THREADS = 512  # threads that should fit on a multiprocessor
MOST_WARPS = 24  # warps of blocks that fit on a multiprocessor, about


@dataclass(frozen=True)
class GridTile:
    """A block's part of a product, and a thread's.

    Attributes:
        m, n: rows and columns of a block.
        k: terms of the sums in shared memory at a time.
        tm, tn: rows and columns of a thread, multiples of 4.
        worth: part of a multiprocessor's peak that it reaches with enough warps.
        stages: tiles in shared memory at a time.
    """

    m: int
    n: int
    k: int
    tm: int
    tn: int
    worth: float
    stages: int = 2
    element: ClassVar[int] = 4
    cache: ClassVar[float] = CACHE_BYTES
    results: ClassVar[float] = 0.0

    @property
    def sizes(self) -> Choice:
        """What names it in tuning records."""
        return self.m, self.n, self.k, self.tm, self.tn

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
    def fits(self) -> int:
        """Blocks on a multiprocessor at the same time, at most."""
        return MOST_WARPS // self.warps

    @property
    def rate(self) -> float:
        """Multiply-adds of a multiprocessor in a clock, with enough warps."""
        return LANES_SM * self.worth

    @property
    def resident(self) -> int:
        """Blocks that should fit on a multiprocessor, which bounds the registers of a thread."""
        return max(1, RESIDENT_THREADS // self.threads)

    def shared(self, size: int) -> int:
        """Bytes of shared memory for elements of `size` bytes."""
        return self.stages * self.k * (self.m + self.n + 8) * size


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
# Of devices that hold one at a time, in little memory, brought in whole vectors of four. They are flat: browsers clear
# that memory first, and where they have no card a second goes by until 8 KiB of it are compiled.
SINGLE_TILES = (
    GridTile(128, 128, 8, 8, 8, 0.7, 1),
    GridTile(64, 64, 8, 8, 4, 0.6, 1),
    GridTile(64, 32, 8, 8, 4, 0.55, 1),
    GridTile(32, 64, 8, 8, 4, 0.55, 1),
    GridTile(32, 32, 8, 4, 4, 0.5, 1),
    GridTile(16, 32, 16, 4, 4, 0.45, 1),
)


@dataclass(frozen=True)
class MmaTile:
    """A block's part of a product on tensor cores, and a warp's.

    Attributes:
        m, n: rows and columns of a block.
        k: terms of the sums in shared memory at a time, for each stage.
        wm, wn: rows and columns of a warp, multiples of 16.
        worth: part of the tensor cores' peak that it reaches with enough warps.
    """

    m: int
    n: int
    k: int
    wm: int
    wn: int
    worth: float
    element: ClassVar[int] = 2
    cache: ClassVar[float] = CACHE_BYTES

    @property
    def sizes(self) -> Choice:
        """What names it in tuning records."""
        return self.m, self.n, self.k, self.wm, self.wn

    @property
    def warps(self) -> int:
        return self.m // self.wm * (self.n // self.wn)

    @property
    def threads(self) -> int:
        return self.warps * WARP

    @property
    def fits(self) -> int:
        """Blocks on a multiprocessor at the same time, at most."""
        return MOST_WARPS // self.warps

    @property
    def results(self) -> float:
        """Clocks in which a block only writes a tile of results."""
        return self.m * self.n / 8

    @property
    def rate(self) -> float:
        return TENSOR_SM * self.worth

    @property
    def resident(self) -> int:
        """Blocks that should fit on a multiprocessor, which bounds the registers of a thread."""
        return max(1, RESIDENT_THREADS // self.threads) if self.wm * self.wn <= 64 * WARP else 1

    @property
    def stages(self) -> int:
        """Tiles in shared memory at a time: as many as fit for `resident` blocks."""
        limit = min(BLOCK_SHARED, UNIT_SHARED // self.resident)
        return max(2, min(MAX_STAGES, limit // self._stage))

    @property
    def gap(self) -> int:
        """Elements between lines along the sum, which spread them over the banks; across it there are 8."""
        return 8

    def shared(self, size: int) -> int:
        """Bytes of shared memory, at most; a tile has one type of elements, of whatever `size` sums are."""
        return self.stages * self._stage

    @property
    def _stage(self) -> int:
        a, b = (max(size * (self.k + self.gap), self.k * (size + 8)) for size in (self.m, self.n))
        return self.element * (a + b)


MMA_TILES = (
    MmaTile(128, 256, 32, 64, 64, 0.55),
    MmaTile(128, 128, 32, 64, 32, 0.5),
    MmaTile(128, 64, 32, 32, 32, 0.4),
    MmaTile(64, 128, 32, 32, 32, 0.4),
    MmaTile(64, 64, 32, 32, 32, 0.35),
    MmaTile(64, 64, 64, 32, 32, 0.35),
    MmaTile(64, 32, 64, 32, 16, 0.25),
    MmaTile(32, 64, 64, 16, 32, 0.25),
    MmaTile(32, 32, 64, 16, 16, 0.2),
    MmaTile(16, 64, 64, 16, 16, 0.2),
)


@dataclass(frozen=True)
class Tf32Tile(MmaTile):
    """The same for f32, whose factors are rounded to tf32, or are taken as sums of two tf32.

    Attributes:
        products: products of tf32 for each of f32: 1, or 3 for the accuracy of f32.
    """

    products: int = 3
    element: ClassVar[int] = 4

    @property
    def fits(self) -> int:
        return self.resident

    @property
    def rate(self) -> float:
        return TF32_SM * self.worth * (1 / 3 if self.products == 3 else SINGLE)

    @property
    def resident(self) -> int:
        return max(1, RESIDENT_THREADS // self.threads) if self.wm * self.wn <= 32 * WARP else 1

    @property
    def gap(self) -> int:
        return 4


# What a tile is worth follows from counts, for Hopper, and is not measured. For 8 terms, a warp of 64 x 32 issues 48
# mma of m16n8k8, 64 additions and 72 instructions that split 24 elements: 246 with loads and all else, one a clock. Its
# mma take 192 clocks at the peak and about 310 as mma.sync, so 0.5 with what waits. A smaller warp splits more for each
# product.
TF32_TILES = (
    Tf32Tile(128, 128, 16, 64, 32, 0.5),
    Tf32Tile(128, 64, 32, 32, 32, 0.45),
    Tf32Tile(64, 128, 32, 32, 32, 0.45),
    Tf32Tile(64, 64, 32, 32, 32, 0.42),
    Tf32Tile(64, 32, 32, 32, 16, 0.38),
    Tf32Tile(32, 64, 32, 16, 32, 0.38),
    Tf32Tile(32, 32, 32, 16, 16, 0.33),
    Tf32Tile(16, 64, 32, 16, 16, 0.33),
)


@dataclass(frozen=True)
class GroupTile:
    """A block's part of a product by groups of four warps, each of which has 64 rows (Hopper's wgmma).

    Attributes:
        m, n: rows and columns of a block; 64 rows for each group, and at most 256 columns.
        worth: part of the tensor cores' peak that it reaches.
        turns: whether two groups take whole tiles in turns, so that one multiplies while the other writes results.
        cluster: blocks that have the pieces of a tile's sums and join them; 1 where no blocks do.
    """

    m: int
    n: int
    worth: float
    turns: bool = False
    cluster: int = 1
    k: ClassVar[int] = 64  # terms in shared memory for each stage: rows of 128 bytes, as the hardware swizzles them
    element: ClassVar[int] = 2
    loaders: ClassVar[int] = 4 * WARP
    splitters: ClassVar[int] = 0  # threads that leave more in shared memory than what is brought there
    pitch: ClassVar[int] = 72  # floats from row to row of 64 results on their way out: four rows meet no bank twice
    joined: ClassVar[int] = 64 * 64  # sums up to which the blocks of a cluster join pieces faster than another kernel
    join: ClassVar[float] = 3200.0  # clocks in which they do, fitted to 70 times on an H100
    blocks: ClassVar[int] = 132  # at a time: the multiprocessors of an H100 or H200; elsewhere they come in turn

    @property
    def sizes(self) -> Choice:
        """What names it in tuning records."""
        return self.m, self.n, 1 + self.turns

    @property
    def warps(self) -> int:
        """Warps that multiply."""
        return 8 if self.turns else self.m // 16

    @property
    def readers(self) -> int:
        """Warps that read a stage."""
        return 4 if self.turns else self.warps

    @property
    def parts(self) -> int:
        """Parts of 64 rows that a group has."""
        return self.m // (16 * self.readers)

    @property
    def threads(self) -> int:
        return self.loaders + self.splitters + self.warps * WARP

    @property
    def packet(self) -> int:
        """Elements that go to shared memory at once."""
        return 16 // self.element

    @property
    def block(self) -> int:
        """Bytes of a stage's lines across the sum, 128 bytes of each: what a copy brings of a factor that lies so."""
        return 128 * self.k

    @property
    def rate(self) -> float:
        return TENSOR_SM * self.worth

    @property
    def results(self) -> float:
        """Clocks in which a block writes a tile of results."""
        return self.m * self.n / GROUP_RESULTS

    @property
    def registers(self) -> tuple[int, int]:
        """Registers of a thread that brings tiles, and of one that multiplies."""
        return 56, 224

    @property
    def stages(self) -> int:
        """Tiles in shared memory at a time."""
        return min(MOST_STAGES, (GROUP_SHARED - self._results - 32) // (self.stage + 8 * self.barriers))

    @property
    def barriers(self) -> int:
        """Barriers for each stage: its tiles are here, were used, and what the splitters leave is here."""
        return 3 if self.splitters else 2

    def shared(self, size: int) -> int:
        """Bytes of shared memory: of tiles, of barriers, and of results on their way out."""
        return self.begun + self._results

    @property
    def begun(self) -> int:
        """Where results are in shared memory: behind the stages, their barriers and those of the groups' turns."""
        return ceil((self.stages * (self.stage + 8 * self.barriers) + 16 * self.turns) / 16) * 16

    @property
    def lines(self) -> int:
        """Lines of 64 sums that a block of a cluster joins."""
        return ceil(self.m * self.n / (64 * self.cluster))

    @property
    def _results(self) -> int:
        return 4 * self.m * (self.n + 8) if self.cluster > 1 else self.warps * 8 * self.pitch * 4

    @property
    def stage(self) -> int:
        """Bytes of the tiles of a stage."""
        return self.element * self.k * (self.m + self.n)


@dataclass(frozen=True)
class Tf32GroupTile(GroupTile):
    """The same for f32, whose factors are rounded to tf32, or are taken as sums of two tf32.

    The first factor's are made in registers. For the second's there are four more warps, which round a tile where it
    lies, or leave beside it what is lost when tensor cores read it as tf32. Sums of 32 terms of two tf32 are made on
    tensor cores and added to the rest by the plain units. As tensor cores read tf32 along the sum only, factors that
    lie across it are turned: the first when registers are filled, the second by those four warps, to memory of its own.

    Attributes:
        products: products of tf32 for each of f32: 1, or 3 for the accuracy of f32.
        across: whether both factors lie across the sum.
    """

    products: int = 3
    across: bool = False

    k: ClassVar[int] = 32
    element: ClassVar[int] = 4
    splitters: ClassVar[int] = 4 * WARP
    joined: ClassVar[int] = 128 * 64
    join: ClassVar[float] = 2000.0

    @property
    def rate(self) -> float:
        return TF32_SM / self.products * self.worth

    @property
    def registers(self) -> tuple[int, int]:
        return 56, 200

    @property
    def stage(self) -> int:
        return self.element * self.k * (self.m + self.n * (1 + (self.products == 3) + self.across))


@dataclass(frozen=True)
class RoundedGroupTile(GroupTile):
    """The same for f32 that are tf32 already, and lie along the sum: tensor cores read both from shared memory."""

    products: ClassVar[int] = 1
    k: ClassVar[int] = 32
    element: ClassVar[int] = 4

    @property
    def rate(self) -> float:
        return TF32_SM * self.worth


# What these are worth, and the clocks of their estimate, are fitted to 110 times of products and convolutions of 16-bit
# floats on an H200, of 16 to 100,352 rows.
GROUP_TILES = (
    GroupTile(128, 256, 0.9),
    GroupTile(128, 192, 0.88),
    GroupTile(128, 128, 0.81),
    GroupTile(128, 64, 0.52),
    GroupTile(128, 128, 0.84, turns=True),
    GroupTile(128, 64, 0.38, turns=True),
    GroupTile(64, 256, 0.855, turns=True),
    GroupTile(64, 128, 0.61, turns=True),
    GroupTile(64, 64, 0.38, turns=True),
)
# For 32 terms a group of four warps has 12 products, at 64 clocks each where there are 128 columns, and about 200
# instructions of each warp beside them, which the other group's products hide. Measured with three products on an H200,
# those of 32 columns where there are no more, which tiles of 64 mostly multiply nothing for.
TF32_GROUP_TILES = (Tf32GroupTile(128, 128, 0.86), Tf32GroupTile(128, 64, 0.71), Tf32GroupTile(128, 32, 0.42))
# One product waits for shared memory, of 128 bytes a clock. For 32 terms of 128 x 128, 32 KiB arrive, 16 are read and
# written by the warps that round the second factor, 16 are read as the first, and 16 by each of two groups' products:
# 896 clocks, where products take 512. On an H200 gradients of weights took a tenth more. For tiles of 256 columns 512
# threads have too few registers.
TF32_SINGLE_TILES = (Tf32GroupTile(128, 128, 0.52, products=1), Tf32GroupTile(128, 64, 0.4, products=1))
# A stage has the bytes of one of halves and takes as many clocks.
ROUNDED_GROUP_TILES = tuple(RoundedGroupTile(t.m, t.n, t.worth, t.turns) for t in GROUP_TILES)
GROUP_RESULTS = 5.6  # results that a block writes in a clock
AnyTile = GridTile | MmaTile | GroupTile
