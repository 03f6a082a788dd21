"""Which elements of one array go where in another, described by a few loop nests with constant steps.

Packing moves whole panels, blocks and rows of a weight, so that one nest covers thousands of elements. Padding is not
copied: no nest writes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

MOST = 4096  # nests for one weight; more would make the library large
_FEW = 32  # nests for which no other order is tried

Places = npt.NDArray[np.int64]
LOOPS = 8  # loops of a nest at most; T_LOOPS_MAX
_AT_ONCE = 1 << 20  # elements that are compared at once


@dataclass(frozen=True)
class Loop:
    """A loop of ``count`` rounds, and the elements that each round steps by in the source and in the destination."""

    count: int
    source: int
    place: int


@dataclass(frozen=True)
class Copy:
    """A nest of loops around the copy of one element.

    Attributes:
        source, place: index of the first element, in the source and in the destination.
        loops: the outermost first.
    """

    source: int
    place: int
    loops: tuple[Loop, ...]


def find_copies(source: Places, place: Places) -> list[Copy]:
    """The nests that copy element ``source[i]`` to ``place[i]`` for all i; more than `MOST` where nothing is regular.

    Packing is regular in the order of the destination (panels), or in that of the weight itself (gates, whose elements
    alternate).
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
    """The largest nest that begins with the first element, and how many elements it copies."""
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
    """How many blocks of ``size`` elements there are at the start, each the one before it plus ``step``."""
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


def apply_copy(copy: Copy, given: npt.NDArray[Any], to: npt.NDArray[Any], start: int = 0) -> None:
    """Copy, as the library does, from one flat array to another, whose first element has the index ``start``."""
    shape = [loop.count for loop in copy.loops]
    source = _view_strided(given[copy.source :], shape, [loop.source for loop in copy.loops])
    _view_strided(to[copy.place - start :], shape, [loop.place for loop in copy.loops])[...] = source


def _view_strided(flat: npt.NDArray[Any], shape: list[int], steps: list[int]) -> npt.NDArray[Any]:
    return np.lib.stride_tricks.as_strided(flat, shape, [step * flat.itemsize for step in steps])
