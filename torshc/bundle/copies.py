"""Elements that go from one array to another, as a few nests of loops with constant steps.

What packs a weight moves panels, blocks and rows, so thousands of elements are one nest, and padding is what no nest
writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

MOST = 4096  # copies of one weight; what takes more would make the library large
_FEW = 32

Places = npt.NDArray[np.int64]
LOOPS = 8  # of a nest; T_LOOPS_MAX
_AT_ONCE = 1 << 20  # elements that are compared in one go


@dataclass(frozen=True)
class Loop:
    """``count`` rounds, each so many elements further in the two arrays."""

    count: int
    source: int
    place: int


@dataclass(frozen=True)
class Copy:
    """A nest of loops around the copy of one element.

    Attributes:
        source, place: the first element, in the one array and in the other.
        loops: the outermost first.
    """

    source: int
    place: int
    loops: tuple[Loop, ...]


def fewest(source: Places, place: Places) -> list[Copy]:
    """The nests that copy element ``source[i]`` to ``place[i]`` for all i; more than `MOST` where there is no order.

    Packing is regular in the order of places (panels) or in that of the weight's own elements (gates, which lie between
    each other).
    """
    found = [*islice(copies(source, place), _FEW + 1)]
    if len(found) <= _FEW:
        return found
    order = np.argsort(source, kind="stable")
    for most in (_FEW, MOST):
        for a, b in ((source[order], place[order]), (source, place)):
            found = [*islice(copies(a, b), most + 1)]
            if len(found) <= most:
                return found
    return found


def copies(source: Places, place: Places) -> Iterator[Copy]:
    """The nests that copy element ``source[i]`` to ``place[i]`` for all i, in that order.

    >>> [copy] = copies(np.array([0, 3, 1, 4, 2, 5]), np.array([0, 1, 4, 5, 8, 9]))  # a transpose, padded
    >>> copy.loops
    (Loop(count=3, source=1, place=4), Loop(count=2, source=3, place=1))
    """
    at = 0
    while at < source.size:
        loops, size = _nest(source[at:], place[at:])
        yield Copy(int(source[at]), int(place[at]), loops)
        at += size


def _nest(source: Places, place: Places) -> tuple[tuple[Loop, ...], int]:
    """The loops around what comes first, and how many elements they copy."""
    loops: list[Loop] = []
    size = 1
    while 2 * size <= source.size and len(loops) < LOOPS:
        steps = int(source[size] - source[0]), int(place[size] - place[0])
        count = min(_rounds(source, size, steps[0]), _rounds(place, size, steps[1]))
        if count == 1:
            break
        loops.insert(0, Loop(count, *steps))
        size *= count
    return tuple(loops), size


def _rounds(places: Places, size: int, step: int) -> int:
    """How many blocks of some size follow each other, each the one before it moved by ``step``."""
    whole = places.size // size
    blocks = places[: whole * size].reshape(whole, size)
    known, ahead = 1, max(1, 256 // size)
    while known < whole:
        until = min(known + ahead, whole)
        same = (blocks[known:until] == blocks[0] + step * np.arange(known, until)[:, None]).all(1)
        if not same.all():
            return known + int(np.argmin(same))
        known, ahead = until, min(2 * ahead, max(1, _AT_ONCE // size))
    return known


def moved(copy: Copy, given: npt.NDArray[Any], to: npt.NDArray[Any], start: int = 0) -> None:
    """Does a copy, as the library does it, from one flat array into another, whose first element is place ``start``."""
    shape = [loop.count for loop in copy.loops]
    source = _view_strided(given[copy.source :], shape, [loop.source for loop in copy.loops])
    _view_strided(to[copy.place - start :], shape, [loop.place for loop in copy.loops])[...] = source


def _view_strided(flat: npt.NDArray[Any], shape: list[int], steps: list[int]) -> npt.NDArray[Any]:
    return np.lib.stride_tricks.as_strided(flat, shape, [step * flat.itemsize for step in steps])
