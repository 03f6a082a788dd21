"""A small model whose one kernel is a product."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper

WEIGHTS = np.random.default_rng(0).standard_normal((70, 50), dtype=np.float32)


def product() -> onnx.ModelProto:
    """y = relu(x @ w), of x of 33 rows."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Relu", ["p"], ["y"])]
    x, y = (helper.make_tensor_value_info(n, 1, [33, size]) for n, size in (("x", 70), ("y", 50)))
    graph = helper.make_graph(nodes, "product", [x], [y], [numpy_helper.from_array(WEIGHTS, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
