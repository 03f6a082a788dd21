"""Products of bf16 with weights, summed in f32: a form for each set of instructions that multiplies halves."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from ...base.features import Feature, Features
from ...expr import Expr, as_int, ceil_div, const, max_of, min_of, product
from ...kernels.machine import Machine
from .conv_shape import Geometry
from .pack import HALF_COLUMNS, STEP
from .tiles import BLOCK_ROWS, FEW_ROWS, TASK_FLOPS, Blocks, ProductKernel, Tile, choose_blocks, clamp

BLOCK_BYTES = 512 * 1024  # of packed rows that a task reads again for each group of columns: they stay in L2
MOST_ROWS = 384  # of a block
GROUP_BYTES = 512 * 1024  # of weights of a group of columns, of which L2 holds two
STEP_WORDS = (16, 14, 12)  # words of two k that one of several equal steps takes, the best first
STAY_BYTES = 768 * 1024  # of weights that stay in L2 beside the rows that they are multiplied with
CHUNK_BYTES = 1280 * 1024  # of weights that many rows are multiplied with, one tile of them after the other
SHORT_CHUNK_BYTES = 320 * 1024  # of weights that fewer rows are, whose first tile waits for all of them
RESULT_BYTES = 16 * 1024 * 1024  # that lie in no cache: columns of a tile at a time take half as long again to write
MANY_ROWS = 384  # of a product, of which the first ones may wait for weights
STREAM_BYTES = (
    4 * 1024 * 1024
)  # of weights that lie in no cache of a core; from L2 one panel comes at a third of the rate
BLOCK_STEPS = 16  # of a block of sums, whose weights stay in the first cache: 32 KiB of 48
ROW_STEPS = 24  # of rows that stay in the first cache for all their columns
MOST_AT_ONCE = 7  # rows that are finished after a step
WHOLE_STEPS = 12  # that are not worth blocks
PACKED_COLUMNS = 768  # for which rows that crowd each other out of the caches are worth packing
FAR_ROWS_BYTES = 3 * 1024 * 1024  # of all rows of a product, of which L2 then holds few when they are read
LONG_ROWS_COLUMNS = 768  # for which a call that has a fourth of the tasks packs other rows, if they are long
LINE, SETS = 64, 64  # bytes of a line of that cache, and its sets
PAIRS = 2  # times the rate of multiply-adds, at which a Zen adds pairs
FEW_BYTES = 160 * 1024  # of weights that L2 gets before the first tile of rows is done
TILES_FLOPS = 500_000  # a quarter of a microsecond of a core's tiles: a task of fewer is not worth handing to a thread
ONE = const(1)
EVEN, MOST_TASKS = 16, 64  # tasks above the former come in multiples of it, so that as many threads have as many


@dataclass(frozen=True)
class Window:
    """What pixels of a convolution read: the rows of its product, tap after tap.

    Attributes:
        size: sizes of the convolution, of one group.
        pixels: output axes of the epilogue.
    """

    size: Geometry
    pixels: tuple[Expr, ...]

    @property
    def taps(self) -> tuple[tuple[int, int], ...]:
        """Where each tap reads, in input rows and columns from the first one of its pixel."""
        (h, w) = self.size.dilation
        return tuple((r * h, s * w) for r, s in np.ndindex(*self.size.kernel))


@dataclass(frozen=True)
class Bf16GemmKernel(ProductKernel):
    """A product of bf16 with weights in panels of words of two k, see :func:`.pack.words_of_halves`.

    Class attributes:
        needs: instruction sets that the form is made for; compiled without them it is plain C with the same order of
            sums. It is no fallback in a run: that is another version of the library.
        reads_rows: whether rows are read as they lie; else a task packs them.
        packed: bytes of an element of packed rows.
        task_flops: a task of fewer is not worth handing to a thread.
        block_bytes: of the rows of a product that a task reads again for each group of columns.

    Attributes:
        window: of a convolution, what the rows are made of, which are packed in any form; ``a`` is its input, stepping
            along images, rows and pixels.
    """

    needs: ClassVar[tuple[str, ...]] = ()
    reads_rows: ClassVar[bool] = False
    packed: ClassVar[int] = 2
    task_flops: ClassVar[int] = TASK_FLOPS
    block_bytes: ClassVar[int] = BLOCK_BYTES

    window: Window | None = None

    @classmethod
    def choose_tile(cls, lanes: int, rows: int | None) -> Tile:
        """Rows and columns of a register tile; the columns are whole panels."""
        if lanes == 16:
            return Tile(4, 4, 16) if rows is not None and rows <= FEW_ROWS else Tile(8, 3, 16)
        return Tile({8: 6, 4: 3}.get(lanes, 2), HALF_COLUMNS // lanes, lanes)

    @classmethod
    def choose_blocks(
        cls, machine: Machine, tile: Tile, m: Expr, n: Expr, k: Expr, batch: Expr, packs: bool, room: int = BLOCK_BYTES
    ) -> Blocks:
        """How a product is cut into tasks: rows that are packed by the bytes that a cache holds of them."""
        depth = (as_int(k) or 1) + STEP
        rows = min(max(room // (depth * cls.packed), STEP), MOST_ROWS) if packs else BLOCK_ROWS
        return choose_blocks(machine, tile, m, tile.panels(n), m * n * k * batch * 2, batch, rows, cls.task_flops)

    @property
    def packs(self) -> bool:
        """Whether a task packs its rows."""
        return self.window is not None or not self.reads_rows

    @property
    def scratch(self) -> Expr:
        return self.packed_rows

    @property
    def packed_rows(self) -> Expr:
        """Bytes of the rows that a task packs."""
        if not self.packs:
            return const(0)
        rows = ceil_div(self.tile.tiles(self.m.args[0]), self.blocks.m) * self.tile.rows
        return rows * ceil_div(self.k, STEP) * (STEP * self.packed)


@dataclass(frozen=True)
class AmxKernel(Bf16GemmKernel):
    """Tiles of 16 x 16 sums, to each of which an instruction adds 32 terms; two by two of them.

    Attributes:
        parts: pieces of the tiles of a block of rows. Tasks that follow each other have other columns where rows come
            first, else other parts, which read the same weights. Rows that come first do so for each chunk of columns.
    """

    template: ClassVar[str] = "gemm_bf16_amx.c.j2"
    needs: ClassVar[tuple[str, ...]] = ("amx-tile", "amx-bf16")
    task_flops: ClassVar[int] = 4 * TASK_FLOPS
    block_bytes: ClassVar[int] = 2 * BLOCK_BYTES  # each block reads all weights, which come from farther away

    parts: Expr = ONE

    def spread(self) -> Self:
        """The kernel in finer tasks where rows are read where they lie; one thread does the same tiles in order."""
        if not self.direct:
            return self
        rows = ONE if self.rows_first else self.blocks.m  # a block of rows stays in L2 for all its columns
        tiles, count = self.tile.tiles(self.m.args[0]), product([a.args[0] for a in self.batch])
        return self.cut(Blocks(rows, self.blocks.n), ceil_div(tiles, max_of(rows, 1)), count * rows)

    def cut(self, blocks: Blocks, tiles: Expr, count: Expr) -> Self:
        """The kernel whose `count` blocks of rows, of so many tiles at most, are cut in parts, and their columns.

        As many as are wanted of what is outside, and of what is inside so many that as many threads end soonest.
        """
        count = count * self.chunks
        wanted = ceil_div(wanted_tasks(self.flops), max_of(count, 1))
        groups = ceil_div(self.tile.panels(self.n.args[0]), self.chunks)
        outside, inside = (tiles, groups) if self.rows_first else (groups, tiles)
        outer = min_of(wanted, outside)
        inner = min_of(ceil_div(wanted, max_of(outer, 1)), inside)
        if outer_int := as_int(outer):
            inner = const(_even_pieces(outer_int, as_int(inside) or 1, as_int(wanted) or 1))
        parts, columns = (outer, inner) if self.rows_first else (inner, outer)
        return type(self).of(self, blocks=Blocks(blocks.m, columns), parts=parts, tasks=count * parts * columns)

    @property
    def words(self) -> int:
        """Words of two k that a step takes of rows that are read where they lie; 0 where steps would not be equal."""
        depth = as_int(self.k) or 0
        if depth <= STEP:
            return depth // 2 if depth % 2 == 0 else 0
        return next((w for w in STEP_WORDS if depth % (2 * w) == 0), 0)

    @property
    def direct(self) -> bool:
        """Whether tiles read rows where they lie, as these fill equal steps."""
        return self.window is None and self.words > 0 and not self.blocked

    @property
    def packs_long_rows(self) -> bool:
        """Whether a call that has many of the columns packs rows that it would read where they lie.

        Long rows come from L2 a tenth faster so; to pack them takes as long as some hundreds of columns.
        """
        rows, depth, columns = (as_int(e) or 0 for e in (self.m.args[0], self.k, self.n.args[0]))
        long = self.direct and depth % STEP == 0 and depth >= ROW_STEPS * STEP and columns >= LONG_ROWS_COLUMNS
        return long and not self.rows_first and not 0 < rows <= self.tile.rows

    @property
    def blocked(self) -> bool:
        """Whether rows are packed and sums made in blocks of steps, as rows as they lie share few sets of the caches.

        That pays where sums are long and columns many. Where rows lie well, blocks cost more than they gain: their
        sums are stored and read again.
        """
        rows, depth, columns = (as_int(e) or 0 for e in (self.m.args[0], self.k, self.n.args[0]))
        long = depth > WHOLE_STEPS * STEP and columns >= PACKED_COLUMNS
        return long and self.crowded and not (self.has_few_weights or 0 < rows <= self.tile.rows)

    @property
    def crowded(self) -> bool:
        """Whether rows lie so far apart that their lines share few sets of a cache."""
        lines = (as_int(self.a.steps[0]) or 0) * self.packed // LINE if self.window is None else 0
        return lines > 0 and math.gcd(lines, SETS) >= SETS // 2

    @property
    def weight_bytes(self) -> int | None:
        """Bytes of the weights of a matrix, where that is known."""
        depth, columns = as_int(self.k), as_int(self.n.args[0])
        return None if depth is None or columns is None else depth * columns * self.packed

    @property
    def has_few_weights(self) -> bool:
        """Whether the first tile of rows may wait for all weights: there are few, or more results than operands."""
        if self.weight_bytes is None:
            return False
        wide = (as_int(self.n.args[0]) or 0) >= (as_int(self.k) or 0)
        return self.weight_bytes <= (STAY_BYTES if wide else FEW_BYTES)

    @property
    def rows_first(self) -> bool:
        """Whether all columns of a chunk are done for a tile of rows before the next rows.

        Results are then written by rows, and weights are read again from L2, in the order in which they lie.
        """
        if self.has_few_weights:
            return True
        rows, depth, columns = (as_int(e) or 0 for e in (self.m.args[0], self.k, self.n.args[0]))
        many = rows >= MANY_ROWS and columns >= depth > 0
        read_once = self.reads_far and depth <= ROW_STEPS * STEP and depth * columns * self.packed <= STAY_BYTES
        return self.direct and not self.crowded and (many or read_once or self.writes_far)

    @property
    def reads_far(self) -> bool:
        """Whether all rows together are more than L2 holds of them."""
        return (as_int(self.m.args[0]) or 0) * (as_int(self.k) or 0) * self.packed >= FAR_ROWS_BYTES

    @property
    def asks_for_rows(self) -> bool:
        """Whether a tile asks memory for the rows of the next one, which then follow each other without a gap.

        Short rows, which lie close together, the processor asks for by itself.
        """
        depth = as_int(self.k) or 0
        dense = self.direct and as_int(self.a.steps[0]) == depth and depth % STEP == 0
        return dense and depth >= 2 * STEP and self.reads_far and self.rows_first and self.chunks == 1

    @property
    def writes_far(self) -> bool:
        """Whether some tiles of rows have so many results that these are better written in long pieces of rows."""
        rows, columns = (as_int(e) or 0 for e in (self.m.args[0], self.n.args[0]))
        size = sum(self.buffers[s.buffer].dtype.size for s in self.stores)
        return self.tile.rows < rows < MANY_ROWS and rows * columns * size >= RESULT_BYTES

    @property
    def chunks(self) -> int:
        """Pieces of the columns whose weights stay in L2 for all rows."""
        size = SHORT_CHUNK_BYTES if self.writes_far else CHUNK_BYTES
        return -(-(self.weight_bytes or 0) // size) if self.rows_first else 1

    @property
    def keeps(self) -> str:
        """What the first cache is to hold for the next tile, "rows" or "weights"; nothing where neither has room."""
        depth = as_int(self.k) or 0
        if self.rows_first:
            return "rows" if depth <= ROW_STEPS * STEP else ""
        return "weights" if self.blocked or depth <= BLOCK_STEPS * STEP else ""

    @property
    def rows_a_step(self) -> int:
        """Rows of a whole tile that are finished after each step of the next one, so that all are after the last."""
        words = 2 * self.words if self.direct else STEP
        return rows_a_step(self.tile.rows, max((as_int(self.k) or 1) // words // self.k_blocks, 1))

    @property
    def k_blocks(self) -> int:
        """Blocks of steps that sums are made in, all tiles of rows one after the other; the sums are the same."""
        return -(-(as_int(self.k) or 0) // (BLOCK_STEPS * STEP)) if self.blocked else 1

    @property
    def partial(self) -> Expr:
        """Bytes of the sums that lie in memory between blocks of steps."""
        tiles = ceil_div(self.tile.tiles(self.m.args[0]), self.blocks.m)
        return tiles * (4 * self.tile.rows * self.tile.columns) if self.k_blocks > 1 else const(0)

    @property
    def long_groups(self) -> bool:
        """Whether the weights of one group of columns leave no room in L2 for those of the next."""
        depth = as_int(self.k)
        return depth is not None and depth * self.tile.columns * self.packed > GROUP_BYTES

    @property
    def scratch(self) -> Expr:
        rows = self.k * (self.tile.rows * self.packed) if self.direct and not self.packs_long_rows else super().scratch
        return self.partial + rows

    @classmethod
    def choose_tile(cls, lanes: int, rows: int | None) -> Tile:
        return Tile(2 * HALF_COLUMNS, 2 * HALF_COLUMNS // lanes, lanes)


@dataclass(frozen=True)
class DotKernel(Bf16GemmKernel):
    """Vectors to each of which an instruction adds two terms."""

    template: ClassVar[str] = "gemm_bf16_dot.c.j2"
    needs: ClassVar[tuple[str, ...]] = ("avx512bf16",)
    reads_rows: ClassVar[bool] = True

    @classmethod
    def narrow_tile(cls, tile: Tile, rows: int | None, weights: int | None) -> Tile:
        """Of few rows whose weights, so many elements, come from memory: one panel, which is read in one piece."""
        few = rows is not None and rows <= FEW_ROWS and tile.lanes == HALF_COLUMNS
        return Tile(tile.rows, 1, tile.lanes) if few and (weights or 0) * cls.packed >= STREAM_BYTES else tile

    @property
    def few_rows(self) -> str:
        return (
            f"products of up to {FEW_ROWS} rows of bf16 sum pairs in vectors, of more in tiles, in a library with both"
        )


@dataclass(frozen=True)
class MmlaKernel(Bf16GemmKernel):
    """Squares of 2 x 2 sums, to each of which an instruction of Arm adds four terms."""

    template: ClassVar[str] = "gemm_bf16_mmla.c.j2"
    needs: ClassVar[tuple[str, ...]] = ("bf16",)
    reads_rows: ClassVar[bool] = True

    @classmethod
    def choose_tile(cls, lanes: int, rows: int | None) -> Tile:
        """Two pairs of rows by eight of columns: with three, compilers keep some of 24 sums in memory."""
        return Tile(4, HALF_COLUMNS // lanes, lanes) if lanes == 4 else super().choose_tile(lanes, rows)


FORMS: tuple[type[Bf16GemmKernel], ...] = (AmxKernel, DotKernel, MmlaKernel)  # the best first


def wanted_tasks(flops: Expr) -> Expr:
    """How many tasks a product of tiles is cut into, where that costs one thread nothing.

    >>> [wanted_tasks(const(million * 10**6)) for million in (0, 3, 21, 900)]
    [1, 6, 32, 64]
    """
    tasks = clamp(flops // TILES_FLOPS, 1, MOST_TASKS)
    return max_of(tasks // EVEN * EVEN, min_of(tasks, EVEN))


def rows_a_step(rows: int, steps: int) -> int:
    """The fewest of some rows, in equal parts, of which so many steps leave an eighth at most; few steps leave more.

    >>> rows_a_step(32, 24), rows_a_step(28, 144), rows_a_step(32, 7), rows_a_step(32, 2)
    (2, 1, 4, 8)
    """
    enough = rows * 7 // 8
    return next(n for n in range(1, rows + 1) if rows % n == 0 and (n * steps >= enough or n >= MOST_AT_ONCE))


def _even_pieces(outer: int, inside: int, most: int) -> int:
    """Pieces of `inside`, `most` in all of the `outer` ones, for which EVEN threads that take as many are done soonest.

    >>> _even_pieces(7, 12, 16), _even_pieces(7, 12, 32), _even_pieces(8, 7, 64)
    (2, 4, 7)
    """

    def longest(pieces: int) -> int:
        sizes = [(inside * (i + 1)) // pieces - inside * i // pieces for i in range(pieces)] * outer
        ends = [len(sizes) * i // EVEN for i in range(EVEN + 1)]
        return max(sum(sizes[a:b]) for a, b in itertools.pairwise(ends))

    return min(range(1, max(min(inside, most // outer), 1) + 1), key=lambda pieces: (longest(pieces), -pieces))


def choose_form(extras: Sequence[str], rows: int | None = None) -> type[Bf16GemmKernel] | None:
    """The best form that a processor has instructions for; None where it multiplies floats sooner.

    Intel's processors, which have AVX512-FP16 beside AVX512-BF16, add pairs at half the rate of their multiply-adds.
    Few rows only wait for their weights, which vectors ask memory for sooner than tiles do.

    Args:
        rows: of a product, where they are known.
    """
    few = rows is not None and rows <= FEW_ROWS
    forms = (f for f in FORMS if f is not DotKernel or "avx512fp16" not in extras)
    found = next((form for form in forms if set(form.needs) <= set(extras)), None)
    return DotKernel if few and found is not None and set(DotKernel.needs) <= set(extras) else found


def missing_features(extras: Sequence[str]) -> Features:
    """What a processor is no faster with in bf16 than in f32."""
    form = choose_form(extras)
    if form is AmxKernel:
        return frozenset()
    more = () if form else (Feature.BF16_PRODUCTS, Feature.BF16_CONVOLUTIONS)
    return frozenset({Feature.BF16_TILES, *more})
