"""What tensors hold, where it shows little of whoever computed them: nothing, NaN throughout, or one value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Content:
    """What is odd about the content of an output, or an empty note; `blank` where nothing in it can be compared."""

    note: str = ""
    blank: bool = False


def content_of(tensors: Sequence[npt.NDArray[Any]]) -> Content:
    """What an output holds, which may be several tensors.

    >>> content_of([np.zeros((2, 3))]).note, content_of([np.ones(1)]).note
    ('every element is 0', '')
    >>> content_of([np.array([np.nan, np.nan])])
    Content(note='every element is NaN', blank=True)
    """
    parts = [np.asarray(t).reshape(-1) for t in tensors if t.size]
    if not parts:
        return Content("it has no elements", blank=True)
    count, first = sum(p.size for p in parts), parts[0][0]
    texts = any(p.dtype.kind in "OUST" for p in parts)
    numbers = [] if texts else [p.astype(np.complex128 if p.dtype.kind == "c" else np.float64) for p in parts]
    nans = sum(int(np.isnan(n).sum()) for n in numbers)
    if numbers and nans == count:
        return Content("every element is NaN", blank=True)
    if numbers and not any(np.isfinite(n).any() for n in numbers):
        return Content("no element is a finite number", blank=True)
    if nans:
        return Content(f"{nans} of {count} elements are NaN")
    if count > 1 and all((p == first).all() for p in parts):
        return Content(f"every element is {first!r}" if texts else f"every element is {numbers[0][0]:g}")
    return Content()
