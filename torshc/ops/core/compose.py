"""A short way to add one operator to a graph: by name, with Python numbers as constants. Formulas take tensors."""

from __future__ import annotations

from typing import Any

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
