"""The vocabulary of conditions in rules: a fixed set of named predicates, so that a rule file runs no code.

A condition is written ``name(argument, ...)``; an argument is a name that the pattern binds, or a number. A ``not``
before it negates it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base.errors import did_you_mean
from ..expr import F32, F64, as_int
from ..graph import Value
from .config import Item
from .match import Match

PREDICATES: dict[str, Callable[..., bool]] = {}
_TEXT = re.compile(r"(not\s+)?(\w+)\((.*)\)")


def _predicate(function: Callable[..., bool]) -> Callable[..., bool]:
    PREDICATES[function.__name__] = function
    return function


@dataclass(frozen=True)
class Condition:
    """A condition of a rule."""

    predicate: Callable[..., bool]
    arguments: tuple[str | float, ...]
    negated: bool

    def holds(self, found: Match) -> bool:
        """Whether the match satisfies it; one about a name that this match does not bind does not hold."""
        known = {**found.values, **found.attributes}
        if any(isinstance(a, str) and a not in known for a in self.arguments):
            return False
        return self.predicate(*(known[a] if isinstance(a, str) else a for a in self.arguments)) is not self.negated


def parse_condition(item: Item, bound: set[str]) -> Condition:
    """A condition from text.

    Args:
        bound: names that the pattern binds.

    Raises:
        ConfigError: for an unknown predicate or name, or a wrong number of arguments.
    """
    m = _TEXT.fullmatch(item.text().strip())
    if m is None:
        raise item.error(f"{item.value!r} is not a condition", "write name(argument, ...)")
    negated, name, inside = m.groups()
    if name not in PREDICATES:
        known = sorted(PREDICATES)
        raise item.error(f"unknown condition {name!r}{did_you_mean(name, known)}", f"known: {', '.join(known)}")
    arguments: list[str | float] = []
    for word in (w.strip() for w in inside.split(",") if w.strip()):
        try:
            arguments.append(float(word))
        except ValueError:
            if word.lstrip("$") not in bound:
                raise item.error(f"{word!r} is not bound by the pattern") from None
            arguments.append(word.lstrip("$"))
    wanted = len(inspect.signature(PREDICATES[name]).parameters)
    if len(arguments) != wanted:
        raise item.error(f"{name} takes {wanted} arguments, not {len(arguments)}")
    return Condition(PREDICATES[name], tuple(arguments), bool(negated))


@_predicate
def scalar(c: Value) -> bool:
    """One element."""
    return as_int(c.type.size) == 1


@_predicate
def floating(x: Value) -> bool:
    """Of a floating-point type."""
    return x.dtype.is_float


@_predicate
def wide(x: Value) -> bool:
    """Of f32 or f64."""
    return x.dtype in (F32, F64)


@_predicate
def same_type(a: Value, b: Value) -> bool:
    """Equal element type and shape."""
    return a.type == b.type


@_predicate
def last_axis(axis: int, x: Value) -> bool:
    """The axis is the last of x."""
    return axis in (-1, x.type.rank - 1)


@_predicate
def rank(x: Value, n: float) -> bool:
    """x has n dimensions."""
    return x.type.rank == n


@_predicate
def at_least(c: Any, n: float) -> bool:
    """Every element of the constant (or the attribute) is n or more."""
    return bool(np.all(_array(c) >= n))


@_predicate
def at_most(c: Any, n: float) -> bool:
    """Every element of the constant (or the attribute) is n or less."""
    return bool(np.all(_array(c) <= n))


@_predicate
def ordered(a: Any, b: Any) -> bool:
    """Both are known, and a <= b."""
    return a is not None and b is not None and bool(np.all(_array(a) <= _array(b)))


@_predicate
def known(a: Any) -> bool:
    """An attribute that is there."""
    return a is not None


def _array(x: Any) -> Any:
    return x.const if isinstance(x, Value) else np.nan if x is None else np.asarray(x)
