"""Products of bf16 with weights, summed in f32: a form for each set of instructions that multiplies halves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...base.features import Feature, Features
from ...expr import Expr, as_int, call, ceil_div, const
from ...kernels.machine import Machine
from .conv_shape import Geometry
from .pack import HALF_COLUMNS, STEP
from .tiles import BLOCK_ROWS, FEW_ROWS, TASK_FLOPS, Blocks, ProductKernel, Tile, choose_blocks, clamp

BLOCK_BYTES = 512 * 1024  # of packed rows that a task reads again for each group of columns: they stay in L2
MOST_ROWS = 384  # of a block
LEAST_LINES = 4  # of a block of output rows: those around them are copied too
MOST_BYTES = 2 * BLOCK_BYTES  # that one row of pixels may need of an image


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

    Attributes:
        window: of a convolution, what the rows are made of, which are packed in any form; ``a`` is its input, stepping
            along images, rows and pixels.
    """

    needs: ClassVar[tuple[str, ...]] = ()
    reads_rows: ClassVar[bool] = False
    packed: ClassVar[int] = 2
    task_flops: ClassVar[int] = TASK_FLOPS

    window: Window | None = None

    @classmethod
    def choose_tile(cls, lanes: int, rows: int | None) -> Tile:
        """Rows and columns of a register tile; the columns are whole panels."""
        if lanes == 16:
            return Tile(4, 6, 16) if rows is not None and rows <= FEW_ROWS else Tile(8, 3, 16)
        return Tile({8: 6, 4: 3}.get(lanes, 2), HALF_COLUMNS // lanes, lanes)

    @classmethod
    def choose_blocks(cls, machine: Machine, tile: Tile, m: Expr, n: Expr, k: Expr, batch: Expr, packs: bool) -> Blocks:
        """How a product is cut into tasks: rows that are packed by the bytes that a cache holds of them."""
        depth = (as_int(k) or 1) + STEP
        rows = min(max(BLOCK_BYTES // (depth * cls.packed), STEP), MOST_ROWS) if packs else BLOCK_ROWS
        return choose_blocks(machine, tile, m, tile.panels(n), m * n * k * batch * 2, batch, rows, cls.task_flops)

    @property
    def packs(self) -> bool:
        """Whether a task packs its rows."""
        return self.window is not None or not self.reads_rows

    @property
    def scratch(self) -> Expr:
        if not self.packs:
            return const(0)
        rows = ceil_div(self.tile.tiles(self.m.args[0]), self.blocks.m) * self.tile.rows
        return rows * ceil_div(self.k, STEP) * (STEP * self.packed)


@dataclass(frozen=True)
class AmxKernel(Bf16GemmKernel):
    """Tiles of 16 x 16 sums, to each of which an instruction adds 32 terms; two by two of them."""

    template: ClassVar[str] = "gemm_bf16_amx.c.j2"
    needs: ClassVar[tuple[str, ...]] = ("amx-tile", "amx-bf16")
    task_flops: ClassVar[int] = 16 * TASK_FLOPS

    @classmethod
    def choose_tile(cls, lanes: int, rows: int | None) -> Tile:
        return Tile(2 * HALF_COLUMNS, 2 * HALF_COLUMNS // lanes, lanes)


@dataclass(frozen=True)
class AmxWindowKernel(AmxKernel):
    """A convolution whose tiles read a copy of the image, with margins, in place of packed rows.

    Attributes:
        rows: output rows of a block at the most.
    """

    kind: ClassVar[str] = "conv"
    template: ClassVar[str] = "conv_bf16_amx.c.j2"

    rows: int = 1

    @property
    def wide(self) -> int:
        """Pixels of a row of a plane."""
        size = self.sizes
        return (as_int(size.ow) or 0) + (size.kernel[1] - 1) * size.dilation[1] // size.stride[1]

    @property
    def plane(self) -> int:
        """Elements of a plane: for the rows of a block, and what a last tile reads beyond them."""
        size = self.sizes
        rows = self.rows + (size.kernel[0] - 1) * size.dilation[0] // size.stride[0]
        return (rows * self.wide + self.tile.rows) * size.ic

    @property
    def sizes(self) -> Geometry:
        """Of the convolution."""
        assert self.window is not None
        return self.window.size

    @property
    def planes(self) -> list[tuple[int, int]]:
        """Rows and columns of the input, less than a stride, from which on pixels are read one stride apart."""
        (h, w) = self.sizes.stride
        return list(dict.fromkeys((r % h, s % w) for r, s in self._taps))

    @property
    def places(self) -> list[int]:
        """Where each tap reads for the first pixel of a block."""
        (h, w), planes = self.sizes.stride, self.planes
        return [
            planes.index((r % h, s % w)) * self.plane + (r // h * self.wide + s // w) * self.sizes.ic
            for r, s in self._taps
        ]

    @property
    def _taps(self) -> tuple[tuple[int, int], ...]:
        assert self.window is not None
        return self.window.taps

    @property
    def scratch(self) -> Expr:
        return const(len(self.planes) * self.plane * self.packed)


def as_planes(packed: Bf16GemmKernel, machine: Machine) -> Bf16GemmKernel:
    """The convolution by copies of images, where sizes are known, whole steps of channels, and rows not too long."""
    assert packed.window is not None
    size = packed.window.size
    height = as_int(size.oh)
    if not isinstance(packed, AmxKernel) or None in (height, as_int(size.ow)) or size.ic % STEP or not size.taps:
        return packed
    assert height is not None
    one = AmxWindowKernel.of(packed, rows=1)
    two = AmxWindowKernel.of(packed, rows=2)
    first, more = as_int(one.scratch) or 0, (as_int(two.scratch) or 0) - (as_int(one.scratch) or 0)
    if first > MOST_BYTES or not height:
        return packed
    panels = packed.tile.panels(packed.n.args[0])
    wanted = clamp(call("floordiv", packed.flops, packed.task_flops), 1, 4 * machine.threads)
    few = min(-(-machine.threads // (as_int(panels) or 1)), height // LEAST_LINES)  # where columns are few for threads
    blocks = max(-(-height // max(1, 1 + (BLOCK_BYTES - first) // more)), few if as_int(wanted) != 1 else 1)
    count = size.images * blocks
    columns = clamp(ceil_div(wanted, call("max", count, 1)), 1, panels)
    return AmxWindowKernel.of(
        packed, rows=-(-height // blocks), blocks=Blocks(const(blocks), columns), tasks=count * columns
    )


@dataclass(frozen=True)
class DotKernel(Bf16GemmKernel):
    """Vectors to each of which an instruction adds two terms."""

    template: ClassVar[str] = "gemm_bf16_dot.c.j2"
    needs: ClassVar[tuple[str, ...]] = ("avx512bf16",)
    reads_rows: ClassVar[bool] = True


@dataclass(frozen=True)
class WidenedKernel(Bf16GemmKernel):
    """Halves in memory, f32 arithmetic."""

    template: ClassVar[str] = "gemm_bf16_f32.c.j2"
    packed: ClassVar[int] = 4


FORMS: tuple[type[Bf16GemmKernel], ...] = (AmxKernel, DotKernel, WidenedKernel)  # the best first


def choose_form(extras: Sequence[str]) -> type[Bf16GemmKernel]:
    """The best form that a processor has instructions for.

    Intel's processors, which have AVX512-FP16 beside AVX512-BF16, add pairs at half the rate of their multiply-adds.
    """
    forms = (f for f in FORMS if f is not DotKernel or "avx512fp16" not in extras)
    return next(form for form in forms if set(form.needs) <= set(extras))


def missing_features(extras: Sequence[str]) -> Features:
    """What a processor is no faster with in bf16 than in f32."""
    form = choose_form(extras)
    if form is AmxKernel:
        return frozenset()
    return frozenset({Feature.BF16_ATTENTION} if form.needs else {Feature.BF16_ATTENTION, Feature.BF16_CONVOLUTIONS})
