"""Sum over several dimensions at once what is summed over one after the other."""

from __future__ import annotations

from dataclasses import replace

from ..base.features import Feature, Features
from ..base.options import CompileOptions
from ..graph import Graph, Patch
from ..ops.math.reduce import Reduce
from .manager import graph_pass
from .walk import Site, walk


@graph_pass("join_sums")
def join_sums(graph: Graph, options: CompileOptions, *, features: Features) -> bool:
    """Sums of sums become one sum over the dimensions of both, for targets with `LONG_SUMS`.

    So it is a kernel less, and what follows from the sums is computed with them. Error class: rounding, as the pieces
    of a sum are others.

    Before::

        %1 = ReduceSum[axes=(2, 3)](%0)
        %2 = ReduceSum[axes=(0,)](%1)

    After::

        %2 = ReduceSum[axes=(0, 2, 3)](%0)
    """
    return Feature.LONG_SUMS in features and walk(graph, _join, "join_sums")


def _join(site: Site) -> Patch | None:
    op = site.node.op
    if op.name != "ReduceSum" or not isinstance(op, Reduce) or not op.keepdims:
        return None
    (x,) = site.node.operands
    inner = x.producer
    if inner is None or inner.op.name != "ReduceSum" or not isinstance(inner.op, Reduce) or not site.alone(x):
        return None
    if not inner.op.keepdims or not x.dtype.is_float:
        return None
    axes = tuple(sorted({*op.axes, *inner.op.axes}))
    return site.replace(site.builder.one(replace(op, axes=axes), inner.operands[0]))
