"""Counters of loops in templates: arithmetic with them is C, and with that of a loop of one turn, a number."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Counter:
    """The text of a counter, or of arithmetic with it; ``//`` rounds as C does, since no counter is negative.

    >>> g = Counter("g")
    >>> str(2 * g + 1), str(4 * (g + 1)), str(g // 2), str(g % 4), str(1 * g + 0)
    ('2 * g + 1', '4 * (g + 1)', 'g / 2', 'g % 4', 'g')
    """

    text: str
    is_sum: bool = False

    def __str__(self) -> str:
        return self.text

    @property
    def operand(self) -> str:
        """The text in brackets where a product needs them."""
        return f"({self.text})" if self.is_sum else self.text

    def __rmul__(self, factor: int) -> Counter | int:
        return 0 if factor == 0 else self if factor == 1 else Counter(f"{factor} * {self.operand}")

    def __add__(self, term: int) -> Counter:
        return self if term == 0 else Counter(f"{self.text} + {term}", is_sum=True)

    def __floordiv__(self, by: int) -> Counter:
        return self if by == 1 else Counter(f"{self.operand} / {by}")

    def __mod__(self, by: int) -> Counter | int:
        return 0 if by == 1 else Counter(f"{self.operand} % {by}")


def counter_of(name: str, turns: int) -> Counter | int:
    """The counter of a loop; 0 where it takes one turn."""
    return 0 if turns == 1 else Counter(name)
