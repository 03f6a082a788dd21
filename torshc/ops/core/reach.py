"""Reads at places that may lie outside of a tensor.

A select over axes keeps kernels from the loads of its other side. A select over data does not: both sides are
computed, so what they read has to be within its tensor whatever the data is.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...expr import Expr, const, is_nonnegative, max_of, min_of
from ...expr.bounds import of_data, range_of
from ...graph import Shape
from .base import Index, Read
from .scalar import Scalar, where


def clamped(index: Expr, size: Expr) -> Expr:
    """An index moved into 0..size-1."""
    return max_of(min_of(index, size - 1), 0)


def guarded(read: Read, k: int, at: Index, sizes: Shape) -> Scalar:
    """read(k, at), or 0 where a symbolic dimension that an index was clamped into turns out empty."""
    ok = const(True)
    for size in sizes:
        if not is_nonnegative(size - 1):
            ok = ok & (size > 0)
    return where(ok, read(k, at), 0)


def within(read: Read, k: int, at: Index, shape: Shape, axes: Iterable[int]) -> Scalar:
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
