"""Compute products of dequantised operands in integers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base.features import Feature, Features
from ..base.options import CompileOptions
from ..expr import F32, I8, I32, U8, as_int
from ..graph import Builder, Graph, Node, Patch, Value
from ..ops.core.tensor import Tensor, apply_op
from ..ops.math.linalg import Gemm, MatMul
from ..ops.math.pointwise import Cast
from ..ops.nn.conv import Conv, ConvTranspose, Window
from ..ops.nn.pool import MaxPool
from ..ops.quant.integer import BYTES, IntegerConvTranspose, integer_conv, integer_matmul, parameter
from ..ops.quant.quantize import DequantizeLinear, QuantizeLinear
from ..ops.tensor.view import Reshape, Transpose
from .manager import graph_pass
from .walk import Site, walk

Array = np.ndarray[Any, Any]
_TERM = 255 * 255  # the largest product of two bytes less their zero points
_LIMIT = 1 << 31
_SAME = 2.0**-22  # relative difference of scales that rounding explains


@graph_pass("integer_products")
def integer_products(graph: Graph, options: CompileOptions, *, features: Features) -> bool:
    """Conv, ConvTranspose, MatMul and Gemm of dequantised bytes multiply the bytes, and scale the sums of i32 once.

    Where the result is quantised again, perhaps behind a Relu, both scales become one factor; other results are
    quantised by a factor in place of a divisor. What moves or chooses
    elements between a DequantizeLinear and a QuantizeLinear of the same scale does so with bytes. The sums are exact,
    so a result is nearer to the definition over real numbers than one of floats; error class: rounding, which in a
    quantised result is at most 1, where the real number lies half-way between two. Weights must be constants, and
    scales those of a tensor, or for weights of output channels. Zero points of 0 cost nothing, and a ConvTranspose
    must have no others.

    A target without `BYTE_PRODUCTS` keeps floats.

    Before::

        %1 = DequantizeLinear(%0, 0.5, 3) : f32[4, 16]
        %4 = DequantizeLinear(@3:i8[16, 9], 0.25) : f32[16, 9]
        %5 = MatMul(%1, %4) : f32[4, 9]
        %6 = QuantizeLinear(%5, 2.0, 7) : u8[4, 9]

    After::

        %7 = IntegerMatMul(%0, @3:i8[16, 9]) : i32[4, 9]
        %9 = Mul(3, @8:i32[1, 9]) : i32[1, 9]
        %10 = Sub(%7, %9) : i32[4, 9]
        %11 = Cast(%10) : f32[4, 9]
        %12 = Mul(%11, 0.0625) : f32[4, 9]
        %13 = QuantizeLinear(%12, 1.0, 7) : u8[4, 9]
    """
    if Feature.BYTE_PRODUCTS not in features:
        return False
    changed = walk(graph, _product, "integer_products")
    return walk(graph, _requantise, "integer_products") or changed


@dataclass(frozen=True)
class _Bytes:
    """A dequantised operand: its bytes, their zero point or None, their scale, and the axis of a scale for channels."""

    value: Value
    zero: Value | None
    scale: Value
    axis: int | None

    @classmethod
    def of(cls, v: Value | None) -> _Bytes | None:
        node = v.producer if v is not None else None
        if node is None or not isinstance(node.op, DequantizeLinear) or node.op.block_size or node.op.to is not F32:
            return None
        (x, scale, zero), rank = (*node.inputs, None)[:3], node.output.type.rank
        if x is None or scale is None or scale.dtype is not F32:
            return None
        whole = as_int(scale.type.size) == 1
        return cls(x, zero, scale, None if whole else node.op.axis % rank)


def _product(site: Site) -> Patch | None:
    node = site.node
    if type(node.op) not in (Conv, ConvTranspose, MatMul, Gemm):
        return None
    x, w = _Bytes.of(node.inputs[0]), _Bytes.of(node.inputs[1])
    if x is None or w is None or x.value.dtype not in BYTES or w.value.dtype not in BYTES:
        return None
    if x.axis is not None or w.value.const is None or w.value.const.size == 0:
        return None
    if isinstance(node.op, Conv):
        return _convolution(site, node.op, x, w)
    if isinstance(node.op, ConvTranspose):
        return _rewrite_transposed(site, node.op, x, w)
    return _matrices(site, x, w)


def _convolution(site: Site, op: Conv, x: _Bytes, w: _Bytes) -> Patch | None:
    b, weights = site.builder, w.value
    assert weights.const is not None
    if op.out or w.axis not in (None, 0) or not _fits(weights.const[0].size):
        return None
    tail = weights.type.rank - 2
    slid = Window(op.strides, op.pads, op.dilations)
    zeros = _parameter(b, x.zero, 0), _parameter(b, w.zero, tail + 1)
    total = integer_conv(Tensor(b, x.value), zeros[0], Tensor(b, weights), zeros[1], slid, op.group, floats=False)
    return site.replace(_scale_total(site, total, x.scale, w.scale, (*site.node.inputs, None)[2], tail))


def _rewrite_transposed(site: Site, op: ConvTranspose, x: _Bytes, w: _Bytes) -> Patch | None:
    """One of zero points of 0: of others a sum would depend on which taps reach an element."""
    b, weights = site.builder, w.value
    assert weights.const is not None
    if op.out or op.group != 1 or w.axis not in (None, 1) or (x.value.dtype, weights.dtype) != (U8, I8):
        return None
    if any(v.zero is not None and (v.zero.const is None or v.zero.const.any()) for v in (x, w)):
        return None
    if not _fits(weights.const[:, 0].size):
        return None
    slid = IntegerConvTranspose(op.strides, op.pads, op.dilations, 1, op.output_padding)
    total = apply_op(slid, Tensor(b, x.value), Tensor(b, weights))
    bias, tail = (*site.node.inputs, None)[2], weights.type.rank - 2
    return site.replace(_scale_total(site, total, x.scale, w.scale, bias, tail))


def _matrices(site: Site, x: _Bytes, w: _Bytes) -> Patch | None:
    b, op, weights = site.builder, site.node.op, w.value
    left, columns = x.value, weights.type.rank - 1
    assert weights.const is not None
    if isinstance(op, Gemm):
        bias = (*site.node.inputs, None)[2]
        if op.alpha != 1 or (bias is not None and op.beta != 1):
            return None
        if op.trans_a:
            left = b.one(Transpose((1, 0)), left)
        if op.trans_b:
            weights, columns = site.graph.constant(np.ascontiguousarray(weights.const.T), weights.name), 0
    else:
        bias = None
    if min(left.type.rank, weights.type.rank) < 2 or w.axis not in (None, columns):
        return None
    if weights.const is None or not _fits(weights.const.shape[-2]) or (w.axis is not None and weights.type.rank > 2):
        return None
    x_zero, w_zero = (_parameter(b, v.zero, 0) for v in (x, w))
    total = integer_matmul(Tensor(b, left), x_zero, Tensor(b, weights), w_zero)
    return site.replace(_scale_total(site, total, x.scale, w.scale, bias, 0))


def _parameter(b: Builder, zero: Value | None, tail: int) -> Tensor | None:
    return None if zero is None else parameter(Tensor(b, zero), tail)


def _fits(terms: int) -> bool:
    """Whether sums of this number of products stay in i32 with a bias of half its range."""
    return terms * _TERM < _LIMIT // 2


def _scale_total(site: Site, total: Tensor, x_scale: Value, w_scale: Value, bias: Value | None, tail: int) -> Value:
    """total * (x_scale * w_scale) + bias; a bias of integers in these units joins the sum.

    Args:
        tail: dimensions behind that of channels.
    """
    b, known = site.builder, _Bytes.of(bias)
    whole = known is not None and _in_units(known, x_scale, w_scale)
    if whole and known is not None:
        total = total + _channels(Tensor(b, known.value), tail)
    left, right = parameter(Tensor(b, x_scale), 0), parameter(Tensor(b, w_scale), tail)
    if left.const is not None and right.const is not None:
        factor = left.constant(np.asarray(left.const * right.const))
    else:
        factor = left * right
    out = total.cast(F32) * factor
    return (out if bias is None or whole else out + _channels(Tensor(b, bias), tail)).value


def _channels(bias: Tensor, tail: int) -> Tensor:
    """A bias, its channels standing where those of the result do."""
    return parameter(bias, tail) if bias.rank == 1 else bias


def _in_units(bias: _Bytes, x_scale: Value, w_scale: Value) -> bool:
    """Whether a bias is of integers in units of both scales, few enough for the sum."""
    q, scale = bias.value.const, bias.scale.const
    if bias.value.dtype is not I32 or q is None or scale is None or x_scale.const is None or w_scale.const is None:
        return False
    if bias.zero is not None and (bias.zero.const is None or bias.zero.const.any()):
        return False
    units = x_scale.const.reshape(()) * w_scale.const
    if units.size != scale.size and 1 not in (units.size, scale.size):
        return False
    same = np.all(np.abs(scale.reshape(-1) - units.reshape(-1)) <= _SAME * np.abs(units.reshape(-1)))
    return bool(same and np.all(np.abs(q.astype(np.int64)) < _LIMIT // 2))


def _requantise(site: Site) -> Patch | None:
    """A QuantizeLinear behind a scaled sum of integers, or behind moves of bytes."""
    node = site.node
    if not isinstance(node.op, QuantizeLinear) or node.op.block_size or node.op.to not in BYTES:
        return None
    x, scale, zero = (*node.inputs, None)[:3]
    if x is None or scale is None or scale.const is None or scale.const.size != 1 or scale.dtype is not F32:
        return None
    if not 1e-30 < float(scale.const.reshape(())) < 1e30 or node.op.division is not F32:
        return None
    moved = _move_bytes(site, x, scale, zero)
    if moved is not None:
        return site.replace(moved)
    out = _scaled_sum(site, x, scale.const) or _by_factor(site, x, scale.const)
    if out is None:
        return None
    one = site.builder.constant(np.ones(scale.const.shape, np.float32))
    return site.replace(site.builder.add(node.op, [out, one, *([zero] if zero is not None else [])])[0])


def _scaled_sum(site: Site, x: Value, scale: Array) -> Value | None:
    """A sum of integers that is scaled once, perhaps before a Relu, over a scale; None where it is no such sum."""
    relu = x.producer if x.producer is not None and x.producer.op.name == "Relu" and site.alone(x) else None
    inner = relu.operands[0] if relu is not None else x
    product = inner.producer
    if product is None or product.op.name != "Mul" or not site.alone(inner):
        return None
    total, factor = product.operands
    if factor.const is None or total.producer is None or not isinstance(total.producer.op, Cast):
        return None
    if total.producer.operands[0].dtype is not I32:
        return None
    joint = (factor.const.astype(np.float64) / float(scale.reshape(()))).astype(np.float32)
    out = (Tensor(site.builder, total) * Tensor(site.builder, site.graph.constant(np.asarray(joint)))).value
    return out if relu is None else site.builder.one(relu.op, out)


def _by_factor(site: Site, x: Value, scale: Array) -> Value | None:
    """What is computed of something over a scale, as a product: a division takes as long as all else of an element.

    Bytes of another scale stay as they are: where one scale is twice the other, half of the quotients lie between two
    integers.
    """
    source = x
    while source.producer is not None and _moves(source.producer):
        source = source.producer.operands[0]
    if source.producer is None or isinstance(source.producer.op, DequantizeLinear) or float(scale.reshape(())) == 1:
        return None
    factor = site.graph.constant(np.asarray(1 / float(scale.reshape(())), np.float32))
    return (Tensor(site.builder, x) * Tensor(site.builder, factor)).value


def _move_bytes(site: Site, x: Value, scale: Value, zero: Value | None) -> Value | None:
    """The bytes behind a chain of moves, moved; None when they were scaled otherwise."""
    chain: list[Node] = []
    while x.producer is not None and _moves(x.producer):
        chain.append(x.producer)
        x = x.producer.operands[0]
    found = _Bytes.of(x)
    if found is None or found.axis is not None or found.value.dtype is not site.node.output.dtype:
        return None
    if found.scale.const is None or scale.const is None or not _equal(found.scale.const, scale.const):
        return None
    zeros = [v.const if v is not None else np.zeros(1) for v in (found.zero, zero)]
    if zeros[0] is None or zeros[1] is None or not _equal(zeros[0], zeros[1]):
        return None
    out = found.value
    for node in reversed(chain):
        out = site.builder.one(node.op, out, *node.inputs[1:])
    return out


def _moves(node: Node) -> bool:
    """Whether each element of the one result is one of the operand's, the same one for an order-preserving map."""
    return isinstance(node.op, Reshape | Transpose) or (isinstance(node.op, MaxPool) and len(node.outputs) == 1)


def _equal(a: Array, b: Array) -> bool:
    return math.isclose(float(a.reshape(-1)[0]), float(b.reshape(-1)[0]), rel_tol=0.0)
