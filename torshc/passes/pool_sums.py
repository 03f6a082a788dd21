"""Take the largest sums of convolutions in their kernels, where a pool takes the largest results."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..base.features import Feature, Features
from ..base.options import CompileOptions
from ..expr import BF16, F32, as_int
from ..graph import Graph, Node, Patch
from ..ops.math.pointwise import Cast
from ..ops.nn.conv import Conv
from ..ops.nn.pool import MaxPool
from .manager import graph_pass
from .walk import Site, walk

DEPTH = 32  # terms of a step of tiles
ROWS = (16, 14, 12)  # of tiles that can be pooled
COPY_BYTES = 512 * 1024  # of the rows of an image that two rows of sums read


@graph_pass("pool_sums")
def pool_sums(graph: Graph, options: CompileOptions, *, features: Features) -> bool:
    """With `BF16_TILES`, a convolution of bf16 that only a 2x2 pool reads has the largest of four sums as a result.

    Adding a bias, Relu and rounding keep the order of numbers, so they come after, to the same bits, and what the pool
    drops is never stored.

    Before::

        %2 = Conv[pads=(1, 1, 1, 1), out='f32'](%0, @1:bf16[9, 32, 3, 3]) : f32[1, 9, 14, 14]
        %3 = Relu(%2)
        %4 = MaxPool[kernel=(2, 2), strides=(2, 2)](%3) : f32[1, 9, 7, 7]

    After::

        %5 = Conv[pads=(1, 1, 1, 1), out='f32', windows=(2, 2)](%0, @1:bf16[9, 32, 3, 3]) : f32[1, 9, 7, 7]
        %6 = Relu(%5)
    """
    return Feature.BF16_TILES in features and walk(graph, _pool, "pool_sums")


def _pool(site: Site) -> Patch | None:
    pool = site.node.op
    if not isinstance(pool, MaxPool) or pool.kernel != (2, 2) or pool.strides != (2, 2) or {*pool.dilations} != {1}:
        return None
    if any(as_int(p) != 0 for p in pool.pads):
        return None
    value, after = site.node.operands[0], list[Node]()
    while site.alone(value) and value.producer is not None and _keeps_order(value.producer):
        after.append(value.producer)
        value = value.producer.operands[0]
    conv = value.producer
    if conv is None or not site.alone(value) or not _is_pooled_by_tiles(conv):
        return None
    assert isinstance(conv.op, Conv)
    made = site.builder.one(replace(conv.op, windows=pool.kernel), *conv.inputs)
    for node in reversed(after):
        made = site.builder.one(node.op, made)
    return site.replace(made)


def _keeps_order(node: Node) -> bool:
    """Whether of two numbers the larger one becomes no smaller than the other, and NaN stays NaN."""
    if isinstance(node.op, Cast):
        return node.operands[0].dtype is F32 and node.output.dtype is BF16
    return node.op.name == "Relu"


def _is_pooled_by_tiles(node: Node) -> bool:
    """Whether pairs of tiles, of a row of the result and the row below it, fill all of it, over copies of images."""
    op = node.op
    if type(op) is not Conv or op.windows or op.out != F32.name or op.group != 1:
        return False
    x, w, *bias = node.operands
    if x.dtype is not BF16:
        return False
    if w.const is None or w.const.ndim != 4 or {*op.strides, *op.dilations} != {1}:
        return False
    if bias and (bias[0].const is None or not np.isfinite(bias[0].const.astype(F32.numpy)).all()):
        return False
    _, depth, high, wide = w.const.shape
    rows, columns = (as_int(d) for d in node.output.shape[2:])
    if depth % DEPTH or (high, wide) == (1, 1) or not rows or not columns or rows % 2 or all(columns % n for n in ROWS):
        return False
    return bool((high + 1) * (columns + wide) * (depth + DEPTH) * BF16.size <= COPY_BYTES)
