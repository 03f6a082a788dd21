"""Sizes as C of the host program: integers, or expressions over the symbols ``s0``, ``s1``, ... and named parts.

Expressions share parts, and one that is written whole at each use can double with every layer of a model. So parts
that are long are named, ``z0``, ``z1``, ..., each over the symbols and the parts before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..expr import I64, Expr, as_int, walk_new
from ..targets.index import scalar

Size = int | str
LONG = 24  # nodes that are written in one place
ATOM = 10  # the same for what is no sum or product, which sums share most
_NAMES = re.compile(r"\b([sz])(\d+)\b")


class Sizes:
    """Writes sizes.

    Args:
        symbols: what C calls each symbol.

    Attributes:
        parts: the named parts, ``parts[k]`` being ``z<k>``.
    """

    def __init__(self, symbols: Mapping[str, str]) -> None:
        self.parts: list[str] = []
        self._names: dict[Any, str] = dict(symbols)
        self._written: dict[Expr, int] = {}  # nodes that the text of an expression has

    def text(self, e: Expr) -> Size:
        """A size, or a condition on sizes."""
        known = as_int(e)
        if known is not None:
            return known
        for x in walk_new(e, self._written):
            self._written[x] = 1 + sum(self._written[a] for a in x.args)
            most = LONG if x.op in ("add", "mul") else ATOM
            if self._written[x] > most and x.dtype is I64:
                self.parts.append(scalar(x, {}, self._names))
                self._names[x], self._written[x] = f"z{len(self.parts) - 1}", 1
        return scalar(e, {}, self._names)


def names_in(sizes: Iterable[Size], parts: Sequence[str] = ()) -> tuple[list[int], list[int]]:
    """The numbers of the symbols and of the named parts that these sizes need, ascending.

    >>> names_in([3, "s10 * 4 + z1"], ["s7 + 1", "z0 * s2"])
    ([2, 7, 10], [0, 1])
    """
    found: dict[str, set[int]] = {"s": set(), "z": set()}
    pending = [size for size in sizes if isinstance(size, str)]
    while pending:
        for kind, digits in _NAMES.findall(pending.pop()):
            number = int(digits)
            if kind == "z" and number not in found["z"]:
                pending.append(parts[number])
            found[kind].add(number)
    return sorted(found["s"]), sorted(found["z"])
