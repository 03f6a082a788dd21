"""Small models that show each form in which a kernel is printed, and the templates that serve them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper

from tests.support.models import Like, Shape, model


@dataclass(frozen=True)
class Case:
    """A model of few nodes.

    Attributes:
        nodes: the nodes in order; ``y`` is the output.
        inputs: shapes by name, with a type unless they are f32.
        weights: shapes of constants by name.
        c, device: the templates of its kernels, in order, without their ends; those in parentheses are not shown, as
            another text shows them. Empty where the case shows nothing.
        slack: as of :class:`torshc.kernels.machine.Machine`.
        archs: architectures of the devices that are compiled for.
        precision: the type that products round their operands to.
        extras: instruction sets of the processor.
    """

    nodes: Sequence[NodeProto]
    inputs: Mapping[str, Like]
    c: str
    device: str
    weights: dict[str, Sequence[int]]
    slack: int | None = None
    archs: tuple[str, ...] = ()
    precision: str = "f32"
    extras: tuple[str, ...] = ()

    def model(self) -> onnx.ModelProto:
        rng = np.random.default_rng(0)
        weights = {n: rng.random(s).astype(np.float32) for n, s in self.weights.items()}
        weights = {n: (a * 100).astype(np.int8) if n == "bytes" else a for n, a in weights.items()}
        read = {name for each in self.nodes for name in each.input}
        constants = {n: a for n, a in CONSTANTS.items() if n in read}
        return model(self.nodes, self.inputs, "y", weights | constants, 24)


CONSTANTS = {
    "one": np.array(1),
    "three": np.array([3]),
    "many": np.array([5000]),
    "zeroth": np.array([0]),
    "second": np.array([1]),
    "places": np.array([[0], [2], [2]]),
    "twice": np.array([1, 1, 2, 2], np.float32),
    "step": np.array(0.02, np.float32),
    "zero": np.array(3, np.uint8),
}


def case(nodes: Sequence[NodeProto], inputs: Mapping[str, Like], c: str, device: str = "", **more: Any) -> Case:
    fields = {name: more.pop(name) for name in ("slack", "archs", "precision", "extras") if name in more}
    return Case(nodes, inputs, c, device, more, **fields)


def halves(names: str) -> list[NodeProto]:
    """Casts of inputs to f16; each is named twice."""
    return [node("Cast", [x], [x * 2], to=TensorProto.FLOAT16) for x in names]


def dense(**more: Any) -> Case:
    """A product of bf16 with weights."""
    nodes = [node("MatMul", ["x", "w"], ["p"]), node("Add", ["p", "b"], ["s"]), node("Relu", ["s"], ["y"])]
    return case(nodes, {"x": ("n", 48)}, precision="bf16", w=(48, 40), b=(40,), **more)


def quantised(op: str, c: str, x: Shape, w: tuple[int, ...], tiles: bool = True, **fields: Any) -> Case:
    """An operator of quantised operands, quantised again."""
    nodes = [
        node("QuantizeLinear", ["x", "step", "zero"], ["p"]), node("DequantizeLinear", ["p", "step", "zero"], ["q"]),
        node("DequantizeLinear", ["bytes", "step"], ["v"]), node(op, ["q", "v"], ["r"], **fields),
        node("QuantizeLinear", ["r", "step", "zero"], ["s"]), node("DequantizeLinear", ["s", "step", "zero"], ["y"]),
    ]  # fmt: skip
    return case(nodes, {"x": x}, c, bytes=w, extras=("amx-tile", "amx-int8") if tiles else ())


node = helper.make_node
IMAGE: dict[str, Shape] = {"x": (1, 16, 7, 7)}
STUMP: dict[str, Any] = {
    "nodes_treeids": [0] * 3, "nodes_nodeids": [0, 1, 2], "nodes_featureids": [2, 0, 0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"], "nodes_values": [0.5, 0.0, 0.0],
    "nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0], "nodes_missing_value_tracks_true": [1, 0, 0],
    "target_treeids": [0] * 2, "target_nodeids": [1, 2], "target_ids": [0] * 2, "target_weights": [1.0, 2.0],
}  # fmt: skip
ATTENTION = [
    node("Transpose", ["k"], ["t"], perm=[0, 2, 1]), node("MatMul", ["q", "t"], ["s"]),
    node("Softmax", ["s"], ["p"]), node("MatMul", ["p", "v"], ["y"]),
]  # fmt: skip
CASES = {
    "map": case([node("Sigmoid", ["x"], ["a"]), node("Mul", ["a", "w"], ["y"])], {"x": ("n", 13)}, "map", "map",
                w=(13,)),
    "row": case([node("Softmax", ["x"], ["y"])], {"x": ("n", 37)}, "row", "row"),
    "rows_together": case([node("ReduceL2", ["x", "second"], ["y"], keepdims=0)], {"x": ("n", 37)}, "row"),
    "columns": case([node("Softmax", ["x"], ["y"], axis=0)], {"x": (50, 12)}, "row", "columns"),
    "pieces": case(
        [node("ReduceMean", ["x", "zeroth"], ["y"], keepdims=0)], {"x": (90000, 12)}, "", "columns (row)",
    ),
    "transpose": case([node("Transpose", ["x"], ["y"])], {"x": (512, 512)}, "transpose", "transpose"),
    "picks": case([node("Resize", ["x", "", "twice"], ["y"], mode="linear")], {"x": (1, 3, 20, 30)}, "picks"),
    "table": case(
        [node("DequantizeLinear", ["x", "step", "zero"], ["a"]), node("Sigmoid", ["a"], ["b"]),
         node("QuantizeLinear", ["b", "step", "zero"], ["y"])], {"x": (np.uint8, ("n", 90))}, "table",
    ),
    "logic": case(
        [node("Xor", ["x", "z"], ["a"]), node("Not", ["a"], ["y"])], {"x": (bool, ("n", 9)), "z": (bool, (9,))},
        "logic",
    ),
    "gemm": case(
        [node("Gemm", ["x", "w", "b"], ["a"]), node("Relu", ["a"], ["y"])], {"x": ("n", 29)}, "gemm", "contraction",
        w=(29, 37), b=(37,),
    ),
    "tf32": case(
        [node("Conv", ["x", "w"], ["y"], pads=[1] * 4)], {"x": (1, 32, 28, 28)}, "", "(map) contraction_mma (map)",
        archs=("sm_80",), w=(48, 32, 3, 3),
    ),
    "groups": case(
        [node("MatMul", ["x", "z"], ["y"])], {"x": (1024, 512), "z": (512, 1024)}, "", "(transpose) contraction_group",
        archs=("sm_90a",),
    ),
    "pack": case([node("MatMul", ["x", "z"], ["y"])], {"x": (65, 70), "z": (70, 90)}, "pack (gemm)"),
    "halves": case(
        [*halves("xz"), node("MatMul", ["xx", "zz"], ["y"])], {"x": (40, 48), "z": (48, 32)},
        "map (map) pack (gemm)", "(horizontal) contraction_mma",
    ),
    "bf16_amx": dense(c="(map) gemm_bf16_amx", extras=("amx-tile", "amx-bf16")),
    "bf16_dot": dense(c="(map) gemm_bf16_dot", extras=("avx512bf16",)),
    "bf16_mmla": dense(c="(map) gemm_bf16_mmla", extras=("bf16",)),
    "bf16_f32": dense(c="gemm"),
    "bf16_amx_windows": case(
        [node("Conv", ["x", "w", "b"], ["y"], pads=[1, 1, 1, 1])], {"x": (1, 16, 9, 8)},
        "(transpose) gemm_bf16_amx (transpose)",
        precision="bf16", extras=("amx-tile", "amx-bf16"), w=(24, 16, 3, 3), b=(24,),
    ),
    "bf16_amx_image": case(
        [node("Conv", ["x", "w", "b"], ["y"], pads=[1, 1, 1, 1], strides=[2, 2])], {"x": (1, 32, 9, 8)},
        "(transpose) conv_bf16_amx (transpose)",
        precision="bf16", extras=("amx-tile", "amx-bf16"), w=(24, 32, 3, 3), b=(24,),
    ),
    "bf16_amx_picture": case(
        [node("Conv", ["x", "w", "b"], ["y"], strides=[2, 2], pads=[1] * 4)], {"x": (1, 3, 12, 12)},
        "(map) conv_bf16_amx (transpose)",
        precision="bf16", extras=("amx-tile", "amx-bf16"), w=(32, 3, 3, 3), b=(32,),
    ),
    "int8": quantised("MatMul", "(map) gemm", ("n", 70), (70, 40), tiles=False),
    "int8_amx": quantised("MatMul", "(map) gemm_int8_amx", ("n", 70), (70, 40)),
    "int8_amx_copied": quantised(
        "Conv", "(transpose) gemm_int8_amx (transpose)", (1, 32, 9, 8), (24, 32, 3, 3), strides=[2, 1], pads=[1] * 4
    ),
    "int8_amx_packed": quantised(
        "Conv", "(transpose) gemm_int8_amx (transpose)", (1, 40, 9, 8), (24, 40, 3, 3), dilations=[1, 2]
    ),
    "int8_depthwise": quantised(
        "Conv", "(transpose) depthwise_int8 (transpose)", (1, 16, 9, 8), (16, 1, 3, 3), group=16, pads=[1] * 4
    ),
    "conv": case(
        [node("Conv", ["x", "w"], ["a"], pads=[1] * 4), node("Relu", ["a"], ["y"])], IMAGE,
        "(transpose) conv (transpose)", "(map) contraction (map) (map)", w=(24, 16, 3, 3),
    ),
    "conv_first": case(
        [node("Conv", ["x", "w", "b"], ["y"], strides=[2, 2], pads=[1] * 4)], {"x": (1, 3, 12, 12)},
        "conv_first (transpose)", w=(32, 3, 3, 3), b=(32,),
    ),
    "conv_transpose": case(
        [node("ConvTranspose", ["x", "w"], ["y"], strides=[1, 2])], IMAGE, "(transpose) conv (transpose)",
        w=(16, 8, 1, 2),
    ),
    "depthwise": case(
        [node("Conv", ["x", "w"], ["y"], group=16, pads=[1] * 4)], IMAGE, "(transpose) depthwise (transpose)",
        w=(16, 1, 3, 3),
    ),
    "depthwise_images": case(
        [node("Conv", ["x", "w"], ["y"], group=16, pads=[0, 1, 0, 1])], {"x": (20, 16, 64, 64)}, "",
        "(transpose) channels (transpose)", w=(16, 1, 1, 3),
    ),
    "winograd": case(
        [node("Conv", ["x", "w"], ["y"], pads=[1] * 4)], {"x": (1, 32, 28, 28)}, "(transpose) winograd (transpose)",
        slack=10_000, w=(32, 32, 3, 3),
    ),
    "winograd_wide": case(
        [node("Conv", ["x", "w"], ["y"], pads=[1] * 4)], {"x": (1, 32, 13, 13)},
        "(transpose) winograd_inputs gemm winograd_outputs (transpose)", slack=10_000, w=(192, 32, 3, 3),
    ),
    "attention": case(ATTENTION, {"q": (2, 9, 16), "k": (2, 33, 16), "v": (2, 33, 8)}, "attention", "attention"),
    "attention_amx": case(
        ATTENTION, {"q": (2, 9, 16), "k": (2, 33, 16), "v": (2, 33, 8)}, "(map) (map) (map) attention_bf16_amx",
        precision="bf16", extras=("amx-tile", "amx-bf16"),
    ),
    "attention_few": case(
        ATTENTION, {"q": (2, 3, 16), "k": (2, 600, 16), "v": (2, 600, 8)}, "attention_few attention_few_join",
    ),
    "attention_row": case(
        ATTENTION, {"q": (2, 1, 16), "k": (2, 33, 16), "v": (2, 33, 8)}, "", "attention_row",
    ),
    "attention_halves": case(
        [
            *halves("qkv"), node("Transpose", ["kk"], ["t"], perm=[0, 2, 1]), node("MatMul", ["qq", "t"], ["s"]),
            node("Softmax", ["s"], ["p"]), node("MatMul", ["p", "vv"], ["y"]),
        ],
        {"q": (2, 9, 16), "k": (2, 33, 16), "v": (2, 33, 8)}, "", "horizontal attention_mma",
    ),
    "attention_row_halves": case(
        [*halves("qkv"), node("Attention", ["qq", "kk", "vv"], ["y"])],
        {"q": (1, 4, 1, 64), "k": (1, 2, 900, 64), "v": (1, 2, 900, 64)}, "",
        "(horizontal) attention_row_mma attention_join",
        archs=("sm_80",),
    ),
    "recurrent": case(
        [node("LSTM", ["x", "w", "r"], ["y"], hidden_size=5)], {"x": (6, 2, 3)}, "(gemm) recurrent",
        "(contraction) recurrent",
        w=(1, 20, 3), r=(1, 20, 5),
    ),
    "scan": case([node("CumSum", ["x", "one"], ["y"])], {"x": (3, 19)}, "scan", "scan"),
    "topk": case([node("TopK", ["x", "three"], ["y", "i"])], {"x": (3, 19)}, "topk", "topk"),
    "sort": case(
        [node("Cast", ["x"], ["a"], to=TensorProto.INT8), node("TopK", ["a", "many"], ["y", "i"])], {"x": (3, 5000)},
        "", "(map) sort_count sort_starts sort_pass",
    ),
    "scatter": case(
        [node("ScatterND", ["x", "places", "new"], ["y"], reduction="add")],
        {"x": (5, 19), "new": (3, 19)}, "(map) scatter", "row",
    ),
    "append": case(
        [node("TensorScatter", ["x", "new", "at"], ["y"])],
        {"x": (2, 3, 16, 8), "new": (2, 3, "s", 8), "at": (TensorProto.INT64, (2,))}, "(row) append", "",
    ),
    "trees": case(
        [node("TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", n_targets=1, **STUMP)], {"x": ("n", 4)},
        "trees",
    ),
}  # fmt: skip
