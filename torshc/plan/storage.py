"""Where values lie: memory of their own, or a part of another value's memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..expr import Expr, as_int, axis, const, load
from ..expr.affine import strides_along
from ..graph import Node, Value


@dataclass(frozen=True)
class Storage:
    """Where a value lies when it is a part of another value's memory (a Concat's operand inside its result)."""

    root: Value
    offset: Expr
    strides: tuple[Expr, ...]


def strided(value: Value, through: Iterable[Node]) -> tuple[Value, Expr, tuple[Expr, ...]] | None:
    """Read a value through views as strides over the memory of another.

    Returns:
        The value in memory, the element offset of the first element, and a stride for each dimension of `value`;
        None when some index is not affine (a reshape that splits a transposed dimension, a concatenation).
    """
    views = set(through)
    index = tuple(const(0) if as_int(d) == 1 else axis(f"d{k}", d) for k, d in enumerate(value.shape))

    def read(v: Value, at: tuple[Expr, ...]) -> Expr:
        node = v.producer
        if node is None or node not in views:
            return load(v, at, v.dtype)
        nest = node.op.nest(node, node.outputs.index(v))
        assert nest is not None
        return nest.body(at, (), lambda k, i: read(node.operands[k], i))

    found = read(value, index)
    if found.op != "load" or not isinstance(found.data, Value):
        return None
    offset = const(0)
    for i, s in zip(found.args, found.data.strides, strict=True):
        offset = offset + i * s
    moving = [a for a in index if a.op == "axis"]
    parts = strides_along(offset, moving)
    if parts is None:
        return None
    strides = iter(parts[0])
    return found.data, parts[1], tuple(next(strides) if a.op == "axis" else const(0) for a in index)


def contiguous(value: Value, strides: tuple[Expr, ...]) -> bool:
    """Whether strides are those of the value's own layout, dimensions of size 1 apart."""
    return all(a is b for a, b, d in zip(strides, value.strides, value.shape, strict=True) if as_int(d) != 1)
