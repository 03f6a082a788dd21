"""Give every output of the graph a node of its own."""

from __future__ import annotations

from ..graph import Builder, Graph
from ..ops import REGISTRY
from ..options import CompileOptions
from .manager import graph_pass


@graph_pass("settle_outputs")
def settle_outputs(graph: Graph, options: CompileOptions) -> bool:
    """Copy outputs that are inputs or constants, and outputs that stand twice, so that each has a buffer to fill.

    Before::

        in  %0
        out %0

    After::

        in  %0
        %1 = Identity(%0)
        out %1
    """
    graph.constraints[:] = dict.fromkeys(graph.constraints)
    graph.settle_demands()
    seen = set()
    changed = False
    for k, value in enumerate(graph.outputs):
        if value.producer is None or value in seen:
            graph.outputs[k] = value = Builder(graph).one(REGISTRY["", "Identity"](), value)
            changed = True
        seen.add(value)
    return changed
