"""A small encoder of sentences: products on rows, attention that a mask hides rows from, and what comes of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from .nodes import numbers

NODE = helper.make_node
HIDDEN = -3.4028234663852886e38

# What is made of the rows h[n, seq, 8] and the mask m[n, seq, 1].
TAILS = {
    "mean": [
        NODE("Mul", ["h", "m"], ["kept"]), NODE("ReduceSum", ["kept", "two"], ["total"], keepdims=0),
        NODE("ReduceSum", ["m", "two"], ["count"], keepdims=0), NODE("Clip", ["count", "tiny"], ["many"]),
        NODE("Div", ["total", "many"], ["y"]),
    ],
    "chosen": [
        NODE("Cast", ["m"], ["b"], to=TensorProto.BOOL), NODE("Where", ["b", "h", "low"], ["kept"]),
        NODE("ReduceMax", ["kept"], ["y"], axes=[1], keepdims=0),
    ],
    "parts": [
        NODE("Split", ["h"], ["l", "r"], axis=2, num_outputs=2), NODE("Concat", ["r", "l"], ["c"], axis=2),
        NODE("Transpose", ["c"], ["t"], perm=[1, 0, 2]), NODE("Transpose", ["t"], ["u"], perm=[1, 0, 2]),
        NODE("Mul", ["u", "m"], ["kept"]), NODE("ReduceSum", ["kept", "two"], ["y"], keepdims=0),
    ],
    "rows": [NODE("Relu", ["h"], ["y"])],
    "first": [NODE("Gather", ["h", "zero"], ["y"], axis=1)],
    "largest": [NODE("ReduceMax", ["h"], ["y"], axes=[1], keepdims=0)],
}  # fmt: skip


def encoder(
    tail: str = "mean", mask: int = TensorProto.INT64, low: float = HIDDEN, *, hide: str = "Sub", masked: bool = True
) -> onnx.ModelProto:
    """The model: x[n, seq, 8] and mask[n, seq] in, y out.

    Args:
        tail: what is made of the rows.
        mask: element type of the mask.
        low: what is added to a score that is hidden.
        hide: "Sub" for low (1 - mask); "Mul" hides where the mask is 1.
        masked: whether attention adds that.
    """
    bias = {"Sub": NODE("Sub", ["one", "wide"], ["off"]), "Mul": NODE("Mul", ["one", "wide"], ["off"])}[hide]
    nodes = [
        NODE("Cast", ["mask"], ["seen"], to=TensorProto.FLOAT), NODE("Unsqueeze", ["seen", "axes"], ["wide"]),
        bias, NODE("Mul", ["off", "lowest"], ["bias"]), NODE("Unsqueeze", ["seen", "last"], ["m"]),
        NODE("Add", ["x", "place"], ["e"]),
        *(NODE("MatMul", ["e", f"w{name}"], [name]) for name in "qkv"),
        *(NODE("Reshape", [name, "split"], [f"{name}1"]) for name in "qkv"),
        *(NODE("Transpose", [f"{name}1"], [f"{name}2"], perm=[0, 2, 1, 3]) for name in "qv"),
        NODE("Transpose", ["k1"], ["k2"], perm=[0, 2, 3, 1]), NODE("MatMul", ["q2", "k2"], ["s"]),
        NODE("Add", ["s", "bias"], ["t1"]) if masked else NODE("Identity", ["s"], ["t1"]),
        NODE("Softmax", ["t1"], ["p"], axis=-1), NODE("MatMul", ["p", "v2"], ["a"]),
        NODE("Transpose", ["a"], ["a1"], perm=[0, 2, 1, 3]), NODE("Reshape", ["a1", "join"], ["a2"]),
        NODE("MatMul", ["a2", "wo"], ["o"]), NODE("Add", ["o", "e"], ["g"]),
        NODE("LayerNormalization", ["g", "place"], ["h"], axis=-1), *TAILS[tail],
    ]  # fmt: skip
    weights: dict[str, Any] = {f"w{name}": numbers(8, 8, seed=k) for k, name in enumerate("qkvo")}
    weights |= {
        "place": numbers(8, seed=9), "one": np.float32(1), "lowest": np.float32(low), "low": np.float32(-9),
        "tiny": np.float32(1e-9), "axes": np.array([1, 2]), "last": np.array([-1]), "two": np.array([1]),
        "split": np.array([0, 0, 2, 4]), "join": np.array([0, 0, 8]), "zero": np.array(0),
    }  # fmt: skip
    given = {"x": (TensorProto.FLOAT, ["n", "seq", 8]), "mask": (mask, ["n", "seq"])}
    dims = ["n", "seq", 8] if tail == "rows" else ["n", 8]
    used = {name for node in nodes for name in node.input}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in given.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, dims)],
        [onnx.numpy_helper.from_array(np.asarray(a), name) for name, a in weights.items() if name in used],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def feeds(mask: Any, kind: Any = np.int64) -> dict[str, Any]:
    """Inputs for a mask."""
    seen = np.asarray(mask, kind)
    return {"x": numbers(*seen.shape, 8, seed=5), "mask": seen}
