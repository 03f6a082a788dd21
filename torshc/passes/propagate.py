"""Infer types again and replace small tensors whose contents are known by constants."""

from __future__ import annotations

import numpy as np

from ..base.options import CompileOptions
from ..graph import Graph, Rewriter, Value, ints_of, learn
from ..graph.elements import evaluate
from .manager import graph_pass


@graph_pass("propagate")
def propagate(graph: Graph, options: CompileOptions) -> bool:
    """Carry what is known of shapes and of shape arithmetic through the graph.

    Before::

        %1 = Shape(%0) : i64[2]        # %0 is f32[3, 4]
        %2 = Add(%1, 1)

    After::

        [4, 5]
    """
    changed = False
    for node in graph.nodes:
        inferred = node.op.infer(node.inputs, [])
        for k, (value, fresh) in enumerate(zip(node.outputs, inferred, strict=False)):
            if value.type != fresh:
                learn(value, value.data, fresh)
                changed = True
            if value.data is None:
                learn(value, evaluate(node, k))
    rewriter = Rewriter(graph, "propagate")
    for node in rewriter:
        known = [v for v in node.outputs if ints_of(v.data) is not None]
        for v in known:
            rewriter.replace(v, _constant(graph, v))
        if len(known) < len(node.outputs):
            rewriter.keep(node)
    rewriter.finish()
    return changed or bool(rewriter.newest)


def _constant(graph: Graph, value: Value) -> Value:
    array = np.asarray(ints_of(value.data), dtype=value.dtype.numpy).reshape(value.type.static_shape or ())
    array.flags.writeable = False
    return graph.constant(array, value.name)
