"""Attention on processors: blocks of queries against blocks of keys, the scores in the cache."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ...expr import BF16, F32, U16, U32, DType, Expr, as_int, axis, ceil_div, const
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
from .attention_few import QUERIES, attention_of_few, waits_for_keys
from .base import CpuTarget
from .bf16 import AmxKernel, choose_form
from .pack import HALF_COLUMNS, STEP

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
        return self.single and not self.exact

    @property
    def streams(self) -> bool:
        """Whether so few queries share keys and values that these come no faster than memory is asked for them."""
        queries = as_int(self.row.args[0])
        return queries is not None and queries <= QUERIES

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
    def parts(self) -> dict[str, tuple[DType, int]]:
        """Types and numbers of elements of each part of the scratch."""
        sizes = {
            "queries": self.rows * self.depth,
            "weights": self.keys * self.panel,
            "values": self.keys * self.wide,
            "factor": self.panel,
        }
        if as_int(self.k.steps[1]) != 1:
            sizes["keys"] = self.keys * self.depth
        return {name: (F32, _round_up(size, 16)) for name, size in (sizes | self.sums_of_rows).items()}

    @property
    def sums_of_rows(self) -> dict[str, int]:
        """Floats that every form keeps of its queries, and of the mask of a block."""
        sizes = {"sums": self.rows * self.wide, "maximum": self.rows, "total": self.rows, "inverse": self.panel}
        if self.mask is not None:
            sizes["bias"] = self.keys * (self.panel if self.mask_of_row else 1)
        if self.mask_of_row:
            sizes["mask"] = self.keys * self.panel
        return sizes

    @property
    def scratch(self) -> Expr:
        return const(sum(dtype.size * size for dtype, size in self.parts.values()))


@dataclass(frozen=True)
class AttentionTilesKernel(AttentionKernel):
    """The same of bf16 by tiles, 32 queries a panel."""

    template: ClassVar[str] = "attention_bf16_amx.c.j2"
    needs: ClassVar[tuple[str, ...]] = AmxKernel.needs

    @property
    def threshold(self) -> str:
        return ""

    @property
    def deep(self) -> int:
        """Depth, rounded up to whole steps of tiles."""
        return _round_up(self.depth, STEP)

    @property
    def wide(self) -> int:
        return _round_up(self.width, HALF_COLUMNS)

    @property
    def parts(self) -> dict[str, tuple[DType, int]]:
        words = {"queries": self.rows * self.deep // 2, "weights": self.keys * self.panel // 2}
        halves = {"keys": self.keys * self.deep, "values": self.keys * self.wide}
        floats = {
            "scores": self.keys * self.panel,
            "block": self.panel * 2 * HALF_COLUMNS,
            "turned": self.panel * 2 * HALF_COLUMNS,
            "factor": self.panel,
        } | self.sums_of_rows
        return {
            name: (dtype, _round_up(size, 64 // dtype.size))
            for dtype, sizes in ((U32, words), (U16, halves), (F32, floats))
            for name, size in sizes.items()
        }


@CpuTarget.lowers("attention")
def lower_attention(group: Group, storage: Mapping[Value, Storage], machine: Machine) -> list[Kernel]:
    """The kernel of an attention group, after those that widen operands of f16 or bf16.

    Raises:
        UnsupportedError: for elements that are summed in another type than f32, or a depth or width known only at run
            time.
    """
    if any(is_empty(v) for v in group.outputs):
        return []
    assert group.anchor is not None
    before: list[Kernel] = []
    by_tiles = choose_form(machine.extras) is AmxKernel and all(v.dtype is BF16 for v in group.anchor.operands[:3])
    form = AttentionTilesKernel if by_tiles else AttentionKernel

    def operand(value: Value, batch: Index, name: str, buffers: Buffers) -> Strided:
        if not by_tiles and value.dtype is not F32:
            return _copy_operand(group, value, F32, batch, name, buffers, before)
        found = walked_operand(group, value, batch, name, buffers)
        if by_tiles and as_int(found.steps[1]) != 1 and as_int(value.shape[-1]) != 1:
            return _copy_operand(group, value, BF16, batch, name, buffers, before)
        return found

    base = attention_base(group, storage, operand)
    if not by_tiles and waits_for_keys(base, machine):
        return [*before, *attention_of_few(base, group.id, machine)]
    height, vectors = machine.choice("tile") or ((6, 4) if machine.lanes >= 16 else (6, 2))
    if by_tiles:
        height, vectors = 2 * HALF_COLUMNS, 2 * HALF_COLUMNS // machine.lanes
    panel = vectors * machine.lanes
    rows = _block(base.points, base.row.args[0], panel, by_tiles)
    tasks = base.points * ceil_div(base.row.args[0], rows)
    keys = machine.number("keys", KEYS)
    made = form.of(
        base, tasks=tasks, tile=(height, vectors), panel=panel, rows=rows, keys=keys, exact=machine.exact_batches
    )
    return [*before, made]


def _round_up(size: int, to: int) -> int:
    return -(-size // to) * to


def _block(points: Expr, rows: Expr, panel: int, by_tiles: bool) -> int:
    """Queries a task: enough to make up for packing keys and values, few enough for every thread to have work."""
    count, most = as_int(points), as_int(rows)
    few, many = (128, 256) if by_tiles else (64, 128)
    size = _round_up(many if count is not None and count >= WIDE else few, panel)
    return size if most is None else min(size, _round_up(most, panel))


def _copy_operand(
    group: Group, value: Value, dtype: DType, batch: Index, name: str, buffers: Buffers, before: list[Kernel]
) -> Strided:
    """An operand in a temporary, row after row, by a kernel that is added to `before`."""
    index, along = operand_index(value, batch, name)
    source, axes = make_axes(value.shape, None, "i")
    to = Temporary(f"wide_{name}" if dtype is F32 else f"rows_{name}", group.id, value.type.size * dtype.size)
    axes = axes or [axis("i0", 1)]
    made = copy_kernel(lambda own: own.resolve(read_through(group, value, source)), axes, buffers.storage, to, dtype)
    before.append(made)
    at = add_buffer(buffers, to, dtype=dtype)
    found = strided_operand(temporary(at, linear(index, value.shape), dtype), along)
    assert found is not None  # rows that follow each other
    return found
