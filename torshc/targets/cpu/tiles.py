"""Register tiles and blocks of matrix-like kernels: how many rows and columns at a time, and how much is a task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...expr import F32, F64, DType, Expr, as_int, ceil_div, max_of, min_of
from ...expr.affine import divisor_of
from ...kernels.base import Buffer, Packed
from ...kernels.heavy import HeavyKernel, Strided
from ...kernels.machine import Machine

BLOCK_ROWS = 96  # rows a task reads again for every panel of columns: with K of some hundreds they stay in L2
BLOCK_K = 1024  # longest k that is summed in one go where rows are read again
TASK_FLOPS = 1_000_000  # a task of fewer is not worth handing to a thread
FEW_ROWS = 4  # products of so few rows only stream their weights
FEW_ROWS_COLUMNS = 64  # columns of a task then
SEVEN_BITS = 64  # magnitude of weights of which 2 * 255 * 64 fits into 16 bits
FAR_BYTES = 256 * 1024  # so many weights do not lie in the caches of a core from one run to the next


@dataclass(frozen=True)
class Tile:
    """A register tile.

    Attributes:
        rows: rows of the product.
        vectors: vectors of columns.
        lanes: elements of a vector.
    """

    rows: int
    vectors: int
    lanes: int

    @property
    def columns(self) -> int:
        return self.vectors * self.lanes

    def panels(self, n: Expr) -> Expr:
        """Number of panels of columns."""
        return ceil_div(n, self.columns)

    def tiles(self, m: Expr) -> Expr:
        """Number of tiles that m rows are cut into, near-equal ones."""
        return ceil_div(m, self.rows)

    def row_cases(self, m: Expr) -> tuple[int, ...]:
        """Numbers of rows that tiles may have, the most frequent first.

        Of a symbolic number of rows a tile has half of its height at the least, or all rows.

        >>> from torshc.expr import dim
        >>> Tile(8, 3, 16).row_cases(dim("images") * 49), Tile(8, 3, 16).row_cases(dim("images") * 2)
        ((8, 7, 6, 5, 4), (8, 7, 6, 5, 4, 3, 2))
        """
        count = as_int(m)
        if not count:
            least = min(divisor_of(m), (self.rows + 1) // 2)
            return tuple(range(self.rows, max(least, 1) - 1, -1))
        tiles = -(-count // self.rows)
        low = count // tiles
        return (low, low + 1) if count % tiles else (low,)

    def tail(self, n: Expr | int) -> int:
        """Vectors in the last panel; all of them when n is symbolic (those beyond n are not stored)."""
        count = as_int(n)
        if not count:
            return self.vectors
        return -(-count // self.lanes) - (-(-count // self.columns) - 1) * self.vectors


def clamp(e: Expr, low: Expr | int, high: Expr | int) -> Expr:
    return min_of(max_of(e, low), high)


def choose_tile(machine: Machine, m: Expr, n: Expr, k: Expr, dtype: DType = F32) -> Tile:
    """The fastest tile as measured: enough sums to hide latency, no spills, little waste in the last panel."""
    lanes, columns = machine.lanes, as_int(n)
    if given := machine.choice("tile"):
        return Tile(given[0], given[1], lanes)
    if dtype is F64:  # a vector takes two registers
        wide = lanes == 16 and (columns is None or columns > lanes)
        return Tile(6, 2, lanes) if wide else Tile(8 if lanes == 16 else 6, 1, lanes)
    if columns is not None and columns <= lanes:
        return Tile(8, 1, lanes)
    vectors = -(-columns // lanes) if columns is not None else 0
    rows, depth = as_int(m), as_int(k)
    if lanes == 16:  # 32 registers; broadcasts are expensive, so few tiles are taller than 8
        if not vectors or vectors % 3 == 0 or vectors % 4:
            return Tile(8, 3, lanes)
        low = rows is not None and 8 < rows <= 24  # reading a panel again for each tile is what takes the time
        return Tile(12, 2, lanes) if low else Tile(6, 4, lanes)
    if lanes < 8 or machine.compiler == "gcc":
        return Tile(6, 2, lanes)
    if rows is not None and rows <= FEW_ROWS:
        return Tile(4, 3, lanes)
    if depth is not None and (rows is None or rows <= 192) and vectors * lanes >= 768 and depth >= 768:
        return Tile(4, 3, lanes)
    return Tile(4, 3, lanes) if vectors in (3, 5) else Tile(6, 2, lanes)


@dataclass(frozen=True)
class Blocks:
    """How a product is cut into tasks: blocks of tiles (rows) and blocks of panels (columns)."""

    m: Expr
    n: Expr


def choose_blocks(
    machine: Machine,
    tile: Tile,
    m: Expr,
    panels: Expr,
    flops: Expr,
    batch: Expr,
    usual: int = BLOCK_ROWS,
    task_flops: int = TASK_FLOPS,
    along: bool = False,
) -> Blocks:
    """Blocks of about 96 rows, and of panels so that there are some tasks for each thread.

    Args:
        flops: operations of the whole work.
        batch: number of independent products.
        usual: rows of a block where none are chosen.
        task_flops: a task of fewer is not worth handing to a thread.
        along: whether tasks that follow each other are blocks of rows by the same panels, so that more of them read no
            more; there are as many as threads want where panels are few.

    Returns:
        Numbers of blocks; 0 where there are no rows or columns.
    """
    rows, block = as_int(m), machine.number("block", usual)
    m_blocks = min_of(max_of((m + block // 2) // block, 1), tile.tiles(m))
    if rows is not None and rows <= FEW_ROWS:
        return Blocks(m_blocks, clamp(panels * tile.columns // FEW_ROWS_COLUMNS, 1, panels))
    wanted = clamp(flops // task_flops, 1, 4 * machine.threads)
    n_blocks = clamp(ceil_div(wanted, batch * m_blocks), 1, panels)
    if along and rows is not None and as_int(wanted) is not None:
        m_blocks = clamp(ceil_div(wanted, batch * n_blocks), m_blocks, tile.tiles(m))
    if as_int(batch * m_blocks * n_blocks) in (3, 5, 7) and as_int(m_blocks) != 1:  # one of two threads would wait
        m_blocks = min_of(m_blocks + 1, tile.tiles(m))
    return Blocks(m_blocks, n_blocks)


def split_k(machine: Machine, m: Expr, k: Expr) -> int:
    """Number of blocks that k is summed in; 1 where rows are not read again, or k is symbolic."""
    depth, rows, block = as_int(k), as_int(m), machine.number("depth", BLOCK_K)
    few = rows is not None and rows <= FEW_ROWS and not machine.exact_batches
    if depth is None or depth <= block * 3 // 2 or few:
        return 1
    return -(-depth // block)


def partial_sums(tile: Tile, m: Expr, panels: Expr, blocks: Blocks, dtype: DType = F32) -> Expr:
    """Bytes of scratch for the sums of a task between blocks of k."""
    rows = ceil_div(tile.tiles(m), blocks.m) * tile.rows
    return rows * ceil_div(panels, blocks.n) * (dtype.size * tile.columns)


def come_from_far(weights: Buffer) -> bool:
    """Whether an operand is packed weights that tiles ask memory for ahead, as no cache of a core holds them."""
    return isinstance(weights.operand, Packed) and weights.operand.nbytes >= FAR_BYTES


def has_seven_bits(weights: Buffer) -> bool:
    """Whether an operand is packed i8 of 7 bits: the sum of two products with u8 then fits into 16 bits."""
    values = weights.operand.source.const if isinstance(weights.operand, Packed) else None
    if values is None or values.dtype != np.int8:
        return False
    return bool(values.min(initial=0) >= -SEVEN_BITS and values.max(initial=0) <= SEVEN_BITS)


@dataclass(frozen=True)
class ProductKernel(HeavyKernel):
    """c[batch, m, n] = epilogue(sum over k of a[batch, m, k] * b[batch, k, n]); b in panels, k innermost in a.

    Attributes:
        batch: axes of independent products.
        m, n: row and column axes of the epilogue.
        k: length of the sums.
        a: left operand over the batch axes, stepping along rows.
        b: first panel of the right operand over the batch axes.
        tile, blocks: how rows and columns are cut.
    """

    kind: ClassVar[str] = "gemm"

    batch: tuple[Expr, ...]
    m: Expr
    n: Expr
    k: Expr
    a: Strided
    b: Strided
    tile: Tile
    blocks: Blocks

    @property
    def reached(self) -> frozenset[int]:
        """The left operand and what the epilogue reads too; panels are walked in a way of their own."""
        return frozenset({self.a.buffer, *self.finish_buffers}) - {self.b.buffer}
