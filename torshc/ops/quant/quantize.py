"""Quantised tensors: integers that stand for scale * (integer - zero point).

Decided here where ONNX leaves it open: a scale or zero point of one element belongs to the whole tensor whatever its
rank; NaN becomes the type's least number, as for onnx's evaluator and ONNX Runtime; sums of products are taken in i32
and wrap. Floats of 8 and 4 bits have no zero point but 0, and one that is given is not looked at unless it is constant.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...base.errors import ModelError
from ...expr import (
    BF16,
    F4E2M1,
    F8E4M3FN,
    F8E4M3FNUZ,
    F8E5M2,
    F8E5M2FNUZ,
    F8E8M0,
    F16,
    F32,
    F64,
    I2,
    I4,
    I8,
    I16,
    I32,
    I64,
    U2,
    U4,
    U8,
    U16,
    DType,
    as_int,
    const,
    from_onnx,
)
from ...graph import Builder, TensorType, Value
from ..core.base import Constraints, Inputs, Op, axis_of, broadcast_into, need, operator, same_dim
from ..core.compose import apply, as_type
from ..core.source import SourceNode, Unsupported
from ..nn.conv import kernel_of, window
from ..tensor.generate import Range
from ..tensor.view import Reshape
from .integer import IntegerConv, integer_conv, integer_matmul, parameter

_INTEGERS = (I8, U8, I16, U16, I4, U4, I2, U2)
_FLOATS = (F8E4M3FN, F8E4M3FNUZ, F8E5M2, F8E5M2FNUZ, F4E2M1)


def _spread(b: Builder, v: Value, x: Value, axis: int, block: int) -> Value:
    """A scale or zero point, shaped to broadcast against x: of the tensor, of each place on an axis, or of blocks."""
    if as_int(v.type.size) == 1:
        return b.one(Reshape(()), v) if v.type.rank else v
    axis = axis_of(axis, x.type.rank)
    if not block:
        return b.one(Reshape((v.shape[0], *(const(1),) * (x.type.rank - 1 - axis))), v)
    size = as_int(x.shape[axis])
    if size is not None:
        places = b.constant(np.arange(size, dtype=np.int64) // block)
    else:
        places = apply(b, "Div", b.one(Range(const(0), const(1), x.shape[axis], I64)), block)
    return apply(b, "Gather", v, places, axis=axis)


def _check(x: Value, v: Value | None, axis: int, block: int, constraints: Constraints, what: str) -> None:
    """Check the shape of a scale or a zero point against the tensor that it belongs to."""
    if v is None or as_int(v.type.size) == 1:
        return
    if not block:
        if v.type.rank != 1:
            raise ModelError(f"{what} {v.type!r} of {x.type!r}, which is not a vector")
        broadcast_into(v.shape, (x.shape[axis_of(axis, x.type.rank)],), constraints, f"{what} of {x.type!r}")
        return
    along = axis_of(axis, x.type.rank)
    wanted = [(d + (block - 1)) // block if k == along else d for k, d in enumerate(x.shape)]
    if v.type.rank != x.type.rank:
        raise ModelError(f"{what} {v.type!r} of {x.type!r} in blocks of {block}")
    for have, want in zip(v.shape, wanted, strict=True):
        same_dim(have, want, constraints, f"{what} of {x.type!r} in blocks of {block}")


def _no_offset(dtype: DType, zero: Value | None) -> None:
    """Refuse a zero point of floats that is known to be another number than 0."""
    if dtype.is_float and zero is not None and zero.const is not None and zero.const.astype(np.float32).any():
        raise ModelError(f"a zero point of {dtype!r} that is not 0")


def _same_shape(scale: Value, zero: Value | None, what: str) -> None:
    if zero is not None and as_int(zero.type.size) != as_int(scale.type.size):
        raise ModelError(f"{what} with a scale {scale.type!r} and a zero point {zero.type!r}")


@operator()
@dataclass(frozen=True)
class QuantizeLinear(Op):
    """saturate(round(x / scale) + zero point), the round to even; operands x, scale and perhaps zero point.

    To floats of 8 and 4 bits it is a cast of x / scale.

    Attributes:
        axis: of a scale that is a vector, or of the blocks.
        block_size: elements along the axis that share a scale, or 0.
        to: element type of the result.
        division: type that the division is rounded to.
        saturate: for floats of 8 bits, as in Cast.
    """

    family: ClassVar[str] = "composite"
    axis: int = 1
    block_size: int = 0
    to: DType = U8
    division: DType = F32
    saturate: int = 1

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
        over, under = as_type(b, x, kind), as_type(b, _spread(b, scale, x, self.axis, self.block_size), kind)
        quotient = apply(b, "Div", over, under)
        if self.division.is_storage:
            quotient = as_type(b, as_type(b, quotient, self.division), kind)
        if self.to.is_float:
            return [apply(b, "Cast", quotient, to=self.to, saturate=self.saturate)]
        whole = apply(b, "Round", quotient)
        if zero is not None and (zero.const is None or zero.const.any()):
            whole = apply(b, "Add", whole, as_type(b, _spread(b, zero, x, self.axis, self.block_size), kind))
        low, high = map(float, self.to.range)
        if low < 0:  # a Cast takes NaN to 0
            whole = apply(b, "Where", apply(b, "Greater", whole, low), whole, b.constant(low, whole))
        if self.to.is_narrow:  # casts to these keep the low bits
            whole = apply(b, "Clip", whole, low=low, high=high)
        return [apply(b, "Cast", whole, to=self.to)]

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        x, scale, zero = source.required(0), source.required(1), source.input(2)
        axis, block = int(source.attribute("axis", 1)), int(source.attribute("block_size", 0))
        named, precision = int(source.attribute("output_dtype", 0)), int(source.attribute("precision", 0))
        saturate = int(source.attribute("saturate", 1))
        source.fields(cls)
        to = zero.dtype if zero is not None else from_onnx(named) if named else U8
        if to is None or to not in (*_INTEGERS, *_FLOATS):
            raise Unsupported(f"QuantizeLinear to {to!r}" if to else f"QuantizeLinear to ONNX type {named}")
        if named and from_onnx(named) is not to:
            raise ModelError(f"QuantizeLinear to ONNX type {named} with a zero point of {to!r}")
        _no_offset(to, zero)
        division = from_onnx(precision) if precision else F32 if scale.dtype is F8E8M0 else scale.dtype
        if division is None or not division.is_float or division.is_narrow:
            raise Unsupported(f"QuantizeLinear that divides in ONNX type {precision or scale.dtype.onnx}")
        return source.emit(cls(axis, block, to, division, saturate), [x, scale, zero][: 2 + (zero is not None)])


@operator()
@dataclass(frozen=True)
class DequantizeLinear(Op):
    """(x - zero point) * scale; operands x, scale and perhaps zero point. The difference of integers is taken in i32.

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
        whole = x if x.dtype.is_float else as_type(b, x, I32)
        if zero is not None and not x.dtype.is_float:
            whole = apply(b, "Sub", whole, as_type(b, _spread(b, zero, x, self.axis, self.block_size), I32))
        factor = as_type(b, _spread(b, scale, x, self.axis, self.block_size), F32)
        return [as_type(b, apply(b, "Mul", apply(b, "Cast", whole, to=F32), factor), self.to)]

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        x, scale, zero = source.required(0), source.required(1), source.input(2)
        axis, block = int(source.attribute("axis", 1)), int(source.attribute("block_size", 0))
        named = int(source.attribute("output_dtype", 0))
        source.fields(cls)
        to = from_onnx(named) if named else scale.dtype
        known = x.dtype in (*_INTEGERS, *_FLOATS, I32) and scale.dtype is not F64
        if to is None or to not in (F32, F16, BF16) or not known:
            raise Unsupported(f"DequantizeLinear of {x.dtype!r} with a scale of {scale.dtype!r} to {to!r}")
        _no_offset(x.dtype, zero)
        return source.emit(cls(axis, block, to), [x, scale, zero][: 2 + (zero is not None)])


# -- products of integers ---------------------------------------------------------------------------------------------


def requantised(b: Builder, total: Value, scales: tuple[Value, Value, Value], zero: Value) -> Value:
    """saturate(round(total * (left * right / out)) + zero point)."""
    left, right, out = (as_type(b, s, F32) for s in scales)
    factor = apply(b, "Div", apply(b, "Mul", left, right), out)
    whole = apply(b, "Round", apply(b, "Mul", apply(b, "Cast", total, to=F32), factor))
    return apply(b, "Cast", apply(b, "Add", whole, as_type(b, zero, F32)), to=zero.dtype)


def _bytes(source: SourceNode, *which: int) -> None:
    for k in which:
        if source.required(k).dtype not in (I8, U8):
            raise Unsupported(f"{source.op_type} of {source.required(k).dtype!r}")


@operator()
@dataclass(frozen=True)
class MatMulInteger(Op):
    """(a - zero point) @ (b - zero point) in i32; at import, see :mod:`.integer`."""

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        b, zeros = source.builder, (source.input(2), source.input(3))
        _bytes(source, 0, 1)
        rows = int(source.required(0).type.rank > 1)
        left, right = (z and parameter(b, z, tail) for z, tail in zip(zeros, (rows, 0), strict=True))
        return [integer_matmul(b, source.required(0), left, source.required(1), right)]


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
        total = integer_matmul(b, a, parameter(b, a_zero, rows), w, parameter(b, w_zero, 0))
        scales = (parameter(b, a_scale, rows), parameter(b, w_scale, 0), parameter(b, y_scale, rows))
        return [requantised(b, total, scales, parameter(b, y_zero, rows))]


def _convolved(source: SourceNode, x: Value, x_zero: Value | None, w: Value, w_zero: Value | None) -> Value:
    """The convolution of the differences, in i32."""
    b = source.builder
    if x.type.rank != w.type.rank or x.type.rank < 3:
        raise ModelError(f"{source.op_type} of {x.type!r} with weights {w.type!r}")
    slid = window(source, x.shape[2:], kernel_of(source, w))
    group = int(source.attribute("group", 1))
    source.fields(IntegerConv)
    if x_zero is not None and as_int(x_zero.type.size) != 1:
        raise Unsupported(f"{source.op_type} with a zero point of the data {x_zero.type!r}")
    x_zero, w_zero = x_zero and parameter(b, x_zero, 0), w_zero and parameter(b, w_zero, w.type.rank - 1)
    return integer_conv(b, x, x_zero, w, w_zero, slid, group)


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
        scales = (parameter(b, x_scale, 0), parameter(b, w_scale, spatial), parameter(b, y_scale, 0))
        return [requantised(b, total, scales, parameter(b, y_zero, 0))]
