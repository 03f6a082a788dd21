"""Convolve pixel by pixel before a Resize makes many pixels of few."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from itertools import accumulate
from math import prod
from typing import Any

import numpy as np

from ..base.options import CompileOptions
from ..expr import F32, as_int, const
from ..graph import Graph, Node, Patch, Value
from ..ops import REGISTRY
from ..ops.image.resize import Resize
from ..ops.image.taps import ResizeAxis
from ..ops.nn.conv import Conv
from ..ops.tensor.view import Concat
from .manager import graph_pass
from .walk import Site, walk

Array = np.ndarray[Any, Any]


@graph_pass("sink_resize")
def sink_resize(graph: Graph, options: CompileOptions) -> bool:
    """A Resize that makes more pixels follows a convolution of 1x1 with constant weights that makes no more channels.

    A pixel that it makes is a sum of pixels with the same factors for all channels, and a convolution of 1x1 is a sum
    of channels, so either may come first; and channels of a concatenation are terms of that sum. So heads that join
    feature maps of several sizes compute at these sizes. Error class: rounding, as sums have another order.

    Before::

        %1 = Resize[mode='linear'](%0:f32[1, 8, 4, 4]) : f32[1, 8, 16, 16]
        %3 = Concat[axis=1](%1, %2:f32[1, 4, 16, 16])
        %5 = Conv(%3, @4:f32[6, 12, 1, 1])

    After::

        %7 = Conv(%2, @6:f32[6, 4, 1, 1])
        %9 = Conv(%0, @8:f32[6, 8, 1, 1])
        %10 = Resize[mode='linear'](%9) : f32[1, 6, 16, 16]
        %5 = Add(%7, %10)
    """
    return walk(graph, _sink, "sink_resize")


def _sink(site: Site) -> Patch | None:
    node, b, add = site.node, site.builder, REGISTRY["", "Add"]()
    if not _is_by_pixel(node):
        return None
    x, w, *bias = node.operands
    assert w.const is not None
    parts, count = _joined(site, x), w.const.shape[0]
    sizes = [as_int(p.shape[1]) or 0 for p in parts]
    if sum(sizes) != w.const.shape[1]:
        return None
    factors = np.split(w.const, list(accumulate(sizes))[:-1], axis=1)
    resizes = [_growth(site, part, count) for part in parts]
    kept = [(v, f) for v, f, resize in zip(parts, factors, resizes, strict=True) if resize is None]
    if len(kept) == len(parts):
        return None

    def convolve(source: Value, factor: Array) -> Value:
        out = b.one(node.op, source, site.graph.constant(np.ascontiguousarray(factor)), *bias)
        bias.clear()  # is in the first term; the factors of a pixel are 1 in all
        return out

    terms = []
    if kept:
        whole = b.one(Concat(1), *(v for v, _ in kept)) if len(kept) > 1 else kept[0][0]
        terms.append(convolve(whole, np.concatenate([f for _, f in kept], axis=1)))
    for resize, factor in zip(resizes, factors, strict=True):
        if resize is not None and isinstance(resize.op, Resize):
            axes = (resize.op.axes[0], ResizeAxis(const(count), const(1), const(1)), *resize.op.axes[2:])
            terms.append(b.one(replace(resize.op, axes=axes), convolve(resize.operands[0], factor)))
    first, *others = terms
    return site.replace(b.one(add, first, reduce(lambda s, t: b.one(add, s, t), others)) if others else first)


def _is_by_pixel(node: Node) -> bool:
    """Whether a node is a convolution of 1x1 of floats, with constant weights."""
    op = node.op
    if not isinstance(op, Conv) or op.group != 1 or op.out or op.windows:
        return False
    w, rank = node.operands[1], node.output.type.rank
    if w.const is None or any(v.dtype is not F32 for v in node.operands):
        return False
    return {*w.const.shape[2:], *op.strides} == {1} and all(as_int(p) == 0 for p in op.pads) and rank > 2


def _joined(site: Site, x: Value) -> list[Value]:
    """The values whose channels are those of another, beside each other."""
    maker = x.producer
    joins = maker is not None and isinstance(maker.op, Concat) and maker.op.axis % x.type.rank == 1
    return [*maker.operands] if maker is not None and joins and site.alone(x) else [x]


def _growth(site: Site, x: Value, channels: int) -> Node | None:
    """The Resize that makes a value, where it makes more pixels, of as many channels as these or more."""
    maker = x.producer
    if maker is None or not isinstance(maker.op, Resize) or maker.op.crops or not site.alone(x):
        return None
    if not all(a.plain for a in maker.op.axes[:2]) or (as_int(x.shape[1]) or 0) < channels:
        return None
    before, after = (prod(as_int(d) or 0 for d in v.shape[2:]) for v in (maker.operands[0], x))
    return maker if 0 < before < after else None
