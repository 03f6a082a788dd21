"""Inclusive bounds of scalar expressions; infinite where nothing is known, and then a float may be NaN as well."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable

from .dtype import BOOL, DType
from .expr import Expr, extent_of, walk_new

Range = tuple[float, float]

SYMBOL_MAX = 2**31 - 1  # a run refuses larger dimensions, and elements further from 0
UNKNOWN: Range = (-math.inf, math.inf)
_FAR = 1e37  # floats beyond may overflow
_BEYOND = 1 << 128  # no size, count or offset that is right comes near
_ROUNDING = 2.0**-22  # relative; more than one operation of any float loses

_WRAPPING = ("add", "sub", "mul", "neg", "abs", "cast")

_RANGES: weakref.WeakKeyDictionary[Expr, Range] = weakref.WeakKeyDictionary()
_DATA: weakref.WeakKeyDictionary[Expr, bool] = weakref.WeakKeyDictionary()  # whether it depends on what kernels read


def range_of(e: Expr) -> Range:
    """The bounds of an expression; kept, since expressions share parts."""
    for x in walk_new(e, _RANGES):
        _DATA[x] = x.op in ("load", "acc") or (x.op != "axis" and any(_DATA[a] for a in x.args))
        _RANGES[x] = _round_bounds(x, _bounds(x))
    return _RANGES[e]


def of_data(e: Expr) -> bool:
    """Whether an expression depends on what kernels read."""
    range_of(e)
    return _DATA[e]


def fits(e: Expr, dtype: DType) -> bool:
    """Whether an integer is surely a value of an integer type."""
    low, high = range_of(e)
    return dtype.range[0] <= low and high <= dtype.range[1]


def may_wrap(e: Expr) -> bool:
    """Whether a sum or a product is of data and may wrap, so that it says nothing about its terms; sizes are exact."""
    return e.op in ("add", "mul") and e.dtype.is_int and of_data(e) and not exact(e)


def exact(e: Expr) -> bool:
    """Whether no step of an integer sum or product can leave its type, in whatever order it is computed."""
    ends = [max(abs(low), abs(high)) for low, high in map(range_of, e.args)]
    return (sum(ends) if e.op == "add" else math.prod(max(x, 1) for x in ends)) <= e.dtype.range[1]


def _round_bounds(e: Expr, found: Range) -> Range:
    """Bounds after rounding to a type of float, or wrapping: to a narrow type of integers, or to 64 bits for data."""
    low, high = _clamp_to_floats(*found)
    dtype = e.dtype
    if dtype.is_float:
        known = low > -_FAR and high < _FAR
        return (low - abs(low) * _ROUNDING, high + abs(high) * _ROUNDING) if known else UNKNOWN
    if dtype.is_int and not (dtype.range[0] <= low and high <= dtype.range[1]):
        if dtype.size < 8:
            return dtype.range
        if e.op in _WRAPPING and _DATA[e]:
            return UNKNOWN
    return low, high


def _clamp_to_floats(low: float, high: float) -> Range:
    """Bounds whose sums and products with infinities floats hold, as exact integers beyond them would not."""
    return (
        -math.inf if low < -_BEYOND else min(low, _BEYOND),
        math.inf if high > _BEYOND else max(high, -_BEYOND),
    )


def _bounds(e: Expr) -> Range:
    if e.op == "const":
        value = e.data
        assert isinstance(value, (int, float))
        return (value, value) if isinstance(value, int) or math.isfinite(value) else UNKNOWN
    if e.dtype is BOOL:
        return 0, 1
    if e.op == "dim":
        return 0, SYMBOL_MAX
    if (extent := extent_of(e)) is not None:
        return 0, max(range_of(extent)[1] - 1, 0)
    if e.op == "element":
        return -SYMBOL_MAX, SYMBOL_MAX
    rule = _RULES.get(e.op)
    if rule is None:
        return UNKNOWN
    ranges = [range_of(a) for a in e.args]
    if e.dtype.is_float and e.op != "cast" and UNKNOWN in ranges:
        return UNKNOWN  # NaN may be among them
    return rule(e, *ranges)


def _add(e: Expr, *xs: Range) -> Range:
    return sum(x[0] for x in xs), sum(x[1] for x in xs)


def _sub(e: Expr, a: Range, b: Range) -> Range:
    return a[0] - b[1], a[1] - b[0]


def _mul(e: Expr, *xs: Range) -> Range:
    low: float = 1
    high: float = 1
    for x, y in xs:
        ends = [0 if p == 0 or q == 0 else p * q for p in (low, high) for q in (x, y)]
        low, high = _clamp_to_floats(min(ends), max(ends))
    return low, high


def _divide(a: Range, d: Range, divide: Callable[[float, float], float]) -> Range:
    """Bounds of a quotient by what is at least 1, or by a float above 0."""
    ends = [x if math.isinf(x) else 0 if math.isinf(y) else divide(x, y) for x in a for y in d]
    below: list[float] = [-1] if a[0] < 0 and math.isinf(d[1]) else []  # rounded down, a small negative quotient is -1
    return min(ends + below), max(ends)


def _floordiv(e: Expr, a: Range, d: Range) -> Range:
    return _divide(a, d, lambda x, y: x // y) if d[0] >= 1 else UNKNOWN


def _div(e: Expr, a: Range, d: Range) -> Range:
    if e.dtype.is_float:
        return _divide(a, d, lambda x, y: x / y) if d[0] > 0 else UNKNOWN
    return _divide(a, d, lambda x, y: abs(x) // y * (1 if x > 0 else -1)) if d[0] >= 1 else UNKNOWN


def _mod(e: Expr, a: Range, d: Range) -> Range:
    if e.dtype.is_float or d[0] < 0:
        return UNKNOWN
    return 0, min(d[1] - 1, a[1] if a[0] >= 0 else math.inf)


def _abs(e: Expr, a: Range) -> Range:
    ends = [abs(a[0]), abs(a[1])]
    return 0 if a[0] <= 0 <= a[1] else min(ends), max(ends)


def _each(function: Callable[[float], float]) -> Callable[..., Range]:
    """The rule of a function that never falls."""
    return lambda e, a: (function(a[0]), function(a[1]))


def _cast(e: Expr, a: Range) -> Range:
    source = e.args[0].dtype
    if e.dtype.is_float or not source.is_float:
        return a
    if a == UNKNOWN:
        return UNKNOWN if e.dtype.size == 8 else e.dtype.range
    low, high = e.dtype.range
    return max(math.trunc(a[0]), low), min(math.trunc(a[1]), high)


_RULES: dict[str, Callable[..., Range]] = {
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "floordiv": _floordiv,
    "div": _div,
    "mod": _mod,
    "min": lambda e, a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "max": lambda e, a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "select": lambda e, c, a, b: (min(a[0], b[0]), max(a[1], b[1])),
    "neg": lambda e, a: (-a[1], -a[0]),
    "abs": _abs,
    "sign": lambda e, a: (-1, 1),
    "floor": _each(math.floor),
    "ceil": _each(math.ceil),
    "round": _each(round),
    "trunc": _each(math.trunc),
    "sqrt": lambda e, a: (math.sqrt(a[0]), math.sqrt(a[1])) if a[0] >= 0 else UNKNOWN,
    "cast": _cast,
}
