"""Random arrays that a model has a use for: indices of its tables, lengths of its sequences, masks that hide a part."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..base.errors import RunError
from ..runtime import TensorSpec

Array = npt.NDArray[Any]

_SHORT = {"int4": (-8, 7), "uint4": (0, 15), "int2": (-2, 1), "uint2": (0, 3)}  # first and last number
_WORDS = np.array(["", "a", "b", "word", "two words"], np.object_)  # what strings are drawn from


@dataclass(frozen=True)
class Bounds:
    """What elements are, as a manifest's `uses` have it, and their range; integers of no use are 0 and 1."""

    kind: str = "keep"
    least: int = 0
    most: int | None = None


def draw(spec: TensorSpec, shape: tuple[int, ...], generator: np.random.Generator, use: Bounds) -> Array:
    """An array for an input: floats normally, integers by their use.

    Raises:
        RunError: it would not fit in memory.
    """
    try:
        # A number of NumPy, as sums of scalars are, is no array to ONNX Runtime.
        return np.asarray(_draw(spec, shape, generator, use))
    except (MemoryError, ValueError) as error:
        raise RunError(f"no memory for input {spec.name!r} of shape {list(shape)}") from error


def _draw(spec: TensorSpec, shape: tuple[int, ...], generator: np.random.Generator, use: Bounds) -> Array:
    if spec.dtype == "string":
        return np.asarray(generator.choice(_WORDS, shape), np.object_)
    dtype = spec.numpy
    if dtype.kind == "b":
        return _integers(shape, generator, use).astype(bool)
    if dtype.kind in "iu":
        most = use.most if use.most is None else min(use.most, int(np.iinfo(dtype).max))
        return _integers(shape, generator, Bounds(use.kind, use.least, most)).astype(dtype)
    if dtype.name in _SHORT:  # kinds of their own for NumPy
        low, high = _SHORT[dtype.name]
        return generator.integers(low, high + 1, shape, np.int8).astype(dtype)
    if use.kind == "ratio":
        return generator.random(shape, np.float32).astype(dtype, copy=False)
    drawn = generator.standard_normal(shape, dtype=np.float32)
    positive = use.kind == "positive" or dtype.name == "float8_e8m0fnu"
    return (np.abs(drawn) if positive else drawn).astype(dtype, copy=False)


def _integers(shape: tuple[int, ...], generator: np.random.Generator, use: Bounds) -> Array:
    """Integers of a use, as i64."""
    most = use.least if use.most is None else max(use.most, use.least)
    if use.kind == "position":
        return _positions(shape, generator, None if use.most is None else most)
    if use.kind in ("keep", "hide") or (use.kind == "index" and use.most is None):
        return _mask(shape, generator) ^ (use.kind == "hide")
    if use.kind == "index":
        return _spread(shape, generator, most - use.least + 1) + use.least
    drawn = generator.integers(use.least, most + 1, shape)
    if use.kind == "length" and drawn.size:
        drawn.flat[0] = most  # one sequence is as long as its dimension
    return np.asarray(drawn)


def _spread(shape: tuple[int, ...], generator: np.random.Generator, count: int) -> Array:
    """Numbers below `count`, none of them twice where there are enough: a scatter has one meaning then."""
    size = math.prod(shape)
    if size > count:
        return generator.integers(0, count, shape)
    return generator.choice(count, size, replace=False).reshape(shape)


def _positions(shape: tuple[int, ...], generator: np.random.Generator, most: int | None) -> Array:
    """0, 1, 2, ... along the last dimension, from anywhere that leaves room for them."""
    length = shape[-1] if shape else 1
    room = 0 if most is None else max(most + 1 - length, 0)
    first = generator.integers(0, room + 1, (*shape[:-1], 1) if shape else ())
    rising = first + (np.arange(length) if shape else 0)
    return np.asarray(rising if most is None else rising % (most + 1))


def _mask(shape: tuple[int, ...], generator: np.random.Generator) -> Array:
    """0 and 1 mixed: each row begins with a 1, so that no softmax is without a score, and ends with a 0."""
    drawn = np.asarray(generator.integers(0, 2, shape))
    if shape and shape[-1]:
        drawn[..., 0] = 1
        drawn[..., 1:][..., -1:] = 0
    return drawn
