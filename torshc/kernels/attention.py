"""What kernels of attention share: softmax(scale * q k' + mask) v in one kernel, the scores never in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from ..base.errors import InternalError, UnsupportedError
from ..expr import F32, Expr, acc, as_int, axis, const, load, product, walk
from ..expr.affine import contains
from ..graph import Node, Value
from ..ops.core.base import Index, broadcast_index
from ..ops.nn.attention import Attention
from ..plan.group import Group
from ..plan.inline import Inliner
from ..plan.storage import Storage
from ..plan.views import behind_views
from .axes import make_axes
from .heavy import (
    HeavyKernel,
    Strided,
    epilogue_flops,
    finish,
    read_through,
    strided_operand,
    traffic,
)
from .nest import Buffers

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
        scale, safe, masked, causal: as of the operator.
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
    masked: bool
    causal: bool

    @property
    def points(self) -> Expr:
        """Number of points of the batch."""
        return product([a.args[0] for a in self.batch])

    @property
    def guarded(self) -> bool:
        """Whether some rows are 0 whatever the values are."""
        return self.safe or self.masked

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
    def mask_of_row(self) -> bool:
        """Whether each query has a mask of its own."""
        return self.mask is not None and contains(self.mask, self.row)


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
        masked=node.op.masked,
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
            [f"{node.describe()}: attention of a depth known only at run time"], "pin it with --shapes"
        )
    return depth, width


def _mask(group: Group, node: Node, scores: Index, buffers: Buffers) -> Expr | None:
    """What is added to the score at an index, an expression over the kernel's buffers; None where that is 0."""
    mask = node.inputs[3] if len(node.inputs) > 3 else None
    if mask is None:
        return None
    added = buffers.resolve(read_through(group, mask, broadcast_index(scores, mask.shape)))
    return None if added.op == "const" and added.data == 0 else added


def operand_index(value: Value, batch: Index, name: str) -> tuple[Index, tuple[Expr, Expr]]:
    """Index into an operand, and its axes along rows and columns, called after the operand."""
    along = axis(f"{name}_row", value.shape[-2]), axis(f"{name}_col", value.shape[-1])
    return (*broadcast_index(batch, value.shape[:-2]), *along), along


def walked_operand(group: Group, value: Value, batch: Index, name: str, buffers: Buffers) -> Strided:
    """An operand as strided rows, read through as many of the views before it as leave it so."""
    index, along = operand_index(value, batch, name)
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
