"""The builder: adds nodes, inferring types and the contents of small tensors as it goes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.budget import afford
from ..expr import Expr
from .elements import evaluate, settled
from .graph import Graph, Node, Partial, Value
from .sizes import require_fit, require_reach, require_shape

if TYPE_CHECKING:
    from ..ops.core.base import Op


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

    def copy(self, node: Node, inputs: Iterable[Value | None], outputs: Iterable[Value]) -> None:
        """Append a node of another graph over values of this one."""
        self.nodes.append(node.copy(inputs, outputs))

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

    def elements_of(self, value: Value, clamped: bool = False) -> tuple[Expr, ...] | None:
        """The elements of a small integer tensor as expressions, which become its data; None when it is not small.

        Args:
            clamped: an element that does not fit 32 bits at run time counts as the largest of them.
        """
        known = settled(value) if value.data is None else ()
        return self.graph.elements_of(value, clamped, known)

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
