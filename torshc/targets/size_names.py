"""Names of sizes in kernels: marks with numbers until it is known what the host program calls these sizes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..expr import Expr

MARK = "σ"
_MARKED = re.compile(MARK + r"(\d+)")


class DimNames(Mapping[Any, str]):
    """Names of the sizes that a kernel gets in ``dim``: symbols by theirs, and sizes that it is given, as expressions.

    A size has a number from when its name is first asked for, so that a kernel gets only what its text uses. The name
    is a mark and this number, as kernels that differ in nothing but which sizes they get are one.

    Args:
        sizes: all that may be asked for.

    Attributes:
        place: what stands before each name, as ``c->``.
    """

    def __init__(self, sizes: Iterable[str | Expr]) -> None:
        self.place = ""
        self._sizes = dict.fromkeys(sizes)
        self._numbers: dict[str | Expr, int] = {}

    def __contains__(self, size: object) -> bool:
        return size in self._sizes

    def __getitem__(self, size: str | Expr) -> str:
        if size not in self._sizes:
            raise KeyError(size)
        return f"{self.place}{MARK}{self._numbers.setdefault(size, len(self._numbers))}"

    def __iter__(self) -> Iterator[str | Expr]:
        return iter(self._sizes)

    def __len__(self) -> int:
        return len(self._sizes)

    @property
    def used(self) -> list[str | Expr]:
        """What was asked for, by number."""
        return [*self._numbers]

    @property
    def names(self) -> list[str]:
        """The names of what was asked for, by number, with nothing before them."""
        return [f"{MARK}{k}" for k in range(len(self._numbers))]


def with_names(text: str, names: Sequence[str] = ()) -> str:
    """A kernel's text with names of its sizes, by number: the kernel's own, s0, s1, ..., unless told.

    >>> with_names("for (i = 0; i < σ1 * σ0; i++)", ["s3", "z0"])
    'for (i = 0; i < z0 * s3; i++)'
    """
    return _MARKED.sub(lambda found: names[int(found[1])] if names else f"s{found[1]}", text)
