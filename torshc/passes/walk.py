"""One walk over a graph that applies a rule at each node; what the local passes share."""

from __future__ import annotations

from collections.abc import Callable

from ..graph import Builder, Graph, Node, Patch, Rewriter, Value

Rule = Callable[["Site"], Patch | None]


class Site:
    """The node at which a rule is tried.

    Attributes:
        graph: the whole graph; the rule does not change it.
        node: the node, its operands being the newest.
        uses: number of reads of each value, outputs of the graph included.
    """

    def __init__(self, graph: Graph, node: Node, uses: dict[Value, int]) -> None:
        self.graph = graph
        self.node = node
        self.uses = uses
        self.nodes: list[Node] = []
        self.builder = Builder(graph, self.nodes, node.name)

    def alone(self, value: Value) -> bool:
        """Whether only one read of the value exists."""
        return self.uses.get(value, 0) <= 1

    def replace(self, *news: Value) -> Patch:
        """A patch: the nodes built here, and these values in place of the node's results."""
        return Patch(self.nodes, dict(zip(self.node.outputs, news, strict=False)))


def walk(graph: Graph, rule: Rule, origin: str) -> bool:
    """Try a rule at every node, in order; a patch takes the node's place at once, so later nodes see it.

    Nodes of a patch are offered to the rule too, in the next walk. Nodes that a patch left without readers are gone
    afterwards, so that the next walk does not count their reads.

    Returns:
        Whether anything was replaced.

    Raises:
        InternalError: when a patch changes a type.
    """
    uses: dict[Value, int] = {}
    for node in graph.nodes:
        for v in node.operands:
            uses[v] = uses.get(v, 0) + 1
    for v in graph.outputs:
        uses[v] = uses.get(v, 0) + 1
    rewriter = Rewriter(graph, origin)
    gone: set[Node] = set()
    changed = False
    for node in rewriter:
        site = Site(graph, node, uses)
        known = len(graph.constraints)
        patch = rule(site)
        if patch is None:
            del graph.constraints[known:]  # of nodes that the rule tried
            rewriter.keep(node)
            continue
        changed = True
        rewriter.keep(*patch.nodes)
        for new in patch.nodes:
            for v in new.operands:
                uses[v] = uses.get(v, 0) + 1
        for old, new_value in patch.replace.items():
            rewriter.replace(old, new_value)
            uses[new_value] = uses.get(new_value, 0) + uses.pop(old, 0)
        if all(v in patch.replace or not uses.get(v) for v in node.outputs):
            released = _release(node, uses)
            gone.update(released)
        else:
            released = [node]
            rewriter.keep(node)
        for new in patch.nodes:
            new.inherit(*released)
    rewriter.finish(gone)
    return changed


def _release(node: Node, uses: dict[Value, int]) -> list[Node]:
    """A node is gone: what only it read has no readers any more, and so on upwards. Returns all that are gone."""
    pending, gone = [node], [node]
    while pending:
        for v in pending.pop().operands:
            uses[v] = uses.get(v, 0) - 1
            maker = v.producer
            if uses[v] == 0 and maker is not None and not any(uses.get(o) for o in maker.outputs):
                pending.append(maker)
                gone.append(maker)
    return gone
