"""Let heads that attend to the same keys, with a query each, be the queries of one head."""

from __future__ import annotations

from ..base.features import Feature, Features
from ..base.options import CompileOptions
from ..expr import as_int
from ..graph import Builder, Graph, Patch, Value
from ..ops.nn.attention import Attention
from ..ops.tensor.view import Reshape
from .manager import graph_pass
from .walk import Site, walk


@graph_pass("join_queries")
def join_queries(graph: Graph, options: CompileOptions, *, features: Features) -> bool:
    """A decoder's step has one query for each head: those of heads that share keys are read against these at once.

    Keys and values are then read once for all of them. Not for targets with `CACHED_ATTENTION`, whose kernels do so
    themselves.

    Before::

        %3 = Attention(%0:f32[1, 8, 4, 1, 64], %1:f32[1, 8, 1, 1024, 64], %2:f32[1, 8, 1, 1024, 64])

    After::

        %4 = Reshape[shape=(1, 8, 4, 64)](%0)
        %5 = Reshape[shape=(1, 8, 1024, 64)](%1)
        %6 = Reshape[shape=(1, 8, 1024, 64)](%2)
        %7 = Attention(%4, %5, %6)
        %3 = Reshape[shape=(1, 8, 4, 1, 64)](%7)
    """
    if Feature.CACHED_ATTENTION in features:
        return False
    return walk(graph, _join, "join_queries")


def _join(site: Site) -> Patch | None:
    node, op = site.node, site.node.op
    if not isinstance(op, Attention) or op.causal or any(v is None for v in node.inputs):
        return None
    q, k, v, *masks = node.operands
    if q.type.rank != 5 or as_int(q.shape[3]) != 1 or as_int(q.shape[2]) == 1:
        return None
    # The dimension of heads that share keys, which these lack; masks, which are not as wide, may lack it altogether.
    shared = [k, v, *masks]
    if any(x.type.rank == 5 and as_int(x.shape[2]) != 1 for x in shared) or any(x.type.rank != 5 for x in (k, v)):
        return None
    if any(x.type.rank not in (2, 5) for x in masks):
        return None
    b = site.builder
    joined = [_without(b, q, 3), *(_without(b, x, 2) if x.type.rank == 5 else x for x in shared)]
    return site.replace(b.one(Reshape(node.output.shape), b.one(op, *joined)))


def _without(b: Builder, x: Value, dim: int) -> Value:
    return b.one(Reshape((*x.shape[:dim], *x.shape[dim + 1 :])), x)
