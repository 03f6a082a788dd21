"""Places of maxima, which the backward pass of a step reads in place of what was pooled."""

from __future__ import annotations

from dataclasses import replace

from ..graph import Graph, Node, Rewriter, Value, arrange
from ..ops.math.expression import Expression
from ..ops.math.pointwise import relu_slope
from ..ops.nn.pool import PoolBack, PoolTap


def mask_maxima(graph: Graph) -> None:
    """Let the places of maxima behind a Relu say where its slope is 0, so that its result is not kept for that.

    All elements that a window's gradient goes to are its maximum, so where that is not positive, the Relu before them
    passes nothing on. The sums are the same bit by bit.

    Before::

        %1 = Relu(%0)
        %2 = MaxPool(%1)
        %3 = PoolTap(%1, %2)
        %5 = PoolBack(%4, %3)
        %6 = Expression(%5, %1)

    After::

        %1 = Relu(%0)
        %2 = MaxPool(%1)
        %3 = PoolTap[positive=True](%1, %2)
        %6 = PoolBack(%4, %3)
    """
    rewriter = Rewriter(graph, "mask_maxima")
    for node in rewriter:
        found = _pooled_behind_relu(node)
        if found is None:
            rewriter.keep(node)
            continue
        back, tap, pooled = found
        builder = rewriter.builder(node.name)
        places = builder.one(replace(tap, positive=True), *pooled)
        rewriter.replace(node.output, builder.one(back.op, back.operands[0], places))
    rewriter.finish()


def _pooled_behind_relu(node: Node) -> tuple[Node, PoolTap, tuple[Value, ...]] | None:
    """Where a node is the slope of a Relu whose result was pooled: who hands the gradient back, and the places."""
    if not isinstance(node.op, Expression):
        return None
    g, y = node.operands[0], node.operands[-1]
    back, relu = g.producer, y.producer
    if back is None or not isinstance(back.op, PoolBack) or relu is None or relu.op.name != "Relu":
        return None
    taps = back.operands[1].producer
    if taps is None or not isinstance(taps.op, PoolTap) or taps.operands[0] is not y:
        return None
    return (back, taps.op, tuple(taps.operands)) if node.op == relu_slope(g.dtype, y.dtype) else None


def find_maxima_early(graph: Graph) -> None:
    """Move nodes that look for the places of maxima to where the maxima are computed.

    The backward pass then reads the places, a byte each, and the memory of what was pooled is free before it.
    """
    behind = {n: k for k, n in enumerate(graph.nodes)}
    for node in [n for n in graph.nodes if isinstance(n.op, PoolTap)]:
        made = [v.producer for v in node.operands if v.producer is not None]
        behind[node] = max((behind[n] for n in made), default=0)
    arrange(graph, sorted(graph.nodes, key=behind.__getitem__))
