"""A small model whose one kernel is a product."""

from __future__ import annotations

import numpy as np
import onnx

from tests.support.models import model, node

WEIGHTS = np.random.default_rng(0).standard_normal((70, 50), dtype=np.float32)


def product() -> onnx.ModelProto:
    """y = relu(x @ w), of x of 33 rows."""
    return model([node("MatMul", "x w", "p"), node("Relu", "p", "y")], {"x": [33, 70]}, "y", {"w": WEIGHTS}, 18)
