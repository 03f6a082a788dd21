"""Sizes of symbolic dimensions that satisfy a model's equations, so that it can run on inputs that nobody gave.

A cache of keys and values, say, has ``past + seq == total``, and a Squeeze without axes ``n != 1``. Sizes are changed
one at a time: a symbol that stands alone on a side takes the other side's value, any other is tried in order. What was
tried is not tried again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from .errors import ConfigError
from .expr import Expr, as_int, const, dim, dims_of, parse_condition, substitute
from .runtime import ConditionSpec

LARGEST = 64  # size that is tried
TRIED = 500  # assignments of sizes


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

    def answers(self, name: str, sizes: Mapping[str, int]) -> Iterator[int]:
        """Sizes of one symbol with which this holds, the others being what they are."""
        for side, other in ((self.left, self.right), (self.right, self.left)):
            if side is dim(name) and name not in dims_of(other):
                size = _value(other, sizes)
                yield from () if size is None or size < 1 else (size,)
                return
        yield from (size for size in range(1, LARGEST + 1) if self.holds({**sizes, name: size}))


def fit_sizes(sizes: Mapping[str, int], fixed: Sequence[str], conditions: Sequence[ConditionSpec]) -> dict[str, int]:
    """Sizes near the given ones that satisfy all conditions, as far as sizes alone decide them.

    Args:
        sizes: of all symbolic dimensions.
        fixed: names of those that stay; where only these are in a condition, the run says whether it holds.
        conditions: of the model.

    Raises:
        ConfigError: none were found; names the equations.
    """
    equations = [e for c in conditions if (e := _equation(c, sizes, fixed)) is not None]
    pending, seen = [dict(sizes)], {tuple(sizes.values())}
    for _ in range(TRIED):
        if not pending:
            break
        here = pending.pop(0)
        broken = next((e for e in equations if not e.holds(here)), None)
        if broken is None:
            return here
        for name in broken.names:
            for size in broken.answers(name, here) if name not in fixed else ():
                there = {**here, name: size}
                if tuple(there.values()) not in seen:
                    seen.add(tuple(there.values()))
                    pending.append(there)
    broken_texts = [e.text for e in equations if not e.holds(sizes)]
    names = dict.fromkeys(n for e in equations if not e.holds(sizes) for n in dims_of(e.left, e.right))
    raise ConfigError(
        f"no sizes were found that satisfy {' and '.join(broken_texts)}",
        f"give sizes that do: --dims {','.join(f'{n}=...' for n in names)}",
    )


def _equation(condition: ConditionSpec, sizes: Mapping[str, int], fixed: Sequence[str]) -> _Equation | None:
    """A condition on sizes alone that can still be met; None for others."""
    left, right = _side(condition.left), _side(condition.right) if condition.right else const(1)
    names = set(dims_of(left, right))
    if names != set(condition.symbols) or not names <= set(sizes) or names <= set(fixed):
        return None
    return _Equation(left, right, f"{condition.left} == {condition.right}" if condition.right else condition.left)


def _side(text: str) -> Expr:
    """A side of a condition; what cannot be read is a name, as that of a dimension may be any text."""
    try:
        return parse_condition(text)
    except ValueError:
        return dim(text)


def _value(size: Expr, sizes: Mapping[str, int]) -> int | None:
    return as_int(substitute(size, {dim(n): const(sizes[n]) for n in dims_of(size)}))
