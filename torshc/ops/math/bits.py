"""Tensors as other types of the same bits."""

from __future__ import annotations

from dataclasses import dataclass

from ...base.errors import ModelError
from ...expr import (
    BF16,
    BOOL,
    F16,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    NARROW,
    U8,
    U16,
    U32,
    U64,
    DType,
    from_onnx,
)  # fmt: skip
from ...graph import Value
from ..core import scalar
from ..core.base import Inputs, operator
from ..core.pointwise import Pointwise
from ..core.scalar import Scalar, float32, float64, raw32, raw64, where
from ..core.source import SourceNode, Unsupported

_TYPES = (F64, F32, F16, BF16, I64, I32, I16, I8, U64, U32, U16, U8, BOOL, *NARROW)


@operator()
@dataclass(frozen=True)
class BitCast(Pointwise):
    """The bits of each element read as another type of the same width.

    Decided here where ONNX leaves it open: a byte that is neither 0 nor 1 becomes true; a signalling NaN of 16 bits may
    become a quiet one, and one of f8e5m2 or that is folded at compile time any NaN.

    Attributes:
        to: element type of the result.
        of: element type of the operand.
    """

    to: DType = F32
    of: DType = I32

    def body(self, *xs: Scalar) -> Scalar:
        return _from_bits(_to_bits(xs[0], self.of), self.to)

    def result(self, inputs: Inputs) -> DType:
        return self.to

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        x, code = source.required(0), int(source.attribute("to", 0))
        dtype = from_onnx(code)
        if dtype is None or dtype not in _TYPES or x.dtype not in _TYPES:
            raise Unsupported(f"BitCast of {x.dtype!r} to {dtype or f'ONNX type {code}'!r}")
        if dtype.bits != x.dtype.bits:
            raise ModelError(f"BitCast of {x.dtype!r} to {dtype!r}, which has another width")
        return [x] if dtype is x.dtype else source.emit(cls(dtype, x.dtype), [x])


@operator(domain="torshc")
@dataclass(frozen=True)
class RoundToTf32(Pointwise):
    """The nearest float of tf32's 10 bits of mantissa, halves away from zero; NaN stays.

    Tensor cores read such a float as it is, where they leave out the low bits of others.
    """

    def body(self, *xs: Scalar) -> Scalar:
        bits = raw32(xs[0])
        return where((bits & 0x7FFFFFFF) > 0x7F800000, xs[0], float32((bits + 0x1000) & 0xFFFFE000))


def _to_bits(x: Scalar, dtype: DType) -> Scalar:
    """A register's value as the bits that it has in memory, of a width that is enough; f16 and bf16 are in f32."""
    if dtype is F64:
        return raw64(x)
    if dtype is F32:
        return raw32(x)
    if dtype is BF16:
        return raw32(scalar.as_bf16(x)) >> 16
    if dtype.is_narrow:
        return scalar.function_named(f"bits_{dtype.name}")(x)
    if dtype is not F16:
        return x
    word = raw32(scalar.as_f16(x))
    size = word & 0x7FFFFFFF
    small = (float32(size) * 2.0**24).cast(U32)  # below 2^-14, in units of 2^-24
    bits = where(size < 0x38800000, small, (size - 0x38000000) >> 13)
    endless = (size >> 13) & 0x3FF | 0x7C00
    return (word >> 16) & 0x8000 | where(size >= 0x7F800000, endless, bits)


def _from_bits(bits: Scalar, dtype: DType) -> Scalar:
    """The inverse of `_to_bits`."""
    if dtype.is_narrow:
        return scalar.function_named(f"from_bits_{dtype.name}")(bits.cast(U8))
    if not dtype.is_float:
        return bits.cast(dtype)
    if dtype is F64:
        return float64(bits.cast(U64))
    if dtype is F32:
        return float32(bits.cast(U32))
    word = bits.cast(U32) & 0xFFFF
    if dtype is BF16:
        return float32(word << 16)
    size = word & 0x7FFF
    small = raw32(size.cast(I32).cast(F32) * 2.0**-24)
    wide = where(size < 0x400, small, (size << 13) + 0x38000000)
    wide = where(size >= 0x7C00, size << 13 | 0x7F800000, wide)
    return float32((word & 0x8000) << 16 | wide)
