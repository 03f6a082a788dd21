"""Elements with Python's operators, so that what an operator computes of them reads as its formula.

    def swish(x: Scalar, *, alpha: float = 1.0) -> Scalar:
        return x * sigmoid(x * alpha)

The functions of the table (:mod:`torshc.expr.functions`) are functions here, by their names, but for those that Python
has operators for and `maximum`, `minimum`, `equal` and `where`. Integers wrap as elements do, and ``/`` of them drops
the fraction. A Python number has the type of the other operand.

Sizes and indices are no elements: they stay `Expr`, whose integers are exact. Of a size `element` makes an element, of
an element :meth:`Scalar.index` an index; what takes both in one operation is an error.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial, reduce
from typing import Any, NoReturn, TypeAlias

from ...base.errors import did_you_mean
from ...expr import BOOL, FUNCTIONS, I64, DType, Expr, call, cast, const, select

Operand: TypeAlias = "Scalar | float"


class Scalar:
    """An element of a tensor, or what is computed of some.

    Of two elements `equal` gives an element; ``==`` and ``if`` are refused, as elements are not known yet.
    """

    __slots__ = ("expr",)

    def __init__(self, expr: Expr) -> None:
        self.expr = expr

    def __repr__(self) -> str:
        return f"Scalar({self.expr!r})"

    def __bool__(self) -> NoReturn:
        raise TypeError("an element is neither true nor false before a run; choose elements with where()")

    def __eq__(self, other: object) -> NoReturn:
        raise TypeError("== of elements; compare them with equal()")

    @property
    def dtype(self) -> DType:
        return self.expr.dtype

    @property
    def number(self) -> float | None:
        """The value of a constant, else None."""
        return self.expr.data if self.expr.op == "const" else None  # type: ignore[return-value]

    def cast(self, dtype: DType) -> Scalar:
        """Convert as the operator Cast does."""
        return Scalar(cast(self.expr, dtype))

    def index(self) -> Expr:
        """An integer as an index."""
        return cast(self.expr, I64)

    def __add__(self, other: Operand) -> Scalar:
        return _call("add", self, other)

    def __radd__(self, other: float) -> Scalar:
        return _call("add", other, self)

    def __sub__(self, other: Operand) -> Scalar:
        return _call("sub", self, other)

    def __rsub__(self, other: float) -> Scalar:
        return _call("sub", other, self)

    def __mul__(self, other: Operand) -> Scalar:
        return _call("mul", self, other)

    def __rmul__(self, other: float) -> Scalar:
        return _call("mul", other, self)

    def __truediv__(self, other: Operand) -> Scalar:
        return _call("div", self, other)

    def __rtruediv__(self, other: float) -> Scalar:
        return _call("div", other, self)

    def __mod__(self, other: Operand) -> Scalar:
        return _call("mod", self, other)

    def __pow__(self, other: Operand) -> Scalar:
        """Of some constant powers a product or a root, which is faster and closer."""
        power = other.number if isinstance(other, Scalar) else other
        if power == 2:
            return self * self
        if power == 3:
            return self * self * self
        if power in (0.5, 0.75) and self.dtype.is_float:
            root = _call("sqrt", self)
            return root if power == 0.5 else root * _call("sqrt", root)
        return _call("pow", self, other)

    def __neg__(self) -> Scalar:
        return _call("neg", self)

    def __abs__(self) -> Scalar:
        return _call("abs", self)

    def __round__(self, digits: None = None) -> Scalar:
        """The next whole number, of two the even one."""
        return _call("round", self)

    def __lt__(self, other: Operand) -> Scalar:
        return _compare("lt", self, other)

    def __le__(self, other: Operand) -> Scalar:
        return _compare("le", self, other)

    def __gt__(self, other: Operand) -> Scalar:
        return _compare("gt", self, other)

    def __ge__(self, other: Operand) -> Scalar:
        return _compare("ge", self, other)

    def __and__(self, other: Operand) -> Scalar:
        """Of truth values "and"; of integers that of each bit, as for the next three."""
        return _call("and" if self.dtype is BOOL else "bitand", self, other)

    def __or__(self, other: Operand) -> Scalar:
        return _call("or" if self.dtype is BOOL else "bitor", self, other)

    def __xor__(self, other: Operand) -> Scalar:
        return _call("xor" if self.dtype is BOOL else "bitxor", self, other)

    def __invert__(self) -> Scalar:
        return _call("not" if self.dtype is BOOL else "bitnot", self)

    def __lshift__(self, other: Operand) -> Scalar:
        return _call("shl", self, other)

    def __rshift__(self, other: Operand) -> Scalar:
        return _call("shr", self, other)


def element(size: Expr | float, dtype: DType | None = None) -> Scalar:
    """A number, a size, an index or a condition on these as an element, of a type or of its own."""
    if isinstance(size, Expr):
        return Scalar(size if dtype is None else cast(size, dtype))
    return Scalar(const(size, dtype))


def where(condition: Scalar | Expr, x: Operand, y: Operand) -> Scalar:
    """x where the condition holds, of elements or of indices, else y; only the chosen side's elements are read."""
    test = condition.expr if isinstance(condition, Scalar) else condition
    return Scalar(select(test, *alike(x, y)))


def equal(x: Operand, y: Operand) -> Scalar:
    return _call("eq", x, y)


def maximum(x: Operand, *others: Operand) -> Scalar:
    """The largest; NaN where there is one."""
    return reduce(partial(_call, "max"), others, x)  # type: ignore[return-value]


def minimum(x: Operand, *others: Operand) -> Scalar:
    """The least; NaN where there is one."""
    return reduce(partial(_call, "min"), others, x)  # type: ignore[return-value]


def clip(x: Scalar, low: Operand | None, high: Operand | None) -> Scalar:
    """min(max(x, low), high); a bound that is None is not applied."""
    x = x if low is None else maximum(x, low)
    return x if high is None else minimum(x, high)


def __getattr__(name: str) -> Callable[..., Scalar]:
    if name.startswith(("_", "pytest")):  # what Python, and pytest, ask any module for
        raise AttributeError(name)
    return function_named(name)


def function_named(name: str) -> Callable[..., Scalar]:
    """A function of the table."""
    if name not in FUNCTIONS:
        raise AttributeError(f"no function of elements is called {name}(){did_you_mean(name, sorted(FUNCTIONS))}")
    return partial(_call, name)


def _call(function: str, *xs: Operand) -> Scalar:
    return Scalar(call(function, *alike(*xs)))


def _compare(function: str, x: Scalar, other: Operand) -> Scalar:
    """A comparison; an integer is less than a number with a fraction just where it is less than the next one up."""
    if isinstance(other, float) and x.dtype.is_int and math.isfinite(other):
        other = math.ceil(other) if function in ("lt", "ge") else math.floor(other)
    return _call(function, x, other)


def alike(*xs: Any) -> list[Expr]:
    """Operands as expressions of one type, which Python numbers take."""
    for x in xs:
        if isinstance(x, Expr):
            raise TypeError(f"an operation on elements and the size {x!r}; make an element of it with element()")
    kinds = {x.dtype for x in xs if isinstance(x, Scalar)}
    if len(kinds) != 1:
        shown = ", ".join(repr(x.expr if isinstance(x, Scalar) else x) for x in xs)
        raise TypeError(f"operands of different types: {shown}" if kinds else f"an operation on numbers only: {shown}")
    (dtype,) = kinds
    for x in xs:
        if isinstance(x, float) and dtype.is_int and not x.is_integer():
            raise TypeError(f"the number {x!r} beside an element of {dtype!r}, which has no fraction")
    return [x.expr if isinstance(x, Scalar) else const(x, dtype) for x in xs]
