"""Elements of 16 bits and fewer as formulas over their bits: the only definition of what these stand for.

Reading is exact; bits above those of a type are not looked at. Writing a float gives the nearest number of the type,
subnormals included, and of two that are as near the one whose last bit is 0. What is beyond the largest by half a step
or more becomes what :class:`Format` says; a cast that saturates clamps before. NaN stays NaN where a type has it, and
in 16 bits it keeps the upper bits of its fraction. Integers keep their low bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from operator import attrgetter

from .dtype import (
    BF16,
    DTYPES,
    F4E2M1,
    F8E4M3FN,
    F8E4M3FNUZ,
    F8E5M2,
    F8E5M2FNUZ,
    F8E8M0,
    F16,
    F32,
    I32,
    U8,
    U16,
    U32,
    DType,
)
from .expr import Expr, acc
from .functions import call, cast, eq, min_of
from .terms import Language, bit_and, bit_or, bits, magnitude, where

X = acc("x", F32)
QUIET = 0x7FC00000  # the f32 that is NaN


@dataclass(frozen=True)
class Format:
    """A float of a sign, an exponent and a fraction.

    Attributes:
        fraction: bits of the fraction.
        bias: what the exponent is larger by than that of the number.
        beyond: the code, without its sign, of what is beyond the largest number.
        what: what that code is: an infinity, with NaN above it; NaN; NaN instead of -0, in a type without -0; or a
            number, in a type without NaN, where NaN is written as the zero of the other sign, as by ml_dtypes.
    """

    fraction: int
    bias: int
    beyond: int
    what: str

    @property
    def rebased(self) -> int:
        """What the exponent of an f32 is larger by."""
        return 127 - self.bias

    @property
    def first_beyond(self) -> float:
        """The number that the code of what is beyond would be."""
        exponent, fraction = divmod(self.beyond, 1 << self.fraction)
        return math.ldexp(1.0 + fraction / (1 << self.fraction), exponent - self.bias)


INFINITY, NAN, MINUS_ZERO, NUMBER = "infinity", "NaN", "NaN instead of -0", "number"
FORMATS = {
    F16: Format(10, 15, 0x7C00, INFINITY),
    BF16: Format(7, 127, 0x7F80, INFINITY),
    F8E4M3FN: Format(3, 7, 0x7F, NAN),
    F8E4M3FNUZ: Format(3, 8, 0x80, MINUS_ZERO),
    F8E5M2: Format(2, 15, 0x7C, INFINITY),
    F8E5M2FNUZ: Format(2, 16, 0x80, MINUS_ZERO),
    F4E2M1: Format(1, 1, 7, NUMBER),
}


def memory_type(dtype: DType, language: Language) -> DType:
    """The type of the bits of an element."""
    return U32 if not language.bytes else U8 if dtype.size == 1 else U16


def decode(dtype: DType, language: Language) -> Expr:
    """The value of an element, whose bits are x."""
    x = acc("x", memory_type(dtype, language))
    if dtype.kind == "u":
        return bit_and(x, dtype.range[1])
    if dtype.kind == "i":  # moved to the end of a word and back, which leaves copies of its sign
        wide = dtype.register if language.bytes else I32
        rest = 8 * wide.size - dtype.bits
        return call("shr", cast(call("shl", x, rest), wide), rest)
    code = cast(x, U32)
    if dtype is F8E8M0:
        return _power(code)
    if dtype is BF16:
        return call("float32", call("shl", code, 16))
    f, size = FORMATS[dtype], dtype.bits - 1
    part, sign = bit_and(code, 2**size - 1), call("shl", bit_and(code, 1 << size), 31 - size)
    found = normal = call("shl", part, 23 - f.fraction) + (f.rebased << 23)
    if dtype is F16 and language.exact:  # subnormals of f32 are numbers like others
        found = call("raw32", call("float32", call("shl", part, 13)) * 2.0**f.rebased)
    else:  # many processors are slow with subnormals, and shaders may not have them: as whole numbers of their step
        small = call("raw32", cast(cast(part, I32), F32) * 2.0 ** (1 - f.bias - f.fraction))
        found = where(part < 1 << f.fraction, small, normal)
    # By floats, since of bytes compilers compare these and then widen all answers.
    is_beyond = call("float32", normal) >= f.first_beyond
    if f.what is INFINITY:
        found = bit_or(found, where(is_beyond, bits(0x7F800000), bits(0)))
    elif f.what is NAN:
        found = where(is_beyond, bits(QUIET), found)
    elif f.what is MINUS_ZERO:
        found = where(eq(code, f.beyond), bits(QUIET), found)
    return call("float32", bit_or(found, sign))


def encode(dtype: DType, language: Language) -> Expr:
    """The bits of the element that x is written as."""
    to = memory_type(dtype, language)
    if dtype.is_int:
        x = acc("x", dtype.register if language.bytes else {"i": I32, "u": U32}[dtype.kind])
        return bit_and(cast(x, to), 2**dtype.bits - 1)
    w, a = call("raw32", X), magnitude(X)
    if dtype is F8E8M0:
        return cast(call("shr", a, 23), to)
    nan, f = a > 0x7F800000, FORMATS[dtype]
    size = dtype.bits - 1
    if dtype is BF16:
        upper = call("shr", w, 16)
        rounded = call("shr", w + 0x7FFF + bit_and(upper, 1), 16)
        return cast(where(nan, bit_or(upper, bits(0x40)), rounded), to)
    sign, code = bit_and(call("shr", w, 31 - size), 1 << size), _nearest(a, f)
    if dtype is F16:
        quiet = bit_or(bit_and(call("shr", a, 13), 0x3FF), bits(0x7E00))
        code = where(a < 0x477FF000, code, where(nan, quiet, bits(f.beyond)))  # from there on it rounds up
    else:
        code = min_of(code, f.beyond)
        if f.what is INFINITY:
            code = bit_or(code, where(nan, bits(1 << (f.fraction - 1)), bits(0)))
    if f.what is MINUS_ZERO:  # NaN is a sign alone
        sign = where(eq(code, 0), bits(0), sign)
    if f.what is NUMBER:
        return cast(call("bitxor", where(nan, bits(1 << size), code), sign), to)
    return cast(bit_or(code, sign), to)


def _nearest(a: Expr, f: Format) -> Expr:
    """The code nearest to an f32 without its sign, whose bits are a; beyond the largest some larger code."""
    shift = 23 - f.fraction
    odd = bit_and(call("shr", a, shift), 1)
    normal = call("shr", a + (2 ** (shift - 1) - 1) + odd, shift) - (f.rebased << f.fraction)
    step = (f.rebased + shift + 1) << 23  # a number whose last place is the step of subnormals
    small = call("raw32", call("float32", a) + call("float32", bits(step))) - step
    return where(a < (f.rebased + 1) << 23, small, normal)


def _power(code: Expr) -> Expr:
    """Of f8e8m0, the exponent of an f32 alone: 2^(code - 127), and NaN."""
    half = where(eq(code, 0) | eq(code, 255), bits(0x400000), bits(0))
    return call("float32", bit_or(call("shl", code, 23), half))


def _to_power(nearest: bool, language: Language) -> Expr:
    """The power of two of f8e8m0 from abs(x) on, or the one that half of the way, of subnormals more, leads to."""
    a = magnitude(X)
    rest, code = bit_and(a, 0x7FFFFF), call("shr", a, 23)
    least = where(eq(code, 0), bits(0x400001), bits(0x400000)) if nearest else bits(1)
    return _power(min_of(code + where(rest >= least, bits(1), bits(0)), 255))


def _rows() -> Iterator[tuple[str, Callable[[Language], Expr]]]:
    for dtype in filter(attrgetter("is_storage"), DTYPES.values()):
        yield f"decode_{dtype.name}", partial(decode, dtype)
        yield f"encode_{dtype.name}", partial(encode, dtype)
    yield "as_f8e8m0_up", partial(_to_power, False)
    yield "as_f8e8m0_nearest", partial(_to_power, True)


# Conversions by their names in generated code after ``t_``; their argument is x.
CONVERSIONS: dict[str, Callable[[Language], Expr]] = dict(_rows())


@cache
def conversions_of(op: str) -> tuple[str, ...]:
    """The conversions, one after the other, that a function named after a type of storage is; none for others."""
    if op in CONVERSIONS:
        return (op,)
    for start, steps in _STEPS.items():
        found = tuple(f"{step}_{op.removeprefix(start)}" for step in steps)
        if op.startswith(start) and found[0] in CONVERSIONS:
            return found
    return ()


_STEPS = {"as_": ("encode", "decode"), "bits_": ("encode",), "from_bits_": ("decode",)}

__all__ = ["CONVERSIONS", "FORMATS", "conversions_of", "memory_type"]
