"""Tables of text in 80 columns: cells that are too long go on below, broken where they read well."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

WIDTH = 80
# Where a cell may break: after one of these.
_BREAKS = re.compile(r"(?<=[+,/ ])")


@dataclass(frozen=True)
class Column:
    """A column: its title, its width, whether it is set to the right (numbers)."""

    title: str
    width: int
    right: bool = False

    def set(self, text: str) -> str:
        return text.rjust(self.width) if self.right else text.ljust(self.width)


def table(columns: Sequence[Column], rows: Iterable[Sequence[str]], indent: int = 0) -> Iterator[str]:
    """The lines of a table, titles first where there are any, columns a space apart."""
    titles = [[c.title for c in columns]] if any(c.title for c in columns) else []
    for row in (*titles, *rows):
        cells = [[cell] if c.right else broken(cell, c.width) for c, cell in zip(columns, row, strict=True)]
        for k in range(max(map(len, cells))):
            parts = (c.set(cell[k] if k < len(cell) else "") for c, cell in zip(columns, cells, strict=True))
            yield (" " * indent + " ".join(parts)).rstrip()


def broken(text: str, width: int) -> list[str]:
    """Text in lines of at most ``width``, broken after ``+ , /`` or a space, else after an underscore, else anywhere.

    >>> broken("Conv+BatchNormalization+Relu", 20), broken("attention_cache", 14)
    (['Conv+', 'BatchNormalization+', 'Relu'], ['attention_', 'cache'])
    """
    lines = [""]
    for piece in _BREAKS.split(text):
        if len(lines[-1].rstrip() + piece.rstrip()) + (lines[-1] != lines[-1].rstrip()) > width and lines[-1]:
            lines.append("")
        lines[-1] += piece
        while len(lines[-1].rstrip()) > width:
            cut = lines[-1].rfind("_", 1, width) + 1 or width
            lines[-1:] = [lines[-1][:cut], lines[-1][cut:]]
    return [line.rstrip() for line in lines]


def paragraph(label: str, text: str, indent: int = 2, hang: int = 12) -> list[str]:
    """A labelled paragraph, its text hanging at a fixed column."""
    lines = broken(text, WIDTH - indent - hang)
    return [" " * indent + (label if k == 0 else "").ljust(hang) + line for k, line in enumerate(lines)]
