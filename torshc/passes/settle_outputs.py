"""Give every output of the graph a node of its own."""

from __future__ import annotations

from ..base.options import CompileOptions
from ..graph import Graph, Rewriter
from ..ops import REGISTRY
from .manager import graph_pass


@graph_pass("settle_outputs")
def settle_outputs(graph: Graph, options: CompileOptions) -> bool:
    """Copy outputs that are inputs or constants, and outputs that appear twice, so that each has a buffer to fill.

    Before::

        in  %0
        out %0

    After::

        in  %0
        %1 = Identity(%0)
        out %1
    """
    graph.unite_constraints()
    return settle(graph)


def settle(graph: Graph) -> bool:
    """Give every output, and what the run is refused by, a node of its own; says whether there was one without."""
    graph.settle_demands()
    seen = set()
    changed = False
    rewriter = Rewriter(graph, "settle_outputs")
    rewriter.keep(*graph.nodes)
    for k, value in enumerate(graph.outputs):
        if value.producer is None or value in seen:
            copy = rewriter.builder().one(REGISTRY["", "Identity"](), value)
            rewriter.set_output(k, copy)
            changed = True
        seen.add(value)
    rewriter.finish()
    return changed
