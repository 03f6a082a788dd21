"""A patch: what a rule wants changed, checked as a whole when it is applied."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..errors import InternalError
from .graph import Graph, Node, Value


@dataclass
class Patch:
    """New nodes and the values that take the place of old ones.

    Attributes:
        nodes: new nodes in topological order, inserted before the first reader of what they replace.
        replace: old value to new value; types must agree.
    """

    nodes: list[Node] = field(default_factory=list)
    replace: dict[Value, Value] = field(default_factory=dict)


def apply(graph: Graph, patch: Patch, origin: str) -> None:
    """Apply a patch; nodes left without readers are swept by ``dead_code``.

    Args:
        origin: who made the patch, for the message when it is wrong.

    Raises:
        InternalError: when a replacement changes a type.
    """
    for old, new in patch.replace.items():
        if old.type != new.type:
            raise InternalError(f"{origin} replaces {old!r}: {old.type!r} by {new!r}: {new.type!r}")
        if not new.name:
            new.name = old.name
    position = {node: i for i, node in enumerate(graph.nodes)}
    producers = [v.producer for v in patch.replace]
    at = min((position[p] for p in producers if p is not None and p in position), default=0)
    # New nodes read values made before some replaced node; the last operand decides where they can stand.
    for node in patch.nodes:
        for v in node.operands:
            if v.producer is not None and v.producer in position:
                at = max(at, position[v.producer] + 1)
    graph.nodes[at:at] = patch.nodes
    substitute_values(graph, patch.replace)


def substitute_values(graph: Graph, mapping: Mapping[Value, Value]) -> None:
    """Make every reader of a key read its replacement instead."""
    for node in graph.nodes:
        if any(v in mapping for v in node.operands):
            node.inputs = tuple(mapping.get(v, v) if v is not None else None for v in node.inputs)
    graph.outputs = [mapping.get(v, v) for v in graph.outputs]


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
