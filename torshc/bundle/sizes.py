"""Sizes as C: the one place where expressions over the symbols of a model become text of its host program.

Expressions share parts, and one that is written whole at each use can double with every layer of a model. So parts
that are long, and sizes that kernels are given, are named, ``z0``, ``z1``, ..., each over the symbols ``s0``, ``s1``,
... and the parts before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..expr import I64, SYMBOLS, Expr, as_expr, as_int, walk_new
from ..targets.index import CTYPES, scalar
from .host import Size

LONG = 24  # nodes that are written in one place
ATOM = 10  # the same for what is neither a sum nor a product, which sums share most


@dataclass(frozen=True)
class Part:
    """A named part of sizes: its expression, its name, its text and its C type."""

    expr: Expr
    name: str
    text: str
    ctype: str


def _c(e: Expr, names: Mapping[Any, str]) -> str:
    return scalar(e, {}, names)


def names_of_given(sizes: Iterable[Size]) -> dict[Expr, str]:
    """Names of the sizes that kernels are given and that are no symbols."""
    given = dict.fromkeys(e for e in map(as_expr, sizes) if e.op not in SYMBOLS and as_int(e) is None)
    return {e: f"z{k}" for k, e in enumerate(given)}


class Sizes:
    """Writes the sizes of a program.

    Args:
        names: what expressions call the symbols.
        spelled: how C spells symbol k.
        sizes: what will be asked for, so that parts are numbered in this order.
        write: the text of an expression, with the names of symbols and of named parts; C unless told.
        given: sizes that have names before others have.

    Attributes:
        parts: the named parts.
    """

    def __init__(
        self,
        names: Sequence[str],
        spelled: Callable[[int], str] = "s{}".format,
        sizes: Iterable[Size] = (),
        write: Callable[[Expr, Mapping[Any, str]], str] = _c,
        given: Mapping[Expr, str] | None = None,
    ) -> None:
        self._text = write
        self._given = given or {}
        self._others = 0  # parts that have names and are not given
        self.parts: list[Part] = []
        self._numbers = {n: k for k, n in enumerate(names)}
        self._names: dict[Any, str] = {n: spelled(k) for k, n in enumerate(names)}
        self._part_of: dict[Expr, int] = {}
        self._written: dict[Expr, int] = {}  # nodes that the text of an expression has
        self._texts: dict[Expr, str] = {}
        for size in sizes:
            self.text(size)

    def text(self, size: Size | None) -> str:
        """A size, or a condition on sizes; -1 for a run-time dependent one."""
        if size is None:
            return "-1"
        e = as_expr(size)
        if (known := as_int(e)) is not None:
            return str(known)
        if e not in self._texts:
            self._texts[e] = self._write(e)
        return self._texts[e]

    def _write(self, e: Expr) -> str:
        for x in walk_new(e, self._written):
            self._written[x] = 1 + sum(self._written[a] for a in x.args)
            most = LONG if x.op in ("add", "mul") else ATOM
            if self._written[x] > most or x in self._given:
                self._name(x)
        return self._text(e, self._names)

    def _name(self, x: Expr) -> None:
        ctype = "" if x.dtype is I64 else CTYPES[x.dtype.compute]
        name = self._given.get(x) or f"z{len(self._given) + self._others}"
        self._others += x not in self._given
        part = Part(x, name, self._text(x, self._names), ctype)
        self._part_of[x] = len(self.parts)
        self.parts.append(part)
        self._names[x], self._written[x] = part.name, 1

    def needs(self, sizes: Iterable[Size | None]) -> tuple[list[int], list[Part]]:
        """The numbers of the symbols, and the named parts, that these sizes are written with, both in order."""
        symbols: set[int] = set()
        parts: set[int] = set()
        pending = [as_expr(s) for s in sizes if s is not None]
        seen: set[Expr] = set()
        while pending:
            e = pending.pop()
            if e in seen:
                continue
            seen.add(e)
            if e in self._part_of:
                parts.add(self._part_of[e])
            if e.op in SYMBOLS:
                symbols.add(self._numbers[str(e.data)])
            pending += e.args
        return sorted(symbols), [self.parts[k] for k in sorted(parts)]
