"""Remove nodes whose results are not used."""

from __future__ import annotations

from ..base.options import CompileOptions
from ..graph import Graph, Node, Rewriter
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
    gone: set[Node] = set()
    for node in reversed(graph.nodes):
        if needed.isdisjoint(node.outputs):
            gone.add(node)
        else:
            needed.update(node.operands)
    rewriter = Rewriter(graph, "dead_code")
    rewriter.keep(*graph.nodes)
    rewriter.finish(gone)
    return bool(gone)
