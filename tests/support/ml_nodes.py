"""Single nodes of ai.onnx.ml against ONNX's reference evaluator."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator

from torshc.formats import import_model

from .evaluate import Array, run


def model_of(op: str, *operands: Array, outputs: int = 1, version: int = 3, **attributes: Any) -> onnx.ModelProto:
    names = [f"x{k}" for k in range(len(operands))]
    results = [f"y{k}" for k in range(outputs)]
    node = helper.make_node(op, names, results, domain="ai.onnx.ml", name="it", **attributes)
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in zip(names, operands, strict=True)
    ]
    graph = helper.make_graph([node], "one", inputs, [helper.make_empty_tensor_value_info(n) for n in results])
    opsets = [helper.make_opsetid("ai.onnx.ml", version), helper.make_opsetid("", 20)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def results(op: str, *operands: Array, **attributes: Any) -> list[Array]:
    model = model_of(op, *operands, **attributes)
    return run(import_model(model.SerializeToString()), {f"x{k}": a for k, a in enumerate(operands)})


def check(op: str, *operands: Array, **attributes: Any) -> list[Array]:
    got = results(op, *operands, **attributes)
    model = model_of(op, *operands, **attributes)
    wanted = ReferenceEvaluator(model).run(None, {f"x{k}": a for k, a in enumerate(operands)})
    for g, w in zip(got, wanted, strict=True):
        w = np.asarray(w)
        assert g.shape == w.shape
        np.testing.assert_allclose(g, w, rtol=2e-5, atol=1e-6)
    return got


def forest(aggregate: str) -> dict[str, Any]:
    """Two trees over three features; a leaf with two targets, and a target that not every row reaches."""
    return {
        "nodes_treeids": [0, 0, 0, 1, 1, 1, 1, 1],
        "nodes_nodeids": [0, 1, 2, 0, 1, 2, 3, 4],
        "nodes_featureids": [0, 0, 0, 2, 1, 0, 0, 0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF", "BRANCH_GT", "BRANCH_LT", "LEAF", "LEAF", "LEAF"],
        "nodes_values": [0.25, 0.0, 0.0, -0.5, 0.75, 0.0, 0.0, 0.0],
        "nodes_truenodeids": [1, 0, 0, 1, 2, 0, 0, 0],
        "nodes_falsenodeids": [2, 0, 0, 4, 3, 0, 0, 0],
        "nodes_missing_value_tracks_true": [0, 0, 0, 1, 0, 0, 0, 0],
        "target_treeids": [0, 0, 0, 1, 1, 1],
        "target_nodeids": [1, 2, 2, 2, 3, 4],
        "target_ids": [0, 0, 1, 1, 0, 0],
        "target_weights": [1.0, -2.0, 0.5, 4.0, 8.0, -16.0],
        "n_targets": 2,
        "aggregate_function": aggregate,
    }
