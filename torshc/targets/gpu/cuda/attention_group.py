"""Attention by groups of four warps whose products read shared memory, for Hopper's cards."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ....expr import Expr, as_int, ceil_div, const
from ....expr.affine import rises, strides_along
from ....kernels.attention import AttentionBase
from ....kernels.heavy import Strided
from ....kernels.machine import Device, Machine
from ..grid import WARP
from .attention_mma import MMA_PACK, MmaAttention, MmaBand, fill, wastes_little

GROUPS = 2  # groups of four warps that multiply, each for 64 queries
KEYS = 128  # of a tile
STAGES = 2  # tiles of keys, and of values, in shared memory at a time
MEMORY = 227 * 1024  # bytes of shared memory that Hopper's cards give a block
BLOCKS = 132  # at a time: the multiprocessors of an H100 or H200; elsewhere they come in turn
MOST_BATCH = 3  # axes of the batch that the card's copies can follow


@dataclass(frozen=True)
class GroupBand(MmaBand):
    """The same for groups of four warps, beside one that asks for the tiles."""

    warps: int = 4 * GROUPS
    groups: int = 1
    keys: int = KEYS

    @property
    def threads(self) -> int:
        return super().threads + 4 * WARP


BAND = GroupBand()


@dataclass(frozen=True)
class Rows:
    """An operand as the card's copies see it: an array of rows over axes of the batch.

    Attributes:
        start: offset of the first element.
        sizes: columns, rows, and extents of the axes that move it.
        bytes: from row to row, and for each of these axes.
        axes: those axes.
    """

    start: int
    sizes: tuple[Expr, ...]
    bytes: tuple[Expr, ...]
    axes: tuple[Expr, ...]


@dataclass(frozen=True)
class GroupAttention(MmaAttention):
    """Online softmax on Hopper's tensor cores; the card copies tiles of keys and values while those before are used.

    Attributes:
        stages: tiles of keys, and of values, in shared memory at a time.
    """

    template: ClassVar[str] = "attention_group.j2"

    stages: int = STAGES
    blocks: ClassVar[int] = BLOCKS

    @property
    def deep_blocks(self) -> int:
        """Blocks of 64 columns of a query or key."""
        return -(-self.depth // 64)

    @property
    def wide_blocks(self) -> int:
        """Those of a value."""
        return -(-self.width // 64)

    @property
    def query_bytes(self) -> int:
        return self.deep_blocks * self.tile.rows * 128

    @property
    def key_bytes(self) -> int:
        return self.deep_blocks * self.tile.keys * 128

    @property
    def value_bytes(self) -> int:
        return self.wide_blocks * self.tile.keys * 128

    @property
    def barriers(self) -> int:
        """Where barriers lie in shared memory, behind the tiles."""
        return self.query_bytes + self.stages * (self.key_bytes + self.value_bytes)

    @property
    def shared(self) -> int:
        return self.barriers + 8 * (2 + 4 * self.stages)

    @property
    def maps(self) -> dict[str, Rows]:
        """Queries, keys and values as the card copies them."""
        found = {name: rows_of(self, name) for name in "qkv"}
        return {name: rows for name, rows in found.items() if rows is not None}


def rows_of(base: AttentionBase, name: str) -> Rows | None:
    """An operand as rows over the batch; None when it is too involved for the card's copies."""
    operand: Strided = getattr(base, name)
    rows = (base.row if name == "q" else base.key).args[0]
    starts = strides_along(operand.start, base.batch)
    if starts is None or (start := as_int(starts[1])) is None:
        return None
    moving = [(a, s) for a, s in zip(base.batch, starts[0], strict=True) if as_int(s) != 0]
    steps = (operand.steps[0], *(s for _, s in moving))
    if not 0 < len(moving) + 1 <= MOST_BATCH + 1 or start % MMA_PACK or not all(rises(s, MMA_PACK) for s in steps):
        return None
    axes = tuple(a for a, _ in moving)
    width = base.width if name == "v" else base.depth
    sizes = (const(width), rows, *(a.args[0] for a in axes))
    return Rows(start, sizes, tuple(s * 2 for s in steps), axes)


def suits_groups(base: AttentionBase, device: Device) -> Expr:
    """The condition that queries fill bands of 128, and blocks half of the card."""
    if not device.groups or any(rows_of(base, name) is None for name in "qkv"):
        return const(False)
    return wastes_little(base, BAND) & fill(base, BAND, -(-device.units // 2))


def make_group_attention(base: AttentionBase, machine: Machine) -> GroupAttention:
    """The kernel, with the keys of a tile and the stages that a tuning record says where they fit."""
    usual = GroupAttention.of(base, tasks=base.points * ceil_div(base.row.args[0], BAND.rows), tile=BAND)
    keys, stages = machine.number("keys", KEYS), machine.number("stages", STAGES)
    given = replace(usual, tile=replace(BAND, keys=keys), stages=stages)
    return given if given.shared <= MEMORY else usual
