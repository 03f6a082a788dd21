"""Casts of floats to integers that cannot hold them, "undefined if OOR" in ONNX: see :mod:`.corrected`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..expr import I32, from_numpy
from ..passes.interpret import convert

Array = np.ndarray[Any, Any]


def decide_casts(x: Array, found: Array) -> Array:
    """What a cast of x gave, with what a run gives (:class:`torshc.ops.math.pointwise.Cast`) where ONNX leaves it open.

    >>> decide_casts(np.array([300.0, np.nan, -1.5]), np.array([44, 7, -1], np.int8))
    array([127,   0,  -1], dtype=int8)
    """
    source, dtype = from_numpy(x.dtype), from_numpy(found.dtype)
    if source is None or dtype is None or not (source.is_float and dtype.is_int):
        return found
    wide = x.astype(np.float64)
    whole, (low, high) = np.trunc(wide), dtype.range
    decided = convert(wide, I32 if dtype.is_narrow else dtype).astype(found.dtype)
    return np.where((low <= whole) & (whole < high + 1), found, decided)
