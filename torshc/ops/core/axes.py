"""Shape operands known only at run time: axes and sizes as expressions, and conditions that a run checks.

An axis that is known is an int throughout, and gives the expressions that it always gave; a run-time one is an
i64 expression, and what it chooses among is a chain of selects.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...base.errors import ModelError
from ...expr import I64, Expr, as_int, cast, ceil_div, const, eq, max_of, ne, select, walk
from ...graph import Graph, Shape
from .base import Constraints, Index, axis_of
from .source import SourceNode
from .tensor import operand

AxisNumber = int | Expr


def at_run(*exprs: Expr) -> bool:
    """Whether a value that is read from a tensor at run time occurs in one of these."""
    return any(e.op == "element" for e in walk(*exprs))


def require(constraints: Constraints, condition: Expr, what: str) -> None:
    """A condition that a run checks before it computes anything.

    Raises:
        ModelError: with `what`, when it is known not to hold.
    """
    if condition.op != "const":
        constraints.append((select(condition, const(1), const(0)), const(1)))
    elif not condition.data:
        raise ModelError(what)


def either(*conditions: Expr) -> Expr:
    """Whether one of these holds."""
    total = const(False)
    for c in conditions:
        total = total | c
    return total


def both(*conditions: Expr) -> Expr:
    """Whether all of these hold."""
    total = const(True)
    for c in conditions:
        total = total & c
    return total


def axis_at(axis: Expr, rank: int, constraints: Constraints, what: str = "axis") -> AxisNumber:
    """An axis, perhaps negative, as 0..rank-1.

    Raises:
        ModelError: when it is known to be out of range.
    """
    known = as_int(axis)
    if known is not None:
        return axis_of(known, rank, what)
    if not rank:
        raise ModelError(f"{what} of a scalar, which has no axes")
    require(constraints, both(axis >= -rank, axis < rank), f"{what} out of range")
    return select(axis < 0, axis + rank, axis)


def marks(axes: Shape, rank: int, constraints: Constraints, what: str = "axes") -> tuple[Expr, ...]:
    """For each of `rank` dimensions, whether it is among the axes, each of which must appear once.

    Raises:
        ModelError: when an axis is known to be out of range or to appear twice.
    """
    if len(axes) > rank:
        raise ModelError(f"{len(axes)} {what} for rank {rank}, which has fewer")
    places = [_expr(axis_at(a, rank, constraints, what)) for a in axes]
    for k, a in enumerate(places):
        for b in places[:k]:
            require(constraints, ne(a, b), f"{what} that name a dimension twice")
    return tuple(either(*(eq(a, d) for a in places)) for d in range(rank))


def _expr(axis: AxisNumber) -> Expr:
    return const(axis) if isinstance(axis, int) else axis


def pick(axis: AxisNumber, values: Sequence[Expr]) -> Expr:
    """values[axis]; the last where the axis is none of them."""
    if isinstance(axis, int):
        return values[axis]
    chosen = values[-1]
    for k in range(len(values) - 2, -1, -1):
        chosen = select(eq(axis, k), values[k], chosen)
    return chosen


def put(axis: AxisNumber, index: Index, place: Expr) -> Index:
    """The index, or shape, with `place` along the axis."""
    if isinstance(axis, int):
        return (*index[:axis], place, *index[axis + 1 :])
    return tuple(select(eq(axis, k), place, i) for k, i in enumerate(index))


def without(shape: Shape, marked: Sequence[Expr], rank: int) -> Shape:
    """The first `rank` dimensions that are not marked."""
    out: list[Expr] = []
    for k in range(rank):
        chosen, before = shape[-1], const(0)
        found: list[tuple[Expr, Expr]] = []
        for d, m in zip(shape, marked, strict=True):
            found.append((eq(before, k) & _no(m), d))
            before = before + select(m, const(0), const(1))
        for here, d in reversed(found):
            chosen = select(here, d, chosen)
        out.append(chosen)
    return tuple(out)


def with_ones(shape: Shape, marked: Sequence[Expr]) -> Shape:
    """The shape with dimensions of 1 where they are marked; as many are not marked as it has dimensions."""
    out, before = [], const(0)
    for m in marked:
        out.append(select(m, const(1), pick(before, shape)) if shape else const(1))
        before = before + select(m, const(0), const(1))
    return tuple(out)


def _no(condition: Expr) -> Expr:
    """`not` as what the host program has: a comparison."""
    return eq(select(condition, const(1), const(0)), 0)


def axes_operand(source: SourceNode, k: int = 1, name: str = "axes") -> Shape | None:
    """Axes from the attribute (older opsets) or from input k (newer ones); None when neither is there."""
    given = source.attribute(name)
    return tuple(const(int(a)) for a in given) if given is not None else source.dims(k, f"{name} of {source.op_type}")


def known_axes(axes: Shape) -> tuple[int, ...] | None:
    """The axes as integers, None when one is known only at run time."""
    found = [as_int(a) for a in axes]
    return None if None in found else tuple(a for a in found if a is not None)


def count_steps(size: Expr, by: Expr) -> Expr:
    """How many steps of `by`, which is not 0, fit into a distance, the last perhaps in part; 0 for a negative one."""
    width = magnitude(by)
    return ceil_div(max_of(size, 0), width)


def magnitude(step: Expr) -> Expr:
    """The absolute value, in words that the host program has."""
    known = as_int(step)
    return const(abs(known)) if known is not None else max_of(step, -step)


def integer(source: SourceNode, k: int, what: str) -> Expr:
    """Input k, one number of any type, as an integer towards 0.

    Raises:
        ModelError: when it is known not to be one number.
    """
    given = source.required(k)
    if given.const is not None:
        if given.const.size != 1 or not np.isfinite(given.const).all():
            raise ModelError(f"{what} is not a number")
        return const(int(given.const.reshape(-1)[0]))
    number = operand(source, k)
    # A Cast truncates a float, takes NaN to 0 and what is out of range to the end of the range.
    found = (number.cast(I64) if number.dtype.is_float else number).elements()
    if found is None or len(found) != 1:
        raise ModelError(f"{what} is {given.type!r}; expected a single number")
    return cast(found[0], I64)


def constraints_of(source: SourceNode) -> Constraints:
    """Where conditions of a node are kept."""
    graph: Graph = source.builder.graph
    return graph.constraints
