"""Which index arithmetic takes 32 bits in a kernel whose indices have 64.

A size that only a run knows may be any number, so what is multiplied by it has 64 bits. Most of an index does not
depend on it: places in an image, channels, terms of a sum. In 32 bits these take half of the registers, and divisions
of them far fewer instructions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod

from ...expr import I64, Expr, as_int, walk
from ...expr.derived import Derived

INT_INDEX = 2**29  # up to this sizes and indices are int: sums of some of them stay within 32 bits
_LITERAL = 2**31  # numbers below this are int as C writes them


class NarrowIndices:
    """Axes of known sizes, and what is computed of these alone, if all of it stays within 32 bits.

    Args:
        expressions: those of the kernel; sums of two of them stay within 32 bits, too.

    Attributes:
        axes: axes that are int; none where something might leave 32 bits.
    """

    def __init__(self, expressions: Iterable[Expr]) -> None:
        self._largest = 0
        self._magnitude = Derived[int | None](self._rule)
        axes = set[Expr]()
        for root in expressions:
            self._magnitude(root)
            axes |= {e for e in walk(root) if e.op == "axis" and _is_small(e)}
        self.axes = frozenset(axes) if self._largest <= INT_INDEX else frozenset[Expr]()

    def __contains__(self, e: object) -> bool:
        """Whether an expression is computed in 32 bits."""
        return isinstance(e, Expr) and bool(self.axes) and self._magnitude(e) is not None

    def _rule(self, e: Expr, args: Sequence[int | None]) -> int | None:
        """The largest absolute value of what is computed in 32 bits; None where an operand has 64."""
        if e.op == "const":
            size = abs(int(e.data)) if e.dtype is I64 else 0  # type: ignore[call-overload]
            return size if size < _LITERAL else None
        if e.op == "axis":
            return as_int(e.args[0]) if _is_small(e) else None
        if e.dtype is not I64 or e.op not in _MAGNITUDES:
            return None
        args = args[1:] if e.op == "select" else args
        narrow = [a for a in args if a is not None]
        found = _MAGNITUDES[e.op](narrow) if narrow else 0
        self._largest = max(self._largest, found)
        return found if len(narrow) == len(args) else None


def _is_small(axis: Expr) -> bool:
    size = as_int(axis.args[0])
    return size is not None and size <= INT_INDEX


# The largest absolute value of an operator, by those of its operands that are computed in 32 bits; others have 64.
_MAGNITUDES: dict[str, Callable[[list[int]], int]] = {
    "add": sum,
    "sub": sum,
    "mul": lambda sizes: prod(max(n, 1) for n in sizes),
    **dict.fromkeys(("neg", "abs", "floordiv", "mod", "min", "max", "select"), max),
}
