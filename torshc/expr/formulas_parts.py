"""What formulas of scalar functions have in common: their rows in the table, and steps that several of them take."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from .dtype import I32, U32
from .expr import Expr
from .functions import FUNCTIONS, Function, Slope, call, cast
from .terms import Language, where

LANGUAGE: ContextVar[Language] = ContextVar("language")  # the one that a formula is made for

LOG2E = 1.44269504088896341

Formula = Callable[..., Expr]


def elementary(
    numpy: Callable[..., Any],
    cost: int,
    *slopes: Slope,
    double: Formula | None = None,
    generic: bool = False,
    reach: float = math.inf,
) -> Callable[[Formula], Formula]:
    """Decorator: a row of the table for a formula of f32, named as it is after its underscore.

    Args:
        numpy: the same function on arrays.
        cost: rough price in multiply-adds.
        slopes: derivatives by each argument.
        double: the formula in f64; without it the C library has a function of this name.
        generic: whether the formula is one of f64 too.
        reach: arguments further from 0 are left to the C library's function, where a language can call it.
    """

    def register(formula: Formula) -> Formula:
        name = formula.__name__[1:]
        wide = formula if generic else double
        FUNCTIONS[name] = Function(name, "same", numpy, cost, formula=formula, double=wide, reach=reach, slopes=slopes)
        return formula

    return register


def bell(t: Expr, factor: float, scale: float, a: Expr) -> Expr:
    """t * factor * exp(scale * a * a), a slope."""
    return t * factor * call("exp", a * a * scale)


def keep_nan(x: Expr, value: Expr) -> Expr:
    """A value that arithmetic makes NaN where x is, said where compilers may take NaN for absent."""
    return value if LANGUAGE.get().exact else where(call("isnan", x), x, value)


def nearest(x: Expr, offset: int) -> tuple[Expr, Expr]:
    """The integer nearest to x of less than 2^22, and the same plus an offset in the low bits of a u32."""
    if not LANGUAGE.get().exact:
        k = call("round", x)
        return k, cast(cast(k, I32) + offset, U32)
    whole = 1.5 * 2**23 + offset  # a sum with it has no bits behind the point
    moved = x + whole
    return moved - whole, call("raw32", moved)


def power(n: Expr) -> Expr:
    """2^(n - 127) of the low bits of n, which are 1 to 254."""
    return call("float32", call("shl", n, 23))
