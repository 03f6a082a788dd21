"""Attention on tensor cores: each warp has some queries, and reads keys and values from shared memory."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from ....expr import BF16, F16, Expr, as_int, ceil_div, const
from ....expr.index import poly_of
from ....kernels.attention import AttentionBase
from ....kernels.heavy import Strided
from ....kernels.machine import Choice, Machine
from ..grid import WARP

PACK = 4  # neighbours that are read at once
MMA_PACK = 8  # halves that go to shared memory at once


@dataclass(frozen=True)
class MmaBand:
    """A block's queries and the keys that it sees at a time, on tensor cores.

    Attributes:
        warps: warps of a block.
        groups: sixteens of queries a warp.
        keys: keys of a tile, a multiple of 16.
    """

    warps: int
    groups: int
    keys: int = 64

    @property
    def sizes(self) -> Choice:
        """What names it in tuning records."""
        return self.warps, self.groups

    @property
    def rows(self) -> int:
        return 16 * self.groups * self.warps

    @property
    def threads(self) -> int:
        return WARP * self.warps


# From the most products for each read of shared memory to the least work a block.
MMA_BANDS = (MmaBand(4, 2), MmaBand(4, 1), MmaBand(2, 1), MmaBand(1, 1))
MORE_BANDS = (MmaBand(8, 1),)  # that tuning tries too
MMA_MEMORY = 99 * 1024  # bytes of shared memory that all cards with these products give a block
WASTE = 2, 3  # rows in whole sixteens that are there, and those that bands compute for them at most
MMA_HELD = 64  # columns that registers hold of queries beside scores of 64 keys
APART = 256  # bytes from row to row of which 2^31 are more than any card's memory
MMA_WIDEST = 128  # columns of sums, beside scores of 32 keys


@dataclass(frozen=True)
class MmaAttention(AttentionBase):
    """Online softmax on tensor cores, of operands that are all f16 or all bf16 in memory.

    Scores and sums are f32; the weights of the values are rounded to the operands' type, as operands of a product.
    """

    template: ClassVar[str] = "attention_mma.j2"

    tile: MmaBand

    @property
    def threads(self) -> int:
        return self.tile.threads

    @property
    def counted(self) -> frozenset[Expr]:
        """Numbers of queries and keys that lie so far apart that no card has memory for 2^31 of them."""
        sizes = ((self.row, self.q), (self.key, self.k))
        return frozenset(a.args[0] for a, x in sizes if 2 * (as_int(x.steps[0]) or 0) >= APART)

    @property
    def operand(self) -> str:
        """Element type of the operands."""
        return self.buffers[self.q.buffer].dtype.name

    @property
    def deep(self) -> int:
        """Columns of a query or key in shared memory."""
        return _pad_columns(self.depth)

    @property
    def wide(self) -> int:
        """Columns of a value in shared memory."""
        return _pad_columns(self.width)

    @property
    def shared(self) -> int:
        return _bytes(self, self.tile)

    @property
    def held(self) -> bool:
        """Whether a thread has registers for its part of the queries, or reads them again for each tile of keys."""
        return _is_held(self)

    @property
    def unit_scale(self) -> bool:
        """Whether scores are left as they are until the exponential."""
        return self.mask is None and 0 < self._factor < math.inf

    @property
    def unit(self) -> float:
        """Factor on scores, with which 2 is raised."""
        return math.log2(math.e) * (self._factor if self.unit_scale else 1.0)

    @property
    def _factor(self) -> float:
        assert isinstance(self.scale.data, float)  # a constant of f32
        return self.scale.data


def whole_packets(operand: Strided, columns: int, pack: int = PACK) -> bool:
    """Whether an operand can be read `pack` neighbouring columns at a time, all at multiples of it."""
    places = (operand.start, operand.steps[0])
    aligned = all(c % pack == 0 for e in places for c in poly_of(e).values())
    return columns % pack == 0 and as_int(operand.steps[1]) == 1 and aligned


def suits_tensor_cores(base: AttentionBase) -> bool:
    """Whether operands are halves whose rows are whole packets, and a thread has registers for them."""
    kinds = {base.buffers[x.buffer].dtype for x in (base.q, base.k, base.v)}
    columns = ((base.q, base.depth), (base.k, base.depth), (base.v, base.width))
    fits = 0 < base.depth <= MMA_WIDEST and base.width <= MMA_WIDEST and as_int(base.key.args[0]) != 0
    return fits and (kinds == {F16} or kinds == {BF16}) and all(whole_packets(x, n, MMA_PACK) for x, n in columns)


def _pad_columns(columns: int) -> int:
    return -(-columns // 16) * 16


def _is_held(base: AttentionBase) -> bool:
    return _pad_columns(base.depth) <= MMA_HELD


def _bytes(base: AttentionBase, tile: MmaBand) -> int:
    """Shared memory of a band."""
    deep, wide = _pad_columns(base.depth), _pad_columns(base.width)
    queries, tiles = tile.rows * (deep + 8), 2 * tile.keys * (deep + 8 + wide + 8)
    return 2 * (max(queries, tiles) if _is_held(base) else queries + tiles)


def choose_bands(base: AttentionBase, machine: Machine) -> list[tuple[Expr, MmaBand]]:
    """The band and the keys of a tuning record where they fit, else the usual ones: the first whose condition holds."""
    keys = 64 if max(base.depth, base.width) <= MMA_HELD else 32
    sizes, given = machine.choice("tile"), machine.number("keys", 0)
    named = next((b for b in (*MMA_BANDS, *MORE_BANDS) if b.sizes == sizes), None)
    bands = [replace(b, keys=given or keys) for b in ([named] if named else MMA_BANDS)]
    if any(_bytes(base, b) > MMA_MEMORY for b in bands):
        named, bands = None, [replace(b, keys=keys) for b in MMA_BANDS]
    if named:
        return [(const(True), bands[0])]
    usual = [(wastes_little(base, b, 16) & fill(base, b, machine.device.units), b) for b in bands[:-1]]
    return [*usual, (const(True), bands[-1])]


def wastes_little(base: AttentionBase, band: MmaBand, whole: int = 1) -> Expr:
    """The condition that most rows of a band are there, those up to a multiple of `whole` counted in."""
    there, computed = WASTE
    rows = base.row.args[0]
    counted = ceil_div(rows, whole) * (whole * computed)
    return ceil_div(rows, band.rows) * (band.rows * there) <= counted


def fill(base: AttentionBase, band: MmaBand, units: int) -> Expr:
    """The condition that there are as many bands as this."""
    return base.points * ceil_div(base.row.args[0], band.rows) >= units
