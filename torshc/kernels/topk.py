"""What kernels of TopK share: the rows, the element at a place, and what is stored of those that come first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..expr import Expr, as_int, axis, const, load
from ..graph import Value
from ..ops.tensor.sort import TopK
from ..plan.group import Group
from ..plan.storage import Storage
from .base import Store
from .epilogue import lower_epilogue
from .heavy import join_bodies
from .nest import Buffers


@dataclass(frozen=True)
class Ranking:
    """The first of each row in order.

    Attributes:
        axes: parallel axes, outermost first: the rows.
        place: the axis along which is searched.
        rank: the axis of the results.
        key: the element at `place`.
        stores: they read the element at `place`, and `place` itself.
        buffers: the argument list.
    """

    axes: tuple[Expr, ...]
    place: Expr
    rank: Expr
    key: Expr
    stores: tuple[Store, ...]
    buffers: Buffers


def read_ranking(group: Group, storage: Mapping[Value, Storage]) -> Ranking:
    """The ranking of a group whose anchor is a TopK, with what follows it."""
    node = group.anchor
    assert node is not None and isinstance(node.op, TopK)
    op, x, out = node.op, node.operands[0], node.outputs[0]
    along = op.axis % x.type.rank
    place, rank = axis("t", x.shape[along]), axis("rank", op.k)
    rows = [const(0) if as_int(d) == 1 else axis(f"i{k}", d) for k, d in enumerate(x.shape)]

    def at(a: Expr) -> tuple[Expr, ...]:
        here = a if as_int(a.args[0]) != 1 else const(0)
        return (*rows[:along], here, *rows[along + 1 :])

    buffers = Buffers(storage)
    element = load(x, at(place), x.dtype.register)
    results = {out: (element, at(rank)), node.outputs[1]: (at(place)[along], at(rank))}
    stores = lower_epilogue(group, node, results, buffers)
    key = buffers.resolve(element)
    free = [i for k, i in enumerate(rows) if k != along and i.op == "axis"]
    axes, stores, (key,) = join_bodies(free, stores, key)
    return Ranking(tuple(axes), place, rank, key, tuple(stores), buffers)
