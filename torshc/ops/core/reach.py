"""Reads at places that may lie outside of a tensor.

A select over axes keeps kernels from the loads of its other side. A select over data does not: both sides are
computed, so what they read has to be within its tensor whatever the data is.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...expr import Expr, call, const, is_nonnegative, select
from ...expr.bounds import of_data, range_of
from ...graph import Shape
from .base import Index, Read


def clamped(index: Expr, size: Expr) -> Expr:
    """An index moved into 0..size-1."""
    return call("max", call("min", index, size - 1), 0)


def guarded(read: Read, k: int, at: Index, sizes: Shape) -> Expr:
    """read(k, at), or 0 where a symbolic dimension that an index was clamped into turns out empty."""
    value = read(k, at)
    ok = const(True)
    for size in sizes:
        if not is_nonnegative(size - 1):
            ok = call("and", ok, call("gt", size, 0))
    return select(ok, value, const(0, value.dtype))


def within(read: Read, k: int, at: Index, shape: Shape, axes: Iterable[int]) -> Expr:
    """read(k, at) for one side of a select that asks whether `at` lies within `shape` along `axes`."""
    index, sizes = list(at), []
    for a in axes:
        if of_data(at[a]) and not _surely_within(at[a], shape[a]):
            index[a] = clamped(at[a], shape[a])
            sizes.append(shape[a])
    return guarded(read, k, tuple(index), tuple(sizes))


def _surely_within(index: Expr, size: Expr) -> bool:
    (low, high), least = range_of(index), range_of(size)[0]
    return low >= 0 and high < least


__all__ = ["clamped", "guarded", "within"]
