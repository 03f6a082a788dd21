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
    Expr,
    call,
    cast,
    from_onnx,
    select,
)  # fmt: skip
from ...graph import Value
from ..core.base import Inputs, operator
from ..core.source import SourceNode, Unsupported
from .pointwise import Pointwise

_TYPES = (F64, F32, F16, BF16, I64, I32, I16, I8, U64, U32, U16, U8, BOOL, *NARROW)


@operator()
@dataclass(frozen=True)
class BitCast(Pointwise):
    """The same bits as another type of the same width.

    Decided here where ONNX leaves it open: a byte that is neither 0 nor 1 becomes true; a signalling NaN of 16 bits may
    become a quiet one, and one of f8e5m2 or that is folded at compile time any NaN.

    Attributes:
        to: element type of the result.
        of: element type of the operand.
    """

    to: DType = F32
    of: DType = I32

    def body(self, *xs: Expr) -> Expr:
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


def _to_bits(x: Expr, dtype: DType) -> Expr:
    """A register's value as the bits that it has in memory, of a width that is enough; f16 and bf16 are in f32."""
    if dtype is F64:
        return call("raw64", x)
    if dtype is F32:
        return call("raw32", x)
    if dtype is BF16:
        return call("shr", call("raw32", call("as_bf16", x)), 16)
    if dtype.is_narrow:
        return call(f"bits_{dtype.name}", x)
    if dtype is not F16:
        return x
    word = call("raw32", call("as_f16", x))
    size = call("bitand", word, 0x7FFFFFFF)
    small = cast(call("mul", call("float32", size), 2.0**24), U32)  # below 2^-14, in units of 2^-24
    bits = select(call("lt", size, 0x38800000), small, call("shr", call("sub", size, 0x38000000), 13))
    endless = call("bitor", call("bitand", call("shr", size, 13), 0x3FF), 0x7C00)
    bits = select(call("ge", size, 0x7F800000), endless, bits)
    return call("bitor", call("bitand", call("shr", word, 16), 0x8000), bits)


def _from_bits(bits: Expr, dtype: DType) -> Expr:
    """The inverse of `_to_bits`."""
    if dtype.is_narrow:
        return call(f"from_bits_{dtype.name}", cast(bits, U8))
    if not dtype.is_float:
        return cast(bits, dtype)
    if dtype is F64:
        return call("float64", cast(bits, U64))
    if dtype is F32:
        return call("float32", cast(bits, U32))
    word = call("bitand", cast(bits, U32), 0xFFFF)
    if dtype is BF16:
        return call("float32", call("shl", word, 16))
    size = call("bitand", word, 0x7FFF)
    small = call("raw32", call("mul", cast(cast(size, I32), F32), 2.0**-24))
    wide = select(call("lt", size, 0x400), small, call("add", call("shl", size, 13), 0x38000000))
    wide = select(call("ge", size, 0x7C00), call("bitor", call("shl", size, 13), 0x7F800000), wide)
    return call("float32", call("bitor", call("shl", call("bitand", word, 0x8000), 16), wide))
