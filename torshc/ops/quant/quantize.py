"""Quantised tensors: integers that stand for scale * (integer - zero point).

Decided here where ONNX leaves it open: a scale or zero point of one element belongs to the whole tensor whatever its
rank; NaN becomes the type's least number, as for onnx's evaluator and ONNX Runtime; sums of products are taken in i32
and wrap. Floats of 8 and 4 bits have no zero point but 0, and one that is given is not looked at unless it is constant.
"""

from __future__ import annotations

from dataclasses import dataclass

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
    U2,
    U4,
    U8,
    U16,
    DType,
    as_int,
    ceil_div,
    from_onnx,
)
from ...graph import TensorType, Value
from ..core.base import Constraints, Inputs, Op, axis_of, broadcast_into, need, operator, same_dim
from ..core.composite import Formula, composite
from ..core.functions import cast, clip, gather, where
from ..core.functions import round as rounded
from ..core.source import SourceNode, Unsupported
from ..core.tensor import Tensor, operand, optional
from ..nn.conv import kernel_of, window
from .integer import IntegerConv, integer_conv, integer_matmul, parameter

_INTEGERS = (I8, U8, I16, U16, I4, U4, I2, U2)
_FLOATS = (F8E4M3FN, F8E4M3FNUZ, F8E5M2, F8E5M2FNUZ, F4E2M1)


def _spread(v: Tensor, x: Tensor, axis: int, block: int) -> Tensor:
    """A scale or zero point, shaped to broadcast against x: of the tensor, of each place on an axis, or of blocks."""
    if as_int(v.type.size) == 1:
        return v.reshape() if v.rank else v
    axis = axis_of(axis, x.rank)
    if not block:
        return v.reshape(v.shape[0], *(1,) * (x.rank - 1 - axis))
    size = x.size(axis)
    places = v.range(0, x.shape[axis]) / block if size is None else v.constant(np.arange(size, dtype=np.int64) // block)
    return gather(v, places, axis=axis)


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
    wanted = [ceil_div(d, block) if k == along else d for k, d in enumerate(x.shape)]
    if v.type.rank != x.type.rank:
        raise ModelError(
            f"{what} {v.type!r} of {x.type!r} in blocks of {block}, which need the same number of dimensions"
        )
    for have, want in zip(v.shape, wanted, strict=True):
        same_dim(have, want, constraints, f"{what} of {x.type!r} in blocks of {block}")


def _no_offset(dtype: DType, zero: Value | None) -> None:
    """Refuse a zero point of floats that is known to be another number than 0."""
    if dtype.is_float and zero is not None and zero.const is not None and zero.const.astype(np.float32).any():
        raise ModelError(f"a zero point of {dtype!r} that is not 0")


def _same_shape(scale: Value, zero: Value | None, what: str) -> None:
    if zero is not None and as_int(zero.type.size) != as_int(scale.type.size):
        raise ModelError(f"{what} with a scale {scale.type!r} and a zero point {zero.type!r}, which need one shape")


@operator()
@dataclass(frozen=True)
class QuantizeLinear(Formula):
    """saturate(round(x / scale) + zero point), the round to even; operands x, scale and perhaps zero point.

    To floats of 8 and 4 bits it is a cast of x / scale.

    Attributes:
        axis: axis of a scale that is a vector, or of the blocks.
        block_size: elements along the axis that share a scale, or 0.
        to: element type of the result.
        division: type that the division is rounded to.
        saturate: for floats of 8 bits, as in Cast.
    """

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

    def formula(self, x: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
        kind = F64 if self.division is F64 else F32
        quotient = x.cast(kind) / _spread(scale, x, self.axis, self.block_size).cast(kind)
        if self.division.is_storage:
            quotient = quotient.cast(self.division).cast(kind)
        if self.to.is_float:
            return cast(quotient, to=self.to, saturate=self.saturate)
        whole = rounded(quotient)
        if zero is not None and (zero.const is None or zero.const.any()):
            whole = whole + _spread(zero, x, self.axis, self.block_size).cast(kind)
        low, high = map(float, self.to.range)
        if low < 0:  # a Cast takes NaN to 0
            whole = where(whole > low, whole, low)
        if self.to.is_narrow:  # casts to these keep the low bits
            whole = clip(whole, low=low, high=high)
        return whole.cast(self.to)

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
            raise ModelError(f"QuantizeLinear to ONNX type {named} with a zero point of {to!r}, which is another")
        _no_offset(to, zero)
        division = from_onnx(precision) if precision else F32 if scale.dtype is F8E8M0 else scale.dtype
        if division is None or not division.is_float or division.is_narrow:
            raise Unsupported(f"QuantizeLinear that divides in ONNX type {precision or scale.dtype.onnx}")
        return source.emit(cls(axis, block, to, division, saturate), [x, scale, zero][: 2 + (zero is not None)])


@operator()
@dataclass(frozen=True)
class DequantizeLinear(Formula):
    """(x - zero point) * scale; operands x, scale and perhaps zero point. The difference of integers is taken in i32.

    Attributes:
        axis: axis of a scale that is a vector, or of the blocks.
        block_size: elements along the axis that share a scale, or 0.
        to: element type of the result.
    """

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
            raise ModelError(
                f"DequantizeLinear of {x.dtype!r} with a zero point of {zero.dtype!r}, which have to be of one type"
            )
        return [TensorType(self.to, x.shape)]

    def formula(self, x: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
        whole = x if x.dtype.is_float else x.cast(I32)
        if zero is not None and not x.dtype.is_float:
            whole = whole - _spread(zero, x, self.axis, self.block_size).cast(I32)
        factor = _spread(scale, x, self.axis, self.block_size).cast(F32)
        return (whole.cast(F32) * factor).cast(self.to)

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


def requantised(total: Tensor, scales: tuple[Tensor, Tensor, Tensor], zero: Tensor) -> Tensor:
    """saturate(round(total * (left * right / out)) + zero point)."""
    left, right, out = (s.cast(F32) for s in scales)
    factor = left * right / out
    return (rounded(total.cast(F32) * factor) + zero.cast(F32)).cast(zero.dtype)


def _check_bytes(name: str, *operands: Tensor) -> None:
    for v in operands:
        if v.dtype not in (I8, U8):
            raise Unsupported(f"{name} of {v.dtype!r}")


@composite("MatMulInteger", floats=False)
def mat_mul_integer(a: Tensor, w: Tensor, a_zero: Tensor | None = None, w_zero: Tensor | None = None) -> Tensor:
    """(a - zero point) @ (w - zero point) in i32; see :mod:`.integer`."""
    _check_bytes("MatMulInteger", a, w)
    left = None if a_zero is None else parameter(a_zero, int(a.rank > 1))
    return integer_matmul(a, left, w, None if w_zero is None else parameter(w_zero, 0))


@composite("QLinearMatMul", floats=False, mixed=True)
def q_linear_mat_mul(
    a: Tensor, a_scale: Tensor, a_zero: Tensor, w: Tensor, w_scale: Tensor, w_zero: Tensor, y_scale: Tensor,
    y_zero: Tensor,
) -> Tensor:  # fmt: skip
    """Matrix product of quantised operands, quantised again; zero points and scales of a's rows or w's columns."""
    _check_bytes("QLinearMatMul", a, w, y_zero)
    rows = int(a.rank > 1)
    total = integer_matmul(a, parameter(a_zero, rows), w, parameter(w_zero, 0))
    scales = (parameter(a_scale, rows), parameter(w_scale, 0), parameter(y_scale, rows))
    return requantised(total, scales, parameter(y_zero, rows))


def _convolve_differences(
    source: SourceNode, x: Tensor, x_zero: Tensor | None, w: Tensor, w_zero: Tensor | None
) -> Tensor:
    """The convolution of the differences, in i32."""
    if x.rank != w.rank or x.rank < 3:
        raise ModelError(
            f"{source.op_type} of {x.type!r} with weights {w.type!r}"
            "; both need the same number of dimensions, 3 or more"
        )
    slid = window(source, x.shape[2:], kernel_of(source, w.value))
    group = int(source.attribute("group", 1))
    source.fields(IntegerConv)
    if x_zero is not None and as_int(x_zero.type.size) != 1:
        raise Unsupported(f"{source.op_type} with a zero point of the data {x_zero.type!r}")
    left = None if x_zero is None else parameter(x_zero, 0)
    return integer_conv(x, left, w, None if w_zero is None else parameter(w_zero, w.rank - 1), slid, group)


@operator()
@dataclass(frozen=True)
class ConvInteger(Op):
    """Convolution of (x - zero point) with (w - zero point) in i32; the margin counts as x's zero point."""

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        x, w = operand(source, 0), operand(source, 1)
        _check_bytes("ConvInteger", x, w)
        return [_convolve_differences(source, x, optional(source, 2), w, optional(source, 3)).value]


@operator()
@dataclass(frozen=True)
class QLinearConv(Op):
    """Convolution of quantised operands, quantised again; the bias is i32 in units of both scales.

    Operands: x, its scale and zero point, w, its scale and zero point (of each output channel or all), scale and zero
    point of the result, and perhaps a bias.
    """

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero = (operand(source, k) for k in range(8))
        _check_bytes("QLinearConv", x, w, y_zero)
        total, bias = _convolve_differences(source, x, x_zero, w, w_zero), optional(source, 8)
        spatial = x.rank - 2
        if bias is not None:
            total = total + bias.reshape(*bias.shape, *(1,) * spatial)
        scales = (parameter(x_scale, 0), parameter(w_scale, spatial), parameter(y_scale, 0))
        return [requantised(total, scales, parameter(y_zero, 0)).value]
