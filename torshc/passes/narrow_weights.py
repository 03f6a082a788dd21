"""Leave large quantised weights as they are."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..base.features import Feature, Features
from ..base.options import CompileOptions
from ..expr import F16, F32, I2, I4, U2, U4, DType, as_int
from ..graph import Graph, Patch, Value
from ..ops.core.tensor import Tensor
from ..ops.math.linalg import Gemm, MatMul
from ..ops.quant.integer import BYTES
from ..ops.quant.narrow import BlockMatMul, PairMatMul
from ..ops.quant.quantize import DequantizeLinear
from ..ops.tensor.view import Transpose
from .manager import graph_pass
from .walk import Site, walk

Array = np.ndarray[Any, Any]
SHORT = 8  # rows of a block below which scales are not few
FEW = 32  # rows of the other factor up to which kernels of pairs are bound by the weights' bytes
SHARE = 32  # terms that these kernels take at a time


@graph_pass("narrow_weights")
def narrow_weights(graph: Graph, options: CompileOptions, *, features: Features, above_kib: int = 256) -> bool:
    """A product of floats with dequantised constants reads them as i8 and scales them on the way.

    Weights of 2, 4 and 8 bits become i8, with their zero points taken off where the differences fit. One scale for a
    block of rows, a column or all. Gemm and a Transpose between are read through. Exact but for the order of sums. A
    target with `NARROW_WEIGHTS` takes factors of f32, one with `INT4_WEIGHTS` few rows of f16 and 4 bits.

    Args:
        above_kib: weights of fewer KiB are left to constant folding: they fit in caches as floats.

    Before::

        %1 = DequantizeLinear[axis=0, block_size=32](@2:i4[1024, 1024], @3:f32[32, 1024]) : f32[1024, 1024]
        %4 = MatMul(%0, %1) : f32[8, 1024]

    After::

        %7 = BlockMatMul[block=32](%0, @5:i8[1024, 1024], @6:f32[32, 1024]) : f32[8, 1024]
    """
    wanted = F32 if Feature.NARROW_WEIGHTS in features else F16 if Feature.INT4_WEIGHTS in features else None
    if wanted is None:
        return False
    return walk(graph, lambda site: _rule(site, wanted, above_kib << 10), "narrow_weights")


def _rule(site: Site, wanted: DType, above: int) -> Patch | None:
    node, op, b = site.node, site.node.op, site.builder
    if not isinstance(op, MatMul | Gemm) or type(op) not in (MatMul, Gemm):
        return None
    x, w = node.operands[:2]
    bias = (*node.inputs, None)[2]
    flipped = isinstance(op, Gemm) and bool(op.trans_b)
    if isinstance(op, Gemm) and (op.alpha != 1 or op.trans_a or (bias is not None and op.beta != 1)):
        return None
    if w.producer is not None and w.producer.op == Transpose((1, 0)):
        w, flipped = w.producer.operands[0], not flipped
    if x.dtype is not wanted or w.dtype is not wanted or x.type.rank < 2 or (as_int(w.type.size) or 0) < above:
        return None
    rows = math.prod(as_int(d) or FEW + 1 for d in x.shape[:-1])
    if wanted is F16 and rows > FEW:
        return None
    found = _weights(w, flipped)
    if found is None:
        return None
    weights, scale, block = found
    if wanted is F16:
        if weights.shape[0] % SHARE or block % SHARE or weights.min() < -8 or weights.max() > 7:
            return None
        arrays = _pair_nibbles(weights.T), np.ascontiguousarray(scale.T)
        out = b.one(PairMatMul(block=block), x, *(site.graph.constant(a, w.name) for a in arrays))
    else:
        out = b.one(BlockMatMul(block=block), x, site.graph.constant(weights, w.name), site.graph.constant(scale))
    return site.replace(out if bias is None else (Tensor(b, out) + Tensor(b, bias)).value)


def _weights(w: Value, flipped: bool) -> tuple[Array, Array, int] | None:
    """Weights [K, N] as i8, their scales [blocks, N] and rows of a block; None when they are not of this kind."""
    node = w.producer
    if node is None or not isinstance(node.op, DequantizeLinear) or w.type.rank != 2:
        return None
    arrays = [None if v is None else v.const for v in (*node.inputs, None)[:3]]
    given, scale, zero = arrays
    if (
        given is None
        or scale is None
        or scale.dtype not in (np.float32, np.float16)
        or node.operands[0].dtype not in (I2, U2, I4, U4, *BYTES)
    ):
        return None
    if len(node.operands) > 2 and zero is None:
        return None
    axis, size = node.op.axis % 2, node.op.block_size
    steps = [1, 1]  # elements that share a scale, along each axis
    if scale.size == 1:
        steps = [*given.shape]
        scale, zero = scale.reshape(1, 1), None if zero is None else zero.reshape(1, 1)
    elif size:
        steps[axis] = size
    else:
        steps[1 - axis] = given.shape[1 - axis]
        scale, zero = (None if v is None else np.expand_dims(v, 1 - axis) for v in (scale, zero))
    assert scale is not None
    weights = given.astype(np.int16)
    if zero is not None and zero.astype(np.int16).any():
        weights -= _spread(zero.astype(np.int16), steps, given.shape)
    if weights.min() < -128 or weights.max() > 127:
        return None
    if flipped:
        weights, scale, steps = weights.T, scale.T, steps[::-1]
    if steps[0] < SHORT:
        return None
    scale = _spread(scale, [1, steps[1]], (scale.shape[0], weights.shape[1]))
    return np.ascontiguousarray(weights.astype(np.int8)), np.ascontiguousarray(scale), steps[0]


def _pair_nibbles(numbers: Array) -> Array:
    """Numbers of 4 bits as bytes of two, the first below, each with 8 added."""
    shifted = (numbers + 8).astype(np.uint8)
    return shifted[:, ::2] | shifted[:, 1::2] << 4


def _spread(values: Array, steps: list[int], shape: tuple[int, ...]) -> Array:
    """One value for each element, of one for each block."""
    for axis, step in enumerate(steps):
        values = np.repeat(values, step, axis) if step > 1 else values
    return values[: shape[0], : shape[1]]
