"""A patch: what a rule wants changed; and the topological order that a change may have left."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..base.errors import InternalError
from .graph import Graph, Node, Value


@dataclass
class Patch:
    """New nodes and the values that take the place of old ones.

    Attributes:
        nodes: new nodes in topological order, which take the place of the node at which the rule was tried.
        replace: old value to new value; types must agree.
    """

    nodes: list[Node] = field(default_factory=list)
    replace: dict[Value, Value] = field(default_factory=dict)


def sort(graph: Graph) -> None:
    """Put the nodes in topological order, keeping the present order where it is free.

    Raises:
        InternalError: when the graph has a cycle.
    """
    done: set[Node] = set()
    order: list[Node] = []
    members = set(graph.nodes)
    for root in graph.nodes:
        stack: list[tuple[Node, bool]] = [(root, False)]
        active: set[Node] = set()
        while stack:
            node, ready = stack.pop()
            if node in done:
                continue
            if ready:
                done.add(node)
                order.append(node)
                continue
            if node in active:
                raise InternalError(f"the graph has a cycle through {node.describe()}")
            active.add(node)
            stack.append((node, True))
            for v in reversed(node.operands):
                if v.producer is not None and v.producer in members and v.producer not in done:
                    stack.append((v.producer, False))
    graph.nodes[:] = order
