"""The order of a step's nodes: each update right behind the gradient that it needs."""

from __future__ import annotations

from collections.abc import Collection

from ..graph import Graph, Value, arrange


def bring_forward(graph: Graph, first: int, old: Collection[Value]) -> None:
    """Move the updates, which are the nodes from number `first` on, to where all that they read is computed.

    So the memory of a gradient, and of what only it is computed from, is free when the next one is computed. An update
    stays behind all other readers of its operands' old states, which it may then overwrite.

    Args:
        old: the weights before the update.
    """
    place: dict[Value, int] = {}  # number of the node that makes a value, or that last reads an old weight
    seen = {v: v for v in old}  # old weights and their views, each with its old weight
    for k, node in enumerate(graph.nodes[:first]):
        place |= dict.fromkeys(node.outputs, k)
        place |= {seen[v]: k for v in node.operands if v in seen}
        if node.op.family == "view" and node.operands[0] in seen:
            seen |= dict.fromkeys(node.outputs, seen[node.operands[0]])
    behind = [*range(first)]
    for node in graph.nodes[first:]:
        behind.append(max((place.get(v, 0) for v in node.operands), default=0))
        place |= dict.fromkeys(node.outputs, behind[-1])
    order = sorted(range(len(graph.nodes)), key=lambda k: (behind[k], k))
    arrange(graph, [graph.nodes[k] for k in order])
