"""Round to tf32, where they are made, the activations that convolutions of a training step multiply."""

from __future__ import annotations

from ..base.features import Feature, Features
from ..base.options import CompileOptions
from ..expr import F32, as_int
from ..graph import Graph, Node, Rewriter, Value, rewire
from ..ops.math.bits import RoundToTf32
from ..ops.nn.pool import PoolPlace
from .half_products import FACTORS
from .manager import graph_pass

_CONVOLUTIONS = ("conv", "conv_transpose", "conv_weights")


@graph_pass("round_activations")
def round_activations(graph: Graph, options: CompileOptions, *, features: Features = frozenset()) -> bool:
    """Store activations that convolutions read as tf32, in steps of `--precision tf32` on targets with that feature.

    Tensor cores then read activations as they are stored; else kernels round each whenever they read it. All readers of
    an activation, residual sums too, read it rounded, so that it is stored once; only the search for a maximum
    (PoolPlace) reads it as it was computed.
    Weights of windows of one pixel lie as kernels read them: they are rounded too, many in one launch. Others are
    rounded where they are copied for a kernel. Error class: 2^-11 of each element.

    Before::

        %1 = Relu(%0:f32[8, 16, 32, 32])
        %3 = Conv(%1, %2)

    After::

        %1 = Relu(%0:f32[8, 16, 32, 32])
        %4 = RoundToTf32(%1)
        %3 = Conv(%4, %2)
    """
    if options.train is None or options.precision != "tf32" or Feature.TF32_ACTIVATIONS not in features:
        return False
    activations = {
        v for n in graph.nodes if n.op.family in _CONVOLUTIONS for v in n.operands[: _activations_of(n.op.family)]
    }
    activations = {v for v in activations.difference(graph.outputs) if _may_be_rounded(v)}
    made: dict[Value, Value] = {}
    weights: dict[Value, Value] = {}
    rewriter = Rewriter(graph, "round_activations")
    for node in rewriter:
        for v in node.operands:
            if v in activations and v not in made:
                made[v] = rewriter.builder(node.name).one(RoundToTf32(), v)
        if not made.keys().isdisjoint(node.operands):
            count = 1 if isinstance(node.op, PoolPlace) else len(node.inputs)
            rounded = (v if v is None else made.get(v, v) for v in node.inputs[:count])
            rewire(node, (*rounded, *node.inputs[count:]))
        if node.op.family == "conv" and _is_of_pixels(node) and _may_be_rounded(w := node.operands[1]):
            if w not in weights:
                weights[w] = rewriter.builder(node.name).one(RoundToTf32(), w)
            rewire(node, (node.inputs[0], weights[w], *node.inputs[2:]))
        rewriter.keep(node)
    rewriter.finish()
    return bool(made or weights)


def _may_be_rounded(v: Value) -> bool:
    return v.dtype is F32 and v.const is None and not _is_rounded(v)


def _is_of_pixels(node: Node) -> bool:
    """Whether a convolution has windows of one pixel, and sums over channels."""
    return all(as_int(d) == 1 for d in node.operands[1].shape[2:]) and as_int(node.operands[1].shape[1]) != 1


def _activations_of(family: str) -> int:
    """How many of the operands are activations; the second of a convolution are weights."""
    return FACTORS[family] if family == "conv_weights" else 1


def _is_rounded(v: Value) -> bool:
    return v.producer is not None and isinstance(v.producer.op, RoundToTf32)
