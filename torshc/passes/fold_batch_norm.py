"""Fold scales and shifts of channels into the weights and the bias of what comes before them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..base.options import CompileOptions
from ..graph import Graph, Node, Patch
from ..ops import REGISTRY
from .manager import graph_pass
from .walk import Site, walk

Array = np.ndarray[Any, Any]
_AFFINE = ("Mul", "Add", "Div")


@graph_pass("fold_batch_norm")
def fold_batch_norm(graph: Graph, options: CompileOptions) -> bool:
    """Fold what a batch normalisation has become (a product and a sum with constants, one number a channel).

    A convolution takes both into its weights and bias, a matrix product takes the product, and chains of products and
    sums become one of each. Error class: rounding, as w * c is rounded before it is summed and not after.

    Before::

        %1 = Conv(%0, @2:f32[8, 3, 1, 1])
        %3 = Mul(%1, @4:f32[8, 1, 1])
        %5 = Add(%3, @6:f32[8, 1, 1])

    After::

        %5 = Conv(%0, @7:f32[8, 3, 1, 1], @8:f32[8])
    """
    return walk(graph, _rule, "fold_batch_norm")


def _rule(site: Site) -> Patch | None:
    node = site.node
    if node.op.name not in _AFFINE or len(node.operands) != 2:
        return None
    x, c = node.operands
    maker = x.producer
    if maker is None or c.const is None or not site.alone(x) or x.type != node.output.type or not x.dtype.is_float:
        return None
    if c.const.size == 0 or not np.all(np.isfinite(c.const)) or (node.op.name == "Div" and not np.all(c.const)):
        return None
    if maker.op.family in ("conv", "conv_transpose"):
        return _into_convolution(site, maker, c.const)
    if maker.op.name == "MatMul":
        return _into_product(site, maker, c.const)
    return _into_chain(site, maker, c.const)


def _per_channel(c: Array, rank: int, channels: int, axis: int) -> Array | None:
    """The constant as a number for each channel, or None when it varies along another dimension."""
    if c.ndim > rank:
        return None
    shape = (1,) * (rank - c.ndim) + c.shape
    if any(d != 1 for k, d in enumerate(shape) if k != axis) or shape[axis] not in (1, channels):
        return None
    return np.broadcast_to(c.reshape(shape[axis]), (channels,))


def _into_convolution(site: Site, conv: Node, c: Array) -> Patch | None:
    x, w, bias = (*conv.inputs, None)[:3]
    if x is None or w is None or w.const is None or (bias is not None and bias.const is None):
        return None
    group = getattr(conv.op, "group", 1)
    channels = conv.output.type.static_shape or (0,) * 2
    count = w.const.shape[0] if conv.op.family == "conv" else w.const.shape[1] * group
    vector = _per_channel(c, conv.output.type.rank, count, 1)
    if vector is None or (conv.output.type.static_shape is not None and channels[1] != count):
        return None
    shift = bias.const if bias is not None else None
    weights = w
    if site.node.op.name == "Add":
        shift = vector.astype(w.const.dtype) if shift is None else _combine(np.add, shift, vector)
    else:
        function = np.multiply if site.node.op.name == "Mul" else np.divide
        weights = site.graph.constant(
            _scale_channels(function, w.const, vector, group, conv.op.family == "conv"), w.name
        )
        shift = None if shift is None else _combine(function, shift, vector)
    operands = (x, weights) if shift is None else (x, weights, site.graph.constant(np.ascontiguousarray(shift)))
    return site.replace(site.builder.add(conv.op, operands, conv.name)[0])


def _scale_channels(function: Any, w: Array, vector: Array, group: int, forward: bool) -> Array:
    """Weights with a factor for each output channel: dimension 0, or group and dimension 1 when transposed."""
    if forward:
        out: Array = function(w, vector.reshape(-1, *(1,) * (w.ndim - 1)).astype(w.dtype))
        return out
    grouped = w.reshape(group, w.shape[0] // group, *w.shape[1:])
    factors = vector.reshape(group, 1, w.shape[1], *(1,) * (w.ndim - 2)).astype(w.dtype)
    scaled: Array = function(grouped, factors).reshape(w.shape)
    return scaled


def _combine(function: Any, a: Array, b: Array) -> Array:
    """Of vectors, in double precision."""
    out: Array = function(a.astype(np.float64), b.astype(np.float64)).astype(a.dtype)
    return out


def _into_product(site: Site, product: Node, c: Array) -> Patch | None:
    a, w = product.operands
    if site.node.op.name != "Mul" or w.const is None or w.const.ndim != 2 or a.type.rank < 2:
        return None
    vector = _per_channel(c, product.output.type.rank, w.const.shape[1], product.output.type.rank - 1)
    if vector is None:
        return None
    weights = site.graph.constant(w.const * vector.astype(w.const.dtype), w.name)
    return site.replace(site.builder.add(product.op, (a, weights), product.name)[0])


def _into_chain(site: Site, before: Node, c: Array) -> Patch | None:
    """Mul(Mul(x, a), c), Add(Add(x, a), c), and Mul(Add(Mul(x, a), b), c) as Add(Mul(x, a * c), b * c)."""
    kind = site.node.op.name
    if before.op.name not in _AFFINE or kind == "Div" or len(before.operands) != 2:
        return None
    x, a = before.operands
    if a.const is None or x.type != before.output.type or a.const.ndim > x.type.rank or max(a.const.size, c.size) < 2:
        return None
    if a.const.size == 0 or a.const.size * c.size > max(a.const.size, c.size) ** 2 or not np.all(np.isfinite(a.const)):
        return None
    b = site.builder
    if before.op.name == kind:
        merged = _combine(np.multiply if kind == "Mul" else np.add, a.const, c)
        return site.replace(b.one(site.node.op, x, site.graph.constant(merged)))
    inner = x.producer
    foldable = inner is not None and (inner.op.name == "Mul" or inner.op.family in ("conv", "gemm", "conv_transpose"))
    if kind != "Mul" or before.op.name != "Add" or not foldable or not site.alone(x):
        return None
    scaled = b.one(site.node.op, x, site.graph.constant(c))
    return site.replace(b.one(REGISTRY["", "Add"](), scaled, site.graph.constant(_combine(np.multiply, a.const, c))))
