"""Products of u8 with constant i8 by tiles of sums of i32.

:mod:`.gemm`, :mod:`.conv` and :mod:`.depthwise` have them by vectors, whose instructions are in ``t_dot.h``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...expr import I32, DType, Expr, as_int, ceil_div, const
from ...kernels.heavy import Strided
from ...kernels.machine import Machine
from .bf16 import Window
from .conv_shape import Geometry
from .pack import BYTE_STEP, WORD_COLUMNS
from .tiles import BLOCK_ROWS, FEW_ROWS, TASK_FLOPS, Blocks, ProductKernel, Tile, choose_blocks

BLOCK_BYTES = 512 * 1024  # of rows that a task reads again for each group of columns: they stay in L2
MOST_ROWS = 768  # of a block
BESIDE_BYTES = 128 * 1024  # of weights that are read again for each tile of rows
HALO_BYTES = 256 * 1024  # of a part of an image that a task reads again for each group of columns


@dataclass(frozen=True)
class Int8AmxKernel(ProductKernel):
    """Tiles of 16 x 16 sums, to each of which an instruction adds 64 terms; two by two of them.

    Sums of integers are exact: compiled without the instructions it is plain C that gives the same.

    Attributes:
        window: what a convolution's rows are made of; ``a`` is its input, stepping along images, rows and pixels.
        margin: for a convolution, what taps in the margin read; zeros when there is none.
        halo: whether a task copies a part of an image with its margins, where pixels are rows as they lie; else it
            packs what each pixel reads.
    """

    template: ClassVar[str] = "gemm_int8_amx.c.j2"
    needs: ClassVar[tuple[str, ...]] = ("amx-tile", "amx-int8")

    window: Window | None = None
    margin: Strided | None = None
    halo: bool = False

    @property
    def sums(self) -> DType:
        return I32

    @classmethod
    def suits(cls, machine: Machine, rows: int | None) -> bool:
        """Whether a product of so many rows is one for tiles: few rows only stream their weights."""
        return set(cls.needs) <= set(machine.extras) and (rows is None or rows > FEW_ROWS)

    @classmethod
    def choose_tile(cls, lanes: int, rows: int | None) -> Tile:
        return Tile(2 * WORD_COLUMNS, 2 * WORD_COLUMNS // lanes, lanes)

    @classmethod
    def choose_blocks(cls, machine: Machine, tile: Tile, m: Expr, n: Expr, k: Expr, batch: Expr) -> Blocks:
        """How a product is cut into tasks: rows by the bytes that a cache holds of them."""
        rows = min(max(BLOCK_BYTES // ((as_int(k) or BLOCK_ROWS) + BYTE_STEP), BYTE_STEP), MOST_ROWS)
        return choose_blocks(machine, tile, m, tile.panels(n), m * n * k * batch * 2, batch, rows, 32 * TASK_FLOPS)

    @property
    def beside(self) -> int:
        """Groups of columns that a tile of rows is multiplied by at a time: weights that stay in the near caches."""
        columns, depth = as_int(self.n.args[0]), as_int(self.k)
        if columns is None or depth is None:
            return 2
        groups = -(-columns // self.tile.columns)
        return max(2, min(groups, BESIDE_BYTES // (self.tile.columns * (depth + BYTE_STEP))))

    @property
    def run_steps(self) -> int:
        """Steps of what a row of a convolution's kernel reads."""
        assert self.window is not None
        return row_steps(self.window.size)

    @property
    def row_blocks(self) -> Expr:
        """Blocks of rows of an image, of a convolution with halos."""
        assert self.window is not None
        return halo_blocks(self.window.size)

    @property
    def in_place(self) -> bool:
        """Whether rows are read as they lie, but for the last ones."""
        return self.window is None and (as_int(self.a.steps[0]) or 0) > 0

    @property
    def scratch(self) -> Expr:
        """Bytes of packed rows, or of a part of an image."""
        if self.halo:
            assert self.window is not None
            size = self.window.size
            ((kh, _), (sh, sw), (dh, _)) = size.kernel, size.stride, size.dilation
            rows = ceil_div(size.oh, halo_blocks(size)) + (kh - 1) * dh // sh
            beyond = self.tile.rows * size.ic * sw + BYTE_STEP  # that the last tile reads
            return ceil_div(rows * sh * _pitch(size) + const(beyond), BYTE_STEP) * BYTE_STEP
        tiles = ceil_div(self.tile.tiles(self.m.args[0]), self.blocks.m)
        if self.in_place:
            beyond = -(-(BYTE_STEP - 1) // (as_int(self.a.steps[0]) or 1))  # rows in whose last step memory may end
            tiles = const(-(-(self.tile.rows - 1 + beyond) // self.tile.rows))
        return tiles * self.tile.rows * ceil_div(self.k, BYTE_STEP) * BYTE_STEP


def has_halo(size: Geometry) -> bool:
    """Whether pixels of a convolution are best read from a copy of the image with margins.

    A row of the kernel then takes whole steps, and a row of the image has pixels that are not stored; but nothing is
    packed pixel by pixel. Times are cycles for the rows of a tile.
    """
    (kh, kw), (sh, sw) = size.kernel, size.stride
    width = as_int(size.ow)
    if width is None or (kw > 1 and size.dilation[1] > 1) or any((as_int(e) or 0) < 0 for e in size.pad):
        return False
    rows, groups = 2 * WORD_COLUMNS, -(-size.oc // (2 * WORD_COLUMNS))
    step = 64 * groups
    packing = rows * kh * (8 + kw * size.ic // 32)
    packed = -(-size.ic * size.taps // BYTE_STEP) * step + packing
    copied = kh * row_steps(size) * step * (width + (kw - 1) // sw) // max(width, 1) + rows * sh * sw * size.ic // 32
    return copied <= packed


def row_steps(size: Geometry) -> int:
    """Steps of what a row of a convolution's kernel reads."""
    return -(-size.kernel[1] * size.ic // BYTE_STEP)


def halo_blocks(size: Geometry) -> Expr:
    """Blocks of rows that an image is cut into, so that a cache holds what one of them reads."""
    return ceil_div(size.oh, max(1, HALO_BYTES // (as_int(_pitch(size) * size.stride[0]) or 1)))


def _pitch(size: Geometry) -> Expr:
    """Bytes of a row of an image with its margins."""
    width = size.ow + (size.kernel[1] - 1) // size.stride[1]
    return width * (size.stride[1] * size.ic)
