"""Give pictures, by whose convolutions a step learns, whole packets of channels."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace

from ..base.features import Feature, Features
from ..base.options import HALVES, CompileOptions
from ..expr import as_int, const
from ..graph import Graph, Node, Patch, Value
from ..ops.core.tensor import Tensor, apply_named, apply_op
from ..ops.nn.conv import Conv, ConvWeights
from .manager import graph_pass
from .walk import Site, walk

_PACKET = 16  # bytes


@graph_pass("pad_channels")
def pad_channels(graph: Graph, options: CompileOptions, *, features: Features) -> bool:
    """Pictures of few channels that convolutions learn from get channels of zeros, for targets with `CHANNEL_PACKETS`.

    Their kernels read packets of channels, and of three channels element by element: then the first convolution of a
    network takes longer than many that do more.

    Before::

        %2 = Conv(%0:f32[8, 3, 32, 32], %1:f32[16, 3, 3, 3])
        %4 = ConvWeights[shape=(16, 3, 3, 3)](%0, %3)

    After::

        %5 = Pad[after=(0, 1, 0, 0)](%0)
        %6 = Pad[after=(0, 1, 0, 0)](%1)
        %2 = Conv(%5, %6)
        %7 = ConvWeights[shape=(16, 4, 3, 3)](%5, %3)
        %4 = Slice[sizes=(16, 3, 3, 3)](%7)
    """
    if Feature.CHANNEL_PACKETS not in features:
        return False
    whole = _PACKET // (2 if options.precision in HALVES else 4)
    pictures = {n.operands[0] for n in graph.nodes if isinstance(n.op, ConvWeights) and _is_narrow(n, whole)}
    return walk(graph, lambda site: _rule(site, pictures, whole), "pad_channels")


def _is_narrow(node: Node, whole: int) -> bool:
    """Whether a node multiplies pixels of less than a packet of channels."""
    channels = as_int(node.operands[0].shape[1])
    return node.op.attributes()["group"] == 1 and channels is not None and 1 < channels < whole


def _rule(site: Site, pictures: Container[Value], whole: int) -> Patch | None:
    node, op, b = site.node, site.node.op, site.builder
    if not isinstance(op, Conv | ConvWeights) or node.operands[0] not in pictures or not _is_narrow(node, whole):
        return None
    x, other, *bias = (Tensor(b, v) for v in node.operands)
    wide = _padded(x, whole)
    if isinstance(op, Conv):
        return site.replace(apply_op(op, wide, _padded(other, whole), *bias).value)
    made = apply_op(replace(op, shape=(op.shape[0], const(whole), *op.shape[2:])), wide, other)
    return site.replace(made.slice((const(0),) * made.rank, op.shape).value)


def _padded(x: Tensor, whole: int) -> Tensor:
    """With as many channels."""
    none = (const(0),) * x.rank
    return apply_named("Pad", x, before=none, after=(none[0], whole - x.shape[1], *none[2:]))
