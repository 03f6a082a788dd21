"""A short way to write decompositions: operators by name, Python numbers as constants."""

from __future__ import annotations

from typing import Any

from ...expr import DType
from ...graph import Builder, Value
from .base import REGISTRY


def apply(b: Builder, name: str, *inputs: Value | float | None, **attributes: Any) -> Value:
    """Add an ONNX operator with one output; a number becomes a rank-0 constant of the first operand's dtype.

    Args:
        attributes: fields of the operator's class.
    """
    like = next((v for v in inputs if isinstance(v, Value)), None)
    operands = [v if v is None or isinstance(v, Value) else b.constant(v, like) for v in inputs]
    return b.one(REGISTRY["", name](**attributes), *operands)


def as_type(b: Builder, x: Value, dtype: DType) -> Value:
    """The value itself when it is of that element type already, else a Cast of it."""
    return x if x.dtype is dtype else apply(b, "Cast", x, to=dtype)
