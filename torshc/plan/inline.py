"""From the nodes of a group to one scalar expression: producers are read through at the index their reader wants."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..base.errors import InternalError
from ..expr import DType, Expr, const, load
from ..graph import Node, Value
from ..ops.core.base import Index
from .storage import Storage


def register_type(dtype: DType) -> DType:
    """The type that an element has once it is loaded: f16, bf16 and narrower floats are computed in f32."""
    return dtype.register


DEEPEST = 32  # nodes that read each other in calls of their bodies


class _Deeper(Exception):
    """An element has to be known before what reads it: calls would nest too deeply."""

    def __init__(self, value: Value, index: Index) -> None:
        super().__init__()
        self.key = value, index


class Inliner:
    """Reads values of a group as expressions.

    Args:
        nodes: the group's nodes; whatever else is read is loaded from memory.
        known: values that the kernel already holds (an accumulator, a row statistic), with a function of the index.
    """

    def __init__(self, nodes: Iterable[Node], known: Mapping[Value, Expr] | None = None) -> None:
        self.nodes = set(nodes)
        self.known: dict[Value, Expr] = dict(known or {})
        self.loads: dict[Value, None] = {}
        self._memo: dict[tuple[Value, Index], Expr] = {}
        self._depth = 0

    def at(self, value: Value, index: Index) -> Expr:
        """The element of `value` at `index`."""
        if self._depth:
            return self._at(value, index)
        pending = [(value, index)]
        while True:
            try:
                found = self._at(*pending[-1])
            except _Deeper as e:
                pending.append(e.key)
                continue
            pending.pop()
            if not pending:
                return found

    def _at(self, value: Value, index: Index) -> Expr:
        if (known := self.known.get(value)) is not None:
            return known
        key = (value, index)
        found = self._memo.get(key)
        if found is None:
            found = self._memo[key] = self._make(value, index)
        return found

    def _make(self, value: Value, index: Index) -> Expr:
        if value.const is not None and value.const.size == 1 and not value.dtype.is_storage:
            return const(value.const.reshape(-1)[0].item(), value.dtype)
        node = value.producer
        if node is None or node not in self.nodes:
            self.loads[value] = None
            return load(value, index, register_type(value.dtype))
        nest = node.op.nest(node, node.outputs.index(value))
        if nest is None or nest.reduce:
            raise InternalError(f"{node.describe()} cannot be read through at an index")
        if self._depth == DEEPEST:
            raise _Deeper(value, index)
        self._depth += 1
        try:
            return nest.body(index, (), lambda k, at: self._at(_input(node, k), at))
        finally:
            self._depth -= 1


def _input(node: Node, k: int) -> Value:
    value = node.inputs[k]
    if value is None:
        raise InternalError(f"{node.describe()} reads input {k}, which is absent")
    return value


def address(value: Value, index: Index, storage: Mapping[Value, Storage]) -> tuple[Value, Expr]:
    """The value whose memory holds an element, and the element's offset there."""
    place = storage.get(value)
    root, total, strides = (place.root, place.offset, place.strides) if place else (value, const(0), value.strides)
    for i, s in zip(index, strides, strict=True):
        total = total + i * s
    return root, total
