"""What kernels of running sums and products share: the axis that they run along, and what follows from each sum."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..expr import Expr, acc, as_int, axis, const, load
from ..graph import Value
from ..ops.tensor.index import Cumulative
from ..plan.group import Group
from ..plan.storage import Storage
from .base import Store
from .heavy import finish, join_bodies
from .nest import Accumulator, Buffers


@dataclass(frozen=True)
class Scan:
    """A running sum or product.

    Attributes:
        before, after: parallel axes outside and inside of the axis that it runs along, outermost first.
        time: that axis.
        total: what is accumulated.
        stores: what is made of each running sum ``y``.
        buffers: the argument list.
    """

    before: tuple[Expr, ...]
    time: Expr
    after: tuple[Expr, ...]
    total: Accumulator
    stores: tuple[Store, ...]
    buffers: Buffers


def read_scan(group: Group, storage: Mapping[Value, Storage]) -> Scan:
    """The scan of a group whose anchor is a running sum or product, with what follows it."""
    node = group.anchor
    assert node is not None and isinstance(node.op, Cumulative)
    op, x, out = node.op, node.operands[0], node.output
    order = list(out.layout or range(out.type.rank))
    place = order.index(op.axis)
    index: list[Expr] = [const(0)] * out.type.rank
    for d in order:
        if as_int(out.shape[d]) != 1:
            index[d] = axis("t" if d == op.axis else f"{'i' if order.index(d) < place else 'j'}{d}", out.shape[d])
    before = [index[d] for d in order[:place] if index[d].op == "axis"]
    after = [index[d] for d in order[place + 1 :] if index[d].op == "axis"]
    dtype = x.dtype.register
    buffers = Buffers(storage)
    term = buffers.resolve(load(x, tuple(index), dtype))
    stores = finish(group, node, acc("y", dtype), tuple(index), buffers)
    before, stores, (term,) = join_bodies(before, stores, term)
    after, stores, (term,) = join_bodies(after, stores, term)
    time = index[op.axis] if index[op.axis].op == "axis" else axis("t", 1)
    total = Accumulator("0", op.combine, term, acc("y", dtype))
    return Scan(tuple(before), time, tuple(after), total, tuple(stores), buffers)
