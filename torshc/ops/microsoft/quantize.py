"""Quantised operators of ONNX Runtime's own domain, made of ONNX's at import.

What ONNX Runtime computes by tables or in steps of integers is here the operator of real numbers between a
DequantizeLinear and a QuantizeLinear, so results differ from its by at most 1. Products stay products of bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ...errors import ModelError
from ...expr import F16, F32, I32, U8, as_int
from ...graph import Value
from ..core.base import axis_of, broadcast_into, operator, same_dim
from ..core.compose import apply, as_type
from ..core.source import SourceNode, Unsupported
from ..nn.conv import Ints
from ..nn.pool import AveragePool, WholeAveragePool
from ..quant.integer import BYTES, integer_matmul, parameter
from ..quant.quantize import DequantizeLinear, QuantizeLinear, requantised
from ..tensor.view import Concat, Transpose
from .base import DOMAIN, OPSET, WINDOW, Contrib, channels_first, channels_last, given, node


def real(source: SourceNode, k: int) -> Value:
    """Operand k, dequantised with its scale and zero point, which follow it."""
    x, scale, zero = source.required(k), source.required(k + 1), source.input(k + 2)
    if x.dtype not in BYTES or scale.dtype is not F32:
        raise Unsupported(f"{source.op_type} of {x.dtype!r} with a scale of {scale.dtype!r}")
    return source.emit(DequantizeLinear(), [x, scale, *([zero] if zero is not None else [])])[0]


def quantised(source: SourceNode, y: Value, k: int, like: Value) -> list[Value]:
    """y quantised to the type of `like` with operands k, the scale, and k + 1, perhaps the zero point."""
    scale, zero = source.required(k), source.input(k + 1)
    return source.emit(QuantizeLinear(to=like.dtype), [y, scale, *([zero] if zero is not None else [])])


@dataclass(frozen=True)
class Unary(Contrib):
    """Base of quantised functions of one tensor."""

    floating: ClassVar[bool] = False

    def function(self, source: SourceNode, x: Value) -> Value:
        """The function of real numbers."""
        raise NotImplementedError(self.name)

    def make(self, source: SourceNode) -> list[Value]:
        return quantised(source, self.function(source, real(source, 0)), 3, source.required(0))


@operator("QLinearSigmoid", DOMAIN)
@dataclass(frozen=True)
class QLinearSigmoid(Unary):
    """Sigmoid of quantised numbers."""

    def function(self, source: SourceNode, x: Value) -> Value:
        return apply(source.builder, "Sigmoid", x)


@operator("QLinearLeakyRelu", DOMAIN)
@dataclass(frozen=True)
class QLinearLeakyRelu(Unary):
    """LeakyRelu of quantised numbers."""

    alpha: float = 0.009999999776482582

    def function(self, source: SourceNode, x: Value) -> Value:
        return apply(source.builder, "LeakyRelu", x, alpha=self.alpha)


@operator("QLinearSoftmax", DOMAIN)
@dataclass(frozen=True)
class QLinearSoftmax(Unary):
    """Softmax of quantised numbers, as of an opset of ONNX."""

    axis: int = -1
    opset: int = 0

    def function(self, source: SourceNode, x: Value) -> Value:
        return node(source, "Softmax", x, opset=self.opset, axis=self.axis)


@operator("QLinearReduceMean", DOMAIN)
@dataclass(frozen=True)
class QLinearReduceMean(Unary):
    """Mean of quantised numbers over axes."""

    axes: Ints = ()
    keepdims: int = 1

    def function(self, source: SourceNode, x: Value) -> Value:
        return node(source, "ReduceMean", x, opset=13, keepdims=self.keepdims, **given(self, "axes"))


@operator("QLinearGlobalAveragePool", DOMAIN)
@dataclass(frozen=True)
class QLinearGlobalAveragePool(Unary):
    """Mean of quantised numbers over the spatial dimensions."""

    channels_last: int = 0

    def function(self, source: SourceNode, x: Value) -> Value:
        start = 1 if self.channels_last else 2
        if x.type.rank < 3:
            raise ModelError(f"QLinearGlobalAveragePool of {x.type!r}")
        return apply(source.builder, "ReduceMean", x, axes=tuple(range(start, start + x.type.rank - 2)))


@operator("QLinearAveragePool", DOMAIN)
@dataclass(frozen=True)
class QLinearAveragePool(Unary):
    """AveragePool of quantised numbers."""

    auto_pad: str = ""
    ceil_mode: int = 0
    channels_last: int = 0
    count_include_pad: int = 0
    kernel_shape: Ints = ()
    pads: Ints = ()
    strides: Ints = ()

    def function(self, source: SourceNode, x: Value) -> Value:
        b = source.builder
        x = channels_first(b, x) if self.channels_last else x
        form = given(self, "auto_pad", "ceil_mode", "kernel_shape", "pads", "strides")
        kind = WholeAveragePool if self.count_include_pad else AveragePool
        y = kind.read(SourceNode("AveragePool", OPSET, form, [x], 1, b))[0]
        return channels_last(b, y) if self.channels_last else y


@dataclass(frozen=True)
class Binary(Contrib):
    """Base of quantised functions of two tensors, which broadcast."""

    floating: ClassVar[bool] = False

    function: ClassVar[str] = ""

    def make(self, source: SourceNode) -> list[Value]:
        y = apply(source.builder, self.function, real(source, 0), real(source, 3))
        return quantised(source, y, 6, source.required(0))


@operator("QLinearAdd", DOMAIN)
@dataclass(frozen=True)
class QLinearAdd(Binary):
    """Sum of quantised tensors."""

    function: ClassVar[str] = "Add"


@operator("QLinearMul", DOMAIN)
@dataclass(frozen=True)
class QLinearMul(Binary):
    """Product of the elements of quantised tensors."""

    function: ClassVar[str] = "Mul"


@operator("QLinearConcat", DOMAIN)
@dataclass(frozen=True)
class QLinearConcat(Contrib):
    """Quantised tensors side by side; scale and zero point of the result come first, then tensors with theirs."""

    floating: ClassVar[bool] = False

    axis: int = 0

    def make(self, source: SourceNode) -> list[Value]:
        count = len(source.inputs) - 2
        if count < 3 or count % 3:
            raise ModelError(f"QLinearConcat of {len(source.inputs)} operands")
        places = range(2, len(source.inputs), 3)
        parts = [quantised(source, real(source, k), 0, source.required(k))[0] for k in places]
        axis = axis_of(self.axis, parts[0].type.rank)
        return [source.builder.one(Concat(axis), *parts) if len(parts) > 1 else parts[0]]


@operator("QLinearWhere", DOMAIN)
@dataclass(frozen=True)
class QLinearWhere(Contrib):
    """Elements of one quantised tensor or another, by a condition."""

    floating: ClassVar[bool] = False

    def make(self, source: SourceNode) -> list[Value]:
        y = apply(source.builder, "Where", source.required(0), real(source, 1), real(source, 4))
        return quantised(source, y, 7, source.required(1))


@operator("MulInteger", DOMAIN)
@dataclass(frozen=True)
class MulInteger(Contrib):
    """(a - zero point) * (b - zero point) of bytes in i32; each zero point stands behind its tensor."""

    floating: ClassVar[bool] = False

    def make(self, source: SourceNode) -> list[Value]:
        b, sides = source.builder, []
        for k in (0, 2):
            wide, zero = apply(b, "Cast", source.required(k), to=I32), source.input(k + 1)
            sides.append(wide if zero is None else apply(b, "Sub", wide, as_type(b, zero, I32)))
        return [apply(b, "Mul", *sides)]


# -- QuantizeLinear and its inverse -----------------------------------------------------------------------------------


@operator("QuantizeLinear", DOMAIN)
@dataclass(frozen=True)
class MsQuantizeLinear(Contrib):
    """ONNX's, also to 16 and 4 bits, without blocks."""

    floating: ClassVar[bool] = False

    axis: int = 1

    def make(self, source: SourceNode) -> list[Value]:
        return [node(source, "QuantizeLinear", *source.inputs, opset=21, axis=self.axis)]


@operator("DequantizeLinear", DOMAIN)
@dataclass(frozen=True)
class MsDequantizeLinear(Contrib):
    """ONNX's, also of 16 and 4 bits, without blocks."""

    floating: ClassVar[bool] = False

    axis: int = 1

    def make(self, source: SourceNode) -> list[Value]:
        return [node(source, "DequantizeLinear", *source.inputs, opset=21, axis=self.axis)]


# -- products ---------------------------------------------------------------------------------------------------------


def columns(source: SourceNode, parameter: Value, b: Value) -> None:
    """Check a scale or zero point of b: one, one for each column, or one for each column of each of its matrices."""
    if as_int(parameter.type.size) == 1:
        return
    rank, constraints = parameter.type.rank, source.builder.graph.constraints
    stacked = rank == b.type.rank and rank > 1 and as_int(parameter.shape[-2]) == 1
    if b.type.rank < 2 or (rank != 1 and not stacked):
        raise Unsupported(f"{source.op_type} of {b.type!r} with a scale or zero point {parameter.type!r}")
    what = f"scales and zero points of the columns of {b.type!r}"
    if rank == 1:
        broadcast_into(parameter.shape, b.shape[-1:], constraints, what)
    else:
        for k in (*range(rank - 2), rank - 1):
            same_dim(parameter.shape[k], b.shape[k], constraints, what)


def integers(source: SourceNode, a: Value, a_zero: Value | None, b: Value, b_zero: Value | None) -> Value:
    """(a - zero point) @ (b - zero point) in i32; b's zero point may be that of each column."""
    if a.dtype not in BYTES or b.dtype not in BYTES:
        raise Unsupported(f"{source.op_type} of {a.dtype!r} and {b.dtype!r}")
    if a_zero is not None and as_int(a_zero.type.size) != 1:
        raise Unsupported(f"{source.op_type} with a zero point {a_zero.type!r} of the left operand")
    for zero, of in ((a_zero, a), (b_zero, b)):
        if zero is not None and zero.dtype is not of.dtype:
            raise ModelError(f"{source.op_type} of {of.dtype!r} with a zero point of {zero.dtype!r}")
    if b_zero is not None:
        columns(source, b_zero, b)
    left, right = (z and parameter(source.builder, z, 0) for z in (a_zero, b_zero))
    return integer_matmul(source.builder, a, left, b, right)


def scaled(source: SourceNode, total: Value, a_scale: Value, b_scale: Value, bias: Value | None) -> Value:
    """total * (a_scale * b_scale) + bias in the scales' type."""
    b = source.builder
    columns(source, b_scale, total)
    if as_int(a_scale.type.size) != 1 or a_scale.dtype not in (F32, F16):
        raise Unsupported(f"{source.op_type} with a scale {a_scale.type!r} of the left operand")
    factor = apply(b, "Mul", *(as_type(b, parameter(b, s, 0), F32) for s in (a_scale, b_scale)))
    y = as_type(b, apply(b, "Mul", apply(b, "Cast", total, to=F32), factor), a_scale.dtype)
    return y if bias is None else apply(b, "Add", y, bias)


def bytes_of(source: SourceNode, x: Value) -> tuple[Value, Value, Value]:
    """x as u8, its scale and zero point, by the range of its elements and 0, as DynamicQuantizeLinear has them."""
    b, axes = source.builder, tuple(range(x.type.rank))
    low, high = (apply(b, f"Reduce{m}", x, axes=axes, keepdims=False) for m in ("Min", "Max"))
    low, high = apply(b, "Min", low, 0.0), apply(b, "Max", high, 0.0)
    scale = apply(b, "Div", apply(b, "Sub", high, low), 255.0)
    zero = apply(b, "Cast", apply(b, "Round", apply(b, "Div", apply(b, "Neg", low), scale)), to=U8)
    return b.one(QuantizeLinear(), x, scale, zero), scale, zero


@operator("MatMulIntegerToFloat", DOMAIN)
@dataclass(frozen=True)
class MatMulIntegerToFloat(Contrib):
    """MatMul of quantised tensors, in real numbers. Operands: a, b, their scales, their zero points, perhaps a bias."""

    floating: ClassVar[bool] = False

    def make(self, source: SourceNode) -> list[Value]:
        total = integers(source, source.required(0), source.input(4), source.required(1), source.input(5))
        return [scaled(source, total, source.required(2), source.required(3), source.input(6))]


@operator("DynamicQuantizeMatMul", DOMAIN)
@dataclass(frozen=True)
class DynamicQuantizeMatMul(Contrib):
    """MatMul of a, quantised on the way, with quantised b. Operands: a, b, its scale and zero point, perhaps a bias."""

    def make(self, source: SourceNode) -> list[Value]:
        if source.required(0).dtype is not F32:
            raise Unsupported(f"DynamicQuantizeMatMul of {source.required(0).dtype!r}")
        x, scale, zero = bytes_of(source, source.required(0))
        total = integers(source, x, zero, source.required(1), source.input(3))
        return [scaled(source, total, scale, source.required(2), source.input(4))]


@operator("QGemm", DOMAIN)
@dataclass(frozen=True)
class QGemm(Contrib):
    """alpha * a' @ b' + c of quantised matrices, c of i32 in units of alpha times both scales; quantised or not.

    Operands: a, scale, zero point, b, scale, zero point, perhaps c, and scale and zero point of the result.
    """

    floating: ClassVar[bool] = False

    alpha: float = 1.0
    transA: int = 0
    transB: int = 0

    def make(self, source: SourceNode) -> list[Value]:
        b = source.builder
        left, right = source.required(0), source.required(3)
        if left.type.rank != 2 or right.type.rank != 2:
            raise ModelError(f"QGemm of {left.type!r} and {right.type!r}, which are not matrices")
        left = b.one(Transpose((1, 0)), left) if self.transA else left
        if self.transB and right.const is not None:
            right = b.graph.constant(np.ascontiguousarray(right.const.T), right.name)
        elif self.transB:
            right = b.one(Transpose((1, 0)), right)
        total = integers(source, left, source.input(2), right, source.input(5))
        added, scale, zero = source.input(6), source.required(1), source.input(8)
        total = total if added is None else apply(b, "Add", total, added)
        scale = scale if self.alpha == 1.0 else apply(b, "Mul", scale, self.alpha)
        if source.input(7) is None:
            return [scaled(source, total, scale, source.required(4), None)]
        if zero is None or zero.dtype not in BYTES:
            raise Unsupported("QGemm whose quantised result has no zero point of bytes")
        scales = tuple(parameter(b, s, 0) for s in (scale, source.required(4), source.required(7)))
        return [requantised(b, total, (scales[0], scales[1], scales[2]), parameter(b, zero, 0))]


@operator("QLinearConv", DOMAIN)
@dataclass(frozen=True)
class MsQLinearConv(Contrib):
    """ONNX's, perhaps with channels last."""

    floating: ClassVar[bool] = False

    auto_pad: str = ""
    channels_last: int = 0
    dilations: Ints = ()
    group: int = 1
    kernel_shape: Ints = ()
    pads: Ints = ()
    strides: Ints = ()

    def make(self, source: SourceNode) -> list[Value]:
        x, rest = source.required(0), source.inputs[1:]
        x = channels_first(source.builder, x) if self.channels_last else x
        y = node(source, "QLinearConv", x, *rest, **given(self, *WINDOW))
        return [channels_last(source.builder, y) if self.channels_last else y]


@operator("DynamicQuantizeLSTM", DOMAIN)
@dataclass(frozen=True)
class DynamicQuantizeLSTM(Contrib):
    """LSTM of quantised weights [directions, inputs, gates], whose x and h are quantised on the way.

    Operands: those of LSTM, then scale and zero point of W and of R, of a direction or of each of its gates.
    """

    activation_alpha: tuple[float, ...] = ()
    activation_beta: tuple[float, ...] = ()
    activations: tuple[str, ...] = ()
    clip: float = 0.0
    direction: str = "forward"
    hidden_size: int = 0
    input_forget: int = 0

    @classmethod
    def takes(cls, attributes: Mapping[str, Any], outputs: Sequence[str], operands: Sequence[Value | None]) -> bool:
        """No: the importer has a function for it."""
        return False
