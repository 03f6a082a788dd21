"""Products of bytes, summed in i32, and what makes them of operands with zero points.

Kernels multiply bytes as they lie in memory, u8 by i8. What zero points add is a sum over one operand alone:

    sum((x - zx) * (w - zw)) = sum(x * w) - zx * sum(w - zw) - zw * sum(x)

All of it wraps in 32 bits, so the sum is exact whatever the zero points are. Weights are constants here; centred
ones (zw = 0) leave a constant for each column, which joins the bias.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...base.errors import ModelError
from ...expr import F32, I8, I32, U8, DType, Expr, as_int, const
from ...graph import Node, TensorType, Value
from ..core.base import Constraints, Index, Inputs, LoopNest, Read, need, operator, same_dim
from ..core.scalar import Scalar, where
from ..core.tensor import Tensor, apply_op
from ..math.linalg import MatMul
from ..nn.conv import FEW_CHANNELS, Conv, ConvTranspose, Window, grouped, slide, spatial_of

Array = np.ndarray[Any, Any]
BYTES = (I8, U8)
EXACT = 1 << 24  # floats hold every whole number up to here


@operator("IntegerMatMul", "torshc")
@dataclass(frozen=True)
class IntegerMatMul(MatMul):
    """Matrix product of bytes, of either sign each, summed in i32."""

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        a, b = need(inputs[0], "input 0 of IntegerMatMul"), need(inputs[1], "input 1 of IntegerMatMul")
        if a.dtype not in BYTES or b.dtype not in BYTES:
            raise ModelError(f"IntegerMatMul of {a.dtype!r} and {b.dtype!r}, where bytes are needed")
        (out,) = super().infer((_as(a, F32), _as(b, F32)), constraints)
        return [TensorType(I32, out.shape)]

    def nest(self, node: Node, output: int) -> LoopNest:
        plain = super().nest(node, output)
        return LoopNest(lambda at, inner, read: plain.term(at, inner, _read_as_i32(read)), plain.reduce, plain.combine)


@operator("IntegerConv", "torshc")
@dataclass(frozen=True)
class IntegerConv(Conv):
    """Convolution of integers, summed in i32; operands x, w, and perhaps what the margin counts as, a scalar like x."""

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        x, w = need(inputs[0], "input 0 of a convolution"), need(inputs[1], "the weights of a convolution")
        margin = inputs[2] if len(inputs) > 2 else None
        if margin is not None and margin.type != TensorType(x.dtype, ()):
            raise ModelError(
                f"a convolution of {x.type!r} with a pad value {margin.type!r}"
                ", where a scalar of the same type is needed"
            )
        same_dim(x.shape[1], w.shape[1] * self.group, constraints, f"channels of {x.type!r} with weights {w.type!r}")
        grouped(w.shape[0], self.group, constraints, f"a convolution in {self.group} groups with weights {w.type!r}")
        spatial = slide(x.shape[2:], spatial_of(w), Window(self.strides, self.pads, self.dilations))
        return [TensorType(I32, (x.shape[0], w.shape[0], *spatial))]

    def nest(self, node: Node, output: int) -> LoopNest:
        x, w = node.operands[0].shape, node.operands[1].shape
        margin = len(node.operands) > 2

        def body(at: Index, inner: Index, read: Read) -> Scalar:
            index, ok = self.place(at, inner, x, w)
            value = where(ok, read(0, index), read(2, ()) if margin else 0)
            return value.cast(I32) * read(1, (at[1], *inner)).cast(I32)

        return LoopNest(body, w[1:], "add")


@operator("IntegerConvTranspose", "torshc")
@dataclass(frozen=True)
class IntegerConvTranspose(ConvTranspose):
    """Transposed convolution of bytes, summed in i32; operands x and w."""

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        x, w = (need(v, "an operand of IntegerConvTranspose") for v in inputs[:2])
        if x.dtype not in BYTES or w.dtype not in BYTES:
            raise ModelError(f"IntegerConvTranspose of {x.dtype!r} and {w.dtype!r}, where bytes are needed")
        (out,) = super().infer((_as(x, F32), _as(w, F32)), constraints)
        return [TensorType(I32, out.shape)]

    def nest(self, node: Node, output: int) -> LoopNest:
        plain = super().nest(node, output)
        return LoopNest(lambda at, inner, read: plain.term(at, inner, _read_as_i32(read)), plain.reduce, plain.combine)


def _as(v: Value, dtype: DType) -> Value:
    """A stand-in of another element type, to infer with."""
    return Value(v.id, v.name, TensorType(dtype, v.shape))


def _read_as_i32(read: Read) -> Read:
    return lambda k, index: read(k, index).cast(I32)


def integer_matmul(x: Tensor, x_zero: Tensor | None, w: Tensor, w_zero: Tensor | None) -> Tensor:
    """(x - x_zero) @ (w - w_zero) of bytes, in i32; exact.

    Args:
        x_zero, w_zero: of the same element types, in shapes that broadcast against x and w; None for 0.
    """
    if w.const is None or min(x.rank, w.rank) < 2:
        return centred(x, x_zero) @ centred(w, w_zero)
    weights = _Weights.of(w, w_zero)
    x, x_offset = _as_unsigned(x, x_zero)
    total = apply_op(IntegerMatMul(), x, weights.signed)
    if x_offset is not None:
        total = total - x_offset * weights.sums(-2)
    if weights.offset is not None:
        rows = to_i32(x).sum(-1)
        total = total - weights.offset * rows
    return total


def integer_conv(
    x: Tensor, x_zero: Tensor | None, w: Tensor, w_zero: Tensor | None, slid: Window, group: int | Expr,
    floats: bool = True,
) -> Tensor:  # fmt: skip
    """Convolution of (x - x_zero) with (w - w_zero), all of them bytes, in i32; exact. The margin counts as x_zero.

    Args:
        x_zero: a scalar; None for 0.
        w_zero: a scalar or [M, 1, ..]; None for 0.
        floats: whether it is one of floats, which hold the sums exactly, where channels are few.
    """
    fields = (slid.strides, slid.pads, slid.dilations, group)
    terms = as_int(TensorType(w.dtype, w.shape[1:]).size)
    if floats and terms is not None and few_channels(w.value) and terms * 255 * 255 < EXACT:
        parts = (centred(v, z).cast(F32) for v, z in ((x, x_zero), (w, w_zero)))
        return apply_op(Conv(*fields), *parts).cast(I32)
    weights = _Weights.of(w, w_zero) if w.const is not None else None
    if weights is None or weights.known is None:
        return apply_op(IntegerConv(*fields), centred(x, x_zero), centred(w, w_zero))
    x, offset = _as_unsigned(x, x_zero)
    margin = () if offset is None else (offset.cast(U8),)
    total, *more = (apply_op(IntegerConv(*fields), x, _bytes(part, w), *margin) for part in _in_bytes(weights.known))
    for product in more:
        total = total + product
    if offset is None:
        return total
    return total - offset * weights.sums(*range(1, w.rank)).reshape(w.shape[0], *(1,) * (w.rank - 2))


def _in_bytes(known: Array) -> list[Array]:
    """Integers of -255 to 255 as sums of integers of i8."""
    parts: list[Array] = []
    while not parts or known.any():
        parts.append(known.clip(-128, 127))
        known = known - parts[-1]
    return parts


def few_channels(w: Value) -> bool:
    """Whether the groups of a convolution have so few channels that bytes are not worth a kernel."""
    channels = as_int(w.shape[1])
    return channels is not None and channels <= FEW_CHANNELS


def parameter(v: Tensor, tail: int) -> Tensor:
    """A scale or zero point of the whole tensor as a scalar, a vector with `tail` dimensions of 1 behind it."""
    if as_int(v.type.size) == 1:
        shape: tuple[Expr, ...] = ()
    elif v.rank == 1:
        shape = (*v.shape, *(const(1),) * tail)
    else:
        return v
    if shape == v.shape:
        return v
    return v.reshape(*shape) if v.const is None else v.constant(v.const.reshape([as_int(d) or 0 for d in shape]))


def to_i32(x: Tensor) -> Tensor:
    """The operand converted to i32."""
    return x.constant(x.const.astype(np.int32)) if x.const is not None and x.rank == 0 else x.cast(I32)


def centred(x: Tensor, zero: Tensor | None) -> Tensor:
    """x - zero in i32."""
    wide = to_i32(x)
    return wide if zero is None else wide - to_i32(zero)


def _as_unsigned(x: Tensor, zero: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Bytes as u8, and the zero point that goes with them in i32, None for 0."""
    if x.dtype is I8:
        x = (to_i32(x) + 128).cast(U8)
        return x, x.constant(np.full((), 128, np.int32)) if zero is None else to_i32(zero) + 128
    if zero is None or (zero.const is not None and not zero.const.any()):
        return x, None
    return x, to_i32(zero)


@dataclass(frozen=True)
class _Weights:
    """Constant weights for kernels.

    Attributes:
        signed: as i8.
        offset: the zero point that goes with them in i32; None for 0, as after a zero point that is known has been
            taken off, where the differences are bytes.
        known: the differences, when the zero point is known.
        original: the weights and their zero point.
    """

    signed: Tensor
    offset: Tensor | None
    known: Array | None
    original: tuple[Tensor, Tensor | None]

    @classmethod
    def of(cls, w: Tensor, zero: Tensor | None) -> _Weights:
        assert w.const is not None
        given = w, zero
        away = None if zero is None else zero.const
        known = None if zero is not None and away is None else _difference(w.const, away)
        if known is not None and known.size and known.min() >= -128 and known.max() <= 127:
            return cls(_bytes(known, w), None, known, given)
        offset = w.constant(np.zeros((), np.int32)) if zero is None else to_i32(zero)
        if w.dtype is I8:
            return cls(w, offset, known, given)
        return cls(_bytes(w.const.astype(np.int32) - 128, w), offset - 128, known, given)

    def sums(self, *axes: int) -> Tensor:
        """Sums of weights less zero point, in i32, the axes kept."""
        if self.known is not None:
            return self.signed.constant(self.known.sum(axes, dtype=np.int32, keepdims=True))
        return centred(*self.original).sum(axes)


def _difference(w: Array, zero: Array | None) -> Array:
    wide: Array = w.astype(np.int32)
    if zero is None:
        return wide
    if zero.ndim > w.ndim or any(z not in (1, d) for z, d in zip(zero.shape[::-1], w.shape[::-1], strict=False)):
        raise ModelError(
            f"weights of shape {list(w.shape)} with a zero point of shape {list(zero.shape)}"
            ", which does not broadcast to them"
        )
    return wide - zero.astype(np.int32)


def _bytes(array: Array, like: Tensor) -> Tensor:
    return Tensor(like.builder, like.builder.graph.constant(array.astype(np.int8), like.value.name))
