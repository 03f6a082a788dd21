"""Write composite operators as graphs of simpler ones."""

from __future__ import annotations

from ..base.errors import InternalError
from ..base.features import Feature, Features
from ..base.options import CompileOptions
from ..graph import Builder, Graph, Patch, Value
from ..ops.core.tensor import Tensor
from ..ops.nn.conv import ConvWeights, has_weights_kernel
from ..ops.nn.rotary import Rotated
from .manager import graph_pass
from .walk import Site, walk

_DEPTH = 8  # composites may be made of composites, but not without end


@graph_pass("decompose")
def decompose(graph: Graph, options: CompileOptions, *, features: Features, composites: bool = True) -> bool:
    """Replace each composite by what it is made of; attention and others too where the target has no kernel.

    Args:
        composites: whether more than attention is replaced.

    Before::

        %1 = GlobalMaxPool(%0)

    After::

        %1 = ReduceMax[axes=(2, 3)](%0)
    """
    families = {"composite"} if composites else set()
    if Feature.ATTENTION not in features:
        families.add("attention")
    kinds = (Rotated,) if composites and Feature.ROTARY_POSITIONS not in features else ()
    sums = Feature.CONVOLUTION_WEIGHTS in features

    def replaced(site: Site) -> bool:
        if isinstance(site.node.op, ConvWeights):
            return composites and not (sums and has_weights_kernel(site.node))
        return site.node.op.family in families or isinstance(site.node.op, kinds)

    changed = False
    for _ in range(_DEPTH):
        if not walk(graph, lambda site: _rule(site) if replaced(site) else None, "decompose"):
            return changed
        changed = True
    raise InternalError("decompose: a composite operator refers to itself")


def _rule(site: Site) -> Patch | None:
    outputs = site.node.op.decompose(site.builder, site.node.inputs)
    if outputs is None:
        return None
    return site.replace(*(like(site.builder, v, old) for v, old in zip(outputs, site.node.outputs, strict=True)))


def like(b: Builder, v: Value, old: Value) -> Value:
    """The value under the shape that the composite has, where a run-time size has met one that is known."""
    return v if v.shape == old.shape or v.type.rank != old.type.rank else Tensor(b, v).reshape(*old.shape).value
