"""Attention on processors: blocks of queries against blocks of keys, the scores in the cache."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ...expr import F32, Expr, as_int, axis, ceil_div, const, walk
from ...graph import Value
from ...kernels.attention import AttentionBase, attention_base, operand_index, walked_operand
from ...kernels.axes import make_axes
from ...kernels.base import Kernel, Temporary
from ...kernels.heavy import (
    Strided,
    add_buffer,
    copy_kernel,
    is_empty,
    read_through,
    strided_operand,
    temporary,
)
from ...kernels.machine import Machine
from ...kernels.nest import Buffers
from ...ops.core.base import Index
from ...ops.tensor.view import linear
from ...plan.group import Group
from ...plan.storage import Storage
from .base import CpuTarget

KEYS = 256  # keys a block: their part of k and v (64 KiB each at depth 64) and the weights stay in L2
WIDE = 32  # points of the batch that keep every thread busy, and tasks may take more rows each


@dataclass(frozen=True)
class AttentionKernel(AttentionBase):
    """Online softmax over blocks of keys, for a block of queries a task.

    Attributes:
        tile: rows and vectors of a register tile.
        panel: queries in a panel, as many as a tile has columns.
        rows, keys: queries a task, keys a block.
        exact: whether the results of a query may not depend on how many queries there are.
    """

    template: ClassVar[str] = "attention.c.j2"

    tile: tuple[int, int]
    panel: int
    rows: int
    keys: int
    exact: bool

    @property
    def single(self) -> bool:
        """Whether there may be a panel of one query."""
        queries = as_int(self.row.args[0])
        return queries is None or queries % self.panel == 1

    @property
    def scores_alone(self) -> bool:
        """Whether a panel of one query sums its scores across lanes, in less than half the time of a tile."""
        return self.single and not (self.exact and as_int(self.row.args[0]) is None)

    @property
    def threshold(self) -> str:
        """At which number of rows results round otherwise, if there is one."""
        if not self.scores_alone or as_int(self.row.args[0]) is not None:
            return ""
        return f"attention of {self.panel} n + 1 queries sums the scores of the last one in another order"

    @property
    def wide(self) -> int:
        """Columns of the values, rounded up to whole panels."""
        return _round_up(self.width, self.panel)

    @property
    def mask_buffers(self) -> list[int]:
        """Buffers that the mask is read from."""
        return sorted(
            {
                x.data
                for x in walk(const(0) if self.mask is None else self.mask)
                if x.op == "load" and isinstance(x.data, int)
            }
        )

    @property
    def parts(self) -> dict[str, int]:
        """Floats of each part of the scratch."""
        sizes = {
            "queries": self.rows * self.depth,
            "weights": self.keys * self.panel,
            "values": self.keys * self.wide,
            "sums": self.rows * self.wide,
            "top": self.rows,
            "total": self.rows,
            "factor": self.panel,
            "inverse": self.panel,
        }
        if as_int(self.k.steps[1]) != 1:
            sizes["keys"] = self.keys * self.depth
        if self.mask is not None:
            sizes["bias"] = self.keys * (self.panel if self.mask_of_row else 1)
        if self.mask_of_row:
            sizes["mask"] = self.keys * self.panel
        return {name: _round_up(size, 16) for name, size in sizes.items()}

    @property
    def scratch(self) -> Expr:
        return const(4 * sum(self.parts.values()))


@CpuTarget.lowers("attention")
def lower_attention(group: Group, storage: Mapping[Value, Storage], machine: Machine) -> list[Kernel]:
    """The kernel of an attention group, after those that widen operands of f16 or bf16.

    Raises:
        UnsupportedError: for elements that are summed in another type than f32, or a depth or width known only at run
            time.
    """
    if any(is_empty(v) for v in group.outputs):
        return []
    before: list[Kernel] = []

    def operand(value: Value, batch: Index, name: str, buffers: Buffers) -> Strided:
        if value.dtype is F32:
            return walked_operand(group, value, batch, name, buffers)
        return _widened(group, value, batch, name, buffers, before)

    base = attention_base(group, storage, operand)
    height, vectors = machine.choice("tile") or ((6, 4) if machine.lanes >= 16 else (6, 2))
    panel = vectors * machine.lanes
    rows = _block(base.points, base.row.args[0], panel)
    tasks = base.points * ceil_div(base.row.args[0], rows)
    keys = machine.number("keys", KEYS)
    made = AttentionKernel.of(
        base, tasks=tasks, tile=(height, vectors), panel=panel, rows=rows, keys=keys, exact=machine.exact_batches
    )
    return [*before, made]


def _round_up(size: int, to: int) -> int:
    return -(-size // to) * to


def _block(points: Expr, rows: Expr, panel: int) -> int:
    """Queries a task: enough to make up for copying the values, few enough for every thread to have work."""
    count, most = as_int(points), as_int(rows)
    size = _round_up(128 if count is not None and count >= WIDE else 64, panel)
    return size if most is None else min(size, _round_up(most, panel))


def _widened(group: Group, value: Value, batch: Index, name: str, buffers: Buffers, before: list[Kernel]) -> Strided:
    """An operand of halves as f32 in a temporary, by a kernel that is added to `before`."""
    index, along = operand_index(value, batch, name)
    source, axes = make_axes(value.shape, None, "i")
    to = Temporary(f"wide_{name}", group.id, value.type.size * 4)
    axes = axes or [axis("i0", 1)]
    read = copy_kernel(lambda own: own.resolve(read_through(group, value, source)), axes, buffers.storage, to)
    before.append(read)
    found = strided_operand(temporary(add_buffer(buffers, to), linear(index, value.shape)), along)
    assert found is not None  # rows that follow each other
    return found
