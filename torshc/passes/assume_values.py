"""Let inputs be one number throughout, for a variant that a run takes only where they are."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..graph import Graph, Rewriter, Value
from ..ops.tensor.view import Expand


def assume_values(graph: Graph, values: Mapping[str, int]) -> None:
    """Let what reads these inputs, by name, read a number of their shape. The inputs stay.

    Before::

        %1 = Cast(%mask)               # mask: i64[batch, seq]

    After, for a mask of ones::

        %1 = Expand(1) : i64[batch, seq]
        %2 = Cast(%1)
    """
    rewriter = Rewriter(graph, "assume_values")
    for v in graph.given:
        if v.name in values:
            rewriter.newest[v] = _repeated(rewriter, v, values[v.name])
    rewriter.keep(*rewriter)
    rewriter.finish()


def _repeated(rewriter: Rewriter, v: Value, value: int) -> Value:
    array = np.full((1,) * v.type.rank, value, v.dtype.numpy)
    array.flags.writeable = False
    one = rewriter.graph.constant(array)
    return one if one.type == v.type else rewriter.builder().one(Expand(v.shape), one)
