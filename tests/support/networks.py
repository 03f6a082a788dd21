"""Whole networks made here, with seeded weights: SqueezeNet, MobileNetV2, a U-Net and a transformer of two layers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from tests.support.models import Shape, model, node, with_types

Array = np.ndarray[Any, Any]


class Network:
    """A network under construction: each method adds a layer to what is named last."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, Array] = {}

    def weight(self, *shape: int, scale: float | None = None) -> str:
        """Normal numbers, by He's rule unless told otherwise."""
        scale = np.sqrt(2.0 / np.prod(shape[1:])) if scale is None else scale
        return self.constant(self.rng.standard_normal(shape) * scale)

    def constant(self, array: Array, dtype: Any = np.float32) -> str:
        name = f"w{len(self.weights)}"
        self.weights[name] = np.asarray(array).astype(dtype)
        return name

    def add(self, op: str, inputs: str, **attributes: Any) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(node(op, inputs, name, **attributes))
        return name

    def conv(self, x: str, cin: int, cout: int, k: int, stride: int = 1, group: int = 1, act: bool = True) -> str:
        """Convolution, batch norm and ReLU6."""
        pads = [k // 2] * 4
        w = self.weight(cout, cin // group, k, k)
        y = self.add("Conv", f"{x} {w}", kernel_shape=[k, k], strides=[stride] * 2, pads=pads, group=group)
        scale, bias, mean, variance = (self.constant(self.rng.uniform(0.5, 1.5, cout)) for _ in range(4))
        y = self.add("BatchNormalization", f"{y} {scale} {bias} {mean} {variance}")
        if not act:
            return y
        return self.add("Clip", f"{y} {self.constant(np.array(0.0))} {self.constant(np.array(6.0))}")

    def linear(self, x: str, cin: int, cout: int) -> str:
        product = self.add("MatMul", f"{x} {self.weight(cin, cout, scale=cin**-0.5)}")
        return self.add("Add", f"{product} {self.weight(cout, scale=0.1)}")

    def norm(self, x: str, size: int) -> str:
        scale, bias = self.constant(self.rng.uniform(0.5, 1.5, size)), self.weight(size, scale=0.1)
        return self.add("LayerNormalization", f"{x} {scale} {bias}", axis=-1)


MOBILENET = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]


def mobilenet_v2(size: int = 224) -> onnx.ModelProto:
    """MobileNetV2 for images of `size` x `size`."""
    n = Network()
    x, cin = n.conv("x", 3, 32, 3, 2), 32
    for expand, cout, count, stride in MOBILENET:
        for k in range(count):
            wide, step = cin * expand, stride if k == 0 else 1
            y = n.conv(x, cin, wide, 1) if expand > 1 else x
            y = n.conv(n.conv(y, wide, wide, 3, step, wide), wide, cout, 1, act=False)
            x = n.add("Add", f"{x} {y}") if step == 1 and cin == cout else y
            cin = cout
    x = n.add("Flatten", n.add("GlobalAveragePool", n.conv(x, cin, 1280, 1)))
    n.nodes.append(node("Gemm", f"{x} {n.weight(1000, 1280)} {n.weight(1000, scale=0.1)}", "y", transB=1))
    return with_types(model(n.nodes, {"x": [1, 3, size, size]}, ["y"], n.weights))


def transformer(width: int = 64, heads: int = 4, layers: int = 2) -> onnx.ModelProto:
    """An encoder over x[batch, seq, width] with a mask of positions, spelt out as exporters do."""
    n = Network()
    x, depth = "x", width // heads
    split = n.constant(np.array([0, 0, heads, depth]), np.int64)
    whole = n.constant(np.array([0, 0, width]), np.int64)
    scale = n.constant(np.array(depth**-0.5))
    for _ in range(layers):
        h = n.norm(x, width)
        parts = [n.add("Reshape", f"{n.linear(h, width, width)} {split}") for _ in range(3)]
        order = ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
        q, k, v = (n.add("Transpose", p, perm=perm) for p, perm in zip(parts, order, strict=True))
        product = n.add("MatMul", f"{q} {k}")
        scores = n.add("Add", f"{n.add('Mul', f'{product} {scale}')} mask")
        mixed = n.add("MatMul", f"{n.add('Softmax', scores, axis=-1)} {v}")
        mixed = n.add("Reshape", f"{n.add('Transpose', mixed, perm=[0, 2, 1, 3])} {whole}")
        x = n.add("Add", f"{x} {n.linear(mixed, width, width)}")
        y = n.add("Gelu", n.linear(n.norm(x, width), width, 4 * width))
        x = n.add("Add", f"{x} {n.linear(y, 4 * width, width)}")
    n.nodes.append(node("Identity", n.norm(x, width), "y"))
    shapes: dict[str, Shape] = {"x": ["batch", "seq", width], "mask": ["batch", 1, 1, "seq"]}
    return with_types(model(n.nodes, shapes, ["y"], n.weights))


def unet(mode: str = "linear", size: int | None = None, width: int = 16, levels: int = 3) -> onnx.ModelProto:
    """A U-Net of images whose height and width a run says, or `size`; upsampled by 2, then to what it is joined to."""
    n = Network()
    x, cin, skips = "x", 3, list[tuple[str, int]]()
    for level in range(levels):
        x = n.conv(n.conv(x, cin, width << level, 3), width << level, width << level, 3)
        skips.append((x, cin := width << level))
        x = n.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = n.conv(x, cin, cin * 2, 3)
    cin *= 2
    twice, batch = n.constant(np.array([1, 1, 2, 2])), n.constant(np.array([1]), np.int64)
    more = {"coordinate_transformation_mode": "half_pixel"} if mode != "nearest" else {
        "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor",
    }  # fmt: skip
    for k, (skip, channels) in enumerate(reversed(skips)):
        if k % 2:
            plane = n.add("Shape", skip, start=2)
            shape = n.add("Concat", f"{batch} {n.constant(np.array([cin]), np.int64)} {plane}", axis=0)
            x = n.add("Resize", f"{x} _ _ {shape}", mode=mode, **more)
        else:
            x = n.add("Resize", f"{x} _ {twice}", mode=mode, **more)
        x = n.add("Concat", f"{skip} {x}", axis=1)
        x, cin = n.conv(n.conv(x, cin + channels, channels, 3), channels, channels, 3), channels
    n.nodes.append(node("Conv", f"{x} {n.weight(1, cin, 1, 1)}", "y"))
    return with_types(model(n.nodes, {"x": [1, 3, size or "height", size or "width"]}, ["y"], n.weights))


def squeezenet() -> onnx.ModelProto:
    """SqueezeNet as the onnx package has it, its constant weights replaced by random ones."""
    made = onnx.load(Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / "light_squeezenet.onnx")
    graph, rng = made.graph, np.random.default_rng(0)
    shapes = {i.name: numpy_helper.to_array(i) for i in graph.initializer}
    used = {item.input[0] for item in graph.node if item.op_type == "ConstantOfShape"}
    kept, weights = [], [i for i in graph.initializer if i.name not in used]
    for item in graph.node:
        if item.op_type != "ConstantOfShape":
            kept.append(item)
            continue
        shape = [int(d) for d in shapes[item.input[0]]]
        value = rng.standard_normal(shape) * np.sqrt(2.0 / np.prod(shape[1:] or shape))
        weights.append(numpy_helper.from_array(value.astype(np.float32), item.output[0]))
    inputs = [i for i in graph.input if i.name not in shapes]
    for field, values in ((graph.node, kept), (graph.initializer, weights), (graph.input, inputs)):
        del field[:]
        field.extend(values)
    made.ir_version = 10
    return made
