"""Products of few rows with weights of 4 bits, by instructions that multiply bytes.

Floats of a row become whole numbers of three digits to the base 128, for each group of terms in a scale of their own.
Digits are bytes, whose products with numbers of 4 bits are summed exactly; 22 bits of the largest of a group are kept,
which rounds about as sums of f32 do. So weights are unpacked to bytes and no further, and memory decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...expr import I32, Expr, as_int, ceil_div, const, product
from ...kernels.base import Buffer, Kernel, Temporary
from ...kernels.heavy import Strided, plain, row_major
from ...kernels.machine import Machine
from .tiles import FEW_ROWS, Blocks, ProductKernel, Tile, clamp

GROUPS = (32, 16)  # terms that share a scale of their digits: no sum of theirs is beyond 31 bits
WORD_COLUMNS = 16  # of a panel
INSTRUCTIONS = ({"avx512vnni"}, {"avxvnni"})  # with either, on x86-64; and AVX2 adds pairs of their products
TASK_COLUMNS = 64  # of a tile, and of a task at the least: panels that are read beside each other
ROW_COLUMNS = 16  # the same of one row by vectors of 16, or any by 8: a panel at a time comes faster from memory
TASKS = 16  # for each thread, so that none waits long for another


@dataclass(frozen=True)
class DigitsKernel(Kernel):
    """Rows of floats as digits, [batch][M][K / group] of ``struct t_digits``. A task is a row.

    Attributes:
        batch, m: axes of independent matrices, and of rows.
        k: elements of a row.
        a: the rows, over the batch, stepping along rows.
        target: the digits.
        group: elements that share a scale.
    """

    kind: ClassVar[str] = "digits"
    template: ClassVar[str] = "digits.c.j2"

    batch: tuple[Expr, ...]
    m: Expr
    k: Expr
    a: Strided
    target: Strided
    group: int


@dataclass(frozen=True)
class NibblesKernel(ProductKernel):
    """c = epilogue(a @ (b * scale)), b in panels [ceil(N / 16)][K / 8][16] of words of eight numbers, each 8 too large.

    Attributes:
        digits: of rows, over the batch.
        scale: of blocks of b's rows, in panels [ceil(N / 16)][blocks][16].
        block: rows of such a block.
        group: terms that digits have a scale for.
    """

    template: ClassVar[str] = "gemm_nibbles.c.j2"

    digits: Strided
    scale: Strided
    block: int
    group: int

    @property
    def few_rows(self) -> str:
        return (
            f"products of up to {FEW_ROWS} rows by weights of 4 bits sum bytes, of more floats, in a library with both"
        )

    @classmethod
    def suits(cls, machine: Machine, rows: int | None, depth: int | None, block: int) -> bool:
        """Whether it multiplies so many rows by blocks of weights of 4 bits."""
        quick = machine.lanes == 8 or any(names <= set(machine.extras) for names in INSTRUCTIONS)  # 8 is AVX2
        return quick and rows is not None and rows <= FEW_ROWS and depth is not None and choose_group(block, depth) > 0

    @classmethod
    def choose_tile(cls, lanes: int, rows: int | None) -> Tile:
        if lanes < 8:
            return Tile(FEW_ROWS, WORD_COLUMNS // lanes, lanes)
        columns = ROW_COLUMNS if rows == 1 or lanes == 8 else TASK_COLUMNS
        return Tile(FEW_ROWS, columns // lanes, lanes)

    @classmethod
    def choose_blocks(cls, machine: Machine, tile: Tile, m: Expr, n: Expr, k: Expr, batch: Expr) -> Blocks:
        """How a product is cut into tasks, by columns alone."""
        return Blocks(const(1), clamp(tile.panels(n), 1, TASKS * machine.threads))


def choose_group(block: int, depth: int) -> int:
    """Terms that share a scale of digits, of blocks of `block`; 0 where none divides them."""
    return next((g for g in GROUPS if block % g == 0 and depth % g == 0), 0)


def with_digits(made: ProductKernel, scale: Strided, block: int, owner: int) -> list[Kernel]:
    """What makes digits of the left operand of a product, and the product with these.

    Args:
        scale: of blocks of `block` rows of the right operand.
        owner: of the digits.
    """
    group = choose_group(block, as_int(made.k) or 0)
    size = 3 * group + 12  # bytes of struct t_digits
    rows = made.m.args[0]
    count = product([a.args[0] for a in made.batch]) * rows
    to = Temporary("digits", owner, count * ceil_div(made.k, group) * size)
    start = row_major(made.batch) * rows * ceil_div(made.k, group) * (size // I32.size)
    kernel = DigitsKernel(
        buffers=(made.buffers[made.a.buffer], Buffer(to, I32, True)),
        tasks=count,
        flops=count * made.k * 8,
        nbytes=count * made.k * 4 + to.nbytes,
        batch=made.batch,
        m=made.m,
        k=made.k,
        a=Strided(0, made.a.start, made.a.steps),
        target=plain(1, start),
        group=group,
    )
    read = Buffer(to, I32, False)
    digits = plain(len(made.buffers), start)
    buffers = (*made.buffers, read)
    return [kernel, NibblesKernel.of(made, buffers=buffers, digits=digits, scale=scale, block=block, group=group)]
