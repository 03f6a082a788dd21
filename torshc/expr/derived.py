"""Properties of expressions that follow from those of their arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from .expr import Expr, walk_new

T = TypeVar("T")


class Derived(Generic[T]):
    """A property of expressions, found bottom up and kept for each, in one visit however many parts they share.

    Args:
        rule: the property of an expression from those of its arguments; the extent of an axis is not an argument here.
    """

    def __init__(self, rule: Callable[[Expr, Sequence[T]], T]) -> None:
        self._rule = rule
        self._known: dict[Expr, T] = {}

    def __call__(self, e: Expr) -> T:
        for x in walk_new(e, self._known):
            args = () if x.op == "axis" else x.args
            self._known[x] = self._rule(x, [self._known[a] for a in args])
        return self._known[e]


__all__ = ["Derived"]
