"""Small ONNX models for tests that compile and run; models.py and compare.py under their former names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx

from . import models
from .compare import check
from .compare import compiled as run
from .models import Array, Shape, node


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Shape],
    outputs: Sequence[str],
    weights: Mapping[str, Array] | None = None,
    dtypes: Mapping[str, str] | None = None,
    opset: int = 20,
) -> onnx.ModelProto:
    """A model; output types are inferred."""
    likes = {name: ((dtypes or {}).get(name, "float32"), list(shape)) for name, shape in inputs.items()}
    return models.with_types(models.model(nodes, likes, outputs, weights, opset))


__all__ = ["Shape", "check", "model", "node", "run"]
