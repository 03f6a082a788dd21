"""Terms that formulas of scalar functions are made of: choices, signs, bits and polynomials; what languages have."""

from __future__ import annotations

from dataclasses import dataclass

from .dtype import F64, U32
from .expr import Expr, Scalar, const
from .functions import call


@dataclass(frozen=True)
class Language:
    """What a language has of the arithmetic that formulas are made of.

    Attributes:
        exact: whether sums are computed in the order written, and NaN and infinities are not taken for absent.
        wide: whether it has f64.
        fused: whether its fma rounds once; asked only where there is no f64.
        scales: whether multiplying f32 by a power of two is one instruction, whatever the power (``scale``).
        bytes: whether it has integers of 8 and 16 bits; else these lie in u32.
    """

    exact: bool = True
    wide: bool = True
    fused: bool = False
    scales: bool = False
    bytes: bool = True


EXACT = Language()


def where(test: Expr, a: Scalar, b: Scalar) -> Expr:
    """a where something is true, else b."""
    return call("select", test, a, b)


def over(a: Scalar, b: Scalar) -> Expr:
    """a / b"""
    return call("div", a, b)


def absolute(x: Expr) -> Expr:
    """x without its sign."""
    return call("abs", x)


def bit_and(a: Expr, b: Scalar) -> Expr:
    """The bits that both have."""
    return call("bitand", a, b)


def bit_or(a: Expr, b: Scalar) -> Expr:
    """The bits that either has."""
    return call("bitor", a, b)


def bits(number: int) -> Expr:
    """Bits as a u32."""
    return const(number, U32)


def with_sign(x: Expr, sign: Expr) -> Expr:
    """x, which is not negative, with the sign of another."""
    if x.dtype is F64:
        return call("float64", bit_or(call("raw64", x), bit_and(call("raw64", sign), 1 << 63)))
    return call("float32", bit_or(call("raw32", x), bit_and(call("raw32", sign), 1 << 31)))


def flip_sign(x: Expr, signs: Expr) -> Expr:
    """x with another sign where the first of some bits is set."""
    return call("float32", call("bitxor", call("raw32", x), signs))


def magnitude(x: Expr) -> Expr:
    """The bits of a float but for its sign."""
    return bit_and(call("raw32", x), 0x7FFFFFFF)


def polynomial(x: Expr, *factors: float) -> Expr:
    """By Horner's rule, the highest power first."""
    first, *rest = factors
    found: Scalar = first
    for factor in rest:
        found = x * found + factor
    assert isinstance(found, Expr)
    return found


__all__ = [
    "EXACT",
    "Language",
    "absolute",
    "bit_and",
    "bit_or",
    "bits",
    "flip_sign",
    "magnitude",
    "over",
    "polynomial",
    "where",
    "with_sign",
]  # fmt: skip
