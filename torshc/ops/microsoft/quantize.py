"""Quantised operators of ONNX Runtime's own domain, made of ONNX's at import.

What ONNX Runtime computes by tables or in steps of integers is here the operator of real numbers between a
DequantizeLinear and a QuantizeLinear, so results differ from its by at most 1. Products stay products of bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np

from ...base.errors import ModelError
from ...expr import F16, F32, I32, U8, as_int
from ...graph import Value
from ..core.base import Op, axis_of, broadcast_into, operator, same_dim
from ..core.composite import composite
from ..core.functions import concat, leaky_relu, round, sigmoid, where
from ..core.functions import max as larger
from ..core.functions import min as smaller
from ..core.source import Unsupported
from ..core.tensor import Tensor, apply_op, read_node
from ..nn.pool import AveragePool, WholeAveragePool
from ..quant.integer import BYTES, integer_matmul, parameter
from ..quant.quantize import DequantizeLinear, QuantizeLinear, requantised
from .base import DOMAIN, Convolution, Window, put_channels_first, put_channels_last

Ints = tuple[int, ...]


def real(x: Tensor, scale: Tensor, zero: Tensor | None) -> Tensor:
    """x dequantised."""
    if x.dtype not in BYTES or scale.dtype is not F32:
        raise Unsupported(f"quantised numbers of {x.dtype!r} with a scale of {scale.dtype!r}")
    return apply_op(DequantizeLinear(), x, scale, zero)


def to_bytes(y: Tensor, scale: Tensor, zero: Tensor | None, like: Tensor) -> Tensor:
    """y quantised to the type of `like`."""
    return apply_op(QuantizeLinear(to=like.dtype), y, scale, zero)


@composite("QLinearSigmoid", DOMAIN, floats=False)
def q_linear_sigmoid(
    x: Tensor, scale: Tensor, zero: Tensor | None, to: Tensor, to_zero: Tensor | None = None
) -> Tensor:
    """Sigmoid of quantised numbers."""
    return to_bytes(sigmoid(real(x, scale, zero)), to, to_zero, x)


@composite("QLinearLeakyRelu", DOMAIN, floats=False)
def q_linear_leaky_relu(
    x: Tensor, scale: Tensor, zero: Tensor | None, to: Tensor, to_zero: Tensor | None = None, *, alpha: float = 0.01
) -> Tensor:
    """LeakyRelu of quantised numbers."""
    return to_bytes(leaky_relu(real(x, scale, zero), alpha=alpha), to, to_zero, x)


@composite("QLinearSoftmax", DOMAIN, floats=False)
def q_linear_softmax(
    x: Tensor, scale: Tensor, zero: Tensor | None, to: Tensor, to_zero: Tensor | None = None, *, axis: int = -1,
    opset: int = 0,
) -> Tensor:  # fmt: skip
    """Softmax of quantised numbers, as of an opset of ONNX."""
    return to_bytes(read_node("Softmax", real(x, scale, zero), opset=opset, axis=axis), to, to_zero, x)


@composite("QLinearReduceMean", DOMAIN, floats=False)
def q_linear_reduce_mean(
    x: Tensor, scale: Tensor, zero: Tensor | None, to: Tensor, to_zero: Tensor | None = None, *, axes: Ints = (),
    keepdims: int = 1,
) -> Tensor:  # fmt: skip
    """Mean of quantised numbers over axes."""
    y = read_node("ReduceMean", real(x, scale, zero), opset=13, keepdims=keepdims, axes=axes)
    return to_bytes(y, to, to_zero, x)


@composite("QLinearGlobalAveragePool", DOMAIN, floats=False)
def q_linear_global_average_pool(
    x: Tensor, scale: Tensor, zero: Tensor | None, to: Tensor, to_zero: Tensor | None = None, *, channels_last: int = 0
) -> Tensor:
    """Mean of quantised numbers over the spatial dimensions."""
    if x.rank < 3:
        raise ModelError(f"QLinearGlobalAveragePool of {x.type!r}, which has no spatial dimensions")
    start = 1 if channels_last else 2
    return to_bytes(real(x, scale, zero).mean(range(start, start + x.rank - 2)), to, to_zero, x)


@composite("QLinearAveragePool", DOMAIN, floats=False)
def q_linear_average_pool(
    x: Tensor, scale: Tensor, zero: Tensor | None, to: Tensor, to_zero: Tensor | None = None, *, ceil_mode: int = 0,
    channels_last: int = 0, count_include_pad: int = 0, **form: Unpack[Window],
) -> Tensor:  # fmt: skip
    """AveragePool of quantised numbers."""
    y = put_channels_first(real(x, scale, zero)) if channels_last else real(x, scale, zero)
    y = read_node(WholeAveragePool if count_include_pad else AveragePool, y, ceil_mode=ceil_mode, **form)
    return to_bytes(put_channels_last(y) if channels_last else y, to, to_zero, x)


@composite("QLinearAdd", DOMAIN, floats=False)
def q_linear_add(
    a: Tensor, a_scale: Tensor, a_zero: Tensor | None, b: Tensor, b_scale: Tensor, b_zero: Tensor | None, to: Tensor,
    to_zero: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Sum of quantised tensors."""
    return to_bytes(real(a, a_scale, a_zero) + real(b, b_scale, b_zero), to, to_zero, a)


@composite("QLinearMul", DOMAIN, floats=False)
def q_linear_mul(
    a: Tensor, a_scale: Tensor, a_zero: Tensor | None, b: Tensor, b_scale: Tensor, b_zero: Tensor | None, to: Tensor,
    to_zero: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Product of the elements of quantised tensors."""
    return to_bytes(real(a, a_scale, a_zero) * real(b, b_scale, b_zero), to, to_zero, a)


@composite("QLinearConcat", DOMAIN, floats=False)
def q_linear_concat(to: Tensor, to_zero: Tensor | None, *parts: Tensor | None, axis: int = 0) -> Tensor:
    """Quantised tensors side by side; scale and zero point of the result come first, then tensors with theirs."""
    made = []
    for k in range(0, len(parts), 3):
        x, scale, zero = (*parts[k : k + 3], None, None)[:3]
        if x is None or scale is None or len(parts) % 3:
            raise ModelError(
                f"QLinearConcat of {len(parts) + 2} operands, which are no tensors with scale and zero point"
            )
        made.append(to_bytes(real(x, scale, zero), to, to_zero, x))
    if not made:
        raise ModelError("QLinearConcat without tensors")
    return concat(*made, axis=axis_of(axis, made[0].rank)) if len(made) > 1 else made[0]


@composite("QLinearWhere", DOMAIN, floats=False)
def q_linear_where(
    condition: Tensor, a: Tensor, a_scale: Tensor, a_zero: Tensor | None, b: Tensor, b_scale: Tensor,
    b_zero: Tensor | None, to: Tensor, to_zero: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Elements of one quantised tensor or another, by a condition."""
    return to_bytes(where(condition, real(a, a_scale, a_zero), real(b, b_scale, b_zero)), to, to_zero, a)


@composite("MulInteger", DOMAIN, floats=False)
def mul_integer(a: Tensor, a_zero: Tensor | None, b: Tensor, b_zero: Tensor | None = None) -> Tensor:
    """(a - zero point) * (b - zero point) of bytes in i32; each zero point stands behind its tensor."""

    def shifted(x: Tensor, zero: Tensor | None) -> Tensor:
        return x.cast(I32) if zero is None else x.cast(I32) - zero.cast(I32)

    return shifted(a, a_zero) * shifted(b, b_zero)


# -- QuantizeLinear and its inverse -----------------------------------------------------------------------------------


@composite("QuantizeLinear", DOMAIN, floats=False)
def quantize_linear(x: Tensor, scale: Tensor, zero: Tensor | None = None, *, axis: int = 1) -> Tensor:
    """ONNX's, also to 16 and 4 bits, without blocks."""
    return read_node("QuantizeLinear", x, scale, zero, opset=21, axis=axis)


@composite("DequantizeLinear", DOMAIN, floats=False)
def dequantize_linear(x: Tensor, scale: Tensor, zero: Tensor | None = None, *, axis: int = 1) -> Tensor:
    """ONNX's, also of 16 and 4 bits, without blocks."""
    return read_node("DequantizeLinear", x, scale, zero, opset=21, axis=axis)


# -- products ---------------------------------------------------------------------------------------------------------


def check_columns(given: Tensor, b: Tensor) -> None:
    """Check a scale or zero point of b: one, one for each column, or one for each column of each of its matrices."""
    if as_int(given.type.size) == 1:
        return
    rank, constraints = given.rank, b.builder.graph.constraints
    stacked = rank == b.rank and rank > 1 and given.size(-2) == 1
    if b.rank < 2 or (rank != 1 and not stacked):
        raise Unsupported(f"a product with {b.type!r}, which has a scale or zero point {given.type!r}")
    what = f"scales and zero points of the columns of {b.type!r}"
    if rank == 1:
        broadcast_into(given.shape, b.shape[-1:], constraints, what)
    else:
        for k in (*range(rank - 2), rank - 1):
            same_dim(given.shape[k], b.shape[k], constraints, what)


def integers(a: Tensor, a_zero: Tensor | None, b: Tensor, b_zero: Tensor | None) -> Tensor:
    """(a - zero point) @ (b - zero point) in i32; b's zero point may be that of each column."""
    if a.dtype not in BYTES or b.dtype not in BYTES:
        raise Unsupported(f"a product of integers of {a.dtype!r} and {b.dtype!r}")
    if a_zero is not None and as_int(a_zero.type.size) != 1:
        raise Unsupported(f"a product of integers with a zero point {a_zero.type!r} of the left operand")
    for zero, of in ((a_zero, a), (b_zero, b)):
        if zero is not None and zero.dtype is not of.dtype:
            raise ModelError(
                f"a product of integers of {of.dtype!r} with a zero point of {zero.dtype!r}, which need one type"
            )
    if b_zero is not None:
        check_columns(b_zero, b)
    left, right = (None if z is None else single(z) for z in (a_zero, b_zero))
    return integer_matmul(a, left, b, right)


def single(x: Tensor) -> Tensor:
    """A parameter of one element as a scalar, one of columns as it is."""
    return parameter(x, 0)


def scaled(total: Tensor, a_scale: Tensor, b_scale: Tensor, bias: Tensor | None) -> Tensor:
    """total * (a_scale * b_scale) + bias in the scales' type."""
    check_columns(b_scale, total)
    if as_int(a_scale.type.size) != 1 or a_scale.dtype not in (F32, F16):
        raise Unsupported(f"a product of integers with a scale {a_scale.type!r} of the left operand")
    factor = single(a_scale).cast(F32) * single(b_scale).cast(F32)
    y = (total.cast(F32) * factor).cast(a_scale.dtype)
    return y if bias is None else y + bias


def bytes_of(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """x as u8, its scale and zero point, by the range of its elements and 0, as DynamicQuantizeLinear has them."""
    every = range(x.rank)
    low, high = x.min(every, keep=False), x.max(every, keep=False)
    low, high = smaller(low, 0.0), larger(high, 0.0)
    scale = (high - low) / 255.0
    zero = round(-low / scale).cast(U8)
    return apply_op(QuantizeLinear(), x, scale, zero), scale, zero


@composite("MatMulIntegerToFloat", DOMAIN, floats=False)
def mat_mul_integer_to_float(
    a: Tensor, b: Tensor, a_scale: Tensor, b_scale: Tensor, a_zero: Tensor | None = None,
    b_zero: Tensor | None = None, bias: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """MatMul of quantised tensors, in real numbers."""
    return scaled(integers(a, a_zero, b, b_zero), a_scale, b_scale, bias)


@composite("DynamicQuantizeMatMul", DOMAIN)
def dynamic_quantize_mat_mul(
    a: Tensor, b: Tensor, b_scale: Tensor, b_zero: Tensor | None = None, bias: Tensor | None = None
) -> Tensor:
    """MatMul of a, quantised on the way, with quantised b."""
    if a.dtype is not F32:
        raise Unsupported(f"DynamicQuantizeMatMul of {a.dtype!r}")
    x, scale, zero = bytes_of(a)
    return scaled(integers(x, zero, b, b_zero), scale, b_scale, bias)


@composite("QGemm", DOMAIN, floats=False)
def q_gemm(
    a: Tensor, a_scale: Tensor, a_zero: Tensor | None, b: Tensor, b_scale: Tensor, b_zero: Tensor | None,
    c: Tensor | None = None, to: Tensor | None = None, to_zero: Tensor | None = None, *, alpha: float = 1.0,
    transA: int = 0, transB: int = 0,
) -> Tensor:  # fmt: skip
    """alpha * a' @ b' + c of quantised matrices, c of i32 in units of alpha times both scales; quantised or not."""
    if a.rank != 2 or b.rank != 2:
        raise ModelError(f"QGemm of {a.type!r} and {b.type!r}, which are not matrices")
    a = a.transpose(1, 0) if transA else a
    if transB and b.value.const is not None:
        b = Tensor(b.builder, b.builder.graph.constant(np.ascontiguousarray(b.value.const.T), b.value.name))
    elif transB:
        b = b.transpose(1, 0)
    total = integers(a, a_zero, b, b_zero)
    total = total if c is None else total + c
    scale = a_scale if alpha == 1.0 else a_scale * alpha
    if to is None:
        return scaled(total, scale, b_scale, None)
    if to_zero is None or to_zero.dtype not in BYTES:
        raise Unsupported("QGemm whose quantised result has no zero point of bytes")
    return requantised(total, (single(scale), single(b_scale), single(to)), single(to_zero))


@composite("QLinearConv", DOMAIN, floats=False)
def q_linear_conv(x: Tensor, *rest: Tensor, channels_last: int = 0, **form: Unpack[Convolution]) -> Tensor:
    """ONNX's, perhaps with channels last."""
    y = read_node("QLinearConv", put_channels_first(x) if channels_last else x, *rest, **form)
    return put_channels_last(y) if channels_last else y


@operator("DynamicQuantizeLSTM", DOMAIN)
@dataclass(frozen=True)
class DynamicQuantizeLSTM(Op):
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
