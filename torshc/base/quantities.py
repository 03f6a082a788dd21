"""Numbers for people: three digits that count, with units."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction


def short(value: float) -> str:
    """A number with three digits that count, in at most 7 characters below ten million.

    >>> [short(x) for x in (0, 0.01234, 1.234, 45.67, 1234.5)]
    ['0', '0.012', '1.23', '45.7', '1234']
    """
    if value == 0:
        return "0"
    if value >= 1e7:
        return f"{value:.1e}"
    digits = 3 if value < 1 else 2 if value < 10 else 1 if value < 100 else 0
    text = f"{value:.{digits}f}"
    return text if float(text) else "<0.001"


def bytes_text(count: int) -> str:
    """Bytes in decimal units.

    >>> [bytes_text(n) for n in (0, 999, 64025, 102_469_502)]
    ['0 B', '999 B', '64.0 kB', '102 MB']
    """
    return _scale_unit(count, ("B", "kB", "MB", "GB", "TB"))


def flops_text(count: int) -> str:
    """Floating-point operations in decimal units.

    >>> flops_text(8_200_000_000)
    '8.20 GFLOP'
    """
    return _scale_unit(count, ("FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP"))


def _scale_unit(count: int, units: Sequence[str]) -> str:
    value, at = Fraction(count), 0
    while value >= 1000 and at < len(units) - 1:
        value, at = value / 1000, at + 1
    return f"{count} {units[0]}" if not at else f"{short(float(value))} {units[at]}"
