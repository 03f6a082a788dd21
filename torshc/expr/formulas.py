"""Scalar functions of f32 as formulas over arithmetic, and elements of 16 bits and fewer as the bits that hold them.

The polynomials are minimax fits (weighted least squares, coefficients rounded to float in turn) on the reduced interval
named beside each; those on a long path are summed in pairs (Estrin), since latency bounds a loop over one register at a
time. Results are within 4 ULP, and nothing needs a fused multiply-add to be right. Printers write a formula as a
function of their language; what differs between languages is in :class:`Language`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache, partial

from .dtype import BF16, F8E8M0, F16, F32, F64, I8, I16, I32, NARROW, U8, U16, U32, DType
from .expr import Expr, Scalar, acc, const
from .formulas_wide import wide_formulas
from .functions import call, cast


@dataclass(frozen=True)
class Language:
    """What a language has of the arithmetic that formulas are made of.

    Attributes:
        exact: whether sums are computed in the order written, and NaN and infinities are not taken for absent.
        wide: whether it has f64.
        fused: whether its fma rounds once; asked only where there is no f64.
    """

    exact: bool = True
    wide: bool = True
    fused: bool = False


EXACT = Language()
_LANGUAGE: ContextVar[Language] = ContextVar("language")  # the one that a formula is made for

LN2_HIGH, LN2_LOW = 0.693359375, -2.12194440054690581e-4  # the first has 10 bits: times any exponent it is exact
LOG2E, LN2 = 1.44269504088896341, 0.693147180559945309
SMALL = 2.0**-25  # below it expm1, log1p, sinh and atanh are x itself
LEAST = 2.0**-126  # of normal numbers
HALF_PI, HALF_PI_HIGH, HALF_PI_LOW = 1.57079632679489662, 1.57079637050628662109, -4.37113882867379e-8
INF, NAN = const(math.inf, F32), const(math.nan, F32)
X, Y, BITS = acc("x", F32), acc("y", F32), acc("x", U32)  # arguments of formulas


def _where(test: Expr, a: Scalar, b: Scalar) -> Expr:
    return call("select", test, a, b)


def _over(a: Scalar, b: Scalar) -> Expr:
    return call("div", a, b)


def _less(a: Scalar, b: Scalar) -> Expr:
    return call("sub", a, b)


def _abs(x: Expr) -> Expr:
    return call("abs", x)


def _and(a: Expr, b: int) -> Expr:
    return call("bitand", a, b)


def _or(a: Expr, b: Expr) -> Expr:
    return call("bitor", a, b)


def _bits(number: int) -> Expr:
    return const(number, U32)


def _with_sign(x: Expr, sign: Expr) -> Expr:
    """x, which is not negative, with the sign of another."""
    return call("float32", _or(call("raw32", x), _and(call("raw32", sign), 1 << 31)))


def _flipped(x: Expr, bits: Expr) -> Expr:
    """x with another sign where the first of some bits is set."""
    return call("float32", call("bitxor", call("raw32", x), bits))


def _magnitude(x: Expr) -> Expr:
    """The bits of a float but for its sign."""
    return _and(call("raw32", x), 0x7FFFFFFF)


def _polynomial(x: Expr, *factors: float) -> Expr:
    """By Horner's rule, the highest power first."""
    first, *rest = factors
    found: Scalar = first
    for factor in rest:
        found = x * found + factor
    assert isinstance(found, Expr)
    return found


def _keep_nan(x: Expr, value: Expr) -> Expr:
    """A value that arithmetic makes NaN where x is, said where compilers may take NaN for absent."""
    return value if _LANGUAGE.get().exact else _where(call("isnan", x), x, value)


def _nearest(x: Expr, offset: int) -> tuple[Expr, Expr]:
    """The integer nearest to x of less than 2^22, and the same plus an offset in the low bits of a u32."""
    if not _LANGUAGE.get().exact:
        k = call("round", x)
        return k, cast(cast(k, I32) + offset, U32)
    whole = 1.5 * 2**23 + offset  # a sum with it has no bits behind the point
    moved = x + whole
    return _less(moved, whole), call("raw32", moved)


# ---- exponentials: x = n ln2 + r, abs(r) <= ln2/2 ------------------------------------------------------------------


def _power(n: Expr) -> Expr:
    """2^(n - 127) of the low bits of n, which are 1 to 254."""
    return call("float32", call("shl", n, 23))


def _clamped(x: Expr, low: float, high: float) -> Expr:
    """Within limits; NaN stays."""
    x = _where(call("lt", x, low), low, x)
    return _where(call("gt", x, high), high, x)


def _exp_parts(x: Expr, offset: int) -> tuple[Expr, Expr]:
    """e^r - 1, with an error of 2^-28 of e^r, and n with an offset."""
    k, n = _nearest(x * LOG2E, offset)
    r = (x - k * LN2_HIGH) - k * LN2_LOW
    p01, p23 = r * 1.666652113e-1 + 4.999999404e-1, r * 8.368703537e-3 + 4.166828841e-2
    z = r * r
    return r + ((z * 1.381893875e-3 + p23) * z + p01) * z, n


def _exp_within(x: Expr, shift: int = 0) -> Expr:
    """e^x * 2^shift for x of -104.5 to 90: 2^n in two halves, so that nothing between overflows or is subnormal."""
    e, n = _exp_parts(x, 254 + shift)
    half = call("shr", n, 1)
    s = _power(half)
    return (s * e + s) * _power(n - half)


def _exp(x: Expr) -> Expr:
    return _keep_nan(x, _exp_within(_clamped(x, -104.5, 90.0)))


def _exp_low(x: Expr) -> Expr:
    """e^x for x <= 0: 2^64 times as much is normal, so that 2^n needs no halves."""
    e, n = _exp_parts(_where(call("lt", x, -104.5), -104.5, x), 127 + 64)
    s = _power(n)
    return _keep_nan(x, (s * e + s) * 2.0**-64)


def _expm1(x: Expr) -> Expr:
    """Half of it first: 2^n (e^r - 1) + (2^n - 1) overflows too early. The smallest arguments are their own result."""
    e, n = _exp_parts(_clamped(x, -18.0, 89.0), 127 - 1)
    s = _power(n)
    half = s * e + (s - 0.5)
    return _keep_nan(x, _where(call("lt", _abs(x), SMALL), x, half + half))


def _tanh(x: Expr) -> Expr:
    """d / (d + 2), d = e^(2 abs(x)) - 1, with n of 0 to 29; from 10 on it is 1."""
    twice = _abs(x) + _abs(x)
    e, n = _exp_parts(_where(call("gt", twice, 20.0), 20.0, twice), 127)
    s = _power(n)
    d = s * e + (s - 1.0)
    return _keep_nan(x, _with_sign(_over(d, d + 2.0), x))


def _sigmoid(x: Expr) -> Expr:
    """e^-abs(x) never overflows, and e / (1 + e) keeps the far negative side right."""
    e = call("exp_low" if x.dtype is F32 else "exp", call("neg", _abs(x)))
    return _over(_where(call("lt", x, 0.0), e, 1.0), e + 1.0)


def _sinh(x: Expr) -> Expr:
    a = _abs(x)
    e = call("expm1", _where(call("gt", a, 10.0), 10.0, a))
    near, far = (e + _over(e, e + 1.0)) * 0.5, _exp_within(_clamped(a, -104.5, 90.0), -1)
    found = _where(call("lt", a, SMALL), a, _where(call("gt", a, 9.5), far, near))
    return _keep_nan(x, _with_sign(found, x))


def _cosh(x: Expr) -> Expr:
    a = _abs(x)
    e = _exp_within(_where(call("gt", a, 90.0), 90.0, a), -1)
    return _keep_nan(x, e + _over(0.25, e))


def _erf(x: Expr) -> Expr:
    """|x| < 1: x + x P(x^2), error 2^-29; else 1 - e^Q(|x|), Q = log(erfc) on [1, 4], beyond which erf is 1 in f32."""
    a = _where(call("gt", _abs(x), 4.0), 4.0, _abs(x))
    z = a * a
    p = _polynomial(z, 7.919187919e-5, -8.030509343e-4, 5.190716591e-3, -2.685512230e-2, 1.128361821e-1,
                    -3.761262894e-1, 1.283791661e-1)  # fmt: skip
    q01, q23 = a * -1.127048492 + -3.515695571e-4, a * -1.030487865e-1 + -6.382120848e-1
    q45 = a * -2.940882463e-3 + 2.181060053e-2
    e, n = _exp_parts((z * 1.856994058e-4 + q45) * (z * z) + (q23 * z + q01), 127)
    s = _power(n)
    far = _less(1.0, s) - s * e
    return _keep_nan(x, _with_sign(_where(call("lt", a, 1.0), a + a * p, far), x))


# ---- logarithms: positive finite x = 2^k (1 + f), 1 + f in [sqrt(1/2), sqrt(2)) ------------------------------------


def _log_parts(x: Expr, normal: bool = False) -> tuple[Expr, Expr]:
    """f and k, of an x that is not subnormal if that is known."""
    tiny = const(False) if normal else call("lt", x, LEAST)
    u = call("raw32", _where(tiny, x * 2.0**23, x)) - 0x3F3504F3
    k = call("shr", cast(u, I32), 23)
    if not normal:
        k = k - _where(tiny, const(23, I32), const(0, I32))
    return call("float32", _and(u, 0x7FFFFF) + 0x3F3504F3) - 1.0, k


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
    if _LANGUAGE.get().exact:
        found = _where(call("lt", x, INF), found, x)
        found = _where(call("eq", x, 0.0), call("neg", INF), found)
        return _where(call("lt", x, 0.0), NAN, found)
    at_end = _where(call("eq", x, 0.0), call("neg", INF), NAN)
    return _where(call("gt", x, 0.0), _where(call("isinf", x), x, found), at_end)


def _log(x: Expr) -> Expr:
    return _log_of(x, *_log_parts(x))


def _log1p(x: Expr) -> Expr:
    """log(u) with u = 1 + x rounded; what the rounding lost is put back into the fraction."""
    u = x + 1.0
    lost = _where(call("ge", u, 2.0), _less(1.0, u - x), x - (u - 1.0))
    f, k = _log_parts(u, normal=True)
    most = _where(call("gt", k, 100), const(100, I32), k)  # nothing of weight is lost beyond 2^24
    back = _power(cast(_less(127, most), U32))
    return _where(call("lt", _abs(x), SMALL), x, _log_of(u, f + lost * back, k))


def _log_double(x: Expr, below: Expr) -> Expr:
    """log1p(below), and log(2x) where x is so large that a square root of x^2 + 1 is x itself."""
    large = call("gt", x, 2.0**28)
    return call("log1p", _where(large, x, below)) + _where(large, const(LN2, F32), const(0.0, F32))


def _asinh(x: Expr) -> Expr:
    a = _abs(x)
    z = a * a
    return _with_sign(_log_double(a, a + _over(z, call("sqrt", z + 1.0) + 1.0)), x)


def _acosh(x: Expr) -> Expr:
    f = x - 1.0
    found = _log_double(x, f + call("sqrt", f * (f + 2.0)))
    return _keep_nan(x, _where(call("lt", x, 1.0), NAN, found))


def _atanh(x: Expr) -> Expr:
    a = _abs(x)
    far = call("log1p", _over(a + a, _less(1.0, a))) * 0.5
    return _with_sign(_where(call("lt", a, SMALL), a, far), x)


# ---- trigonometry --------------------------------------------------------------------------------------------------


def _quarter(x: Expr) -> tuple[Expr, Expr]:
    """x less a multiple of pi/2, nearly the nearest, and which multiple it is in the low bits of a u32, any for NaN.

    In f64 the high part of pi/2 has 33 bits, so that its product with a multiple below 2^20 is exact. Without f64 it is
    in four parts of 8 to 11 bits each, and beyond 2^13 pi/2 the argument's own rounding is the larger error.
    """
    k, quarter = _nearest(x * (1 / HALF_PI), 0)
    if _LANGUAGE.get().wide:
        d = cast(k, F64)
        return cast((cast(x, F64) - d * 1.5707963267341256) - d * 6.077100506506192e-11, F32), quarter
    for part in (1.5703125, 4.83751296997070312e-4, 7.54953362047672271e-8, 2.56334416e-12):
        x = x - k * part
    return x, quarter


def _sin_core(r: Expr) -> Expr:
    """On abs(r) <= pi/4, error 2^-32."""
    z = r * r
    return r + r * z * _polynomial(z, 2.832099653e-6, -1.985304698e-4, 8.333379403e-3, -1.666666716e-1)


def _cos_core(r: Expr) -> Expr:
    """On abs(r) <= pi/4, error 2^-33."""
    z = r * r
    return z * (z * _polynomial(z, 2.443066114e-5, -1.388730132e-3, 4.166664556e-2) - 0.5) + 1.0


def _is_odd(quarter: Expr) -> Expr:
    return call("lt", cast(call("shl", quarter, 31), I32), 0)


def _finite(x: Expr, value: Expr) -> Expr:
    """A value that arithmetic makes NaN where x is infinite, said where compilers may take infinities for absent."""
    return value if _LANGUAGE.get().exact else _where(call("isinf", x), NAN, value)


def _sin_quarter(r: Expr, quarter: Expr) -> Expr:
    """sin(r + quarter pi/2)"""
    found = _where(_is_odd(quarter), _cos_core(r), _sin_core(r))
    return _flipped(found, call("shl", _and(quarter, 2), 30))


def _sin(x: Expr) -> Expr:
    return _finite(x, _where(call("eq", x, 0.0), x, _sin_quarter(*_quarter(x))))


def _cos(x: Expr) -> Expr:
    r, quarter = _quarter(x)
    return _finite(x, _sin_quarter(r, quarter + 1))


def _tan(x: Expr) -> Expr:
    r, quarter = _quarter(x)
    s, c, odd = _sin_core(r), _cos_core(r), _is_odd(quarter)
    found = _over(_where(odd, call("neg", c), s), _where(odd, s, c))
    return _finite(x, _where(call("eq", x, 0.0), x, found))


def _asin_tail(s: Expr, z: Expr) -> Expr:
    """asin(s) - s on [0, 1/2], z = s^2, error 2^-27."""
    p = _polynomial(z, 4.221852124e-2, 2.414884977e-2, 4.547652975e-2, 7.495249808e-2, 1.666675359e-1)
    return p * z * s


def _asin(x: Expr) -> Expr:
    """Beyond 1/2: asin(a) = pi/2 - 2 asin(sqrt((1 - a) / 2))."""
    a = _abs(x)
    far = call("gt", a, 0.5)
    z = _where(far, _less(1.0, a) * 0.5, a * a)
    s = _where(far, call("sqrt", z), a)
    near = s + _asin_tail(s, z)
    found = _where(far, _less(HALF_PI_HIGH, near * 2.0 - HALF_PI_LOW), near)
    return _in_unit(x, a, _with_sign(found, x))


def _acos(x: Expr) -> Expr:
    a = _abs(x)
    far = call("gt", a, 0.5)
    z = _where(far, _less(1.0, a) * 0.5, x * x)
    s = _where(far, call("sqrt", z), x)
    near = s + _asin_tail(s, z)
    twice = near + near
    other = _less(2 * HALF_PI_HIGH, twice - 2 * HALF_PI_LOW)
    beyond = _where(call("lt", x, 0.0), other, twice)
    return _in_unit(x, a, _where(far, beyond, _less(HALF_PI_HIGH, near - HALF_PI_LOW)))


def _in_unit(x: Expr, a: Expr, value: Expr) -> Expr:
    """A value that a square root of less than 0 makes NaN where a = abs(x) > 1, said where NaN may be absent."""
    return value if _LANGUAGE.get().exact else _keep_nan(x, _where(call("gt", a, 1.0), NAN, value))


def _atan(x: Expr) -> Expr:
    """Reduced to |t| <= tan(pi/8), error 2^-30: atan(a) = b + atan((a - tan b) / (1 + a tan b)), b = pi/4 or pi/2."""
    a = _abs(x)
    mid, far = call("gt", a, 0.414213562), call("gt", a, 2.41421356)
    above = _where(far, -1.0, _where(mid, a - 1.0, a))
    t = _over(above, _where(far, a, _where(mid, a + 1.0, const(1.0, F32))))
    z = t * t
    p = _polynomial(z, -6.090630963e-2, 1.059942842e-1, -1.424442679e-1, 1.999852955e-1, -3.333331645e-1)
    base = _where(mid, _where(far, const(HALF_PI, F32), const(HALF_PI / 2, F32)), const(0.0, F32))
    return _with_sign(base + (t + t * z * p), x)


# ---- powers --------------------------------------------------------------------------------------------------------


def _log2_wide(x: Expr) -> Expr:
    """log2 of positive finite x to 2^-42, in f64: 2/ln2 atanh(f / (2 + f))."""
    m, k = _log_parts(x)
    f = cast(m, F64)
    s = _over(f, f + 2.0)
    p = _polynomial(s * s, 0.28295569816318067, 0.3199019512689901, 0.412209339869544, 0.5770779415400279,
                    0.9617966941159797, 2.885390081777851)  # fmt: skip
    return p * s + cast(cast(k, F32), F64)


def _exp2_wide(t: Expr) -> Expr:
    """2^t to 2^-40 for abs(t) <= 1000, larger ones clamped: they are 0 or inf in f32."""
    t = _clamped(t, -1000.0, 1000.0)
    u = t + 1.5 * 2.0**52
    r = t - (u - 1.5 * 2.0**52)
    p = _polynomial(r, 1.317878516868302e-06, 1.5309380404736074e-05, 0.0001540382783631662, 0.0013333454040291646,
                    0.00961812861019364, 0.05550410936083865, 0.24022650698145948, 0.6931471805480277)  # fmt: skip
    return (p * r + 1.0) * call("float64", call("shl", call("raw64", u) + 1023, 52))


def _pow_wide(x: Expr, y: Expr) -> Expr:
    """2^(y log2|x|) through f64, rounded once, so well within 1 ULP."""
    a = _abs(x)
    edge = _where(call("eq", a, 0.0), call("neg", INF), a)
    inside = call("and", call("gt", a, 0.0), call("lt", a, INF))
    log = _where(inside, _log2_wide(a), cast(edge, F64))
    r = cast(_exp2_wide(log * cast(y, F64)), F32)
    endless = call("eq", _abs(y), INF)
    twice = call("trunc", y * 0.5) * 2.0
    odd = call("eq", _abs(y - twice), 1.0)
    whole = call("or", call("or", odd, call("eq", y, twice)), endless)
    r = _flipped(r, _where(odd, _and(call("raw32", x), 1 << 31), _bits(0)))
    root = call("and", call("and", call("lt", x, 0.0), call("lt", a, INF)), call("not", whole))
    r = _where(root, NAN, r)
    unit = call("and", call("eq", a, 1.0), endless)
    return _where(call("or", call("or", unit, call("eq", x, 1.0)), call("eq", y, 0.0)), 1.0, r)


def _fma(a: Scalar, b: Scalar, c: Scalar) -> Expr:
    return call("fma", a, b, c)


def _pow_fused(a: Expr, y: Expr) -> Expr:
    """a^y for finite a > 0 and finite y: 2^(y log2 a), the logarithm as a sum of two floats.

    log2 m = 2/ln2 atanh(s), s = (m - 1) / (m + 1), by the series s + s^3/3 + .. + s^11/11: abs(s) <= 0.1716, so the
    next term is 2^-34 of the sum. Products whose rounding error is needed are fma(a, b, 0), which no compiler fuses
    with what follows.
    """
    f, k = _log_parts(a)
    k, m = cast(k, F32), f + 1.0
    # s + s_low, with m + 1 = d + d_low
    d = m + 1.0
    part = d - 1.0
    d_low = _less(1.0, d - part) + (m - part)
    s = _over(f, d)
    s_low = _over(_fma(call("neg", s), d, f) - s * d_low, d)
    z = _fma(s, s, 0.0)
    z_low = _fma(s, s, call("neg", z)) + s * 2.0 * s_low
    # P = 2/ln2 / 3 + z (2/ln2 / 5 + ..), the whole 2/ln2 s + z s P; of the second part, too, the rounding counts
    q = ((z * 0.26230819 + 0.32059889) * z + 0.41219857) * z + 0.57707801
    q = q * z
    c3, c3_low = 0.961796701, -7.0284618e-09
    p = q + c3
    p_low = (q - (p - c3)) + c3_low
    w = _fma(z, p, 0.0)
    w_low = _fma(z, p, call("neg", w)) + (z * p_low + z_low * p)
    part3 = _fma(w, s, 0.0)
    part3_low = _fma(w, s, call("neg", part3)) + (w * s_low + w_low * s)
    c1, c1_low = 2.88539008, 3.8519260e-8
    part1 = _fma(s, c1, 0.0)
    part1_low = _fma(s, c1, call("neg", part1)) + (s * c1_low + s_low * c1)
    total = part1 + part3
    total_low = (part3 - (total - part1)) + (part1_low + part3_low)
    log = k + total
    log_low = (total - (log - k)) + total_low
    t = _fma(y, log, 0.0)
    t_low = _fma(y, log, call("neg", t)) + y * log_low
    # 2^r = 1 + r Q(r) on abs(r) <= 1/2, error 2^-28
    n, bits = _nearest(_clamped(t, -160.0, 140.0), 254)
    r = (t - n) + t_low
    q = _polynomial(r, 1.532679307e-4, 1.339102513e-3, 9.618505836e-3, 5.550359562e-2, 2.402264774e-1, 6.931471825e-1)
    half = call("shr", bits, 1)
    scale = _power(half)
    found = (scale * (q * r) + scale) * _power(bits - half)
    return _where(call("gt", t, 130.0), INF, _where(call("lt", t, -152.0), 0.0, found))


def _pow_positive(a: Expr, y: Expr) -> Expr:
    """As :func:`_pow_fused`, with whole parts of the exponent apart, so that large ones lose little."""
    f, k = _log_parts(a)
    log = (f + _log_tail(f, 0.0)) * LOG2E
    part = y * cast(k, F32)
    n0 = call("round", part)
    rest = (part - n0) + y * log
    n1 = call("round", rest)
    r = (rest - n1) * LN2
    z = r * r
    p01, p23 = r * 1.666652113e-1 + 4.999999404e-1, r * 8.368703537e-3 + 4.166828841e-2
    e, n = r + ((z * 1.381893875e-3 + p23) * z + p01) * z, cast(cast(n0 + n1, I32) + 254, U32)
    half = call("shr", n, 1)
    found = (e + 1.0) * _power(half) * _power(n - half)
    total = part + y * log
    return _where(call("gt", total, 130.0), INF, _where(call("lt", total, -152.0), 0.0, found))


def _whole_power(a: Expr, y: Expr) -> Expr:
    """a^y for whole y up to 64, as products."""
    n = cast(_abs(y), I32)
    found = _where(call("ne", _and(n, 1), 0), a, 1.0)
    for bit in range(1, 7):
        a = a * a
        found = _where(call("ne", _and(n, 1 << bit), 0), found * a, found)
    return _where(call("lt", y, 0.0), _over(1.0, found), found)


def _pow(x: Expr, y: Expr) -> Expr:
    """The cases of C's pow (annex F)."""
    if _LANGUAGE.get().wide:
        return _pow_wide(x, y)
    a, zero = _abs(x), const(0.0, F32)
    is_zero, is_large = call("eq", a, 0.0), call("isinf", x)
    whole = call("eq", call("trunc", y), y)
    odd = call("and", whole, call("ne", call("trunc", y * 0.5), y * 0.5))
    below, falls = call("lt", a, 1.0), call("lt", y, 0.0)
    if _LANGUAGE.get().fused:
        r = _pow_fused(a, y)
    else:
        small = call("and", whole, call("le", _abs(y), 64.0))
        r = _where(small, _whole_power(a, y), _pow_positive(a, y))
    r = _where(call("isinf", y), _where(call("eq", below, falls), INF, zero), r)
    r = _where(call("or", is_zero, is_large), _where(call("eq", is_zero, falls), INF, zero), r)
    r = _where(call("and", odd, call("ge", call("raw32", x), 1 << 31)), call("neg", r), r)
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


_OF_ONE = (
    _exp, _exp_low, _expm1, _tanh, _sigmoid, _sinh, _cosh, _erf, _log, _log1p, _asinh, _acosh, _atanh, _sin, _cos, _tan,
    _atan, _asin, _acos,
)  # fmt: skip
_OF_ANY = (_sigmoid,)  # which is a formula of f64 too
ELEMENTARY = frozenset(
    {*(f"{f.__name__[1:]}_f32" for f in _OF_ONE), *(f"{f.__name__[1:]}_f64" for f in _OF_ANY), "pow_f32"}
)
# Where an argument is too large for what _quarter does in f64.
REACH = {"sin_f32": 1e6, "cos_f32": 1e6, "tan_f32": 1e6}


def _rows() -> Iterator[tuple[str, Callable[[], Expr]]]:
    yield from ((f"{f.__name__[1:]}_f32", partial(f, X)) for f in _OF_ONE)
    yield from ((f"{f.__name__[1:]}_f64", partial(f, acc("x", F64))) for f in _OF_ANY)
    yield "pow_f32", partial(_pow, X, Y)
    yield "isnan_f32", lambda: call("gt", _magnitude(X), 0x7F800000)
    yield "isinf_f32", lambda: call("eq", _magnitude(X), 0x7F800000)
    yield from ((f"order_{how}_f32", partial(_order, X, nan)) for how, nan in (("max", 0xFFFFFFFF), ("min", 0)))
    yield "ordered_f32", partial(_ordered, BITS)
    for dtype in (F16, BF16, I16, I8, *NARROW):
        yield f"decode_{dtype.name}", partial(decode, BITS, dtype)
    for dtype in (F16, BF16, *NARROW):
        yield f"encode_{dtype.name}", partial(encode, acc("x", {"f": F32, "i": I32, "u": U32}[dtype.kind]), dtype)
    yield from ((f"as_f8e8m0_{how}", partial(_to_power, X, how == "nearest")) for how in ("up", "nearest"))
    yield from ((f"cast_f32_{t.name}", partial(_truncated, X, t)) for t in (I32, I16, I8, U32, U16, U8))
    for name, e in (_of_floats() | _of_integers(I32) | _of_integers(U32) | wide_formulas()).items():
        yield name, lambda e=e: e  # type: ignore[misc]


@lru_cache(maxsize=1)
def _table() -> dict[str, Callable[[], Expr]]:
    return dict(_rows())


@lru_cache
def find_formula(name: str, language: Language) -> Expr | None:
    """The formula of a function, by its name in generated code after ``t_``; its arguments are x and y."""
    if (make := _table().get(name)) is None:
        return None
    was = _LANGUAGE.set(language)
    try:
        return make()
    finally:
        _LANGUAGE.reset(was)


def formulas(language: Language) -> dict[str, Expr]:
    """All formulas, but for those of types that it lacks."""
    names = (name for name in _table() if language.wide or not name.endswith("_f64"))
    return {name: e for name in names if (e := find_formula(name, language)) is not None}


__all__ = ["ELEMENTARY", "EXACT", "REACH", "Language", "find_formula", "formulas"]
