"""Formulas for languages that lack what the others spell themselves.

Elements of 16 bits and fewer as the bits that hold them; comparisons, remainders, shifts and conversions in the
corners, where a language leaves open what they are. NaN is asked for by name where it has to stay, since compilers of
shaders may take it for absent.
"""

from __future__ import annotations

from .dtype import BF16, F8E8M0, F16, F32, I8, I16, I32, NARROW, U8, U16, U32, DType
from .expr import Expr, Scalar, acc, const
from .formulas_wide import wide_formulas
from .functions import call, cast
from .terms import absolute, bits, magnitude, masked, merged, over, where, with_sign

X, Y, BITS = acc("x", F32), acc("y", F32), acc("x", U32)  # arguments of formulas
# Bits of the fraction, bias of the exponent, and the code that what is beyond the largest number gets.
FORMATS = {
    "f16": (10, 15, 0x7C00), "bf16": (7, 127, 0x7F80), "f8e4m3fn": (3, 7, 0x7F), "f8e4m3fnuz": (3, 8, 0x80),
    "f8e5m2": (2, 15, 0x7C), "f8e5m2fnuz": (2, 16, 0x80), "f4e2m1": (1, 1, 7),
}  # fmt: skip


def decode(code: Expr, dtype: DType) -> Expr:
    """The value of an element as its bits, of which only its own count."""
    if dtype.kind == "u":
        return masked(code, dtype.range[1])
    if dtype.kind == "i":
        rest = 32 - dtype.bits
        return call("shr", cast(call("shl", code, rest), I32), rest)
    if dtype is F8E8M0:
        half = where(call("or", call("eq", code, 0), call("eq", code, 255)), bits(0x400000), bits(0))
        return call("float32", merged(call("shl", code, 23), half))
    m, bias, most = FORMATS[dtype.name]
    size = dtype.bits - 1
    part, sign = masked(code, 2**size - 1), call("shl", masked(code, 1 << size), 31 - size)
    low = call("raw32", cast(part, F32) * 2.0 ** (1 - bias - m))  # without a subnormal f32
    found = where(call("lt", part, 1 << m), low, call("shl", part, 23 - m) + (127 - bias << 23))
    if dtype is BF16:
        found = call("shl", part, 16)
    elif dtype.name in ("f16", "f8e5m2"):
        quiet = where(call("gt", part, most), bits(0x400000), bits(0))
        special = merged(call("shl", part, 23 - m), merged(quiet, bits(0x7F800000)))
        found = where(call("ge", part, most), special, found)
    elif dtype.name == "f8e4m3fn":
        found = where(call("eq", part, most), bits(0x7FC00000), found)
    found = merged(found, sign)
    if most == 0x80:  # "fnuz": one zero, and NaN where -0 would be
        found = where(call("eq", code, most), bits(0x7FC00000), found)
    return call("float32", found)


def encode(x: Expr, dtype: DType) -> Expr:
    """The bits of an element: those of the nearest number, of halves the even one."""
    if dtype.is_int:
        return masked(cast(x, U32), 2**dtype.bits - 1)
    w = call("raw32", x)
    a, nan = masked(w, 0x7FFFFFFF), call("isnan", x)
    if dtype is F8E8M0:
        return call("shr", a, 23)
    m, bias, most = FORMATS[dtype.name]
    size, shift = dtype.bits - 1, 23 - m
    sign = masked(call("shr", w, 31 - size), 1 << size)
    first = (151 - bias - m) << 23  # a number whose last place is the step of subnormals
    low = call("raw32", call("float32", a) + call("float32", bits(first))) - first
    even = call("shr", a + (2 ** (shift - 1) - 1) + masked(call("shr", a, shift), 1), shift) - (127 - bias << m)
    code = call("min", even, most)
    if dtype is not BF16:
        code = where(call("lt", a, (128 - bias) << 23), low, code)
    if dtype.name in ("f16", "bf16", "f8e5m2"):
        code = merged(code, where(nan, bits(1 << (m - 1)), bits(0)))
    if most == 0x80:
        return where(call("or", call("eq", code, 0), call("eq", code, most)), code, merged(code, sign))
    if dtype.name == "f4e2m1":
        return where(nan, call("bitxor", sign, 1 << size), merged(code, sign))
    return merged(code, sign)


def _to_power(x: Expr, nearest: bool) -> Expr:
    """The power of two of f8e8m0 from abs(x) on, or the one that half of the way and more leads to."""
    a = masked(call("raw32", x), 0x7FFFFFFF)
    rest, code = masked(a, 0x7FFFFF), call("shr", a, 23)
    least = where(call("eq", code, 0), bits(0x400001), bits(0x400000)) if nearest else bits(1)
    above = call("and", call("ge", rest, least), call("lt", code, 255))
    return decode(code + where(above, bits(1), bits(0)), F8E8M0)


# ---- what comparisons, remainders and conversions are in the corners -----------------------------------------------


def _of_floats() -> dict[str, Expr]:
    """numpy.maximum and minimum, NaN if either is; Python's remainder and quotient, as numpy.floor_divide has them."""
    nan, r, whole = call("isnan", X), call("fmod", X, Y), over(X, Y)
    zero = const(0.0, F32)
    differ = call("ne", call("lt", r, 0.0), call("lt", Y, 0.0))
    wraps = call("and", call("ne", r, 0.0), differ)
    q = over(X - r, Y)
    q = where(wraps, q - 1.0, q)
    f = call("floor", q)
    f = where(call("gt", q - f, 0.5), f + 1.0, f)
    f = where(call("eq", q, 0.0), with_sign(zero, whole), f)
    sign = where(call("gt", X, 0.0), 1.0, where(call("lt", X, 0.0), const(-1.0, F32), zero))
    return {
        "max_f32": where(call("or", call("ge", X, Y), nan), X, Y),
        "min_f32": where(call("or", call("le", X, Y), nan), X, Y),
        "sign_f32": where(nan, X, sign),
        "copysign_f32": with_sign(absolute(X), Y),
        "mod_f32": where(call("eq", r, 0.0), with_sign(zero, Y), where(differ, r + Y, r)),
        "floordiv_f32": where(call("eq", Y, 0.0), whole, f),
    }


def _of_integers(dtype: DType) -> dict[str, Expr]:
    """A quotient by 0 is 0, as are all remainders; shifts by the width or more, or less than 0, leave only the sign."""
    x, y, signed = acc("x", dtype), acc("y", dtype), dtype.kind == "i"
    none = call("eq", y, 0)
    turned = call("eq", y, -1) if signed else none
    safe = where(call("or", none, turned), 1, y)
    q = call("div", x, safe)
    r = x - q * safe  # as Vulkan leaves a remainder undefined where an operand is negative
    q = where(none, 0, where(turned, call("neg", x), q) if signed else q)
    within, by = call("lt", cast(y, U32), 32), call("bitand", y, 31)
    far: Scalar = call("shr", x, 31) if signed else 0
    found = {
        "div": q,
        "fmod": r,
        "shl": where(within, call("shl", x, by), 0),
        "shr": where(within, call("shr", x, by), far),
    }
    if signed:
        wraps = call("and", call("ne", r, 0), call("lt", call("bitxor", r, y), 0))
        found |= {"mod": where(wraps, r + y, r), "floordiv": where(wraps, q - 1, q)}
    return {f"{name}_{dtype.name}": e for name, e in found.items()}


def _truncated(x: Expr, dtype: DType) -> Expr:
    """A float as an integer: what is out of range saturates, NaN is 0."""
    kind, (low, high) = I32 if dtype.kind == "i" else U32, dtype.range
    found = where(call("ge", x, float(high + 1)), const(high, kind), cast(x, kind))
    return where(call("isnan", x), const(0, kind), where(call("le", x, float(low)), const(low, kind), found))


def _order(x: Expr, nan: int) -> Expr:
    """A key of a float in the order of numbers, and what it is for NaN."""
    w = call("raw32", x)
    turned = where(call("gt", w, 0x7FFFFFFF), bits(0xFFFFFFFF), bits(1 << 31))
    return where(call("isnan", x), bits(nan), call("bitxor", w, turned))


def _ordered(key: Expr) -> Expr:
    """The float of a key."""
    turned = where(call("gt", key, 0x7FFFFFFF), bits(1 << 31), bits(0xFFFFFFFF))
    return call("float32", call("bitxor", key, turned))


def corner_formulas() -> dict[str, Expr]:
    """Formulas by the names of functions in generated code after ``t_``; their arguments are x and y."""
    found = {"isnan_f32": call("gt", magnitude(X), 0x7F800000), "isinf_f32": call("eq", magnitude(X), 0x7F800000)}
    found |= {"order_max_f32": _order(X, 0xFFFFFFFF), "order_min_f32": _order(X, 0), "ordered_f32": _ordered(BITS)}
    found |= {f"decode_{dtype.name}": decode(BITS, dtype) for dtype in (F16, BF16, I16, I8, *NARROW)}
    for dtype in (F16, BF16, *NARROW):
        kind = {"f": F32, "i": I32, "u": U32}[dtype.kind]
        found[f"encode_{dtype.name}"] = encode(acc("x", kind), dtype)
    found |= _of_floats() | _of_integers(I32) | _of_integers(U32) | wide_formulas()
    found |= {f"cast_f32_{t.name}": _truncated(X, t) for t in (I32, I16, I8, U32, U16, U8)}
    return found | {"as_f8e8m0_up": _to_power(X, False), "as_f8e8m0_nearest": _to_power(X, True)}


__all__ = ["corner_formulas", "decode", "encode"]
