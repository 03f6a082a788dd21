"""Attention for devices of blocks of threads: one kernel, the scores never leaving a block."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ...expr import Expr, as_int, ceil_div, const
from ...graph import Value
from ...kernels.attention import AttentionBase, attention_base, walked_operand
from ...kernels.base import Kernel
from ...kernels.heavy import Strided, is_empty
from ...kernels.lower import first_of
from ...kernels.machine import Choice, Machine
from ...kernels.nest import Buffers
from ...ops.core.base import Index
from ...plan.group import Group
from ...plan.storage import Storage
from .attention_row import attention_by_rows
from .base import GridTarget
from .cuda.attention_group import make_group_attention, suits_groups
from .cuda.attention_mma import PACK, MmaAttention, choose_bands, suits_tensor_cores, whole_packets
from .grid import SHARED

FEW_ROWS = 4  # queries that leave a tile of them mostly empty
FILL = 264  # blocks that fill a large device twice over


@dataclass(frozen=True)
class AttentionTile:
    """How the threads of a block share a tile of scores: each has some rows and four keys.

    Attributes:
        threads: threads of a block.
        across: threads side by side along keys (and columns of the values).
        height: rows a thread.
    """

    threads: int
    across: int
    height: int

    @property
    def sizes(self) -> Choice:
        """What names it in tuning records."""
        return self.threads, self.across, self.height

    @property
    def rows(self) -> int:
        return self.threads // self.across * self.height

    @property
    def keys(self) -> int:
        return PACK * self.across


# From the most arithmetic for each read of shared memory to the least memory.
TILES = [
    AttentionTile(64, 8, 4), AttentionTile(128, 16, 2), AttentionTile(64, 8, 2), AttentionTile(64, 8, 1),
    AttentionTile(32, 4, 1),
]  # fmt: skip
SMALL = 16  # rows of the tile for work that would leave a device idle


@dataclass(frozen=True)
class GridAttention(AttentionBase):
    """Online softmax over tiles of keys in shared memory, for a tile of queries a block.

    Rows of shared memory are counted in packets of four floats, an odd number of them, so that neighbouring rows lie in
    different banks.

    Attributes:
        tile: the tile of scores.
        apart: whether keys and values have memory of their own, or come one after the other.
    """

    template: ClassVar[str] = "attention.j2"

    tile: AttentionTile
    apart: bool

    @property
    def threads(self) -> int:
        return self.tile.threads

    @property
    def shared(self) -> int:
        return _bytes(self, self.tile, self.apart)

    @property
    def deep(self) -> int:
        """Packets of a query or key."""
        return max(1, -(-self.depth // PACK))

    @property
    def columns(self) -> int:
        """Packets of columns of the values a thread."""
        return -(-self.width // (PACK * self.tile.across))

    def packed(self, operand: Strided, columns: int) -> bool:
        """Whether rows of an operand are whole packets."""
        return whole_packets(operand, columns)


@GridTarget.lowers("attention")
def lower_grid_attention(group: Group, storage: Mapping[Value, Storage], machine: Machine) -> list[Kernel]:
    """The kernels of an attention group, of which sizes choose one; operands of f16 or bf16 are read as they are.

    Raises:
        UnsupportedError: for elements that are summed in another type than f32, for a depth or width known only at run
            time, or one too large for shared memory.
    """
    if any(is_empty(v) for v in group.outputs):
        return []

    def operand(value: Value, batch: Index, name: str, buffers: Buffers) -> Strided:
        return walked_operand(group, value, batch, name, buffers)

    base = attention_base(group, storage, operand)
    rows = base.row.args[0]
    fitting = [t for t in TILES if _bytes(base, t, apart=False) <= SHARED]
    count = as_int(rows)
    if not fitting or (count is not None and count <= FEW_ROWS):
        return attention_by_rows(group, base, machine)
    if machine.device.tensor and suits_tensor_cores(base):
        choices: list[tuple[Expr, list[Kernel]]] = [
            (holds, [MmaAttention.of(base, tasks=base.points * ceil_div(rows, band.rows), tile=band)])
            for holds, band in choose_bands(base, machine)
        ]
        groups = suits_groups(base, machine.device)
        more = [] if groups is const(False) else [(groups, [make_group_attention(base, machine)])]
        return first_of([*more, *choices], machine.by_size)
    named = next((t for t in fitting if t.sizes == machine.choice("tile")), None)
    tiles = [(const(True), named)] if named else _choose(fitting, base.points, rows)
    return first_of([(holds, [_tiled(base, tile)]) for holds, tile in tiles], machine.by_size and machine.device.tensor)


def _tiled(base: AttentionBase, tile: AttentionTile) -> GridAttention:
    tasks = base.points * ceil_div(base.row.args[0], tile.rows)
    return GridAttention.of(base, tasks=tasks, tile=tile, apart=_bytes(base, tile, apart=True) <= SHARED)


def _bytes(base: AttentionBase, tile: AttentionTile, apart: bool) -> int:
    """Shared memory of a tile."""
    deep = -(-base.depth // PACK) | 1
    values = tile.keys * (-(-base.width // (PACK * tile.across)) * tile.across)
    keys = tile.keys * deep
    packets = tile.rows * (deep + tile.across + 1) + (keys + values if apart else max(keys, values))
    return packets * 16


def _choose(fitting: list[AttentionTile], points: Expr, rows: Expr) -> list[tuple[Expr, AttentionTile]]:
    """The largest tile if that makes blocks enough, else a small one, with the condition of each."""
    enough = points * ceil_div(rows, fitting[0].rows) >= FILL
    return [(enough, fitting[0]), (const(True), next((t for t in fitting if t.rows <= SMALL), fitting[-1]))]
