"""Multiply images that are stored in planes by the weights of a convolution of 1x1."""

from __future__ import annotations

from math import prod

from ..base.options import CompileOptions
from ..expr import as_int, const
from ..graph import Graph, Patch, Value
from ..ops import REGISTRY
from ..ops.core.pointwise import Pointwise
from ..ops.math.linalg import MatMul
from ..ops.nn.conv import FEW_CHANNELS, is_by_pixel
from ..ops.tensor.view import Reshape
from .manager import graph_pass
from .walk import Site, walk

_PIXELS = 128  # of an image, fewer of which leave much of a product's last columns empty


@graph_pass("multiply_planes")
def multiply_planes(graph: Graph, options: CompileOptions) -> bool:
    """A convolution of 1x1 of the model's input, whose result is an output, multiplies its weights by planes of pixels.

    Other convolutions have the channels innermost, for which these would be transposed before and behind. Error class:
    rounding, as long sums are cut elsewhere.

    Before::

        %2 = Conv(%0:f32[1, 64, 56, 56], @1:f32[128, 64, 1, 1]) : f32[1, 128, 56, 56]
        out %2

    After::

        %4 = Reshape(%0) : f32[1, 64, 3136]
        %5 = MatMul(@3:f32[128, 64], %4) : f32[1, 128, 3136]
        %2 = Reshape(%5) : f32[1, 128, 56, 56]
        out %2
    """
    users, outputs = graph.users(), set(graph.outputs)

    def leaves(v: Value) -> bool:
        """Whether only the model's outputs and what is made for them element by element read a value."""
        readers = users.get(v, [])
        return bool(readers or v in outputs) and all(isinstance(r.op, Pointwise) and leaves(r.output) for r in readers)

    def multiplied(site: Site) -> Patch | None:
        node, b = site.node, site.builder
        if not is_by_pixel(node) or node.operands[0] not in graph.inputs or not leaves(node.output):
            return None
        x, w, *bias = node.operands
        assert w.const is not None
        images, count, channels = x.shape[0], const(w.const.shape[0]), x.shape[1]
        pixels = prod(as_int(d) or 0 for d in x.shape[2:])
        if pixels < _PIXELS or (as_int(channels) or 0) <= FEW_CHANNELS:
            return None
        weights = graph.constant(w.const.reshape(w.const.shape[:2]))
        y = b.one(MatMul(), weights, b.one(Reshape((images, channels, const(pixels))), x))
        if bias:
            y = b.one(REGISTRY["", "Add"](), y, b.one(Reshape((count, const(1))), bias[0]))
        return site.replace(b.one(Reshape(node.output.shape), y))

    return walk(graph, multiplied, "multiply_planes")
