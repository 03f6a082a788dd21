"""The one place where nodes and values of a graph change: replacing, inserting, rewiring, relayout, removing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING

from ..base.errors import InternalError
from ..expr import Expr
from .builder import Builder
from .graph import Graph, Node, TensorType, Value

if TYPE_CHECKING:
    from ..ops.core.base import Op


class Rewriter:
    """One walk over the nodes in order, each of which is kept, or replaced by what is built in its place.

    What is built or kept is in the new graph in that order, and later nodes read what has replaced a value. The
    graph changes when :meth:`finish` is called, its nodes' operands while the walk goes on.

    Args:
        origin: who walks, for messages.

    Raises:
        InternalError: the graph is frozen.
    """

    def __init__(self, graph: Graph, origin: str) -> None:
        if graph.frozen:
            raise InternalError(f"{origin} changes a graph that is already planned")
        self.graph = graph
        self.origin = origin
        self.nodes: list[Node] = []
        self.newest: dict[Value, Value] = {}
        self.outputs: dict[int, Value] = {}

    def __iter__(self) -> Iterator[Node]:
        for node in list(self.graph.nodes):
            if any(v in self.newest for v in node.operands):
                node.inputs = tuple(self.newest.get(v, v) if v is not None else None for v in node.inputs)
            yield node

    def builder(self, name: str = "") -> Builder:
        """Builds at the place where the walk is."""
        return Builder(self.graph, self.nodes, name)

    def keep(self, *nodes: Node) -> None:
        """Nodes that stand at the place where the walk is."""
        self.nodes += nodes

    def replace(self, old: Value, new: Value) -> None:
        """Let all that read a value from here on read another, which takes its name if it has none.

        Raises:
            InternalError: their types differ.
        """
        if old.type != new.type:
            raise InternalError(f"{self.origin} replaces {old!r}: {old.type!r} by {new!r}: {new.type!r}")
        if not new.name:
            new.name = old.name
        self.newest[old] = new

    def set_output(self, k: int, value: Value) -> None:
        """Make a value that was built here an output of the graph in place of another, which keeps its readers."""
        self.outputs[k] = value

    def finish(self, gone: Collection[Node] = ()) -> None:
        """The graph becomes what the walk made, without some nodes whose results are no longer used."""
        self.graph.nodes[:] = [n for n in self.nodes if n not in gone] if gone else self.nodes
        found = enumerate(self.graph.outputs)
        self.graph.outputs = [self.outputs.get(k) or self.newest.get(v, v) for k, v in found]


def rewire(node: Node, inputs: tuple[Value | None, ...], op: Op | None = None) -> None:
    """Give a node other operands, of which its operator, or another, makes results of the same types."""
    node.inputs = inputs
    node.op = op or node.op


def arrange(graph: Graph, nodes: Iterable[Node]) -> None:
    """Let a graph have these of its nodes, in this order, in which each stands behind those whose results it reads."""
    graph.nodes[:] = [*nodes]


def learn(value: Value, data: tuple[Expr, ...] | None, type: TensorType | None = None) -> None:
    """Note the contents of a small tensor as expressions, or a type that says more of its dimensions."""
    value.data = data
    value.type = type or value.type


def relayout(value: Value, layout: tuple[int, ...] | None) -> None:
    """Give a value another order in memory; None is row-major."""
    value.layout = layout
