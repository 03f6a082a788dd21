"""Small tensors as expressions: what makes exported shape arithmetic vanish at compile time."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..expr import F32, F64, Expr, as_int, const, from_numpy

LIMIT = 64  # elements; shapes and their like are far smaller, and weights far larger
FLOATS = (F32, F64)  # whose elements are followed where they are known: sizes are scaled, and rounded up or down


def data_of(array: np.ndarray[Any, Any]) -> tuple[Expr, ...] | None:
    """The elements of a small array as constants, else None."""
    dtype = from_numpy(array.dtype)
    if array.size > LIMIT or not (array.dtype.kind in "iub" or dtype in FLOATS):
        return None
    return tuple(const(v, dtype) for v in array.reshape(-1).tolist())


def ints_of(data: tuple[Expr, ...] | None) -> tuple[int, ...] | None:
    """The elements as integers when all are known, else None."""
    if data is None:
        return None
    values = [as_int(e) for e in data]
    return None if any(v is None for v in values) else tuple(v for v in values if v is not None)


def indices(shape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Every index of a static shape in row-major order; one empty index for rank 0."""
    if 0 in shape:  # product would list the other dimensions first, however long they are
        return iter(())
    return itertools.product(*(range(d) for d in shape))
