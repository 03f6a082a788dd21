"""Small models as exporters write them: every shape is computed in the graph, most of it in int32 or in floats."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

Array = np.ndarray[Any, Any]
FLOAT, INT32, INT64 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT32, onnx.TensorProto.INT64
LAST = 2**31 - 1  # the end of a slice that has none


@dataclass
class Net:
    """A model in the making; values are known by their names."""

    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(5))
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: dict[str, Array] = field(default_factory=dict)
    inputs: list[onnx.ValueInfoProto] = field(default_factory=list)

    def input(self, name: str, dtype: int, *dims: int | str) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, dtype, dims))
        return name

    def add(self, op: str, *operands: str, outputs: int = 1, **attributes: object) -> str:
        """A node; the name of its first output, that of the k-th ending in ``.k``."""
        name = f"{op}_{len(self.nodes)}"
        names = [name, *(f"{name}.{k}" for k in range(1, outputs))]
        self.nodes.append(helper.make_node(op, operands, names, name=name, **attributes))
        return name

    def constant(self, value: object, dtype: str = "int64") -> str:
        name = f"const_{len(self.weights)}"
        self.weights[name] = np.asarray(value, dtype)
        return name

    def weight(self, *shape: int) -> str:
        return self.constant(self.rng.standard_normal(shape) / np.sqrt(max(shape[0], 1)), "float32")

    def shape(self, x: str) -> str:
        """Shape, which TensorFlow has in int32."""
        return self.add("Cast", self.add("Shape", x), to=INT32)

    def strided(self, x: str, begin: int, end: int) -> str:
        """StridedSlice of a vector."""
        return self.add("Slice", x, self.constant([begin]), self.constant([end]), self.constant([0]))

    def dim(self, shape: str, k: int) -> str:
        """One dimension of a shape, as a scalar."""
        return self.add("Squeeze", self.strided(shape, k, k + 1), self.constant([0]))

    def pack(self, *scalars: str | int) -> str:
        """A shape from scalars of int32, as Reshape wants it."""
        parts = [
            self.constant([s], "int32") if isinstance(s, int) else self.add("Unsqueeze", s, self.constant([0]))
            for s in scalars
        ]
        return self.add("Cast", self.add("Concat", *parts, axis=0), to=INT64)

    def reshape(self, x: str, *scalars: str | int) -> str:
        return self.add("Reshape", x, self.pack(*scalars))

    def dense(self, x: str, wide: int, out: int) -> str:
        return self.add("Add", self.add("MatMul", x, self.weight(wide, out)), self.weight(out))

    def model(self, *outputs: str, opset: int = 20) -> onnx.ModelProto:
        values = [onnx.ValueInfoProto(name=n) for n in outputs]
        weights = [numpy_helper.from_array(w, n) for n, w in self.weights.items()]
        graph = helper.make_graph(self.nodes, "exported", self.inputs, values, weights)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
        return onnx.shape_inference.infer_shapes(made)


def keras_network() -> onnx.ModelProto:
    """A network of Keras, channels last, which flattens by the product of computed dimensions."""
    net = Net()
    x = net.input("image", FLOAT, "batch", "height", "width", 3)
    y = net.add("Transpose", x, perm=[0, 3, 1, 2])
    y = net.add(
        "Relu", net.add("Conv", y, net.weight(8, 3, 3, 3), net.weight(8), auto_pad="SAME_UPPER", strides=[2, 2])
    )
    y = net.add("MaxPool", y, kernel_shape=[2, 2], strides=[2, 2])
    y = net.add("Conv", y, net.weight(6, 8, 3, 3), net.weight(6), auto_pad="SAME_UPPER")
    y = net.add("Transpose", y, perm=[0, 2, 3, 1])
    shape = net.shape(y)
    batch, rest = net.dim(shape, 0), net.strided(shape, 1, LAST)
    flat = net.reshape(y, batch, net.add("ReduceProd", rest, net.constant([0]), keepdims=0))
    points = net.add("ReduceProd", net.strided(shape, 1, 3), net.constant([0]), keepdims=0)
    pooled = net.add("ReduceMean", net.reshape(flat, batch, points, 6), net.constant([1]), keepdims=0)
    return net.model(flat, net.add("Softmax", net.dense(pooled, 6, 5)))


def bert(layers: int = 2, heads: int = 2, width: int = 16, longest: int = 32) -> onnx.ModelProto:
    """A BERT as tf2onnx writes it: masks by Cast and Expand, a Reshape by computed sizes at every step."""
    net = Net()
    ids, mask = (net.input(n, INT32, "batch", "length") for n in ("input_ids", "attention_mask"))
    shape = net.shape(ids)
    batch, length = net.dim(shape, 0), net.dim(shape, 1)
    places = net.add("Range", net.constant(0, "int32"), length, net.constant(1, "int32"))
    embedded = net.add("Gather", net.weight(longest, width), places)
    x = net.add("Add", net.add("Gather", net.weight(50, width), ids), net.add("Unsqueeze", embedded, net.constant([0])))
    x = _normalised(net, x, width)
    hidden = net.add("Cast", net.reshape(mask, batch, 1, length), to=FLOAT)
    whole = net.add("Expand", hidden, net.pack(batch, length, length))
    hidden = net.add("Mul", net.add("Sub", net.constant(1, "float32"), whole), net.constant(-10000, "float32"))
    hidden = net.add("Unsqueeze", hidden, net.constant([1]))
    for _ in range(layers):
        x = _normalised(net, net.add("Add", x, _attention(net, x, hidden, heads, width)), width)
        inner = net.dense(x, width, 2 * width)
        half = net.add("Mul", inner, net.constant(0.5, "float32"))
        erf = net.add("Erf", net.add("Div", inner, net.constant(2**0.5, "float32")))
        inner = net.add("Mul", half, net.add("Add", erf, net.constant(1, "float32")))
        x = _normalised(net, net.add("Add", x, net.dense(inner, 2 * width, width)), width)
    first = net.add("Slice", x, net.constant([0]), net.constant([1]), net.constant([1]))
    pooled = net.add("Tanh", net.dense(net.add("Squeeze", first, net.constant([1])), width, width))
    return net.model(x, pooled)


def _normalised(net: Net, x: str, width: int) -> str:
    """Layer normalisation, spelt out."""
    last = net.constant([-1])
    centred = net.add("Sub", x, net.add("ReduceMean", x, last))
    variance = net.add("ReduceMean", net.add("Mul", centred, centred), last)
    scale = net.add("Reciprocal", net.add("Sqrt", net.add("Add", variance, net.constant(1e-6, "float32"))))
    return net.add("Add", net.add("Mul", net.add("Mul", centred, scale), net.weight(width)), net.weight(width))


def _attention(net: Net, x: str, hidden: str, heads: int, width: int) -> str:
    shape = net.shape(x)
    batch, length = net.dim(shape, 0), net.dim(shape, 1)
    rows = net.add("Mul", batch, length)
    flat = net.reshape(x, rows, width)

    def split(perm: Sequence[int]) -> str:
        return net.add("Transpose", net.reshape(net.dense(flat, width, width), batch, length, heads, -1), perm=perm)

    q, k, v = split([0, 2, 1, 3]), split([0, 2, 3, 1]), split([0, 2, 1, 3])
    wide = net.add("Cast", net.dim(net.shape(q), 3), to=FLOAT)
    scores = net.add("Div", net.add("MatMul", q, k), net.add("Sqrt", wide))
    mixed = net.add("MatMul", net.add("Softmax", net.add("Add", scores, hidden)), v)
    joined = net.reshape(net.add("Transpose", mixed, perm=[0, 2, 1, 3]), rows, width)
    return net.reshape(net.dense(joined, width, width), batch, length, width)


def audio(hop: int = 8, frame: int = 20) -> onnx.ModelProto:
    """Frames of a signal: padded to a number of steps that is found in floats, gathered, transformed."""
    net = Net()
    signal = net.input("signal", FLOAT, "batch", "samples")
    length = net.dim(net.shape(signal), 1)
    steps = net.add("Ceil", net.add("Div", net.add("Cast", length, to=FLOAT), net.constant(hop, "float32")))
    count = net.add("Cast", steps, to=INT32)
    needed = net.add("Mul", net.add("Sub", count, net.constant(1, "int32")), net.constant(hop, "int32"))
    needed = net.add("Add", needed, net.constant(frame, "int32"))
    missing = net.add("Max", net.add("Sub", needed, length), net.constant(0, "int32"))
    padded = net.add("Pad", signal, net.pack(0, 0, 0, missing))
    starts = net.add("Mul", _range(net, count), net.constant(hop, "int32"))
    starts = net.add("Unsqueeze", starts, net.constant([1]))
    inside = net.add("Unsqueeze", _range(net, net.constant(frame, "int32")), net.constant([0]))
    frames = net.add("Gather", padded, net.add("Add", starts, inside), axis=1)
    window = np.hanning(frame + 1)[:-1]
    frames = net.add("Unsqueeze", net.add("Mul", frames, net.constant(window, "float32")), net.constant([-1]))
    spectrum = net.add("DFT", frames, "", net.constant(2), onesided=1)
    power = net.add("ReduceSumSquare", spectrum, net.constant([-1]), keepdims=0)
    mel = net.add("MatMul", power, net.constant(abs(net.rng.standard_normal((frame // 2 + 1, 6))), "float32"))
    loud = net.add("Log", net.add("Max", mel, net.constant(1e-3, "float32")))
    shape = net.shape(loud)
    halves = net.add("Div", net.dim(shape, 1), net.constant(2, "int32"))
    even = net.add("Mul", halves, net.constant(2, "int32"))
    cut = net.add("Slice", loud, net.constant([0]), net.pack(even), net.constant([1]))
    return net.model(loud, net.reshape(cut, net.dim(shape, 0), halves, 12))


def _range(net: Net, end: str) -> str:
    return net.add("Range", net.constant(0, "int32"), end, net.constant(1, "int32"))


def detector(anchors: int = 2, most: int = 20) -> onnx.ModelProto:
    """A detector with grids and an upsampled map of computed sizes, the best boxes, and non-maximum suppression."""
    net = Net()
    image = net.input("image", FLOAT, 1, 3, "height", "width")

    def conv(x: str, wide: int, out: int, stride: int) -> str:
        weight = net.constant(net.rng.standard_normal((out, wide, 3, 3)) / (3 * wide**0.5), "float32")
        return net.add("Conv", x, weight, net.weight(out), pads=[1] * 4, strides=[stride] * 2)

    fine = net.add("Relu", conv(image, 3, 8, 2))
    coarse = net.add("Relu", conv(fine, 8, 8, 2))
    large, small = net.add("Shape", fine), net.add("Shape", coarse)
    sizes = net.add("Concat", net.strided(small, 0, 2), net.strided(large, 2, 4), axis=0)
    up = net.add("Resize", coarse, "", "", sizes, mode="nearest", coordinate_transformation_mode="asymmetric",
                 nearest_mode="floor")  # fmt: skip
    head = conv(net.add("Add", fine, up), 8, anchors * 5, 1)
    height, width = (net.dim(net.shape(head), k) for k in (2, 3))
    head = net.add("Transpose", net.reshape(head, 1, anchors, 5, height, width), perm=[0, 3, 4, 1, 2])
    xs = net.add("Unsqueeze", _range(net, width), net.constant([0]))
    ys = net.add("Unsqueeze", _range(net, height), net.constant([1]))
    whole = net.pack(height, width)
    parts = [net.add("Unsqueeze", net.add("Expand", g, whole), net.constant([2])) for g in (xs, ys)]
    grid = net.add("Cast", net.add("Concat", *parts, axis=2), to=FLOAT)
    grid = net.reshape(grid, 1, height, width, 1, 2)

    def part(begin: int, end: int) -> str:
        return net.add("Slice", head, net.constant([begin]), net.constant([end]), net.constant([4]))

    two = net.constant(2, "float32")
    centre = net.add("Mul", net.add("Add", net.add("Sigmoid", part(0, 2)), grid), two)
    half = net.add("Mul", net.add("Exp", part(2, 4)), two)
    boxes = net.add("Concat", net.add("Sub", centre, half), net.add("Add", centre, half), axis=4)
    count = net.add("Mul", net.add("Mul", height, width), net.constant(anchors, "int32"))
    boxes, scores = net.reshape(boxes, count, 4), net.reshape(net.add("Sigmoid", part(4, 5)), count)
    kept = net.add("Unsqueeze", net.add("Min", count, net.constant(most, "int32")), net.constant([0]))
    best = net.add("TopK", scores, net.add("Cast", kept, to=INT64), outputs=2)
    chosen = net.add("Unsqueeze", net.add("Gather", boxes, f"{best}.1"), net.constant([0]))
    values = net.add("Unsqueeze", best, net.constant([0, 1]))
    limits = net.constant([10]), net.constant([0.5], "float32"), net.constant([0.1], "float32")
    found = net.add("NonMaxSuppression", chosen, values, *limits)
    index = net.add("Squeeze", net.add("Gather", found, net.constant([2]), axis=1), net.constant([1]))
    return net.model(best, net.add("Gather", chosen, index, axis=1), boxes)


def _floats(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


def _tokens(rng: np.random.Generator, batch: int, length: int) -> dict[str, Array]:
    mask = np.arange(length)[None] < rng.integers(1, length + 1, (batch, 1))
    return {"input_ids": rng.integers(0, 50, (batch, length), np.int32), "attention_mask": mask.astype(np.int32)}


Feeds = Callable[[np.random.Generator], dict[str, Array]]
MODELS: dict[str, tuple[Callable[[], onnx.ModelProto], list[Feeds]]] = {
    "keras network": (
        keras_network,
        [lambda r, s=s: {"image": _floats(r, *s, 3)} for s in ((1, 16, 16), (3, 9, 14), (2, 33, 4))],  # type: ignore[misc]
    ),
    "BERT": (bert, [lambda r, s=s: _tokens(r, *s) for s in ((1, 1), (2, 7), (3, 32))]),  # type: ignore[misc]
    "audio": (audio, [lambda r, s=s: {"signal": _floats(r, *s)} for s in ((1, 8), (2, 100), (3, 257))]),  # type: ignore[misc]
    "detector": (
        detector, [lambda r, s=s: {"image": _floats(r, 1, 3, *s)} for s in ((16, 16), (32, 20), (7, 41))],  # type: ignore[misc]
    ),
}  # fmt: skip
