"""The builder: adds nodes, inferring types and the contents of small tensors as it goes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..budget import afford
from ..expr import BOOL, Expr, as_int, call, const, is_long, on_host
from .data import FLOATS, LIMIT, indices
from .graph import Graph, Node, Partial, Value
from .sizes import require_fit, require_reach, require_shape

if TYPE_CHECKING:
    from ..ops.core.base import Nest, Op


class Builder:
    """Appends nodes to a graph, or collects them for a patch.

    Args:
        graph: owner of the values and numbers.
        nodes: list to append to; the graph's own when None.
        name: the model's name given to nodes that are added without one.
    """

    def __init__(self, graph: Graph, nodes: list[Node] | None = None, name: str = "") -> None:
        self.graph = graph
        self.nodes = graph.nodes if nodes is None else nodes
        self.name = name

    def add(self, op: Op, inputs: Sequence[Value | None], name: str = "") -> list[Value]:
        """Apply an operator.

        Returns:
            Its outputs, typed.

        Raises:
            ModelError: when the operands do not fit the operator, or its sizes do not fit 64 bits.
        """
        self._count()
        before = len(self.graph.constraints)
        types = op.infer(tuple(inputs), self.graph.constraints)
        afford("outputs", len(types), f"{op.name} of {len(types)} outputs")
        require_fit(self.graph.constraints[before:])
        for t in types:
            require_shape(t.shape, f"the result of {op.name}")
        outputs = [self.graph.new_value(t) for t in types]
        node = self.graph.new_node(op, inputs, outputs, name or self.name)
        require_reach(node)
        self.nodes.append(node)
        for i, value in enumerate(outputs):
            value.data = evaluate(node, i)
        return outputs

    def host_op(
        self, op: Op, inputs: Sequence[Value | None], partials: Sequence[Partial], name: str = ""
    ) -> list[Value]:
        """Apply an operator of the host, whose outputs may have run-time dimensions."""
        self._count()
        afford("outputs", len(partials), f"{op.name} of {len(partials)} outputs")
        outputs = [self.graph.new_runtime_value(p) for p in partials]
        for v in outputs:
            require_shape(v.shape, f"the result of {op.name}")
        self.nodes.append(self.graph.new_node(op, inputs, outputs, name or self.name))
        return outputs

    def adopt(self, *nodes: Node) -> None:
        """Take over nodes that were built in a body inside this graph."""
        self.nodes += nodes

    def state(self) -> tuple[int, int]:
        """Where the building stands, for :meth:`back_to`."""
        return len(self.nodes), len(self.graph.constraints)

    def back_to(self, state: tuple[int, int]) -> None:
        """Take back what was built since, with its constraints."""
        del self.nodes[state[0] :], self.graph.constraints[state[1] :]

    def _count(self) -> None:
        """Refuse a graph of too many nodes."""
        self.graph.numbers.made += 1
        afford("nodes", self.graph.numbers.made, f"{self.graph.numbers.made} nodes, with what passes make of them")

    def one(self, op: Op, *inputs: Value | None) -> Value:
        """Apply an operator with one output."""
        return self.add(op, inputs)[0]

    def constant(self, array: np.ndarray[Any, Any] | float | int, like: Value | None = None) -> Value:
        """A constant; a Python number takes the dtype of `like` and rank 0."""
        if not isinstance(array, np.ndarray):
            array = np.asarray(array, dtype=like.dtype.numpy if like is not None else None)
        return self.graph.constant(array)


def evaluate(node: Node, output: int) -> tuple[Expr, ...] | None:
    """The elements of a small output as expressions, from the elements of the inputs; None when unknown.

    They may be of any type that the host program computes with; what it cannot compute is not known.
    It runs the operator's own loop nest on expressions, so an operator needs no second definition for shapes.
    """
    value = node.outputs[output]
    shape = value.type.static_shape
    followed = value.dtype.is_int or value.dtype is BOOL or value.dtype in FLOATS
    if not followed or shape is None or int(np.prod(shape, dtype=object)) > LIMIT:
        return None
    exact = node.op.symbolic(node, output)
    if exact is not None:
        return exact
    nest = node.op.nest(node, output)
    if nest is None:
        return None
    terms = [as_int(e) for e in nest.reduce]
    if any(t is None for t in terms) or int(np.prod([t or 0 for t in terms], dtype=object)) > LIMIT:
        return None
    try:
        found = tuple(_element(node, nest, index) for index in indices(shape))
    except LookupError:
        return None
    return found if all(on_host(e) and not is_long(e) for e in found) else None


def _element(node: Node, nest: Nest, index: tuple[int, ...]) -> Expr:
    def read(k: int, at: tuple[Expr, ...]) -> Expr:
        source = node.inputs[k]
        assert source is not None
        dims, where = source.type.static_shape, [as_int(i) for i in at]
        if source.data is None or dims is None or any(w is None for w in where):
            raise LookupError(k)
        flat = 0
        for w, d in zip(where, dims, strict=True):
            assert w is not None
            if not 0 <= w < d:
                raise LookupError(k)
            flat = flat * d + w
        return source.data[flat]

    at = tuple(const(i) for i in index)
    if not nest.reduce:
        return nest.body(at, (), read)
    total: Expr | None = None
    for r in indices(tuple(as_int(e) or 0 for e in nest.reduce)):
        term = nest.body(at, tuple(const(i) for i in r), read)
        total = term if total is None else call(nest.combine, total, term)
    if total is None:
        raise LookupError("empty reduction")
    return nest.finish(total, at, read) if nest.finish else total
