"""Scalar functions as formulas over arithmetic: the row of each in the table, and what computes it in f32.

The polynomials are minimax fits (weighted least squares, coefficients rounded to float in turn) on the reduced interval
named beside each; those on a long path are summed in pairs (Estrin), since latency bounds a loop over one register at a
time. Results are within 4 ULP, and nothing needs a fused multiply-add to be right. Printers write a formula as a
function of their language; what differs between languages is in :class:`~.terms.Language`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from inspect import signature
from typing import Any

import numpy as np

from .dtype import F32, F64, I32, U32, DType
from .expr import Expr, Scalar, acc, const, walk
from .formulas_corners import corner_formulas
from .formulas_halves import NEAR
from .formulas_narrow import CONVERSIONS
from .formulas_parts import LANGUAGE, LOG2E, bell, elementary, keep_nan, nearest, power
from .functions import FUNCTIONS, Function, call, cast, eq, ne, numpy_sigmoid
from .terms import EXACT, Language, absolute, bit_and, bits, flip_sign, over, polynomial, where, with_sign

LN2_HIGH, LN2_LOW = 0.693359375, -2.12194440054690581e-4  # the first has 10 bits: times any exponent it is exact
LN2 = 0.693147180559945309
SMALL = 2.0**-25  # below it expm1, log1p, sinh and atanh are x itself
LEAST = 2.0**-126  # of normal numbers
HALF_PI, HALF_PI_HIGH, HALF_PI_LOW = 1.57079632679489662, 1.57079637050628662109, -4.37113882867379e-8
INF, NAN = const(math.inf, F32), const(math.nan, F32)


# ---- exponentials: x = n ln2 + r, abs(r) <= ln2/2 ------------------------------------------------------------------


def _clamp(x: Expr, low: float, high: float) -> Expr:
    """Within limits; NaN stays."""
    x = where(x < low, low, x)
    return where(x > high, high, x)


def _exp_parts(x: Expr, offset: int) -> tuple[Expr, Expr]:
    """e^r - 1, with an error of 2^-28 of e^r, and n with an offset."""
    k, n = nearest(x * LOG2E, offset)
    r = _without(k, x)
    p01, p23 = r * 1.666652113e-1 + 4.999999404e-1, r * 8.368703537e-3 + 4.166828841e-2
    z = r * r
    return r + ((z * 1.381893875e-3 + p23) * z + p01) * z, n


def _without(k: Expr, x: Expr) -> Expr:
    """x - k ln2."""
    return (x - k * LN2_HIGH) - k * LN2_LOW


def _exp_scaled(x: Expr, shift: int = 0) -> Expr:
    """e^x * 2^shift, where powers of two cost little: steps count then, and not how long they wait for each other."""
    k, _ = nearest(x * LOG2E, 0)
    factors = (1.381893875e-3, 8.368703537e-3, 4.166828841e-2, 1.666652113e-1, 4.999999404e-1, 1.0, 1.0)
    return call("scale", polynomial(_without(k, x), *factors), k + float(shift) if shift else k)


def _exp_parts_wide(x: Expr, offset: int) -> tuple[Expr, Expr]:
    """The same in f64: e^r - 1 = r + r^2 P(r), error 2^-57."""
    whole = 1.5 * 2.0**52 + offset
    moved = x * LOG2E + whole
    k = moved - whole
    r = (x - k * float.fromhex("0x1.62e42feep-1")) - k * float.fromhex("0x1.a39ef35793c76p-33")
    z = r * r
    y = z * z
    p01, p23 = r * 0.1666666666666645 + 0.5000000000000011, r * 0.008333333333473268 + 0.04166666666652711
    p45 = r * 0.0001984126954923641 + 0.0013888888944303917
    p67 = r * 2.755755025996967e-06 + 2.4801492479019593e-05
    p89 = r * 2.5011040151341978e-08 + 2.763045145977846e-07
    return r + ((p89 * y + (p67 * z + p45)) * y + (p23 * z + p01)) * z, call("raw64", moved)


def _power_wide(n: Expr) -> Expr:
    """2^(n - 1023) of the low bits of n, which are 1 to 2046."""
    return call("float64", call("shl", n, 52))


def _exp_wide(x: Expr) -> Expr:
    e, n = _exp_parts_wide(_clamp(x, -746.0, 711.0), 2046)
    half = call("shr", n, 1)
    s = _power_wide(half)
    return (s * e + s) * _power_wide(n - half)


def _tanh_wide(x: Expr) -> Expr:
    """From 20 on it is 1."""
    twice = absolute(x) * 2.0
    e, n = _exp_parts_wide(where(twice > 40.0, 40.0, twice), 1023)
    s = _power_wide(n)
    d = s * e + (s - 1.0)
    return with_sign(over(d, d + 2.0), x)


def _exp_within(x: Expr, shift: int = 0) -> Expr:
    """e^x * 2^shift for x of -104.5 to 90: 2^n in two halves, so that nothing between overflows or is subnormal."""
    if LANGUAGE.get().scales:
        return _exp_scaled(x, shift)
    e, n = _exp_parts(x, 254 + shift)
    half = call("shr", n, 1)
    s = power(half)
    return (s * e + s) * power(n - half)


@elementary(np.exp, 12, lambda t, y, a: t * y, double=_exp_wide)
def _exp(x: Expr) -> Expr:
    return keep_nan(x, _exp_within(_clamp(x, -104.5, 90.0)))


@elementary(np.exp, 10, lambda t, y, a: t * y, double=_exp_wide)
def _exp_low(x: Expr) -> Expr:
    """e^x for x <= 0: 2^64 times as much is normal, so that 2^n needs no halves."""
    near = where(x < -104.5, -104.5, x)
    if LANGUAGE.get().scales:
        return keep_nan(x, _exp_scaled(near))
    e, n = _exp_parts(near, 127 + 64)
    s = power(n)
    return keep_nan(x, (s * e + s) * 2.0**-64)


@elementary(np.expm1, 20, lambda t, y, a: t * call("exp", a))
def _expm1(x: Expr) -> Expr:
    """Half of it first: 2^n (e^r - 1) + (2^n - 1) overflows too early. The smallest arguments are their own result."""
    e, n = _exp_parts(_clamp(x, -18.0, 89.0), 127 - 1)
    s = power(n)
    half = s * e + (s - 0.5)
    return keep_nan(x, where(absolute(x) < SMALL, x, half + half))


@elementary(np.tanh, 16, lambda t, y, a: t * (1.0 - y * y), double=_tanh_wide)
def _tanh(x: Expr) -> Expr:
    """h / (h + 1), h = (e^(2 abs(x)) - 1) / 2, with n of 0 to 29; from 10 on it is 1.

    n ln2 / 2 is rounded, for n of 3 and more: what that changes in e^(2 abs(x)) counts less in h / (h + 1) as n grows.
    """
    a = absolute(x)
    a = where(a > 10.0, 10.0, a)
    k, n = nearest(a * (2.0 * LOG2E), 127)
    r = a - k * (LN2 / 2.0)
    p01, p23 = r * (4.0 * 1.666652113e-1) + 2.0 * 4.999999404e-1, r * (16.0 * 8.368703537e-3) + 8.0 * 4.166828841e-2
    z = r * r
    half = r + ((z * (32.0 * 1.381893875e-3) + p23) * z + p01) * z
    s = power(n)
    h = s * half + (s * 0.5 - 0.5)
    return keep_nan(x, with_sign(over(h, h + 1.0), x))


def _sigmoid_wide(x: Expr) -> Expr:
    """e^-abs(x) never overflows, and e / (1 + e) keeps the far negative side right."""
    e = call("exp", call("neg", absolute(x)))
    return over(where(x < 0.0, e, 1.0), e + 1.0)


@elementary(numpy_sigmoid, 16, lambda t, y, a: t * (y * (1.0 - y)), double=_sigmoid_wide)
def _sigmoid(x: Expr) -> Expr:
    """1 / (1 + e^-x), above and below times 2^-64: e^-x then is finite down to where the result is 0."""
    away = call("neg", _clamp(x, -104.5, 40.0))
    if LANGUAGE.get().scales:
        scaled = _exp_scaled(away, -64)
    else:
        e, n = _exp_parts(away, 127 - 64)
        s = power(n)
        scaled = s * e + s
    return keep_nan(x, over(2.0**-64, scaled + 2.0**-64))


@elementary(np.sinh, 30, lambda t, y, a: t * call("cosh", a))
def _sinh(x: Expr) -> Expr:
    a = absolute(x)
    e = call("expm1", where(a > 10.0, 10.0, a))
    near, far = (e + over(e, e + 1.0)) * 0.5, _exp_within(_clamp(a, -104.5, 90.0), -1)
    found = where(a < SMALL, a, where(a > 9.5, far, near))
    return keep_nan(x, with_sign(found, x))


@elementary(np.cosh, 30, lambda t, y, a: t * call("sinh", a))
def _cosh(x: Expr) -> Expr:
    a = absolute(x)
    e = _exp_within(where(a > 90.0, 90.0, a), -1)
    return keep_nan(x, e + over(0.25, e))


def _numpy_erf(x: Any) -> Any:
    return np.vectorize(math.erf, otypes=[np.asarray(x).dtype])(x)


@elementary(_numpy_erf, 18, lambda t, y, a: bell(t, 2 / math.sqrt(math.pi), -1.0, a))
def _erf(x: Expr) -> Expr:
    """|x| < 9/8: x + x P(x^2), error 2^-27; else 1 - Q(|x|)^-8, error 2^-27 up to 4, beyond which erf is 1 in f32."""
    a = where(absolute(x) > 4.0, 4.0, absolute(x))
    z = a * a
    p = polynomial(z, 7.063541852e-5, -7.765805349e-4, 5.160259549e-3, -2.683922276e-2, 1.128325611e-1,
                    -3.761260211e-1, 1.283791661e-1)  # fmt: skip
    q01, q23 = a * 1.756871939e-1 + 9.927135110e-1, a * 1.043636575e-1 + 1.904213615e-2
    q45, q67 = a * 2.415376529e-2 + -5.126219615e-2, a * 6.428190391e-4 + -5.230107345e-3
    q = (q67 * z + q45) * (z * z) + (q23 * z + q01)
    q2 = q * q
    q4 = q2 * q2
    far = 1.0 - over(1.0, q4 * q4)
    return keep_nan(x, with_sign(where(a < 1.125, a + a * p, far), x))


# ---- logarithms: positive finite x = 2^k (1 + f), 1 + f in [sqrt(1/2), sqrt(2)) ------------------------------------


def _log_parts(x: Expr, normal: bool = False) -> tuple[Expr, Expr]:
    """f and k, of an x that is not subnormal if that is known."""
    tiny = const(False) if normal else (x < LEAST)
    u = call("raw32", where(tiny, x * 2.0**23, x)) - 0x3F3504F3
    k = call("shr", cast(u, I32), 23)
    if not normal:
        k = k - where(tiny, const(23, I32), const(0, I32))
    return call("float32", bit_and(u, 0x7FFFFF) + 0x3F3504F3) - 1.0, k


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
    if LANGUAGE.get().exact:
        found = where(x < INF, found, x)
        found = where(eq(x, 0.0), call("neg", INF), found)
        return where(x < 0.0, NAN, found)
    at_end = where(eq(x, 0.0), call("neg", INF), NAN)
    return where(x > 0.0, where(call("isinf", x), x, found), at_end)


@elementary(np.log, 16, lambda t, y, a: over(t, a))
def _log(x: Expr) -> Expr:
    return _log_of(x, *_log_parts(x))


@elementary(np.log1p, 20, lambda t, y, a: over(t, a + 1.0))
def _log1p(x: Expr) -> Expr:
    """log(u) with u = 1 + x rounded; what the rounding lost is put back into the fraction.

    Languages that sum in another order take (x + 1) - 1 for x. There the fraction is x itself where u has no exponent,
    and what is lost elsewhere, of a logarithm of 0.34 and more, is 2 ULP.
    """
    u = x + 1.0
    f, k = _log_parts(u, normal=True)
    if not LANGUAGE.get().exact:
        return where(absolute(x) < SMALL, x, _log_of(u, where(eq(k, 0), x, f), k))
    lost = where(u >= 2.0, 1.0 - (u - x), x - (u - 1.0))
    most = where(k > 100, const(100, I32), k)  # nothing of weight is lost beyond 2^24
    back = power(cast(127 - most, U32))
    return where(absolute(x) < SMALL, x, _log_of(u, f + lost * back, k))


def _log_double(x: Expr, below: Expr) -> Expr:
    """log1p(below), and log(2x) where x is so large that a square root of x^2 + 1 is x itself."""
    large = x > 2.0**28
    return call("log1p", where(large, x, below)) + where(large, const(LN2, F32), const(0.0, F32))


@elementary(np.arcsinh, 30, lambda t, y, a: over(t, call("sqrt", a * a + 1.0)))
def _asinh(x: Expr) -> Expr:
    a = absolute(x)
    z = a * a
    return with_sign(_log_double(a, a + over(z, call("sqrt", z + 1.0) + 1.0)), x)


@elementary(np.arccosh, 30, lambda t, y, a: over(t, call("sqrt", (a - 1.0) * (a + 1.0))))
def _acosh(x: Expr) -> Expr:
    f = x - 1.0
    found = _log_double(x, f + call("sqrt", f * (f + 2.0)))
    return keep_nan(x, where(x < 1.0, NAN, found))


@elementary(np.arctanh, 30, lambda t, y, a: over(t, 1.0 - a * a))
def _atanh(x: Expr) -> Expr:
    a = absolute(x)
    far = call("log1p", over(a + a, 1.0 - a)) * 0.5
    return with_sign(where(a < SMALL, a, far), x)


# ---- trigonometry --------------------------------------------------------------------------------------------------


def _quarter(x: Expr) -> tuple[Expr, Expr]:
    """x less a multiple of pi/2, nearly the nearest, and which multiple it is in the low bits of a u32, any for NaN.

    In f64 the high part of pi/2 has 33 bits, so that its product with a multiple below 2^20 is exact. Without f64 it is
    in four parts of 8 to 11 bits each, and beyond 2^13 pi/2 the argument's own rounding is the larger error.
    """
    k, quarter = nearest(x * (1 / HALF_PI), 0)
    if LANGUAGE.get().wide:
        d = cast(k, F64)
        return cast((cast(x, F64) - d * 1.5707963267341256) - d * 6.077100506506192e-11, F32), quarter
    for part in (1.5703125, 4.83751296997070312e-4, 7.54953362047672271e-8, 2.56334416e-12):
        x = x - k * part
    return x, quarter


def _sin_core(r: Expr) -> Expr:
    """On abs(r) <= pi/4, error 2^-32."""
    z = r * r
    return r + r * z * polynomial(z, 2.832099653e-6, -1.985304698e-4, 8.333379403e-3, -1.666666716e-1)


def _cos_core(r: Expr) -> Expr:
    """On abs(r) <= pi/4, error 2^-33."""
    z = r * r
    return z * (z * polynomial(z, 2.443066114e-5, -1.388730132e-3, 4.166664556e-2) - 0.5) + 1.0


def _is_odd(quarter: Expr) -> Expr:
    return cast(call("shl", quarter, 31), I32) < 0


def _finite(x: Expr, value: Expr) -> Expr:
    """A value that arithmetic makes NaN where x is infinite, said where compilers may take infinities for absent."""
    return value if LANGUAGE.get().exact else where(call("isinf", x), NAN, value)


def _sin_quarter(r: Expr, quarter: Expr) -> Expr:
    """sin(r + quarter pi/2)"""
    found = where(_is_odd(quarter), _cos_core(r), _sin_core(r))
    return flip_sign(found, call("shl", bit_and(quarter, 2), 30))


@elementary(np.sin, 20, lambda t, y, a: t * call("cos", a), reach=1e6)
def _sin(x: Expr) -> Expr:
    return _finite(x, where(eq(x, 0.0), x, _sin_quarter(*_quarter(x))))


@elementary(np.cos, 20, lambda t, y, a: call("neg", t * call("sin", a)), reach=1e6)
def _cos(x: Expr) -> Expr:
    r, quarter = _quarter(x)
    return _finite(x, _sin_quarter(r, quarter + 1))


@elementary(np.tan, 30, lambda t, y, a: t * (y * y + 1.0), reach=1e6)
def _tan(x: Expr) -> Expr:
    r, quarter = _quarter(x)
    s, c, odd = _sin_core(r), _cos_core(r), _is_odd(quarter)
    found = over(where(odd, call("neg", c), s), where(odd, s, c))
    return _finite(x, where(eq(x, 0.0), x, found))


def _asin_tail(s: Expr, z: Expr) -> Expr:
    """asin(s) - s on [0, 1/2], z = s^2, error 2^-27."""
    p = polynomial(z, 4.221852124e-2, 2.414884977e-2, 4.547652975e-2, 7.495249808e-2, 1.666675359e-1)
    return p * z * s


@elementary(np.arcsin, 30, lambda t, y, a: over(t, call("sqrt", 1.0 - a * a)))
def _asin(x: Expr) -> Expr:
    """Beyond 1/2: asin(a) = pi/2 - 2 asin(sqrt((1 - a) / 2))."""
    a = absolute(x)
    far = a > 0.5
    z = where(far, (1.0 - a) * 0.5, a * a)
    s = where(far, call("sqrt", z), a)
    near = s + _asin_tail(s, z)
    found = where(far, HALF_PI_HIGH - (near * 2.0 - HALF_PI_LOW), near)
    return _in_unit(x, a, with_sign(found, x))


@elementary(np.arccos, 30, lambda t, y, a: call("neg", over(t, call("sqrt", 1.0 - a * a))))
def _acos(x: Expr) -> Expr:
    a = absolute(x)
    far = a > 0.5
    z = where(far, (1.0 - a) * 0.5, x * x)
    s = where(far, call("sqrt", z), x)
    near = s + _asin_tail(s, z)
    twice = near + near
    other = 2 * HALF_PI_HIGH - (twice - 2 * HALF_PI_LOW)
    beyond = where(x < 0.0, other, twice)
    return _in_unit(x, a, where(far, beyond, HALF_PI_HIGH - (near - HALF_PI_LOW)))


def _in_unit(x: Expr, a: Expr, value: Expr) -> Expr:
    """A value that a square root of less than 0 makes NaN where a = abs(x) > 1, said where NaN may be absent."""
    return value if LANGUAGE.get().exact else keep_nan(x, where(a > 1.0, NAN, value))


@elementary(np.arctan, 30, lambda t, y, a: over(t, a * a + 1.0))
def _atan(x: Expr) -> Expr:
    """Reduced to |t| <= tan(pi/8), error 2^-30: atan(a) = b + atan((a - tan b) / (1 + a tan b)), b = pi/4 or pi/2."""
    a = absolute(x)
    mid, far = a > 0.414213562, a > 2.41421356
    above = where(far, -1.0, where(mid, a - 1.0, a))
    t = over(above, where(far, a, where(mid, a + 1.0, const(1.0, F32))))
    z = t * t
    p = polynomial(z, -6.090630963e-2, 1.059942842e-1, -1.424442679e-1, 1.999852955e-1, -3.333331645e-1)
    base = where(mid, where(far, const(HALF_PI, F32), const(HALF_PI / 2, F32)), const(0.0, F32))
    return with_sign((t + t * z * p) + base, x)


# ---- powers --------------------------------------------------------------------------------------------------------


def _log2_wide(x: Expr) -> Expr:
    """log2 of positive finite x to 2^-42, in f64: 2/ln2 atanh(f / (2 + f))."""
    m, k = _log_parts(x)
    f = cast(m, F64)
    s = over(f, f + 2.0)
    p = polynomial(s * s, 0.28295569816318067, 0.3199019512689901, 0.412209339869544, 0.5770779415400279,
                    0.9617966941159797, 2.885390081777851)  # fmt: skip
    return p * s + cast(cast(k, F32), F64)


def _exp2_wide(t: Expr) -> Expr:
    """2^t to 2^-40 for abs(t) <= 1000, larger ones clamped: they are 0 or inf in f32."""
    t = _clamp(t, -1000.0, 1000.0)
    u = t + 1.5 * 2.0**52
    r = t - (u - 1.5 * 2.0**52)
    p = polynomial(r, 1.317878516868302e-06, 1.5309380404736074e-05, 0.0001540382783631662, 0.0013333454040291646,
                    0.00961812861019364, 0.05550410936083865, 0.24022650698145948, 0.6931471805480277)  # fmt: skip
    return (p * r + 1.0) * call("float64", call("shl", call("raw64", u) + 1023, 52))


def _pow_wide(x: Expr, y: Expr) -> Expr:
    """2^(y log2|x|) through f64, rounded once, so well within 1 ULP."""
    a = absolute(x)
    edge = where(eq(a, 0.0), call("neg", INF), a)
    inside = (a > 0.0) & (a < INF)
    log = where(inside, _log2_wide(a), cast(edge, F64))
    r = cast(_exp2_wide(log * cast(y, F64)), F32)
    endless = eq(absolute(y), INF)
    twice = call("trunc", y * 0.5) * 2.0
    odd = eq(absolute(y - twice), 1.0)
    whole = odd | eq(y, twice) | endless
    r = flip_sign(r, where(odd, bit_and(call("raw32", x), 1 << 31), bits(0)))
    root = (x < 0.0) & (a < INF) & call("not", whole)
    r = where(root, NAN, r)
    unit = eq(a, 1.0) & endless
    return where(unit | eq(x, 1.0) | eq(y, 0.0), 1.0, r)


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
    d_low = 1.0 - (d - part) + (m - part)
    s = over(f, d)
    s_low = over(_fma(call("neg", s), d, f) - s * d_low, d)
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
    n, shifted = nearest(_clamp(t, -160.0, 140.0), 254)
    r = (t - n) + t_low
    q = polynomial(r, 1.532679307e-4, 1.339102513e-3, 9.618505836e-3, 5.550359562e-2, 2.402264774e-1, 6.931471825e-1)
    half = call("shr", shifted, 1)
    scale = power(half)
    found = (scale * (q * r) + scale) * power(shifted - half)
    return where(t > 130.0, INF, where(t < -152.0, 0.0, found))


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
    found = (e + 1.0) * power(half) * power(n - half)
    total = part + y * log
    return where(total > 130.0, INF, where(total < -152.0, 0.0, found))


def _whole_power(a: Expr, y: Expr) -> Expr:
    """a^y for whole y up to 64, as products."""
    n = cast(absolute(y), I32)
    found = where(ne(bit_and(n, 1), 0), a, 1.0)
    for bit in range(1, 7):
        a = a * a
        found = where(ne(bit_and(n, 1 << bit), 0), found * a, found)
    return where(y < 0.0, over(1.0, found), found)


def _slope_of_base(t: Expr, y: Expr, a: Expr, b: Expr) -> Expr:
    """Of a ** b by a: b * a ** (b - 1), which is 0 for a power of 0 whatever a is."""
    slope = t * (b * call("pow", a, b - 1.0))
    return where(eq(b, 0.0), const(0, t.dtype), slope)


def _slope_of_exponent(t: Expr, y: Expr, a: Expr, b: Expr) -> Expr:
    """Of a ** b by b: a ** b * log(a), which is 0 where a is 0 and b is not negative."""
    still = eq(a, 0.0) & (b >= 0.0)
    return where(still, const(0, t.dtype), t * (y * call("log", a)))


def _numpy_pow(a: Any, b: Any) -> Any:
    """ONNX Pow; an integer to a negative power is 1 / a^abs(b) without its fraction, and 0 where a is 0."""
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype.kind != "i":
        return np.power(a, b)
    sign = np.where(b % 2 == 0, 1, a)  # the power where abs(a) is 1
    return np.where(b < 0, np.where(abs(a) == 1, sign, 0), np.power(a, np.maximum(b, 0))).astype(a.dtype)


@elementary(_numpy_pow, 30, _slope_of_base, _slope_of_exponent)
def _pow(x: Expr, y: Expr) -> Expr:
    """The cases of C's pow (annex F)."""
    if LANGUAGE.get().wide:
        return _pow_wide(x, y)
    a, zero = absolute(x), const(0.0, F32)
    is_zero, is_large = eq(a, 0.0), call("isinf", x)
    whole = eq(call("trunc", y), y)
    odd = whole & ne(call("trunc", y * 0.5), y * 0.5)
    below, falls = a < 1.0, y < 0.0
    if LANGUAGE.get().fused:
        r = _pow_fused(a, y)
    else:
        small = whole & (absolute(y) <= 64.0)
        r = where(small, _whole_power(a, y), _pow_positive(a, y))
    r = where(call("isinf", y), where(eq(below, falls), INF, zero), r)
    r = where(is_zero | is_large, where(eq(is_zero, falls), INF, zero), r)
    r = where(odd & (call("raw32", x) >= 1 << 31), call("neg", r), r)
    r = where((x < 0.0) & call("not", whole | is_large), NAN, r)
    r = where(eq(a, 1.0) & call("isinf", y), 1.0, r)
    r = where(call("isnan", x) | call("isnan", y), NAN, r)
    return where(eq(x, 1.0) | eq(y, 0.0), 1.0, r)


# Functions that are formulas in f32, by their names in generated code after ``t_``, for both types of floats.
ELEMENTARY = frozenset(
    f"{f.name}_{dtype}"
    for f in FUNCTIONS.values()
    if f.formula
    for dtype in ("f32", "f64")[: 1 if f.name in NEAR else 2]
)

# With the conversions of types of storage, which are formulas too.
PRINTED = ELEMENTARY | CONVERSIONS.keys()


def arguments_of(function: Function) -> list[str]:
    """Names of the arguments of a formula."""
    assert function.formula is not None
    return [*signature(function.formula).parameters]


def operands_of(formula: Expr) -> dict[str, DType]:
    """Types of the arguments of a formula, by name."""
    return dict(sorted((str(x.data), x.dtype) for x in walk(formula) if x.op == "acc"))


def _rows() -> Iterator[tuple[str, Callable[[], Expr]]]:
    for f in FUNCTIONS.values():
        for kind, formula in ((F32, f.formula), (F64, f.double)):
            if formula is not None:
                yield f"{f.name}_{kind.name}", partial(formula, *(acc(x, kind) for x in arguments_of(f)))
    for name, convert in CONVERSIONS.items():
        yield name, partial(_in_language, convert)
    for name, e in corner_formulas().items():
        yield name, partial(_itself, e)


def _in_language(formula: Callable[[Language], Expr]) -> Expr:
    return formula(LANGUAGE.get())


def _itself(e: Expr) -> Expr:
    return e


@lru_cache(maxsize=1)
def _table() -> dict[str, Callable[[], Expr]]:
    return dict(_rows())


@lru_cache
def find_formula(name: str, language: Language) -> Expr | None:
    """The formula of a function, by its name in generated code after ``t_``; its arguments are x and y."""
    if (make := _table().get(name)) is None:
        return None
    was = LANGUAGE.set(language)
    try:
        return make()
    finally:
        LANGUAGE.reset(was)


def formulas(language: Language) -> dict[str, Expr]:
    """All formulas, but for those of types that it lacks."""
    names = (name for name in _table() if language.wide or not name.endswith("_f64"))
    return {name: e for name in names if (e := find_formula(name, language)) is not None}


__all__ = [
    "ELEMENTARY", "EXACT", "PRINTED", "Language", "arguments_of", "find_formula", "formulas", "operands_of",
]  # fmt: skip
