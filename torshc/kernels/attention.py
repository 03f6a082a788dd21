"""Lowering of attention: softmax(scale * q k' + mask) v in one kernel, the scores never leaving the cache."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from ..errors import InternalError, UnsupportedError
from ..expr import F32, Expr, acc, as_int, axis, const, load, walk
from ..expr.affine import contains
from ..graph import Node, Value
from ..ops.attention import Attention
from ..ops.base import Index, broadcast_index
from ..ops.view import linear
from ..plan.fusion import behind_views
from ..plan.group import Group
from ..plan.inline import Inliner
from ..plan.storage import Storage
from .axes import make_axes
from .base import Kernel, Temporary
from .heavy import (
    HeavyKernel,
    Strided,
    add_buffer,
    copy_kernel,
    epilogue_flops,
    finish,
    is_empty,
    read_through,
    strided_operand,
    temporary,
    traffic,
)
from .lower import lowering
from .machine import Machine
from .nest import Buffers, product
from .tiles import ceil_div

KEYS = 256  # keys a block: their part of k and v (64 KiB each at depth 64) and the weights stay in L2
WIDE = 32  # so many points of the batch keep every thread busy, and tasks may take more rows each

Operand = Callable[[Value, Index, str, Buffers], Strided]
"""Makes an operand of its value, the index over the batch, and its name, adding what it reads to an argument list."""


@dataclass(frozen=True)
class AttentionBase(HeavyKernel):
    """What kernels of attention on every target have in common.

    Attributes:
        batch: axes of the leading dimensions, outermost first.
        row, key, column: axes over queries, keys, and columns of the values.
        q, k, v: operands, stepping along rows and columns.
        depth, width: columns of queries and keys, columns of values.
        mask: what is added to a score, or None.
        scale, safe, causal: as of the operator.
    """

    kind: ClassVar[str] = "attention"

    batch: tuple[Expr, ...]
    row: Expr
    key: Expr
    column: Expr
    q: Strided
    k: Strided
    v: Strided
    depth: int
    width: int
    mask: Expr | None
    scale: Expr
    safe: bool
    causal: bool

    @property
    def points(self) -> Expr:
        """Number of points of the batch."""
        return product([a.args[0] for a in self.batch])

    @property
    def mask_of_row(self) -> bool:
        """Whether each query has a mask of its own."""
        return self.mask is not None and contains(self.mask, self.row)


@dataclass(frozen=True)
class AttentionKernel(AttentionBase):
    """Online softmax over blocks of keys, for a block of queries a task.

    Attributes:
        tile: rows and vectors of a register tile.
        panel: queries in a panel, as many as a tile has columns.
        rows, keys: queries a task, keys a block.
    """

    template: ClassVar[str] = "attention.c.j2"

    tile: tuple[int, int]
    panel: int
    rows: int
    keys: int

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


@lowering("attention")
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
    tile = (6, 4) if machine.lanes >= 16 else (6, 2)
    panel = tile[1] * machine.lanes
    rows = _block(base.points, base.row.args[0], panel)
    fields = vars(base) | {"tasks": base.points * ceil_div(base.row.args[0], rows)}
    return [*before, AttentionKernel(**fields, tile=tile, panel=panel, rows=rows, keys=KEYS)]


def attention_base(group: Group, storage: Mapping[Value, Storage], operand: Operand) -> AttentionBase:
    """The attention of a group, a task for each point of the batch; `operand` says how q, k and v are read.

    Raises:
        UnsupportedError: as of :func:`lower_attention`.
    """
    node = group.anchor
    assert node is not None and isinstance(node.op, Attention)
    depth, width = _sizes(node)
    buffers = Buffers(storage)
    *leading, rows, columns = node.output.shape
    batch, axes = make_axes(tuple(leading), None, "i")
    row, key, column = axis("row", rows), axis("key", node.operands[1].shape[-2]), axis("col", columns)
    q, k, v = (operand(x, batch, n, buffers) for n, x in zip("qkv", node.operands[:3], strict=True))
    mask = _mask(group, node, (*batch, row, key), buffers)
    index = (*batch, *(const(0) if as_int(a.args[0]) == 1 else a for a in (row, column)))
    stores = finish(group, node, acc("acc", F32), index, buffers)
    return AttentionBase(
        buffers=tuple(buffers.list),
        tasks=product([a.args[0] for a in axes]),
        flops=node.op.flops(node) + epilogue_flops(stores, node.output.type.size),
        nbytes=traffic(buffers.list, group.outputs),
        stores=tuple(stores),
        batch=tuple(axes),
        row=row,
        key=key,
        column=column,
        q=q,
        k=k,
        v=v,
        depth=depth,
        width=width,
        mask=mask,
        scale=const(node.op.scale, F32),
        safe=node.op.safe,
        causal=node.op.causal,
    )


def _sizes(node: Node) -> tuple[int, int]:
    """Depth and width."""
    q, v = node.operands[0], node.operands[2]
    depth, width = as_int(q.shape[-1]), as_int(v.shape[-1])
    if q.dtype.compute != F32.name:
        raise UnsupportedError([f"{node.describe()}: attention of {q.dtype.name}"], "cast its operands to float32")
    if depth is None or width is None:
        raise UnsupportedError(
            [f"{node.describe()}: attention of a depth known only at run time"], "pin it by --shapes"
        )
    return depth, width


def _round_up(size: int, to: int) -> int:
    return -(-size // to) * to


def _block(points: Expr, rows: Expr, panel: int) -> int:
    """Queries a task: enough to make up for copying the values, few enough for every thread to have work."""
    count, most = as_int(points), as_int(rows)
    size = _round_up(128 if count is not None and count >= WIDE else 64, panel)
    return size if most is None else min(size, _round_up(most, panel))


def _mask(group: Group, node: Node, scores: Index, buffers: Buffers) -> Expr | None:
    """What is added to the score at an index, an expression over the kernel's buffers."""
    mask = node.inputs[3] if len(node.inputs) > 3 else None
    return None if mask is None else buffers.resolve(read_through(group, mask, broadcast_index(scores, mask.shape)))


def _index(value: Value, batch: Index, name: str) -> tuple[Index, tuple[Expr, Expr]]:
    """Index into an operand, and its axes along rows and columns, called after the operand."""
    along = axis(f"{name}_row", value.shape[-2]), axis(f"{name}_col", value.shape[-1])
    return (*broadcast_index(batch, value.shape[:-2]), *along), along


def walked_operand(group: Group, value: Value, batch: Index, name: str, buffers: Buffers) -> Strided:
    """An operand as strided rows, read through as many of the views before it as leave it so."""
    index, along = _index(value, batch, name)
    chain: list[Node] = []
    for view in behind_views(value)[1]:
        if view not in group.folded:
            break
        chain.append(view)
    for length in range(len(chain), 0, -1):
        element = Inliner(chain[:length]).at(value, index)
        if element.op == "load" and isinstance(element.data, Value) and element.data.producer not in chain[:length]:
            found = strided_operand(buffers.resolve(element), along)
            if found is not None:
                return found
    found = strided_operand(buffers.resolve(load(value, index, value.dtype)), along)
    if found is None:
        raise InternalError(f"{value!r} has no strides in memory")
    return found


def _widened(group: Group, value: Value, batch: Index, name: str, buffers: Buffers, before: list[Kernel]) -> Strided:
    """An operand of halves as f32 in a temporary, by a kernel that is added to `before`."""
    index, along = _index(value, batch, name)
    source, axes = make_axes(value.shape, None, "i")
    to = Temporary(f"wide_{name}", group.id, value.type.size * 4)
    axes = axes or [axis("i0", 1)]
    read = copy_kernel(lambda own: own.resolve(read_through(group, value, source)), axes, buffers.storage, to)
    before.append(read)
    found = strided_operand(temporary(add_buffer(buffers, to), linear(index, value.shape)), along)
    assert found is not None  # rows that follow each other
    return found


__all__ = ["AttentionBase", "AttentionKernel", "attention_base", "lower_attention", "walked_operand"]
