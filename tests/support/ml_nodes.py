"""Single nodes of ai.onnx.ml, by our operators' own definitions, against ONNX's reference evaluator."""

from __future__ import annotations

from functools import partial
from typing import Any

import onnx

from . import nodes
from .models import ML, Array, node_model

results = partial(nodes.given, domain=ML)
check = partial(nodes.check, domain=ML)


def model_of(op: str, *operands: Array, **form: Any) -> onnx.ModelProto:
    return node_model(op, operands, domain=ML, **form)


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
