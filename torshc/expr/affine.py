"""How index expressions move along loop axes: strides, lanes, and axes that run on from one another."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .dtype import I64
from .expr import Expr, as_int, const, locals_of, substitute
from .index import Poly, from_poly, poly_of


def split_axis(e: Expr, axis: Expr) -> tuple[Expr, Expr] | None:
    """(stride, rest) with e = stride * axis + rest and neither holding the axis, or None when e is not affine in it."""
    stride: Poly = {}
    rest: Poly = {}
    for atoms, c in poly_of(e).items():
        direct = sum(a is axis for a in atoms)
        inner = any(a is not axis and contains(a, axis) for a in atoms)
        if inner or direct > 1:
            return None
        if direct:
            left = tuple(a for a in atoms if a is not axis)
            stride[left] = stride.get(left, 0) + c
        else:
            rest[atoms] = c
    return from_poly(stride), from_poly(rest)


def strides_along(e: Expr, axes: Sequence[Expr]) -> tuple[tuple[Expr, ...], Expr] | None:
    """Strides along each of several axes and the rest, or None when e is not affine in all of them."""
    strides = []
    for axis in axes:
        parts = split_axis(e, axis)
        if parts is None:
            return None
        stride, e = parts
        strides.append(stride)
    if any(contains(s, a) for s in strides for a in axes):
        return None
    return tuple(strides), e


def contains(e: Expr, leaf: Expr) -> bool:
    """Whether an expression holds an axis, a load or a provided value."""
    return leaf in locals_of(e)


def index_roots(e: Expr) -> Iterable[Expr]:
    """The largest i64 sub-expressions that hold no load: offsets, conditions' sides, positions used as values."""
    pending = [e]
    seen: set[Expr] = set()
    while pending:
        x = pending.pop()
        if x in seen:
            continue
        seen.add(x)
        if x.dtype is I64 and all(n.op == "axis" for n in locals_of(x)):
            yield x
        else:
            pending.extend(x.args)


def lane_stride(e: Expr, lane: Expr, lanes: int) -> int | None:
    """Step of an index (or 0 for a condition) from one lane to the next, None when it has no single one.

    `lane` is the axis that vectors run along, in blocks of `lanes` that start at multiples of `lanes`; so
    (lane + 8 * r) // 64 is one number in a block, and (lane + 8 * r) % 64 steps by 1.
    """
    if not contains(e, lane):
        return 0
    if e is lane:
        return 1
    if e.op in ("lt", "le", "gt", "ge", "eq", "ne", "and", "or", "not", "select"):
        return 0 if _uniform(e, lane, lanes) else None
    total = 0
    for atoms, c in poly_of(e).items():
        moving = [a for a in atoms if contains(a, lane)]
        if not moving:
            continue
        if len(moving) > 1 or len(atoms) > 1:
            if all(_atom_stride(a, lane, lanes) == 0 for a in moving):
                continue
            return None
        step = _atom_stride(moving[0], lane, lanes)
        if step is None:
            return None
        total += c * step
    return total


def _atom_stride(a: Expr, lane: Expr, lanes: int) -> int | None:
    if a is lane:
        return 1
    if a.op in ("floordiv", "mod"):
        x, d = a.args
        step = lane_stride(x, lane, lanes)
        if step == 0 and not contains(d, lane):
            return 0
        divisor = as_int(d)
        if step == 1 and divisor and divisor % lanes == 0 and aligned(x, lane, lanes):
            return 0 if a.op == "floordiv" else 1
        return None
    if a.op in ("min", "max", "select", "cast", "load") and all(
        lane_stride(x, lane, lanes) == 0 for x in a.args if x.dtype is I64 or x.dtype.kind == "b"
    ):
        return 0
    return None


def aligned(e: Expr, lane: Expr, lanes: int) -> bool:
    """Whether e - lane is surely a multiple of `lanes` (at the start of a block)."""
    return all(c % lanes == 0 or (atoms == (lane,) and c == 1) for atoms, c in poly_of(e).items())


def _uniform(e: Expr, lane: Expr, lanes: int) -> bool:
    if not contains(e, lane):
        return True
    if e.op in ("and", "or", "not"):
        return all(_uniform(a, lane, lanes) for a in e.args)
    if e.op in ("lt", "ge"):
        # a < b flips only where a - b crosses 0; with everything a multiple of the block it flips between blocks.
        difference = e.args[0] - e.args[1]
        step = lane_stride(difference, lane, lanes)
        if step == 0:
            return True
        return (step == 1 and aligned(difference, lane, lanes)) and difference.op != "const"
    if e.op in ("lt", "le", "gt", "ge", "eq", "ne", "select"):
        return all(lane_stride(a, lane, lanes) == 0 for a in e.args)
    return False


def can_join(outer: Expr, inner: Expr, roots: Iterable[Expr]) -> bool:
    """Whether every index runs on from the end of `inner` to the next step of `outer`, so the two are one axis."""
    for e in roots:
        parts = strides_along(e, (outer, inner))
        if parts is None:
            return False
        (a, b), _ = parts
        if a is not b * inner.args[0]:
            return False
    return True


def join(outer: Expr, inner: Expr, joined: Expr, e: Expr) -> Expr:
    """Rewrite e for the joined axis; only after :func:`can_join` said yes."""
    return substitute(e, {outer: const(0), inner: joined})


__all__ = ["aligned", "can_join", "contains", "index_roots", "join", "lane_stride", "split_axis", "strides_along"]
