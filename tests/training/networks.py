"""Small networks to train, and their steps without a compiler: the graphs by NumPy, and one written out in f64."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from torshc.formats import load_graph
from torshc.graph import Graph
from torshc.passes.interpret import run_graph
from torshc.training import make_training_graph, read_training

Array = np.ndarray[Any, Any]
DIGITS = Path(__file__).resolve().parents[2] / "samples" / "digits.onnx"


ADAM = """\
weights: "*"
loss: cross_entropy
optimizer: {adamw: {learning_rate: 0.01}}
weight_decay: 0.01
clip_norm: 1
"""


def convolutional(dtype: type = np.float32, batch: int | str = "batch") -> bytes:
    """[batch, 1, 6, 6] -> Conv, Relu, MaxPool, Gemm, Softmax -> [batch, 3]."""
    rng = np.random.default_rng(5)
    weights = {
        "conv.weight": rng.standard_normal((4, 1, 3, 3)) * 0.5,
        "conv.bias": rng.standard_normal(4) * 0.1,
        "linear.weight": rng.standard_normal((16, 3)) * 0.3,
        "linear.bias": np.zeros(3),
    }
    nodes = [
        helper.make_node("Conv", ["x", "conv.weight", "conv.bias"], ["c"], "conv"),
        helper.make_node("Relu", ["c"], ["r"], "relu"),
        helper.make_node("MaxPool", ["r"], ["m"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["m"], ["f"], "flat"),
        helper.make_node("Gemm", ["f", "linear.weight", "linear.bias"], ["z"], "linear"),
        helper.make_node("Softmax", ["z"], ["y"], "softmax", axis=1),
    ]
    return model(nodes, {"x": [batch, 1, 6, 6]}, {"y": [batch, 3]}, weights, dtype)


def batches(count: int) -> list[dict[str, Array]]:
    """Pictures of three kinds: what is bright is the left, the middle or the right."""
    rng = np.random.default_rng(9)
    found = []
    for _ in range(count):
        target = rng.integers(0, 3, 8)
        x = rng.standard_normal((8, 1, 6, 6)) * 0.3
        for picture, kind in zip(x, target, strict=True):
            picture[0, :, 2 * kind : 2 * kind + 2] += 1
        found.append({"x": x.astype(np.float32), "target": target})
    return found


class Reference:
    """The steps of `ADAM` on the network by NumPy, in f64, with its derivatives written out."""

    def __init__(self) -> None:
        found = onnx.load_from_string(convolutional(np.float64)).graph.initializer
        self.weights = {w.name: numpy_helper.to_array(w) for w in found}
        self.moments = {n: (np.zeros_like(w), np.zeros_like(w)) for n, w in self.weights.items()}
        self.steps = 0

    def gradients(self, x: Array, target: Array) -> tuple[float, dict[str, Array]]:
        kernel, bias, linear, last = self.weights.values()
        rows = np.arange(len(x))
        taps = np.lib.stride_tricks.sliding_window_view(x[:, 0], (3, 3), (1, 2))
        relu = np.maximum(np.einsum("nhwij,oij->nohw", taps, kernel[:, 0]) + bias[:, None, None], 0)
        windows = relu.reshape(len(x), 4, 2, 2, 2, 2).transpose(0, 1, 2, 4, 3, 5).reshape(len(x), 16, 4)
        pooled = windows.max(2)
        z = pooled @ linear + last
        logs = z - z.max(1, keepdims=True)
        logs -= np.log(np.exp(logs).sum(1, keepdims=True))
        d = (np.exp(logs) - np.eye(3)[target]) / len(x)
        largest = np.eye(4)[windows.argmax(2)]  # of equal ones the first, as MaxPool's gradient takes it
        spread = (largest * (d @ linear.T)[:, :, None]).reshape(len(x), 4, 2, 2, 2, 2).transpose(0, 1, 2, 4, 3, 5)
        back = spread.reshape(relu.shape) * (relu > 0)
        found = np.einsum("nhwij,nohw->oij", taps, back)[:, None], back.sum((0, 2, 3)), pooled.T @ d, d.sum(0)
        return float(-logs[rows, target].mean()), dict(zip(self.weights, found, strict=True))

    def step(self, x: Array, target: Array) -> float:
        loss, gradients = self.gradients(x.astype(np.float64), target)
        self.steps += 1
        scale = min(1.0, 1 / (np.sqrt(sum((g**2).sum() for g in gradients.values())) + 1e-6))
        for name, g in gradients.items():
            m, v = self.moments[name]
            m, v = 0.9 * m + 0.1 * scale * g, 0.999 * v + 0.001 * (scale * g) ** 2
            root = np.sqrt(v / (1 - 0.999**self.steps)) + 1e-8
            self.weights[name] = self.weights[name] * (1 - 1e-4) - 0.01 * m / (1 - 0.9**self.steps) / root
            self.moments[name] = m, v
        return loss


def write_step(folder: Path, text: str) -> Path:
    """A file of a training step."""
    file = folder / "step.yaml"
    file.write_text(text)
    return file


def affine(dtype: type = np.float64, after: str = "Identity") -> bytes:
    """[4, 3] -> x w + b, then a function -> [4, 2]; `n` is a weight of integers that nothing reads."""
    rng = np.random.default_rng(7)
    weights = {"w": rng.standard_normal((3, 2)), "b": rng.standard_normal(2)}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], "product"),
        helper.make_node("Add", ["p", "b"], ["z"], "sum"),
        helper.make_node(after, ["z"], ["y"], "last"),
    ]
    found = onnx.load_from_string(model(nodes, {"x": [4, 3]}, {"y": [4, 2]}, weights, dtype))
    found.graph.initializer.append(numpy_helper.from_array(np.arange(3), "n"))
    return bytes(found.SerializeToString())


def model(
    nodes: list[Any],
    inputs: Mapping[str, Any],
    outputs: Mapping[str, Any],
    weights: Mapping[str, Array],
    dtype: type,
    opset: int = 17,
) -> bytes:
    """An ONNX model whose tensors are all of one type."""
    kind = TensorProto.DOUBLE if dtype is np.float64 else TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info(n, kind, dims) for n, dims in inputs.items()],
        [helper.make_tensor_value_info(n, kind, dims) for n, dims in outputs.items()],
        [numpy_helper.from_array(np.asarray(w, dtype), n) for n, w in weights.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    return bytes(made.SerializeToString())


def wide(path: Path = DIGITS) -> bytes:
    """A model with all its floats as f64."""
    found = onnx.load(path)
    for k, w in enumerate(found.graph.initializer):
        array = numpy_helper.to_array(w)
        if array.dtype == np.float32:
            found.graph.initializer[k].CopyFrom(numpy_helper.from_array(array.astype(np.float64), w.name))
    for v in (*found.graph.input, *found.graph.output):
        v.type.tensor_type.elem_type = TensorProto.DOUBLE
    del found.graph.value_info[:]
    return bytes(found.SerializeToString())


class Steps:
    """A training step by NumPy, with its states.

    Args:
        shapes: shapes of the inputs that have symbolic dimensions.
    """

    def __init__(self, source: bytes | Path, step: Path, shapes: Mapping[str, Any] | None = None) -> None:
        self.graph: Graph = load_graph(source, shapes, {})
        make_training_graph(self.graph, read_training(step))
        self.states: dict[str, Array] = {}
        self.results: dict[str, Array] = {}  # of the last step
        for state, held, _ in self.graph.updates:
            dims = held.type.static_shape
            assert dims is not None
            first = state.first.const if state.first is not None else None
            self.states[state.name] = np.zeros(dims, held.dtype.numpy) if first is None else np.array(first)

    def __call__(self, **inputs: Array) -> float:
        """The loss; the states change."""
        given = {v: inputs[v.name] for v in self.graph.given}
        given |= {v: self.states[s.name] for s, v, _ in self.graph.updates}
        found = run_graph(self.graph, given)
        returned = len(self.graph.returned)
        self.results = dict(zip(self.graph.output_names, found[:returned], strict=False))
        self.states = {s.name: new for s, new in zip(self.graph.states, found[returned:], strict=False)}
        return float(found[0])
