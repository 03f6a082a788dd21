"""Formulas for languages that lack what the others spell themselves.

Comparisons, remainders, shifts and conversions in the corners, where a language leaves open what they are, and integers
of 8 and 16 bits as the words that hold them. NaN is asked for by name where it has to stay, since compilers of shaders
may take it for absent.
"""

from __future__ import annotations

from .dtype import F32, I8, I16, I32, U8, U16, U32, DType
from .expr import Expr, Scalar, acc, const
from .formulas_wide import wide_formulas
from .functions import call, cast, eq, ne
from .terms import absolute, bit_and, bits, magnitude, over, where, with_sign

X, Y, BITS = acc("x", F32), acc("y", F32), acc("x", U32)  # arguments of formulas


# ---- what comparisons, remainders and conversions are in the corners -----------------------------------------------


def _of_floats() -> dict[str, Expr]:
    """numpy.maximum and minimum, NaN if either is; Python's remainder and quotient, as numpy.floor_divide has them."""
    nan, r, whole = call("isnan", X), call("fmod", X, Y), over(X, Y)
    zero = const(0.0, F32)
    differ = ne(r < 0.0, Y < 0.0)
    wraps = ne(r, 0.0) & differ
    q = over(X - r, Y)
    q = where(wraps, q - 1.0, q)
    f = call("floor", q)
    f = where(q - f > 0.5, f + 1.0, f)
    f = where(eq(q, 0.0), with_sign(zero, whole), f)
    sign = where(X > 0.0, 1.0, where(X < 0.0, const(-1.0, F32), zero))
    return {
        "max_f32": where((X >= Y) | nan, X, Y),
        "min_f32": where((X <= Y) | nan, X, Y),
        "sign_f32": where(nan, X, sign),
        "copysign_f32": with_sign(absolute(X), Y),
        "mod_f32": where(eq(r, 0.0), with_sign(zero, Y), where(differ, r + Y, r)),
        "floordiv_f32": where(eq(Y, 0.0), whole, f),
    }


def _of_integers(dtype: DType) -> dict[str, Expr]:
    """A quotient by 0 is 0, as are all remainders; shifts by the width or more, or less than 0, leave only the sign."""
    x, y, signed = acc("x", dtype), acc("y", dtype), dtype.kind == "i"
    none = eq(y, 0)
    turned = eq(y, -1) if signed else none
    safe = where(none | turned, 1, y)
    q = over(x, safe)
    r = x - q * safe  # as Vulkan leaves a remainder undefined where an operand is negative
    q = where(none, 0, where(turned, call("neg", x), q) if signed else q)
    within, by = cast(y, U32) < 32, bit_and(y, 31)
    far: Scalar = call("shr", x, 31) if signed else 0
    found = {
        "div": q,
        "fmod": r,
        "shl": where(within, call("shl", x, by), 0),
        "shr": where(within, call("shr", x, by), far),
    }
    if signed:
        wraps = ne(r, 0) & (call("bitxor", r, y) < 0)
        found |= {"mod": where(wraps, r + y, r), "floordiv": where(wraps, q - 1, q)}
    return {f"{name}_{dtype.name}": e for name, e in found.items()}


def _truncate(x: Expr, dtype: DType) -> Expr:
    """A float as an integer: what is out of range saturates, NaN is 0."""
    kind, (low, high) = I32 if dtype.kind == "i" else U32, dtype.range
    found = where(x >= float(high + 1), const(high, kind), cast(x, kind))
    return where(call("isnan", x), const(0, kind), where(x <= float(low), const(low, kind), found))


def _order(x: Expr, nan: int) -> Expr:
    """A key of a float in the order of numbers, and what it is for NaN."""
    w = call("raw32", x)
    turned = where(w > 0x7FFFFFFF, bits(0xFFFFFFFF), bits(1 << 31))
    return where(call("isnan", x), bits(nan), call("bitxor", w, turned))


def _float_of_key(key: Expr) -> Expr:
    """The float of a key."""
    turned = where(key > 0x7FFFFFFF, bits(1 << 31), bits(0xFFFFFFFF))
    return call("float32", call("bitxor", key, turned))


def corner_formulas() -> dict[str, Expr]:
    """Formulas by the names of functions in generated code after ``t_``; their arguments are x and y."""
    found = {"isnan_f32": magnitude(X) > 0x7F800000, "isinf_f32": eq(magnitude(X), 0x7F800000)}
    found |= {"order_max_f32": _order(X, 0xFFFFFFFF), "order_min_f32": _order(X, 0), "ordered_f32": _float_of_key(BITS)}
    for rest, dtype in ((24, I8), (16, I16)):
        found[f"decode_{dtype.name}"] = call("shr", cast(call("shl", BITS, rest), I32), rest)
    found |= _of_floats() | _of_integers(I32) | _of_integers(U32) | wide_formulas()
    return found | {f"cast_f32_{t.name}": _truncate(X, t) for t in (I32, I16, I8, U32, U16, U8)}


__all__ = ["corner_formulas"]
