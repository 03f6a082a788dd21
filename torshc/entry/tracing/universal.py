"""NumPy's universal functions as ONNX's operators; operands have been cast to the types of one of NumPy's loops."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from .array import UFUNCS, Trace, Traced

Function = Callable[..., Any]

_SAME = {
    "add": "Add", "subtract": "Sub", "multiply": "Mul", "absolute": "Abs", "fabs": "Abs", "negative": "Neg",
    "exp": "Exp", "log": "Log", "sqrt": "Sqrt", "sin": "Sin", "cos": "Cos", "tan": "Tan", "arcsin": "Asin",
    "arccos": "Acos", "arctan": "Atan", "sinh": "Sinh", "cosh": "Cosh", "tanh": "Tanh", "arcsinh": "Asinh",
    "arccosh": "Acosh", "arctanh": "Atanh", "floor": "Floor", "ceil": "Ceil", "rint": "Round", "sign": "Sign",
    "power": "Pow", "less": "Less", "less_equal": "LessOrEqual", "greater": "Greater",
    "greater_equal": "GreaterOrEqual", "equal": "Equal", "isnan": "IsNaN", "isinf": "IsInf", "maximum": "Max",
    "minimum": "Min", "positive": "Identity",
}  # fmt: skip
_LOGIC = {"logical_and": "And", "logical_or": "Or", "logical_xor": "Xor"}
_BITS = {"bitwise_and": "And", "bitwise_or": "Or", "bitwise_xor": "Xor"}
_ON_BOOL = {"add": "Or", "multiply": "And", "maximum": "Or", "minimum": "And"}


def _plain(op: str, on_bool: str, trace: Trace, *xs: Traced) -> Traced:
    if on_bool and xs[0].dtype == np.bool_:
        return trace.add(on_bool, *xs)
    if op in ("Floor", "Ceil", "Round") and xs[0].dtype.kind in "iub":
        return xs[0]
    return trace.add(op, *xs)


UFUNCS |= {name: partial(_plain, op, _ON_BOOL.get(name, "")) for name, op in _SAME.items()}
UFUNCS |= {name: lambda t, a, b, op=op: t.add(op, a.to(np.bool_), b.to(np.bool_)) for name, op in _LOGIC.items()}
UFUNCS |= {
    name: lambda t, a, b, op=op: t.add(op if a.dtype == np.bool_ else f"Bitwise{op}", a, b)
    for name, op in _BITS.items()
}


def ufunc(name: str) -> Callable[[Function], Function]:
    """Decorator: the function that traces a universal function of NumPy's."""

    def register(made: Function) -> Function:
        UFUNCS[name] = made
        return made

    return register


def like(t: Trace, x: Traced, value: float) -> Traced:
    """A number as a constant of x's type."""
    return t.constant(value, x.dtype)


UFUNCS["divide"] = lambda t, a, b: t.add("Div", a, b)
UFUNCS["square"] = lambda t, x: t.add("Mul", x, x)
UFUNCS["reciprocal"] = lambda t, x: t.add("Div", like(t, x, 1), x)
UFUNCS["not_equal"] = lambda t, a, b: t.add("Not", t.add("Equal", a, b))
UFUNCS["logical_not"] = lambda t, x: t.add("Not", x.to(np.bool_))
UFUNCS["invert"] = lambda t, x: t.add("Not" if x.dtype == np.bool_ else "BitwiseNot", x)
UFUNCS["log2"] = lambda t, x: t.add("Mul", t.add("Log", x), like(t, x, 1 / np.log(2)))
UFUNCS["log10"] = lambda t, x: t.add("Mul", t.add("Log", x), like(t, x, 1 / np.log(10)))
UFUNCS["exp2"] = lambda t, x: t.add("Pow", like(t, x, 2), x)
UFUNCS["fmax"] = lambda t, a, b: _choose_known(t, "Max", a, b)
UFUNCS["fmin"] = lambda t, a, b: _choose_known(t, "Min", a, b)
UFUNCS["matmul"] = lambda t, a, b: t.add("MatMul", a, b)
UFUNCS["hypot"] = lambda t, a, b: t.add("Sqrt", t.add("Add", t.add("Mul", a, a), t.add("Mul", b, b)))


def _choose_known(t: Trace, op: str, a: Traced, b: Traced) -> Traced:
    """The larger or smaller of two; if one is NaN, the other."""
    if a.dtype.kind != "f":
        return t.add(op, a, b)
    return t.add("Where", t.add("IsNaN", a), b, t.add("Where", t.add("IsNaN", b), a, t.add(op, a, b)))


@ufunc("isfinite")
def _isfinite(t: Trace, x: Traced) -> Traced:
    return t.add("Not", t.add("Or", t.add("IsNaN", x), t.add("IsInf", x)))


@ufunc("trunc")
def _trunc(t: Trace, x: Traced) -> Traced:
    down = t.add("Floor", x)
    return t.add("Where", t.add("Less", x, like(t, x, 0)), t.add("Ceil", x), down) if x.dtype.kind == "f" else x


@ufunc("remainder")
def _remainder(t: Trace, a: Traced, b: Traced) -> Traced:
    """Python's: the sign is that of the divisor."""
    if a.dtype.kind != "f":
        return t.add("Mod", a, b)
    rest = t.add("Mod", a, b, fmod=1)
    zero = like(t, a, 0)
    differ = t.add("Xor", t.add("Less", rest, zero), t.add("Less", b, zero))
    wraps = t.add("And", differ, t.add("Not", t.add("Equal", rest, zero)))
    return t.add("Where", wraps, t.add("Add", rest, b), rest)


@ufunc("fmod")
def _fmod(t: Trace, a: Traced, b: Traced) -> Traced:
    return t.add("Mod", a, b, fmod=1)


@ufunc("floor_divide")
def _floor_divide(t: Trace, a: Traced, b: Traced) -> Traced:
    if a.dtype.kind == "u":
        return t.add("Div", a, b)
    if a.dtype.kind == "f":
        exact = t.add("Div", t.add("Sub", a, _remainder(t, a, b)), b)
        return t.add("Where", t.add("Equal", b, like(t, b, 0)), t.add("Div", a, b), t.add("Round", exact))
    quotient, rest = t.add("Div", a, b), t.add("Mod", a, b, fmod=1)
    zero = like(t, a, 0)
    differ = t.add("Xor", t.add("Less", rest, zero), t.add("Less", b, zero))
    wraps = t.add("And", differ, t.add("Not", t.add("Equal", rest, zero)))
    return t.add("Sub", quotient, wraps.to(a.dtype))


@ufunc("expm1")
def _expm1(t: Trace, x: Traced) -> Traced:
    """2 sinh(x / 2) e^(x / 2), which loses nothing for small numbers."""
    half = t.add("Mul", x, like(t, x, 0.5))
    near = t.add("Mul", t.add("Mul", t.add("Sinh", half), t.add("Exp", half)), like(t, x, 2))
    return t.add(
        "Where", t.add("Less", t.add("Abs", x), like(t, x, 1)), near, t.add("Sub", t.add("Exp", x), like(t, x, 1))
    )


@ufunc("log1p")
def _log1p(t: Trace, x: Traced) -> Traced:
    """2 artanh(x / (2 + x)), which loses nothing for small numbers."""
    near = t.add("Mul", t.add("Atanh", t.add("Div", x, t.add("Add", x, like(t, x, 2)))), like(t, x, 2))
    far = t.add("Log", t.add("Add", x, like(t, x, 1)))
    return t.add("Where", t.add("Less", t.add("Abs", x), like(t, x, 0.5)), near, far)


@ufunc("logaddexp")
def _logaddexp(t: Trace, a: Traced, b: Traced) -> Traced:
    larger = t.add("Max", a, b)
    far = t.add("Neg", t.add("Abs", t.add("Sub", a, b)))
    return t.add(
        "Where",
        t.add("Equal", a, b),
        t.add("Add", a, like(t, a, np.log(2))),
        t.add("Add", larger, _log1p(t, t.add("Exp", far))),
    )
