"""Scalar functions of f32 as formulas over arithmetic, and elements of 16 bits and fewer as the bits that hold them.

For targets whose language lacks a function, or has one that is not right in every corner. The polynomials are those of
the C prelude (``t_math_exp.h``, ``t_math_trig.h``), with their bound of 4 ULP. NaN is asked for by name where it has to
stay, since compilers of shaders may take it for absent.
"""

from __future__ import annotations

import math

from .dtype import BF16, F8E8M0, F16, F32, I8, I16, I32, NARROW, U8, U16, U32, DType
from .expr import Expr, Scalar, acc, const
from .formulas_wide import wide_formulas
from .functions import call, cast

LN2_HIGH, LN2_LOW = 0.693359375, -2.12194440054690581e-4  # the first has 10 bits: times any exponent it is exact
LOG2E, LN2 = 1.44269504088896341, 0.693147180559945309
SMALL = 2.0**-25  # below it expm1, log1p and atanh are x itself
LEAST = 2.0**-126  # of normal numbers
HALF_PI = 1.57079632679489662
INF, NAN = const(math.inf, F32), const(math.nan, F32)
X, Y, BITS = acc("x", F32), acc("y", F32), acc("x", U32)  # arguments of formulas


def _where(test: Expr, a: Scalar, b: Scalar) -> Expr:
    return call("select", test, a, b)


def _over(a: Scalar, b: Scalar) -> Expr:
    return call("div", a, b)


def _abs(x: Expr) -> Expr:
    return call("abs", x)


def _with_sign(x: Expr, sign: Expr) -> Expr:
    """x, which is not negative, with the sign of another."""
    return call("float32", call("bitor", call("raw32", x), call("bitand", call("raw32", sign), 1 << 31)))


def _magnitude(x: Expr) -> Expr:
    """The bits of a float but for its sign."""
    return call("bitand", call("raw32", x), 0x7FFFFFFF)


def _polynomial(x: Expr, *factors: float) -> Expr:
    """By Horner's rule, the highest power first."""
    first, *rest = factors
    found: Scalar = first
    for factor in rest:
        found = x * found + factor
    assert isinstance(found, Expr)
    return found


# ---- exponentials --------------------------------------------------------------------------------------------------


def _pow2(n: Expr) -> Expr:
    """2^n for -126 <= n <= 127."""
    return call("float32", call("shl", cast(n + 127, U32), 23))


def _scale(p: Expr, n: Expr) -> Expr:
    """p * 2^n for p in [0.5, 2] and |n| <= 250 with one rounding: in two halves."""
    half = call("shr", n, 1)
    return p * _pow2(half) * _pow2(n - half)


def _exp_parts(x: Expr, low: float) -> tuple[Expr, Expr]:
    """x = n ln2 + r: e^r - 1, with an error of 2^-28 of e^r, and n."""
    c = _where(call("lt", x, low), low, _where(call("gt", x, 89.0), 89.0, x))
    k = call("round", c * LOG2E)
    r = (c - k * LN2_HIGH) - k * LN2_LOW
    p01, p23 = r * 1.666652113e-1 + 4.999999404e-1, r * 8.368703537e-3 + 4.166828841e-2
    z = r * r
    return r + ((z * 1.381893875e-3 + p23) * z + p01) * z, cast(k, I32)


def _exp(x: Expr) -> Expr:
    part, n = _exp_parts(x, -104.0)
    return _where(call("isnan", x), x, _scale(part + 1.0, n))


def _expm1(x: Expr) -> Expr:
    part, n = _exp_parts(x, -18.0)
    s = _pow2(n - 1)
    half = s * part + (s - 0.5)  # 2^n (e^r - 1) + (2^n - 1) overflows too early
    return _where(call("or", call("isnan", x), call("lt", _abs(x), SMALL)), x, half + half)


def _tanh(x: Expr) -> Expr:
    a = _abs(x)
    e = call("expm1", _where(call("gt", a, 10.0), 20.0, a + a))
    return _where(call("isnan", x), x, _with_sign(_over(e, e + 2.0), x))


def _sigmoid(x: Expr) -> Expr:
    e = call("exp", call("neg", _abs(x)))
    return _over(_where(call("lt", x, 0.0), e, 1.0), e + 1.0)


def _sinh(x: Expr) -> Expr:
    a = _abs(x)
    e, root = call("expm1", a), call("exp", a * 0.5)
    return _with_sign(_where(call("gt", a, 40.0), root * 0.5 * root, (e + _over(e, e + 1.0)) * 0.5), x)


def _cosh(x: Expr) -> Expr:
    root = call("exp", _abs(x) * 0.5)
    return root * 0.5 * root + _over(_over(0.5, root), root)


def _erf(x: Expr) -> Expr:
    """|x| < 1: x + x P(x^2), error 2^-29; else 1 - e^Q(|x|), Q = log(erfc) on [1, 4], beyond which erf is 1 in f32."""
    p = _polynomial(x * x, 7.919187919e-5, -8.030509343e-4, 5.190716591e-3, -2.685512230e-2, 1.128361821e-1,
                    -3.761262894e-1, 1.283791661e-1)  # fmt: skip
    a = _where(call("gt", _abs(x), 4.0), 4.0, _abs(x))
    b, q01, q23 = a * a, a * -1.127048492 + -3.515695571e-4, a * -1.030487865e-1 + -6.382120848e-1
    q45 = a * -2.940882463e-3 + 2.181060053e-2
    far = call("sub", 1.0, call("exp", (b * 1.856994058e-4 + q45) * (b * b) + (q23 * b + q01)))
    return _where(call("isnan", x), x, _where(call("lt", a, 1.0), x + x * p, _with_sign(far, x)))


# ---- logarithms ----------------------------------------------------------------------------------------------------


def _log_parts(x: Expr) -> tuple[Expr, Expr]:
    """Positive finite x is 2^k (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)): f and k."""
    tiny = call("lt", x, LEAST)
    u = call("raw32", _where(tiny, x * 2.0**23, x)) - 0x3F3504F3
    k = call("shr", cast(u, I32), 23) - _where(tiny, const(23, I32), const(0, I32))
    return call("float32", call("bitand", u, 0x7FFFFF) + 0x3F3504F3) - 1.0, k


def _log_tail(f: Expr, low: Scalar) -> Expr:
    """log(1 + f) - f on that interval, error 2^-27 of log(1 + f); low is added to it early."""
    z = f * f
    p01, p23 = f * -2.500082552e-1 + 3.333333135e-1, f * -1.662319005e-1 + 2.000125051e-1
    p45, p67 = f * -1.316146404e-1 + 1.420117617e-1, f * -7.636449486e-2 + 1.276620775e-1
    p = (p67 * z + p45) * (z * z) + (p23 * z + p01)
    return (p * (f * z) + low) - z * 0.5


def _log_of(x: Expr, f: Expr, k: Expr) -> Expr:
    """The logarithm of x from its parts, and what it is outside (0, inf)."""
    k = cast(k, F32)
    found = k * LN2_HIGH + (f + _log_tail(f, k * LN2_LOW))
    at_end = _where(call("eq", x, 0.0), call("neg", INF), NAN)
    return _where(call("gt", x, 0.0), _where(call("isinf", x), x, found), at_end)


def _log(x: Expr) -> Expr:
    return _log_of(x, *_log_parts(x))


def _log1p(x: Expr) -> Expr:
    """log(u) with u = 1 + x rounded; what the rounding lost is put back into the fraction."""
    u = x + 1.0
    lost = _where(call("ge", u, 2.0), call("sub", 1.0, u - x), x - (u - 1.0))
    f, k = _log_parts(u)
    back = _where(call("gt", k, 100), const(-100, I32), call("neg", k))  # nothing of weight is lost beyond 2^24
    return _where(call("lt", _abs(x), SMALL), x, _log_of(u, f + lost * _pow2(back), k))


def _asinh(x: Expr) -> Expr:
    a = _abs(x)
    near = call("log1p", a + _over(a * a, call("sqrt", a * a + 1.0) + 1.0))
    return _with_sign(_where(call("gt", a, 1e9), call("log", a) + LN2, near), x)


def _acosh(x: Expr) -> Expr:
    f = x - 1.0
    near = call("log1p", f + call("sqrt", f * (f + 2.0)))
    return _where(call("ge", x, 1.0), _where(call("gt", x, 1e9), call("log", x) + LN2, near), NAN)


def _atanh(x: Expr) -> Expr:
    a = _abs(x)
    far = _with_sign(call("log1p", _over(a + a, call("sub", 1.0, a))) * 0.5, x)
    return _where(call("lt", a, SMALL), x, far)


# ---- trigonometry --------------------------------------------------------------------------------------------------


def _quarter(x: Expr) -> tuple[Expr, Expr]:
    """x less the nearest multiple of pi/2, in four parts of 8 to 11 bits each, and which multiple it is, modulo 4.

    Beyond 2^13 pi/2 the argument's own rounding is the larger error.
    """
    k, r = call("round", x * (1 / HALF_PI)), x
    for part in (1.5703125, 4.83751296997070312e-4, 7.54953362047672271e-8, 2.56334416e-12):
        r = r - k * part
    return r, k - call("floor", k * 0.25) * 4.0


def _sin_core(r: Expr) -> Expr:
    z = r * r
    return r + r * z * _polynomial(z, -1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)


def _cos_core(r: Expr) -> Expr:
    z = r * r
    tail = _polynomial(z, 2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)
    return call("sub", 1.0, z * 0.5) + z * z * tail


def _finite(x: Expr, value: Expr) -> Expr:
    return _where(call("isinf", x), NAN, value)


def _negated(value: Expr, test: Expr) -> Expr:
    return _where(test, call("neg", value), value)


def _is_odd(quarter: Expr) -> Expr:
    return call("or", call("eq", quarter, 1.0), call("eq", quarter, 3.0))


def _sin(x: Expr) -> Expr:
    r, quarter = _quarter(x)
    found = _negated(_where(_is_odd(quarter), _cos_core(r), _sin_core(r)), call("ge", quarter, 2.0))
    return _finite(x, _where(call("lt", _abs(x), 1e-4), x, found))


def _cos(x: Expr) -> Expr:
    r, quarter = _quarter(x)
    turned = call("or", call("eq", quarter, 1.0), call("eq", quarter, 2.0))
    return _finite(x, _negated(_where(_is_odd(quarter), _sin_core(r), _cos_core(r)), turned))


def _tan(x: Expr) -> Expr:
    r, quarter = _quarter(x)
    s, c = _sin_core(r), _cos_core(r)
    found = _where(_is_odd(quarter), _over(call("neg", c), s), _over(s, c))
    return _finite(x, _where(call("lt", _abs(x), 1e-4), x, found))


def _atan(x: Expr) -> Expr:
    """Reduced to |t| <= tan(pi/8), error 2^-30: atan(a) = b + atan((a - tan b) / (1 + a tan b)), b = pi/4 or pi/2."""
    a = _abs(x)
    mid, far = call("gt", a, 0.414213562), call("gt", a, 2.41421356)
    above = _where(far, -1.0, _where(mid, a - 1.0, a))
    t = _over(above, _where(far, a, _where(mid, a + 1.0, const(1.0, F32))))
    z = t * t
    p = _polynomial(z, -6.090630963e-2, 1.059942842e-1, -1.424442679e-1, 1.999852955e-1, -3.333331645e-1)
    base = _where(far, const(HALF_PI, F32), _where(mid, const(HALF_PI / 2, F32), const(0.0, F32)))
    return _with_sign(base + (t + t * z * p), x)


def _asin(x: Expr) -> Expr:
    """2 atan(x / (1 + sqrt(1 - x^2))), with 1 - x^2 as a product that does not cancel."""
    root = call("sqrt", call("sub", 1.0, x) * (x + 1.0))
    return _where(call("le", _abs(x), 1.0), call("atan", _over(x, root + 1.0)) * 2.0, NAN)


def _acos(x: Expr) -> Expr:
    half = call("atan", call("sqrt", _over(call("sub", 1.0, x), x + 1.0)))
    return _where(call("le", _abs(x), 1.0), _where(call("le", x, -1.0), 2 * HALF_PI, half * 2.0), NAN)


# ---- powers --------------------------------------------------------------------------------------------------------


def _power(a: Expr, y: Expr) -> Expr:
    """a^y for finite a > 0 and finite y: 2^(y (k + log2(1 + f))), whole parts apart, so that large ones lose little."""
    f, k = _log_parts(a)
    log = (f + _log_tail(f, 0.0)) * LOG2E
    part = y * cast(k, F32)
    n0 = call("round", part)
    rest = (part - n0) + y * log
    n1 = call("round", rest)
    r = (rest - n1) * LN2
    z = r * r
    p01, p23 = r * 1.666652113e-1 + 4.999999404e-1, r * 8.368703537e-3 + 4.166828841e-2
    found = _scale(r + ((z * 1.381893875e-3 + p23) * z + p01) * z + 1.0, cast(n0 + n1, I32))
    total = part + y * log
    return _where(call("gt", total, 130.0), INF, _where(call("lt", total, -152.0), 0.0, found))


def _whole_power(a: Expr, y: Expr) -> Expr:
    """a^y for whole y up to 64, as products."""
    n = cast(_abs(y), I32)
    found = _where(call("ne", call("bitand", n, 1), 0), a, 1.0)
    for bit in range(1, 7):
        a = a * a
        found = _where(call("ne", call("bitand", n, 1 << bit), 0), found * a, found)
    return _where(call("lt", y, 0.0), _over(1.0, found), found)


def _pow(x: Expr, y: Expr) -> Expr:
    """The cases of C's pow (annex F)."""
    a, zero = _abs(x), const(0.0, F32)
    is_zero, is_large = call("eq", a, 0.0), call("isinf", x)
    whole = call("eq", call("trunc", y), y)
    odd = call("and", whole, call("ne", call("trunc", y * 0.5), y * 0.5))
    small = call("and", whole, call("le", _abs(y), 64.0))
    below, falls = call("lt", a, 1.0), call("lt", y, 0.0)
    r = _where(small, _whole_power(a, y), _power(a, y))
    r = _where(call("isinf", y), _where(call("eq", below, falls), INF, zero), r)
    r = _where(call("or", is_zero, is_large), _where(call("eq", is_zero, falls), INF, zero), r)
    r = _negated(r, call("and", odd, call("ge", call("raw32", x), 1 << 31)))
    r = _where(call("and", call("lt", x, 0.0), call("not", call("or", whole, is_large))), NAN, r)
    r = _where(call("and", call("eq", a, 1.0), call("isinf", y)), 1.0, r)
    r = _where(call("or", call("isnan", x), call("isnan", y)), NAN, r)
    return _where(call("or", call("eq", x, 1.0), call("eq", y, 0.0)), 1.0, r)


# ---- elements of 16 bits and fewer ---------------------------------------------------------------------------------

# Bits of the fraction, bias of the exponent, and the code that what is beyond the largest number gets.
FORMATS = {
    "f16": (10, 15, 0x7C00), "bf16": (7, 127, 0x7F80), "f8e4m3fn": (3, 7, 0x7F), "f8e4m3fnuz": (3, 8, 0x80),
    "f8e5m2": (2, 15, 0x7C), "f8e5m2fnuz": (2, 16, 0x80), "f4e2m1": (1, 1, 7),
}  # fmt: skip


def _and(a: Expr, b: int) -> Expr:
    return call("bitand", a, b)


def _or(a: Expr, b: Expr) -> Expr:
    return call("bitor", a, b)


def _bits(number: int) -> Expr:
    return const(number, U32)


def decode(code: Expr, dtype: DType) -> Expr:
    """The value of an element as its bits, of which only its own count."""
    if dtype.kind == "u":
        return _and(code, dtype.range[1])
    if dtype.kind == "i":
        rest = 32 - dtype.bits
        return call("shr", cast(call("shl", code, rest), I32), rest)
    if dtype is F8E8M0:
        half = _where(call("or", call("eq", code, 0), call("eq", code, 255)), _bits(0x400000), _bits(0))
        return call("float32", _or(call("shl", code, 23), half))
    m, bias, most = FORMATS[dtype.name]
    size = dtype.bits - 1
    part, sign = _and(code, 2**size - 1), call("shl", _and(code, 1 << size), 31 - size)
    low = call("raw32", cast(part, F32) * 2.0 ** (1 - bias - m))  # without a subnormal f32
    found = _where(call("lt", part, 1 << m), low, call("shl", part, 23 - m) + (127 - bias << 23))
    if dtype is BF16:
        found = call("shl", part, 16)
    elif dtype.name in ("f16", "f8e5m2"):
        quiet = _where(call("gt", part, most), _bits(0x400000), _bits(0))
        special = _or(call("shl", part, 23 - m), _or(quiet, _bits(0x7F800000)))
        found = _where(call("ge", part, most), special, found)
    elif dtype.name == "f8e4m3fn":
        found = _where(call("eq", part, most), _bits(0x7FC00000), found)
    found = _or(found, sign)
    if most == 0x80:  # "fnuz": one zero, and NaN where -0 would be
        found = _where(call("eq", code, most), _bits(0x7FC00000), found)
    return call("float32", found)


def encode(x: Expr, dtype: DType) -> Expr:
    """The bits of an element: those of the nearest number, of halves the even one."""
    if dtype.is_int:
        return _and(cast(x, U32), 2**dtype.bits - 1)
    w = call("raw32", x)
    a, nan = _and(w, 0x7FFFFFFF), call("isnan", x)
    if dtype is F8E8M0:
        return call("shr", a, 23)
    m, bias, most = FORMATS[dtype.name]
    size, shift = dtype.bits - 1, 23 - m
    sign = _and(call("shr", w, 31 - size), 1 << size)
    first = (151 - bias - m) << 23  # a number whose last place is the step of subnormals
    low = call("raw32", call("float32", a) + call("float32", _bits(first))) - first
    even = call("shr", a + (2 ** (shift - 1) - 1) + _and(call("shr", a, shift), 1), shift) - (127 - bias << m)
    code = call("min", even, most)
    if dtype is not BF16:
        code = _where(call("lt", a, (128 - bias) << 23), low, code)
    if dtype.name in ("f16", "bf16", "f8e5m2"):
        code = _or(code, _where(nan, _bits(1 << (m - 1)), _bits(0)))
    if most == 0x80:
        return _where(call("or", call("eq", code, 0), call("eq", code, most)), code, _or(code, sign))
    if dtype.name == "f4e2m1":
        return _where(nan, call("bitxor", sign, 1 << size), _or(code, sign))
    return _or(code, sign)


def _to_power(x: Expr, nearest: bool) -> Expr:
    """The power of two of f8e8m0 from abs(x) on, or the one that half of the way and more leads to."""
    a = _and(call("raw32", x), 0x7FFFFFFF)
    rest, code = _and(a, 0x7FFFFF), call("shr", a, 23)
    least = _where(call("eq", code, 0), _bits(0x400001), _bits(0x400000)) if nearest else _bits(1)
    above = call("and", call("ge", rest, least), call("lt", code, 255))
    return decode(code + _where(above, _bits(1), _bits(0)), F8E8M0)


# ---- what comparisons, remainders and conversions are in the corners -----------------------------------------------


def _of_floats() -> dict[str, Expr]:
    """numpy.maximum and minimum, NaN if either is; Python's remainder and quotient, as numpy.floor_divide has them."""
    nan, r, whole = call("isnan", X), call("fmod", X, Y), _over(X, Y)
    zero = const(0.0, F32)
    differ = call("ne", call("lt", r, 0.0), call("lt", Y, 0.0))
    wraps = call("and", call("ne", r, 0.0), differ)
    q = _over(X - r, Y)
    q = _where(wraps, q - 1.0, q)
    f = call("floor", q)
    f = _where(call("gt", q - f, 0.5), f + 1.0, f)
    f = _where(call("eq", q, 0.0), _with_sign(zero, whole), f)
    sign = _where(call("gt", X, 0.0), 1.0, _where(call("lt", X, 0.0), const(-1.0, F32), zero))
    return {
        "max_f32": _where(call("or", call("ge", X, Y), nan), X, Y),
        "min_f32": _where(call("or", call("le", X, Y), nan), X, Y),
        "sign_f32": _where(nan, X, sign),
        "copysign_f32": _with_sign(_abs(X), Y),
        "mod_f32": _where(call("eq", r, 0.0), _with_sign(zero, Y), _where(differ, r + Y, r)),
        "floordiv_f32": _where(call("eq", Y, 0.0), whole, f),
    }


def _of_integers(dtype: DType) -> dict[str, Expr]:
    """A quotient by 0 is 0, as are all remainders; shifts by the width or more, or less than 0, leave only the sign."""
    x, y, signed = acc("x", dtype), acc("y", dtype), dtype.kind == "i"
    none = call("eq", y, 0)
    turned = call("eq", y, -1) if signed else none
    safe = _where(call("or", none, turned), 1, y)
    q = call("div", x, safe)
    r = x - q * safe  # as Vulkan leaves a remainder undefined where an operand is negative
    q = _where(none, 0, _where(turned, call("neg", x), q) if signed else q)
    within, by = call("lt", cast(y, U32), 32), call("bitand", y, 31)
    far: Scalar = call("shr", x, 31) if signed else 0
    found = {
        "div": q,
        "fmod": r,
        "shl": _where(within, call("shl", x, by), 0),
        "shr": _where(within, call("shr", x, by), far),
    }
    if signed:
        wraps = call("and", call("ne", r, 0), call("lt", call("bitxor", r, y), 0))
        found |= {"mod": _where(wraps, r + y, r), "floordiv": _where(wraps, q - 1, q)}
    return {f"{name}_{dtype.name}": e for name, e in found.items()}


def _truncated(x: Expr, dtype: DType) -> Expr:
    """A float as an integer: what is out of range saturates, NaN is 0."""
    kind, (low, high) = I32 if dtype.kind == "i" else U32, dtype.range
    found = _where(call("ge", x, float(high + 1)), const(high, kind), cast(x, kind))
    return _where(call("isnan", x), const(0, kind), _where(call("le", x, float(low)), const(low, kind), found))


def _order(x: Expr, nan: int) -> Expr:
    """A key of a float in the order of numbers, and what it is for NaN."""
    w = call("raw32", x)
    turned = _where(call("gt", w, 0x7FFFFFFF), _bits(0xFFFFFFFF), _bits(1 << 31))
    return _where(call("isnan", x), _bits(nan), call("bitxor", w, turned))


def _ordered(key: Expr) -> Expr:
    """The float of a key."""
    turned = _where(call("gt", key, 0x7FFFFFFF), _bits(1 << 31), _bits(0xFFFFFFFF))
    return call("float32", call("bitxor", key, turned))


def formulas() -> dict[str, Expr]:
    """All formulas, by the names of functions in generated code after ``t_``; their arguments are x and y."""
    found = {f"{f.__name__[1:]}_f32": f(X) for f in _OF_ONE} | {"pow_f32": _pow(X, Y)}
    found |= {"isnan_f32": call("gt", _magnitude(X), 0x7F800000), "isinf_f32": call("eq", _magnitude(X), 0x7F800000)}
    found |= {"order_max_f32": _order(X, 0xFFFFFFFF), "order_min_f32": _order(X, 0), "ordered_f32": _ordered(BITS)}
    found |= {f"decode_{dtype.name}": decode(BITS, dtype) for dtype in (F16, BF16, I16, I8, *NARROW)}
    for dtype in (F16, BF16, *NARROW):
        kind = {"f": F32, "i": I32, "u": U32}[dtype.kind]
        found[f"encode_{dtype.name}"] = encode(acc("x", kind), dtype)
    found |= _of_floats() | _of_integers(I32) | _of_integers(U32) | wide_formulas()
    found |= {f"cast_f32_{t.name}": _truncated(X, t) for t in (I32, I16, I8, U32, U16, U8)}
    return found | {"as_f8e8m0_up": _to_power(X, False), "as_f8e8m0_nearest": _to_power(X, True)}


_OF_ONE = (
    _exp, _expm1, _tanh, _sigmoid, _sinh, _cosh, _erf, _log, _log1p, _asinh, _acosh, _atanh, _sin, _cos, _tan, _atan,
    _asin, _acos,
)  # fmt: skip

__all__ = ["formulas"]
