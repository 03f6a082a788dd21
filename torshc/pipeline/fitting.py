"""Sizes of symbolic dimensions that satisfy a model's equations, so that it can run on inputs that nobody gave.

A cache of keys and values, say, has ``past + seq == total``, a Squeeze without axes ``n != 1``, and a picture that is
halved four times has no pixel left when it begins with fewer than sixteen. Sizes are changed one at a time: a symbol
that stands alone on a side takes the other side's value, for any other the sizes that satisfy its equation are tried,
the largest of the small ones first. Of all assignments the one with the fewest broken equations is changed next.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, islice

from ..base.errors import ConfigError
from ..base.manifest import ConditionSpec
from ..expr import Expr, as_int, const, dim, dims_of, parse_condition, substitute

SMALL = 64  # sizes up to this are tried from above
LARGEST = 4096  # larger ones from below, where no small one will do
FEW = 8  # of these
TRIED = 500  # assignments of sizes that are changed


class NoSizes(ConfigError):
    """None were found that satisfy a model's equations."""


@dataclass(frozen=True)
class _Equation:
    """Two sizes that have to be equal, or a condition and 1."""

    left: Expr
    right: Expr
    text: str

    @property
    def names(self) -> list[str]:
        """Its symbols, those that stand alone on a side first: what they should be needs no search."""
        alone = [str(side.data) for side in (self.left, self.right) if side.op == "dim"]
        return list(dict.fromkeys([*alone, *dims_of(self.left, self.right)]))

    def holds(self, sizes: Mapping[str, int]) -> bool:
        left, right = _value(self.left, sizes), _value(self.right, sizes)
        return left is None or right is None or left == right

    def answers(self, name: str, sizes: Mapping[str, int], most: int = LARGEST) -> list[int]:
        """Sizes of one symbol, up to `most`, with which this holds, the others staying; the better first."""
        for side, other in ((self.left, self.right), (self.right, self.left)):
            if side is dim(name) and name not in dims_of(other):
                size = _value(other, sizes)
                return [] if size is None or size < 1 else [size]
        known = {dim(n): const(sizes[n]) for n in self.names if n != name}
        rest = _Equation(substitute(self.left, known), substitute(self.right, known), self.text)
        found = [size for size in range(SMALL, 0, -1) if rest.holds({name: size})]
        large = (size for size in range(SMALL + 1, most + 1) if rest.holds({name: size}))
        return found or [*islice(large, FEW)]


def fit_sizes(
    sizes: Mapping[str, int],
    fixed: Sequence[str],
    conditions: Sequence[ConditionSpec],
    preferences: Sequence[ConditionSpec] = (),
) -> dict[str, int]:
    """Sizes near the given ones that satisfy all conditions, as far as sizes alone decide them.

    Args:
        sizes: sizes of all symbolic dimensions.
        fixed: names of those that stay; where only these are in a condition, the run says whether it holds.
        conditions: the model's conditions.
        preferences: conditions that are satisfied as well where there are such sizes.

    Raises:
        NoSizes: none were found; names the equations.
    """
    needed = [e for c in conditions if (e := _equation(c, sizes, fixed)) is not None]
    wanted = [e for c in preferences if (e := _equation(c, sizes, fixed)) is not None]
    found = _search(sizes, fixed, [*needed, *wanted]) if wanted else None
    found = found or _search(sizes, fixed, needed)
    if found is not None:
        return found
    broken = [e for e in needed if not e.holds(sizes)]
    names = dict.fromkeys(n for e in broken for n in dims_of(e.left, e.right))
    raise NoSizes(
        f"no sizes were found that satisfy {' and '.join(e.text for e in broken)}",
        f"give sizes that do: --dims {','.join(f'{n}=...' for n in names)}",
    )


def _search(sizes: Mapping[str, int], fixed: Sequence[str], equations: Sequence[_Equation]) -> dict[str, int] | None:
    """Sizes with which all equations hold; None where none were found."""
    start = dict(sizes)
    pending = [(*_rank(start, equations), 0, start)]
    seen = {tuple(start.values())}
    for _ in range(TRIED):
        if not pending:
            break
        *_, here = heapq.heappop(pending)
        broken = next((e for e in equations if not e.holds(here)), None)
        if broken is None:
            return here
        for there in _change_sizes(here, broken, fixed):
            if tuple(there.values()) not in seen:
                seen.add(tuple(there.values()))
                heapq.heappush(pending, (*_rank(there, equations), len(seen), there))
    return None


def _rank(sizes: Mapping[str, int], equations: Sequence[_Equation]) -> tuple[int, int]:
    """How many equations are broken, and how many sizes are another's too: different ones show what is mixed up."""
    return sum(not e.holds(sizes) for e in equations), len(sizes) - len(set(sizes.values()))


def _change_sizes(sizes: dict[str, int], equation: _Equation, fixed: Sequence[str]) -> list[dict[str, int]]:
    """Sizes of which one is another, so that an equation holds; where one cannot do it, two, as in ``2*n == 3*m``."""
    free = [name for name in equation.names if name not in fixed]
    found = [{**sizes, name: size} for name in free for size in equation.answers(name, sizes)]
    return found or [*islice(_both_changed(sizes, equation, free), FEW)]


def _both_changed(sizes: dict[str, int], equation: _Equation, free: Sequence[str]) -> Iterator[dict[str, int]]:
    for one, other in combinations(free, 2):
        for size in range(SMALL, 0, -1):
            here = {**sizes, one: size}
            yield from ({**here, other: found} for found in equation.answers(other, here, SMALL))


def _equation(condition: ConditionSpec, sizes: Mapping[str, int], fixed: Sequence[str]) -> _Equation | None:
    """A condition on sizes alone that can still be met; None for others."""
    left = parse_named(condition.left, condition.symbols)
    right = parse_named(condition.right, condition.symbols) if condition.right else const(1)
    names = set(dims_of(left, right))
    if names != set(condition.symbols) or not names <= set(sizes) or names <= set(fixed):
        return None
    return _Equation(left, right, f"{condition.left} == {condition.right}" if condition.right else condition.left)


def parse_named(text: str, symbols: Iterable[str]) -> Expr:
    """A size or condition over these symbols, elements such as ``k[0]`` among them, all as dimensions.

    What cannot be read is a name, as that of a dimension may be any text.

    >>> parse_named("2 * k[0]", ["n", "k[0]"])
    2*k[0]
    """
    elements = {f"element_{k}": name for k, name in enumerate(symbols) if name.endswith("]")}  # as in k[0]
    for word, name in elements.items():
        text = re.sub(rf"(?<![\w.]){re.escape(name)}", word, text)
    try:
        found = parse_condition(text)
    except ValueError:
        return dim(elements.get(text, text))
    return substitute(found, {dim(word): dim(name) for word, name in elements.items()})


def _value(size: Expr, sizes: Mapping[str, int]) -> int | None:
    return as_int(substitute(size, {dim(n): const(sizes[n]) for n in dims_of(size)}))
