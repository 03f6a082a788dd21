"""The elements of small tensors as expressions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..expr import BOOL, Expr, as_int, call, cast, const, element, is_long, on_host, walk
from .data import FLOATS, LIMIT, indices
from .graph import Node, Value

if TYPE_CHECKING:
    from ..ops.core.base import LoopNest

Elements = Callable[[Value], tuple[Expr, ...] | None]
_DEPTH = 32  # nodes between a tensor and what it is computed from


def evaluate(node: Node, output: int, elements: Elements = lambda v: v.data) -> tuple[Expr, ...] | None:
    """The elements of a small output as expressions, from the elements of the inputs; None when unknown.

    They may be of any type that the host program computes with; what it cannot compute is not known.
    It runs the operator's own loop nest on expressions, so an operator needs no second definition for shapes.
    """
    value = node.outputs[output]
    shape = value.type.static_shape
    followed = value.dtype.is_int or value.dtype is BOOL or value.dtype in FLOATS
    if not followed or shape is None or math.prod(shape) > LIMIT:
        return None
    exact = node.op.symbolic(node, output)
    if exact is not None:
        return exact
    nest = node.op.nest(node, output)
    if nest is None:
        return None
    terms = [as_int(e) for e in nest.reduce]
    if any(t is None for t in terms) or math.prod(t or 0 for t in terms) > LIMIT:
        return None
    try:
        found = tuple(_element(node, nest, index, elements) for index in indices(shape))
    except LookupError:
        return None
    return found if all(on_host(e) and not is_long(e) for e in found) else None


def _element(node: Node, nest: LoopNest, index: tuple[int, ...], elements: Elements) -> Expr:
    def read(k: int, at: tuple[Expr, ...]) -> Expr:
        source = node.inputs[k]
        assert source is not None
        dims, where = source.type.static_shape, [as_int(i) for i in at]
        data = elements(source)
        if data is None or dims is None or any(w is None for w in where):
            raise LookupError(k)
        flat = 0
        for w, d in zip(where, dims, strict=True):
            assert w is not None
            if not 0 <= w < d:
                raise LookupError(k)
            flat = flat * d + w
        return cast(data[flat], source.dtype)  # what a run reads of a narrower integer is an i64

    at = tuple(const(i) for i in index)
    if not nest.reduce:
        return nest.body(at, (), read)
    total: Expr | None = None
    for r in indices(tuple(as_int(e) or 0 for e in nest.reduce)):
        term = nest.body(at, tuple(const(i) for i in r), read)
        total = term if total is None else call(nest.combine, total, term)
    if total is None:
        raise LookupError("empty reduction")
    return nest.finish(total, at, read)


def settled(value: Value) -> tuple[Expr | None, ...]:
    """The elements that no run changes, or that count the rounds of loops, None for the others; or none of all.

    TensorFlow's strided slices compute starts and ends so that some are known: of ``[i, 0]``, with i an operand, the
    second.
    """
    trace = _Trace()
    found = trace.elements(value) or ()
    return tuple(None if any(x in trace.unknown for x in walk(e)) else e for e in found)


class _Trace:
    """The elements of tensors, with unknowns in place of those that a run computes."""

    def __init__(self) -> None:
        self.found: dict[Value, tuple[Expr, ...] | None] = {}
        self.unknown: set[Expr] = set()
        self.depth = 0

    def elements(self, v: Value) -> tuple[Expr, ...] | None:
        if v.data is not None:
            return v.data
        if v.count is not None:
            return (v.count,)
        if v not in self.found:
            self.found[v] = self._compute_elements(v) or self._unknowns(v)
        return self.found[v]

    def _compute_elements(self, v: Value) -> tuple[Expr, ...] | None:
        if v.producer is None or self.depth == _DEPTH:
            return None
        self.depth += 1
        found = evaluate(v.producer, v.producer.outputs.index(v), self.elements)
        self.depth -= 1
        return found

    def _unknowns(self, v: Value) -> tuple[Expr, ...] | None:
        shape = v.type.static_shape
        if shape is None or math.prod(shape) > LIMIT:
            return None
        made = tuple(element(f"{v.id}[{k}]") for k in range(math.prod(shape)))
        self.unknown.update(made)
        return made
