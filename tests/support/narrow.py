"""Elements of types of storage, and the floats that say how one rounds to such a type."""

from __future__ import annotations

from typing import Any

import numpy as np

from torshc.expr import DType

from . import compare

Array = np.ndarray[Any, Any]


def codes(dtype: DType) -> Array:
    """The bits of every element, those of narrow types with all that may stand above them."""
    return np.arange(65536 if dtype.size == 2 else 256).astype(np.uint16 if dtype.size == 2 else np.uint8)


def numbers(dtype: DType) -> Array:
    """All numbers of a type, those half between two and beyond the largest, neighbours of these, and bits of an f32.

    Of these all upper halves, with zeros, infinities, subnormals and NaN, before lower halves at which bf16 rounds.
    """
    held = np.unique(codes(dtype).view(dtype.numpy).astype(np.float32))
    held = held[np.isfinite(held)]
    with np.errstate(over="ignore"):
        beyond = held[-1] * np.array([1.0625, 1.125, 1.25, 1.5, 2.0], np.float32)
    middle = np.concatenate([held[1:] / 2 + held[:-1] / 2, beyond, -beyond])
    near = [np.nextafter(middle, np.float32(s * np.inf)) for s in (-1, 1)]
    halves = np.arange(65536, dtype=np.uint32) << 16
    binades = [(halves | low).view(np.float32) for low in (0, 0x7FFF, 0x8000, 0x8001)]
    return np.concatenate([held, middle, *near, *binades])


def assert_same(got: Array, wanted: Array) -> None:
    """Equal numbers of whatever types, with the signs of zeros; NaN of any bits is NaN."""
    compare.assert_same(got.astype(np.float32), wanted.astype(np.float32))
