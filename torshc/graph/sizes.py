"""The one place that checks sizes: what a node makes and where it reads has to fit 64 bits, whatever led there.

Sizes and indices are exact while operators compute them (:func:`torshc.expr.const`). A node is checked when it is
added: its shapes, the numbers in them, and, where its attributes hold large numbers, each index of its loop nest.
What depends on symbols is checked by the run, which refuses sizes above 2^47.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ..base.errors import ModelError
from ..expr import Expr, acc, as_int, axis, const, is_long, load, walk, walk_new
from ..expr.bounds import range_of

if TYPE_CHECKING:
    from .graph import Node, Shape, Value

MOST = 1 << 62  # bytes of a value, were its elements of eight each; an index and its parts
RANK_MAX = 64  # T_RANK_MAX of the host program, and NumPy's
LARGE = 1 << 31  # from this on a number in an attribute can take an index past `MOST`

_FITS: weakref.WeakKeyDictionary[Expr, bool] = weakref.WeakKeyDictionary()


def require_shape(shape: Shape, what: str) -> None:
    """Refuse a shape that no machine can hold.

    Raises:
        ModelError: when there are too many dimensions, known ones are negative or their product is beyond 64 bits of
            bytes, or one of them takes too many steps to compute.
    """
    if len(shape) > RANK_MAX:
        raise ModelError(f"{what} has {len(shape)} dimensions, and at most {RANK_MAX} are possible")
    total = 8
    for d in shape:
        value = as_int(d)
        if is_long(d):
            raise ModelError(f"{what} has a size whose expression is too long")
        if value is not None and value < 0:
            raise ModelError(f"{what} has shape {list(shape)}, with a negative dimension")
        total *= max(value or 1, 1)
    if total >= MOST or not all(map(fits, shape)):
        raise ModelError(f"{what} has shape {list(shape)}, which is more than memory can hold")


def fits(e: Expr) -> bool:
    """Whether all numbers in an expression fit 64 bits, with a bit to spare for sums."""
    for x in walk_new(e, _FITS):
        own = not isinstance(x.data, int) or x.dtype.is_float or -MOST <= x.data <= MOST
        _FITS[x] = own and (x.op == "axis" or all(_FITS[a] for a in x.args))
    return _FITS[e]


def require_fit(pairs: Iterable[tuple[Expr, Expr]]) -> None:
    """Refuse conditions of a run that 64 bits cannot compute.

    Raises:
        ModelError: when a number in one does not fit.
    """
    for a, b in pairs:
        if not (fits(a) and fits(b)):
            raise ModelError(f"a run would have to compare {a!r} with {b!r}, beyond 64 bits")


def require_reach(node: Node) -> None:
    """Refuse large attributes with which an index, or a part of one, would not fit 64 bits.

    Raises:
        ModelError: naming the operand and how far its indices would reach.
    """
    if not any(abs(n) >= LARGE for n in _numbers(vars(node.op).values())):
        return
    for k in range(len(node.outputs)):
        for operand, index in _reads(node, k):
            reach = _reach(operand, index)
            if reach > MOST:
                about = math.log2(min(reach, 1 << 1000))
                raise ModelError(
                    f"indices into {operand.type!r} would reach 2^{about:.0f}, beyond 64 bits",
                    "use smaller strides, dilations or pads",
                )


def _numbers(values: Iterable[Any]) -> Iterator[int]:
    """The integers in the attributes of an operator."""
    pending = list(values)
    while pending:
        v = pending.pop()
        if isinstance(v, tuple):
            pending += v
        elif isinstance(v, Expr):
            pending += (x.data for x in walk(v) if isinstance(x.data, int))
        elif isinstance(v, int):
            yield v


def _reads(node: Node, output: int) -> list[tuple[Value, tuple[Expr, ...]]]:
    """Each operand that a loop nest reads, with its index."""
    nest = node.op.nest(node, output)
    if nest is None:
        return []
    found: list[tuple[Value, tuple[Expr, ...]]] = []

    def read(k: int, index: tuple[Expr, ...]) -> Expr:
        value = node.inputs[k]
        assert value is not None
        found.append((value, index))
        return load((k, len(found)), index, value.dtype.register)

    at, inner = (
        tuple(const(0) if as_int(e) == 1 else axis(f"{name}{k}", e) for k, e in enumerate(extents))
        for name, extents in (("i", node.outputs[output].shape), ("r", nest.reduce))
    )
    body = nest.body(at, inner, read)
    nest.finish(acc("total", body.dtype), at, read)
    return found


def _reach(value: Value, index: tuple[Expr, ...]) -> float:
    """How far from 0 the parts of an index go, and its offset in memory where the shape is known."""
    parts = [x for e in index for x in walk(e) if x.op in ("add", "mul", "const") and not x.dtype.is_float]
    reach = max(map(_magnitude, parts), default=0)
    step, offset = 8, 0.0
    for e, d in zip(reversed(index), reversed(value.type.static_shape or ()), strict=False):
        offset += _size(e) * step
        step *= max(d, 1)
    return max(reach, offset)


def _magnitude(e: Expr) -> float:
    """Of a sum, that of its terms together, whose order is not known."""
    return sum(map(_size, e.args)) if e.op == "add" else _size(e)


def _size(e: Expr) -> float:
    """How far from 0 an expression goes; 0 where that is not known, as of what is read."""
    low, high = range_of(e)
    return 0 if math.isinf(low) or math.isinf(high) else max(abs(low), abs(high))
