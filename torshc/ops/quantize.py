"""Quantised tensors: integers that stand for scale * (integer - zero point).

Decided here where ONNX leaves it open: a scale or zero point of one element belongs to the whole tensor whatever its
rank; NaN becomes the zero point's type's 0; sums of products are taken in i32 and wrap.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..errors import ModelError
from ..expr import F32, F64, I8, I16, I32, U8, U16, DType, as_int, const, from_onnx
from ..graph import Builder, TensorType, Value
from .base import Constraints, Inputs, Op, axis_of, need, operator, same_dim
from .compose import apply
from .conv import Conv, Window, kernel_of, slide, window
from .linalg import MatMul
from .source import SourceNode, Unsupported
from .view import Reshape

_STORED = (I8, U8, I16, U16)


def _cast(b: Builder, x: Value, to: DType) -> Value:
    return x if x.dtype is to else apply(b, "Cast", x, to=to)


def _spread(b: Builder, v: Value, x: Value, axis: int, block: int) -> Value:
    """A scale or zero point, shaped to broadcast against x: of the tensor, of each place on an axis, or of blocks."""
    if as_int(v.type.size) == 1:
        return b.one(Reshape(()), v) if v.type.rank else v
    axis = axis_of(axis, x.type.rank)
    if not block:
        return b.one(Reshape((v.shape[0], *(const(1),) * (x.type.rank - 1 - axis))), v)
    size = as_int(x.shape[axis])
    assert size is not None
    places = b.constant(np.arange(size, dtype=np.int64) // block)
    return apply(b, "Gather", v, places, axis=axis)


def _check(x: Value, v: Value | None, axis: int, block: int, constraints: Constraints, what: str) -> None:
    """Check the shape of a scale or a zero point against the tensor that it belongs to."""
    if v is None or as_int(v.type.size) == 1:
        return
    if not block:
        if v.type.rank != 1:
            raise ModelError(f"{what} {v.type!r} of {x.type!r}, which is no vector")
        same_dim(v.shape[0], x.shape[axis_of(axis, x.type.rank)], constraints, f"{what} of {x.type!r}")
        return
    size = as_int(x.shape[axis_of(axis, x.type.rank)])
    if size is None:
        raise ModelError(f"blocks along a symbolic dimension of {x.type!r}")
    wanted = [const(-(-size // block)) if k == axis % x.type.rank else d for k, d in enumerate(x.shape)]
    if v.type.rank != x.type.rank:
        raise ModelError(f"{what} {v.type!r} of {x.type!r} in blocks of {block}")
    for have, want in zip(v.shape, wanted, strict=True):
        same_dim(have, want, constraints, f"{what} of {x.type!r} in blocks of {block}")


def _same_shape(scale: Value, zero: Value | None, what: str) -> None:
    if zero is not None and as_int(zero.type.size) != as_int(scale.type.size):
        raise ModelError(f"{what} with a scale {scale.type!r} and a zero point {zero.type!r}")


@operator()
@dataclass(frozen=True)
class QuantizeLinear(Op):
    """saturate(round(x / scale) + zero point), the round to even; operands x, scale and perhaps zero point.

    Attributes:
        axis: of a scale that is a vector, or of the blocks.
        block_size: elements along the axis that share a scale, or 0.
        to: element type of the result.
        division: type that the division is rounded to.
    """

    family: ClassVar[str] = "composite"
    axis: int = 1
    block_size: int = 0
    to: DType = U8
    division: DType = F32

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        x, scale, zero = (*inputs, None)[:3]
        x, scale = need(x, "input 0 of QuantizeLinear"), need(scale, "the scale of QuantizeLinear")
        for v, what in ((scale, "a scale"), (zero, "a zero point")):
            _check(x, v, self.axis, self.block_size, constraints, what)
        _same_shape(scale, zero, "QuantizeLinear")
        return [TensorType(self.to, x.shape)]

    def decompose(self, b: Builder, inputs: Inputs) -> list[Value]:
        x, scale, zero = (*inputs, None)[:3]
        x, scale = need(x, "input 0 of QuantizeLinear"), need(scale, "the scale of QuantizeLinear")
        kind = F64 if self.division is F64 else F32
        over, under = _cast(b, x, kind), _cast(b, _spread(b, scale, x, self.axis, self.block_size), kind)
        quotient = apply(b, "Div", over, under)
        if self.division.compute != self.division.name:
            quotient = _cast(b, _cast(b, quotient, self.division), kind)
        whole = apply(b, "Round", quotient)
        if zero is not None:
            whole = apply(b, "Add", whole, _cast(b, _spread(b, zero, x, self.axis, self.block_size), kind))
        return [apply(b, "Cast", whole, to=self.to)]

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        x, scale, zero = source.required(0), source.required(1), source.input(2)
        axis, block = int(source.attribute("axis", 1)), int(source.attribute("block_size", 0))
        named, precision = int(source.attribute("output_dtype", 0)), int(source.attribute("precision", 0))
        source.attribute("saturate")  # of 8-bit floats only
        source.fields(cls)
        to = zero.dtype if zero is not None else from_onnx(named) if named else U8
        if to is None or to not in _STORED:
            raise Unsupported(f"QuantizeLinear to {to!r}" if to else f"QuantizeLinear to ONNX type {named}")
        if named and from_onnx(named) is not to:
            raise ModelError(f"QuantizeLinear to ONNX type {named} with a zero point of {to!r}")
        division = from_onnx(precision) if precision else scale.dtype
        if division is None or not division.is_float:
            raise Unsupported(f"QuantizeLinear that divides in ONNX type {precision or scale.dtype.onnx}")
        return source.emit(cls(axis, block, to, division), [x, scale, zero][: 2 + (zero is not None)])


@operator()
@dataclass(frozen=True)
class DequantizeLinear(Op):
    """(x - zero point) * scale; operands x, scale and perhaps zero point. The difference is taken in i32.

    Attributes:
        axis: of a scale that is a vector, or of the blocks.
        block_size: elements along the axis that share a scale, or 0.
        to: element type of the result.
    """

    family: ClassVar[str] = "composite"
    axis: int = 1
    block_size: int = 0
    to: DType = F32

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        x, scale, zero = (*inputs, None)[:3]
        x, scale = need(x, "input 0 of DequantizeLinear"), need(scale, "the scale of DequantizeLinear")
        for v, what in ((scale, "a scale"), (zero, "a zero point")):
            _check(x, v, self.axis, self.block_size, constraints, what)
        _same_shape(scale, zero, "DequantizeLinear")
        if zero is not None and zero.dtype is not x.dtype:
            raise ModelError(f"DequantizeLinear of {x.dtype!r} with a zero point of {zero.dtype!r}")
        return [TensorType(self.to, x.shape)]

    def decompose(self, b: Builder, inputs: Inputs) -> list[Value]:
        x, scale, zero = (*inputs, None)[:3]
        x, scale = need(x, "input 0 of DequantizeLinear"), need(scale, "the scale of DequantizeLinear")
        whole = _cast(b, x, I32)
        if zero is not None:
            whole = apply(b, "Sub", whole, _cast(b, _spread(b, zero, x, self.axis, self.block_size), I32))
        factor = _cast(b, _spread(b, scale, x, self.axis, self.block_size), F32)
        return [_cast(b, apply(b, "Mul", apply(b, "Cast", whole, to=F32), factor), self.to)]

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        x, scale, zero = source.required(0), source.required(1), source.input(2)
        axis, block = int(source.attribute("axis", 1)), int(source.attribute("block_size", 0))
        named = int(source.attribute("output_dtype", 0))
        source.fields(cls)
        to = from_onnx(named) if named else scale.dtype
        if x.dtype not in (*_STORED, I32) or to is None or not to.is_float or scale.dtype is F64:
            raise Unsupported(f"DequantizeLinear of {x.dtype!r} to {to!r}")
        return source.emit(cls(axis, block, to), [x, scale, zero][: 2 + (zero is not None)])


# -- products of integers ---------------------------------------------------------------------------------------------


@operator("IntegerConv", "torshc")
@dataclass(frozen=True)
class IntegerConv(Conv):
    """Convolution of i32 operands, summed in i32."""

    family: ClassVar[str] = "nest"

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        x, w = need(inputs[0], "input 0 of a convolution"), need(inputs[1], "the weights of a convolution")
        same_dim(x.shape[1], w.shape[1] * self.group, constraints, f"channels of {x.type!r} with weights {w.type!r}")
        kernel = w.type.static_shape
        if kernel is None or kernel[0] % self.group:
            raise ModelError(f"a convolution in {self.group} groups with weights {w.type!r}")
        spatial = slide(x.shape[2:], kernel[2:], Window(self.strides, self.pads, self.dilations))
        return [TensorType(I32, (x.shape[0], w.shape[0], *spatial))]


def _centred(b: Builder, x: Value, zero: Value | None, tail: int = 0) -> Value:
    """x - zero point in i32; a vector of zero points has `tail` dimensions behind its own."""
    wide = _cast(b, x, I32)
    return wide if zero is None else apply(b, "Sub", wide, _cast(b, _vector(b, zero, tail), I32))


def _vector(b: Builder, v: Value, tail: int) -> Value:
    """A parameter of the whole tensor as a scalar, a vector with `tail` dimensions of 1 behind it."""
    if as_int(v.type.size) == 1:
        return b.one(Reshape(()), v) if v.type.rank else v
    return b.one(Reshape((*v.shape, *(const(1),) * tail)), v) if v.type.rank == 1 and tail else v


def _requantised(b: Builder, total: Value, scales: tuple[Value, Value, Value], zero: Value) -> Value:
    """saturate(round(total * (left * right / out)) + zero point)."""
    left, right, out = (_cast(b, s, F32) for s in scales)
    factor = apply(b, "Div", apply(b, "Mul", left, right), out)
    whole = apply(b, "Round", apply(b, "Mul", apply(b, "Cast", total, to=F32), factor))
    return apply(b, "Cast", apply(b, "Add", whole, _cast(b, zero, F32)), to=zero.dtype)


def _bytes(source: SourceNode, *which: int) -> None:
    for k in which:
        if source.required(k).dtype not in (I8, U8):
            raise Unsupported(f"{source.op_type} of {source.required(k).dtype!r}")


@operator()
@dataclass(frozen=True)
class MatMulInteger(Op):
    """(a - zero point) @ (b - zero point) in i32; at import, a MatMul of the differences."""

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        b = source.builder
        _bytes(source, 0, 1)
        left = _centred(b, source.required(0), source.input(2), tail=1)
        return [b.one(MatMul(), left, _centred(b, source.required(1), source.input(3)))]


@operator()
@dataclass(frozen=True)
class QLinearMatMul(Op):
    """Matrix product of quantised operands, quantised again; zero points and scales of a's rows or b's columns.

    Operands: a, its scale and zero point, b, its scale and zero point, scale and zero point of the result.
    """

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        b = source.builder
        a, a_scale, a_zero, w, w_scale, w_zero, y_scale, y_zero = (source.required(k) for k in range(8))
        _bytes(source, 0, 3, 7)
        rows = int(a.type.rank > 1)
        total = b.one(MatMul(), _centred(b, a, a_zero, rows), _centred(b, w, w_zero))
        scales = (_vector(b, a_scale, rows), _vector(b, w_scale, 0), _vector(b, y_scale, rows))
        return [_requantised(b, total, scales, _vector(b, y_zero, rows))]


def _convolved(source: SourceNode, x: Value, x_zero: Value | None, w: Value, w_zero: Value | None) -> Value:
    """The convolution of the differences, in i32."""
    b = source.builder
    if x.type.rank != w.type.rank or x.type.rank < 3:
        raise ModelError(f"{source.op_type} of {x.type!r} with weights {w.type!r}")
    slid = window(source, x.shape[2:], kernel_of(source, w))
    group = int(source.attribute("group", 1))
    source.fields(IntegerConv)
    if group < 1:
        raise ModelError(f"{source.op_type} in {group} groups")
    if x_zero is not None and as_int(x_zero.type.size) != 1:
        raise Unsupported(f"{source.op_type} with a zero point of the data {x_zero.type!r}")
    op = IntegerConv(slid.strides, slid.pads, slid.dilations, group)
    return b.one(op, _centred(b, x, x_zero), _centred(b, w, w_zero, tail=w.type.rank - 1))


@operator()
@dataclass(frozen=True)
class ConvInteger(Op):
    """Convolution of (x - zero point) with (w - zero point) in i32; the margin counts as x's zero point."""

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        _bytes(source, 0, 1)
        return [_convolved(source, source.required(0), source.input(2), source.required(1), source.input(3))]


@operator()
@dataclass(frozen=True)
class QLinearConv(Op):
    """Convolution of quantised operands, quantised again; the bias is i32 in units of both scales.

    Operands: x, its scale and zero point, w, its scale and zero point (of each output channel or all), scale and zero
    point of the result, and perhaps a bias.
    """

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        b = source.builder
        x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero = (source.required(k) for k in range(8))
        _bytes(source, 0, 3, 7)
        total, bias = _convolved(source, x, x_zero, w, w_zero), source.input(8)
        spatial = x.type.rank - 2
        if bias is not None:
            total = apply(b, "Add", total, b.one(Reshape((*bias.shape, *(const(1),) * spatial)), bias))
        scales = (_vector(b, x_scale, 0), _vector(b, w_scale, spatial), _vector(b, y_scale, 0))
        return [_requantised(b, total, scales, _vector(b, y_zero, 0))]
