"""How index expressions move along loop axes: strides, and axes that run on from one another."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache

from .dtype import I64
from .expr import Expr, const, locals_of
from .functions import substitute
from .index import Poly, from_poly, poly_of


@lru_cache(1 << 12)  # forms of a product for ranges of sizes are made of the same offsets, and so are equal layers
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
    return _strides(e, tuple(axes))


@lru_cache(1 << 12)
def _strides(e: Expr, axes: tuple[Expr, ...]) -> tuple[tuple[Expr, ...], Expr] | None:
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


def divisor_of(e: Expr) -> int:
    """The largest number that surely divides e; 0 of 0.

    >>> from torshc.expr import dim
    >>> divisor_of(dim("n") * 6 + 4)
    2
    """
    return math.gcd(*poly_of(e).values())


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


def aligned(e: Expr, lane: Expr, lanes: int) -> bool:
    """Whether e - lane is surely a multiple of `lanes` (at the start of a block)."""
    return all(c % lanes == 0 or (atoms == (lane,) and c == 1) for atoms, c in poly_of(e).items())


def rises(stride: Expr, lanes: int) -> bool:
    """Whether a stride is surely a multiple of `lanes`, and above 0 where no size is 0."""
    terms = poly_of(stride)
    return bool(terms) and all(c > 0 and c % lanes == 0 for c in terms.values())


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


__all__ = ["aligned", "can_join", "contains", "index_roots", "join", "rises", "split_axis", "strides_along"]
