"""Remove nodes whose results nobody reads."""

from __future__ import annotations

from ..graph import Graph, Node
from ..options import CompileOptions
from .manager import graph_pass


@graph_pass("dead_code")
def dead_code(graph: Graph, options: CompileOptions) -> bool:
    """Keep only what the outputs need.

    Before::

        %1 = Exp(%0)
        %2 = Neg(%0)
        out %2

    After::

        %2 = Neg(%0)
        out %2
    """
    needed = set(graph.outputs)
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if needed.isdisjoint(node.outputs):
            continue
        needed.update(node.operands)
        kept.append(node)
    if len(kept) == len(graph.nodes):
        return False
    graph.nodes[:] = reversed(kept)
    return True
