"""One immutable scalar expression for dimensions, indices and arithmetic.

Expressions are interned: two equal ones are one object, so ``is`` compares them and they serve as dictionary keys.
Integer (i64) sums and products are kept in a normal form, a polynomial over atoms, so that two ways of writing one
dimension meet in one object; the rules for division and remainder are in :mod:`torshc.expr.index`.

Leaves:
    const   ``data`` is the value
    dim     ``data`` is the name of a symbolic dimension, at least 0
    element ``data`` is a name: an integer that a run reads from a small tensor, of any sign unless it counts rounds
    axis    ``data`` is (name, extent): a loop variable with 0 <= axis < extent
    acc     ``data`` is a name: a value that the kernel provides (an accumulator, a row statistic)
    load    ``data`` is any hashable key that names the tensor; ``args`` are its indices
Everything else is a scalar function of :mod:`torshc.expr.functions`.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Container, Hashable, Iterable, Iterator
from typing import Any, Union

from .dtype import BOOL, F32, I64, DType

Scalar = Union["Expr", int, float, bool]
SYMBOLS = ("dim", "element")  # the leaves that get their values at run time
LOCAL = ("axis", "load", "acc")  # what a kernel alone knows

# What Python's operators do on expressions, and "text" for how one shows itself. These are written with expressions, so
# that they come after them: functions.py and text.py fill this in.
OPERATORS: dict[str, Callable[..., Any]] = {}


class Expr:
    """A node of an expression; made by the functions of this package, never directly."""

    __slots__ = ("__weakref__", "args", "data", "dtype", "op")

    op: str
    args: tuple[Expr, ...]
    dtype: DType
    data: Hashable

    def __repr__(self) -> str:
        shown: str = OPERATORS["text"](self)
        return shown

    def __add__(self, other: Scalar) -> Expr:
        made: Expr = OPERATORS["add"](self, _like(self, other))
        return made

    def __sub__(self, other: Scalar) -> Expr:
        made: Expr = OPERATORS["sub"](self, _like(self, other))
        return made

    def __mul__(self, other: Scalar) -> Expr:
        made: Expr = OPERATORS["mul"](self, _like(self, other))
        return made

    def __floordiv__(self, other: Scalar) -> Expr:
        made: Expr = OPERATORS["floordiv"](self, _like(self, other))
        return made

    def __mod__(self, other: Scalar) -> Expr:
        made: Expr = OPERATORS["mod"](self, _like(self, other))
        return made

    def __lt__(self, other: Scalar) -> Expr:
        made: Expr = OPERATORS["lt"](self, _like(self, other))
        return made

    def __le__(self, other: Scalar) -> Expr:
        made: Expr = OPERATORS["le"](self, _like(self, other))
        return made

    def __gt__(self, other: Scalar) -> Expr:
        made: Expr = OPERATORS["gt"](self, _like(self, other))
        return made

    def __ge__(self, other: Scalar) -> Expr:
        made: Expr = OPERATORS["ge"](self, _like(self, other))
        return made

    def __and__(self, other: Expr) -> Expr:
        made: Expr = OPERATORS["and"](self, other)
        return made

    def __or__(self, other: Expr) -> Expr:
        made: Expr = OPERATORS["or"](self, other)
        return made

    def __neg__(self) -> Expr:
        return _like(self, 0) - self

    def __radd__(self, other: float) -> Expr:
        return _like(self, other) + self

    def __rsub__(self, other: float) -> Expr:
        return _like(self, other) - self

    def __rmul__(self, other: float) -> Expr:
        return _like(self, other) * self

    def __bool__(self) -> bool:
        raise TypeError(f"the truth of {self!r} is not known at compile time; use as_int or bounds")

    def __reduce__(self) -> tuple[object, ...]:
        return make, (self.op, self.args, self.dtype, self.data)


_TABLE: weakref.WeakValueDictionary[tuple[object, ...], Expr] = weakref.WeakValueDictionary()
_PLAIN = frozenset({int, str, type(None)})  # types of data that are told apart by themselves
_SMALL: dict[int, Expr] = {}  # constants of sizes and indices that most expressions hold


def make(op: str, args: tuple[Expr, ...], dtype: DType, data: Hashable = None) -> Expr:
    """Intern a node as it is; callers outside this package use the smart constructors."""
    # The type of data is in the key because 1 == 1.0 == True; repr separates -0.0 from 0.0 and makes NaN equal itself.
    # Counters of one name may have different extents.
    kind, mark = type(data), data
    if kind not in _PLAIN:
        mark = repr(data) if isinstance(data, float) else (data, data.extent) if isinstance(data, _Counter) else data
    key = (op, args, dtype.name, kind, mark)
    found = _TABLE.get(key)
    if found is None:
        found = Expr()
        found.op, found.args, found.dtype, found.data = op, args, dtype, data
        _TABLE[key] = found
    return found


def const(value: int | float | bool, dtype: DType | None = None) -> Expr:
    """A constant; without a dtype, int is i64, float is f32, bool is bool.

    Integers of a stated type wrap to it. Those of none are sizes and indices, which are exact, beyond 64 bits too: what
    does not fit is refused where a node gets its types (:mod:`torshc.graph.sizes`).
    """
    if dtype is None:
        if type(value) is int:
            found = _SMALL.get(value)
            if found is None:
                found = make("const", (), I64, value)
                if -256 <= value <= 4096:
                    _SMALL[value] = found
            return found
        dtype = BOOL if isinstance(value, bool) else I64 if isinstance(value, int) else F32
    if dtype.is_float:
        return make("const", (), dtype, float(value))
    if dtype is BOOL:
        return make("const", (), dtype, bool(value))
    if isinstance(value, float):
        value = math.trunc(value) if math.isfinite(value) else 0
    low, high = dtype.range
    return make("const", (), dtype, (int(value) - low) % (high - low + 1) + low)


def dim(name: str) -> Expr:
    """A symbolic dimension, at least 0."""
    return make("dim", (), I64, name)


class _RuntimeDim(str):
    """The name of a dimension that is not known when a run begins."""

    __slots__ = ()


def runtime_dim(name: str) -> Expr:
    """A symbolic dimension of a value that a run computes; nothing is known of how it relates to others."""
    return make("dim", (), I64, _RuntimeDim(name))


def is_runtime(e: Expr) -> bool:
    """Whether an expression depends on what is not known when a run begins, or on elements."""
    return any(x.op == "element" or isinstance(x.data, _RuntimeDim) for x in walk(e))


def element(name: str) -> Expr:
    """An integer that a run reads from a small tensor, such as an entry of a shape; of any sign."""
    return make("element", (), I64, name)


class _Counter(str):
    """The name of an element that counts the rounds of a loop, and what it is always below."""

    extent: Expr


def counter(name: str, extent: Scalar = 1 << 31) -> Expr:
    """An element that counts the rounds of a loop: 0 <= counter < extent, by default what a run takes for an element.

    Only the loop's body may rely on that, which does not run where the extent is 0.
    """
    counted = _Counter(name)
    counted.extent = as_expr(extent)
    return element(counted)


def extent_of(e: Expr) -> Expr | None:
    """What an axis or a counter, which are at least 0, is always below; None of other expressions."""
    if e.op == "axis":
        return e.args[0]
    return e.data.extent if isinstance(e.data, _Counter) else None


def axis(name: str, extent: Scalar) -> Expr:
    """A loop variable with 0 <= axis < extent."""
    return make("axis", (as_expr(extent),), I64, name)


def acc(name: str, dtype: DType) -> Expr:
    """A value that the surrounding kernel provides under this name."""
    return make("acc", (), dtype, name)


def load(key: Hashable, index: tuple[Expr, ...], dtype: DType) -> Expr:
    """The element of tensor `key` at `index`; what is a type of storage only is converted by the load."""
    return make("load", index, dtype, key)


def as_expr(value: Scalar) -> Expr:
    return value if isinstance(value, Expr) else const(value)


def _like(e: Expr, value: Scalar) -> Expr:
    """An operand beside an expression: a Python number takes its type."""
    if isinstance(value, Expr):
        return value
    if not isinstance(value, int | float):
        raise TypeError(f"an operation on the size {e!r} and {value!r}, which is no size")
    return const(value, None if e.dtype is I64 else e.dtype)


def as_int(expr: Scalar) -> int | None:
    """The value of a constant integer expression, else None."""
    if isinstance(expr, int):
        return int(expr)
    if isinstance(expr, Expr) and expr.op == "const" and isinstance(expr.data, int):
        return int(expr.data)
    return None


def as_float(expr: Expr) -> float | None:
    """The value of a constant number, else None."""
    return float(expr.data) if expr.op == "const" and isinstance(expr.data, (int, float)) else None


def product(extents: Iterable[Expr]) -> Expr:
    """The number of elements of such extents; 1 of none."""
    total = const(1)
    for extent in extents:
        total = total * extent
    return total


def walk(*roots: Expr) -> Iterator[Expr]:
    """Every node below the roots once, arguments before their users. The extent of an axis is not entered."""
    seen: set[Expr] = set()
    stack = [(r, False) for r in reversed(roots)]
    while stack:
        node, done = stack.pop()
        if done:
            yield node
        elif node not in seen:
            seen.add(node)
            if not node.args or node.op == "axis":
                yield node
                continue
            stack.append((node, True))
            stack += [(a, False) for a in reversed(node.args) if a not in seen]


def walk_new(root: Expr, known: Container[Expr]) -> Iterator[Expr]:
    """As :func:`walk`, without what is known already and what is below it; each node is known before the next.

    So what is kept for every node of expressions that share parts is found in one visit to each.
    """
    stack = [root]
    while stack:
        node = stack[-1]
        fresh = [] if node in known or node.op == "axis" else [a for a in node.args if a not in known]
        if fresh:
            stack += fresh
            continue
        stack.pop()
        if node not in known:
            yield node


_NONE: frozenset[Expr] = frozenset()
_LOCALS: weakref.WeakKeyDictionary[Expr, frozenset[Expr]] = weakref.WeakKeyDictionary()


def locals_of(e: Expr) -> frozenset[Expr]:
    """What of an expression only a kernel knows: the axes, loads and provided values in it, itself included.

    Kept for each expression, since sizes in one may be long and hold none.
    """
    for x in walk_new(e, _LOCALS):
        parts = [] if x.op == "axis" else [part for a in x.args if (part := _LOCALS[a])]
        found = parts[0] if len(parts) == 1 else _NONE.union(*parts)
        _LOCALS[x] = found | {x} if x.op in LOCAL else found
    return _LOCALS[e]


def dims_of(*exprs: Expr) -> list[str]:
    """Names of the symbols (dimensions and elements) in the expressions, extents of axes included, by first use."""
    names: dict[str, None] = {}
    pending = list(exprs)
    while pending:
        extents: dict[Expr, None] = {}
        for e in walk(*pending):
            if e.op in SYMBOLS:
                names[str(e.data)] = None
            elif e.op == "axis":
                extents[e.args[0]] = None
        pending = list(extents)
    return list(names)
