"""A small model for each kind of kernel, and the templates that serve it on a processor and on a device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

Shape = Sequence[int | str]


@dataclass(frozen=True)
class Case:
    """A model of few nodes.

    Attributes:
        nodes: in order; ``y`` is the output.
        inputs: shapes by name.
        weights: shapes of constants by name.
        c, device: the templates of its kernels, in order; no device where the case shows nothing on one.
        winograd: whether that is allowed.
        archs: of the devices that are compiled for.
        precision: of products.
        extras: instruction sets of the processor.
    """

    nodes: Sequence[NodeProto]
    inputs: dict[str, Shape]
    c: str
    device: str
    weights: dict[str, Sequence[int]]
    winograd: bool = False
    archs: tuple[str, ...] = ()
    precision: str = "f32"
    extras: tuple[str, ...] = ()

    def model(self) -> onnx.ModelProto:
        rng = np.random.default_rng(0)
        weights = [numpy_helper.from_array(rng.random(s).astype(np.float32), n) for n, s in self.weights.items()]
        read = {name for each in self.nodes for name in each.input}
        constants = [numpy_helper.from_array(a, n) for n, a in INTEGERS.items() if n in read]
        inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in self.inputs.items()]
        outputs = [helper.make_empty_tensor_value_info("y")]
        graph = helper.make_graph(self.nodes, "golden", inputs, outputs, [*weights, *constants])
        return helper.make_model(graph, opset_imports=OPSETS, ir_version=10)


OPSETS = [helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.ml", 3)]
INTEGERS = {
    "one": np.array(1),
    "three": np.array([3]),
    "many": np.array([5000]),
    "zeroth": np.array([0]),
    "places": np.array([[0], [2], [2]]),
}


def case(nodes: Sequence[NodeProto], inputs: dict[str, Shape], c: str, device: str, **more: Any) -> Case:
    fields = {name: more.pop(name) for name in ("winograd", "archs", "precision", "extras") if name in more}
    return Case(nodes, inputs, c, device, more, **fields)


node = helper.make_node
IMAGE: dict[str, Shape] = {"x": (1, 16, 7, 7)}
STUMP: dict[str, Any] = {
    "nodes_treeids": [0] * 3, "nodes_nodeids": [0, 1, 2], "nodes_featureids": [2, 0, 0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"], "nodes_values": [0.5, 0.0, 0.0],
    "nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0], "nodes_missing_value_tracks_true": [1, 0, 0],
    "target_treeids": [0] * 2, "target_nodeids": [1, 2], "target_ids": [0] * 2, "target_weights": [1.0, 2.0],
}  # fmt: skip
CASES = {
    "map": case([node("Sigmoid", ["x"], ["a"]), node("Mul", ["a", "w"], ["y"])], {"x": ("n", 13)}, "map", "map",
                w=(13,)),
    "row": case([node("Softmax", ["x"], ["y"])], {"x": ("n", 37)}, "row", "row"),
    "columns": case([node("Softmax", ["x"], ["y"], axis=0)], {"x": (50, 12)}, "row", "columns"),
    "pieces": case(
        [node("ReduceMean", ["x", "zeroth"], ["y"], keepdims=0)], {"x": (90000, 12)}, "row", "columns row",
    ),
    "gemm": case(
        [node("Gemm", ["x", "w", "b"], ["a"]), node("Relu", ["a"], ["y"])], {"x": ("n", 29)}, "gemm", "contraction",
        w=(29, 37), b=(37,),
    ),
    "tf32": case(
        [node("Conv", ["x", "w"], ["y"], pads=[1] * 4)], {"x": (1, 32, 28, 28)}, "tiles conv tiles",
        "map contraction_mma map", archs=("sm_80",), w=(48, 32, 3, 3),
    ),
    "pack": case([node("MatMul", ["x", "z"], ["y"])], {"x": (65, 70), "z": (70, 90)}, "pack gemm", "contraction"),
    "conv": case(
        [node("Conv", ["x", "w"], ["a"], pads=[1] * 4), node("Relu", ["a"], ["y"])], IMAGE, "tiles conv tiles",
        "map contraction map map",
        w=(24, 16, 3, 3),
    ),
    "conv_first": case(
        [node("Conv", ["x", "w", "b"], ["y"], strides=[2, 2], pads=[1] * 4)], {"x": (1, 3, 12, 12)},
        "conv_first tiles", "contraction map", w=(32, 3, 3, 3), b=(32,),
    ),
    "depthwise": case(
        [node("Conv", ["x", "w"], ["y"], group=16, pads=[1] * 4)], IMAGE, "tiles depthwise tiles",
        "map row map", w=(16, 1, 3, 3),
    ),
    "winograd": case(
        [node("Conv", ["x", "w"], ["y"], pads=[1] * 4)], {"x": (1, 32, 28, 28)}, "tiles winograd tiles",
        "map contraction map map", winograd=True, w=(32, 32, 3, 3),
    ),
    "conv_transpose": case(
        [node("ConvTranspose", ["x", "w"], ["y"], strides=[1, 2])], IMAGE, "tiles conv tiles",
        "map contraction contraction map", w=(16, 8, 1, 2),
    ),
    "attention": case(
        [
            node("Transpose", ["k"], ["t"], perm=[0, 2, 1]), node("MatMul", ["q", "t"], ["s"]),
            node("Softmax", ["s"], ["p"]), node("MatMul", ["p", "v"], ["y"]),
        ],
        {"q": (2, 9, 16), "k": (2, 33, 16), "v": (2, 33, 8)}, "attention", "attention",
    ),
    "attention_halves": case(
        [
            *(node("Cast", [x], [x * 2], to=TensorProto.FLOAT16) for x in "qkv"),
            node("Transpose", ["kk"], ["t"], perm=[0, 2, 1]), node("MatMul", ["qq", "t"], ["s"]),
            node("Softmax", ["s"], ["p"]), node("MatMul", ["p", "vv"], ["y"]),
        ],
        {"q": (2, 9, 16), "k": (2, 33, 16), "v": (2, 33, 8)}, "map map map attention",
        "map map map attention_mma",
    ),
    "recurrent": case(
        [node("LSTM", ["x", "w", "r"], ["y"], hidden_size=5)], {"x": (6, 2, 3)}, "gemm recurrent",
        "contraction recurrent",
        w=(1, 20, 3), r=(1, 20, 5),
    ),
    "halves": case(
        [node("Cast", ["x"], ["a"], to=TensorProto.FLOAT16), node("Cast", ["z"], ["b"], to=TensorProto.FLOAT16),
         node("MatMul", ["a", "b"], ["y"])], {"x": (40, 48), "z": (48, 32)}, "map map pack gemm",
        "map map contraction_mma",
    ),
    "tiles": case(
        [node("MatMul", ["x", "w"], ["p"]), node("Add", ["p", "b"], ["s"]), node("Relu", ["s"], ["y"])],
        {"x": ("n", 48)}, "map gemm_tiles", "",
        precision="bf16", extras=("amx-tile", "amx-bf16"), w=(48, 40), b=(40,),
    ),
    "tiles_windows": case(
        [node("Conv", ["x", "w", "b"], ["y"], pads=[1, 1, 1, 1])], {"x": (1, 16, 9, 8)}, "tiles gemm_tiles tiles", "",
        precision="bf16", extras=("amx-tile", "amx-bf16"), w=(24, 16, 3, 3), b=(24,),
    ),
    "scan": case([node("CumSum", ["x", "one"], ["y"])], {"x": (3, 19)}, "scan", "scan"),
    "topk": case([node("TopK", ["x", "three"], ["y", "i"])], {"x": (3, 19)}, "topk", "topk"),
    "sort": case(
        [node("Cast", ["x"], ["a"], to=TensorProto.INT8), node("TopK", ["a", "many"], ["y", "i"])], {"x": (3, 5000)},
        "map topk", "map sort_count sort_starts sort_pass",
    ),
    "scatter": case(
        [node("ScatterND", ["x", "places", "new"], ["y"], reduction="add")],
        {"x": (5, 19), "new": (3, 19)}, "map scatter", "row",
    ),
    "trees": case(
        [node("TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", n_targets=1, **STUMP)], {"x": ("n", 4)},
        "trees", "map row",
    ),
}  # fmt: skip
