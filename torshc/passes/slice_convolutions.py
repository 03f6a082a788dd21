"""Compute by itself the pixel of a convolution that sums over all its pixels are of differences from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..base.features import Feature, Features
from ..base.options import CompileOptions
from ..expr import F32, as_int, const
from ..graph import Graph, Node, Patch, Value
from ..ops.core.tensor import Tensor, apply_op
from ..ops.tensor.parts import Slice
from .manager import graph_pass
from .walk import Site, walk

LARGE = 1 << 22  # bytes of a result from which on no cache of a core holds it


@graph_pass("slice_convolutions")
def slice_convolutions(graph: Graph, options: CompileOptions, *, features: Features) -> bool:
    """The first pixel of a convolution's result is a sum over its window.

    Statistics of a batch normalisation are sums of differences from the first pixel, which the convolution's kernel can
    add up where the pixel is known before, for targets with `TOTALS`. Error class: rounding, as the sum over the window
    has another order.

    Before::

        %2 = Conv(%0:f32[16, 32, 8, 8], %1:f32[48, 32, 1, 1])
        %3 = Slice[starts=(0, 0, 0, 0), sizes=(1, 48, 1, 1)](%2)

    After::

        %2 = Conv(%0:f32[16, 32, 8, 8], %1:f32[48, 32, 1, 1])
        %4 = Slice[starts=(0, 0, 0, 0), sizes=(1, 32, 1, 1)](%0)
        %5 = Mul(%1, %4)
        %6 = ReduceSum[axes=(1, 2, 3)](%5)
        %3 = Reshape[shape=(1, 48, 1, 1)](%6)
    """
    if Feature.TOTALS not in features:
        return False
    users = graph.users()
    return walk(graph, lambda site: _slice(site, users), "slice_convolutions")


def _slice(site: Site, users: Mapping[Value, Sequence[Node]]) -> Patch | None:
    """The window of a first pixel: the taps that do not lie in the margin by the elements that they read."""
    op = site.node.op
    if not isinstance(op, Slice) or not _is_first(op, y := site.node.operands[0]) or (maker := y.producer) is None:
        return None
    if not _is_plain(maker) or not any(y in n.operands for n in users.get(site.node.output, ())):
        return None
    (x, w), conv = maker.operands, maker.op.attributes()
    size, taps = x.type.static_shape or (), w.type.static_shape or ()
    left, steps = [as_int(p) or 0 for p in conv["pads"][:2]], conv["dilations"]
    first = [-(-p // d) for p, d in zip(left, steps, strict=True)]
    at = [f * d - p for f, d, p in zip(first, steps, left, strict=True)]
    count = [min(k - f, -(-(s - a) // d)) for k, f, s, a, d in zip(taps[2:], first, size[2:], at, steps, strict=True)]
    if min(count) < 1:
        return None
    weights = _box(Tensor(site.builder, w), (0, 0, *first), (*taps[:2], *count), (1, 1))
    window = _box(Tensor(site.builder, x), (0, 0, *at), (1, size[1], *count), steps)
    if conv["group"] > 1:
        window = window.transpose(1, 0, 2, 3)
    return site.replace((weights * window).sum((1, 2, 3)).reshape(*op.sizes).value)


def _is_first(op: Slice, y: Value) -> bool:
    """Whether a slice is of the first pixel of the first image."""
    sizes = [as_int(e) for e in op.sizes]
    return all(as_int(e) == 0 for e in op.starts) and len(sizes) == 4 and sizes == [1, as_int(y.shape[1]), 1, 1]


def _is_plain(node: Node) -> bool:
    """Whether a node is a convolution whose result is large, of one group or of one for each channel."""
    if node.op.name != "Conv" or len(node.operands) != 2 or node.op.attributes()["windows"]:
        return False
    (x, w), groups = node.operands, node.op.attributes()["group"]
    if any(v.dtype is not F32 or v.type.static_shape is None for v in (x, w, node.output)):
        return False
    if not all(as_int(p) is not None for p in node.op.attributes()["pads"]):
        return False
    large = (as_int(node.output.type.nbytes) or 0) >= LARGE
    return large and (groups == 1 or [as_int(v.shape[1]) for v in (x, node.output)] == [groups, groups])


def _box(x: Tensor, starts: Sequence[int], sizes: Sequence[int], steps: Sequence[int]) -> Tensor:
    """A part of a tensor of two more dimensions than there are steps."""
    places, extents = tuple(map(const, starts)), tuple(map(const, sizes))
    return apply_op(Slice(places, extents, (1, 1, *steps)), x)
