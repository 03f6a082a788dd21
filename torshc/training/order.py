"""The order of a step's nodes: each update right behind the gradient that it needs."""

from __future__ import annotations

from collections.abc import Collection

from ..graph import Graph, Value, arrange


def bring_forward(graph: Graph, first: int, old: Collection[Value]) -> None:
    """Move the nodes from number `first` on, which are updates, to where what they read is there.

    So gradients, and what only these are computed from, need no memory any more when the next are computed. An update
    stays behind all others that read the old states of its own operands, which it may then overwrite.

    Args:
        old: what holds the weights before the update.
    """
    place: dict[Value, int] = {}  # the node behind which a value is there, or an old weight is read no more
    seen = {v: v for v in old}  # what looks at an old weight, and that
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
