#!/usr/bin/env python3
"""Fine-tunes the last blocks of a network of MobileNetV2's blocks on pictures, and runs it while it learns.

    python samples/fine_tune.py [STEPS]

The network was made for pictures in general: its first blocks stay as they are, the last ones and the classifier learn
to tell discs, squares and crosses, which this program draws. (Its first weights are random here, so that nothing has to
be downloaded; of a network from PyTorch the patterns below name other weights.)
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import torshc

Array = NDArray[np.float32]

SEED, BATCH, SIZE, STEPS = 5, 32, 32, 300
KINDS = ("disc", "square", "cross")
BLOCKS = ((16, 2), (24, 2), (24, 1), (32, 2), (32, 1))  # channels and stride
STEP = """\
weights: ["block2.*", "block3.*", "block4.*", "last.*", "classifier.*"]
loss: cross_entropy
optimizer:
  adamw: {learning_rate: input}
weight_decay: 0.01
clip_norm: 5
"""


class Network:
    """Nodes and weights of a model, one behind the other."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng, self.nodes, self.weights = rng, list[onnx.NodeProto](), list[onnx.TensorProto]()

    def weight(self, name: str, array: NDArray[np.floating]) -> str:
        self.weights.append(numpy_helper.from_array(array.astype(np.float32), name))
        return name

    def node(self, kind: str, name: str, *inputs: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(kind, inputs, [f"{name}.y"], name, **attributes))
        return f"{name}.y"

    def conv(self, name: str, x: str, shape: tuple[int, ...], stride: int = 1, *, act: bool = True) -> str:
        """A convolution, its normalisation, and ReLU6; in as many groups as channels where its filters have one."""
        filters = self.rng.standard_normal(shape) * math.sqrt(2 / math.prod(shape[1:]))
        group, edge = (shape[0] if shape[1] == 1 else 1), shape[2] // 2
        x = self.node(
            "Conv", f"{name}.conv", x, self.weight(f"{name}.weight", filters),
            strides=[stride] * 2, pads=[edge] * 4, group=group,
        )  # fmt: skip
        first = {"scale": np.ones, "bias": np.zeros, "mean": np.zeros, "var": np.ones}
        names = [self.weight(f"{name}.{n}", make(shape[0])) for n, make in first.items()]
        x = self.node("BatchNormalization", f"{name}.norm", x, *names)
        return self.node("Clip", f"{name}.relu6", x, "zero", "six") if act else x

    def block(self, name: str, x: str, inputs: int, outputs: int, stride: int) -> str:
        """An inverted residual: four times as many channels, a filter for each, and few channels again."""
        wide = 4 * inputs
        y = self.conv(f"{name}.expand", x, (wide, inputs, 1, 1))
        y = self.conv(f"{name}.filter", y, (wide, 1, 3, 3), stride)
        y = self.conv(f"{name}.project", y, (outputs, wide, 1, 1), act=False)
        return self.node("Add", f"{name}.add", x, y) if stride == 1 and inputs == outputs else y


def network() -> onnx.ModelProto:
    """Pictures f32 [batch, 3, 32, 32] -> f32 [batch, 3], which kind each is."""
    net = Network(np.random.default_rng(SEED))
    for name, bound in (("zero", 0.0), ("six", 6.0)):
        net.weight(name, np.array(bound))
    x, channels = net.conv("first", "picture", (16, 3, 3, 3)), 16
    for k, (outputs, stride) in enumerate(BLOCKS):
        x, channels = net.block(f"block{k}", x, channels, outputs, stride), outputs
    x = net.node("GlobalAveragePool", "pool", net.conv("last", x, (64, channels, 1, 1)))
    x = net.node("Flatten", "flat", x)
    filters = net.weight("classifier.weight", net.rng.standard_normal((64, len(KINDS))) * 0.1)
    x = net.node("Gemm", "classifier", x, filters, net.weight("classifier.bias", np.zeros(len(KINDS))))
    shape: list[str | int] = ["batch", 3, SIZE, SIZE]
    graph = helper.make_graph(
        net.nodes, "pictures", [helper.make_tensor_value_info("picture", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, [shape[0], len(KINDS)])], net.weights,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def draw(rng: np.random.Generator, count: int) -> tuple[Array, NDArray[np.int64]]:
    """Pictures of a shape of any colour and size, anywhere, on noise of another colour; and which shape it is."""
    kinds = rng.integers(0, len(KINDS), count)
    rows, columns = np.mgrid[0:SIZE, 0:SIZE]
    pictures = rng.uniform(0, 1, (count, 3, 1, 1)) + 0.05 * rng.standard_normal((count, 3, SIZE, SIZE))
    for picture, kind in zip(pictures, kinds, strict=True):
        radius = rng.uniform(7, 12)
        y, x = (np.abs(axis - rng.uniform(radius, SIZE - radius)) for axis in (rows, columns))
        inside = {
            "disc": y**2 + x**2 <= radius**2,
            "square": np.maximum(y, x) <= 0.85 * radius,
            "cross": (np.minimum(y, x) <= 0.3 * radius) & (np.maximum(y, x) <= radius),
        }[KINDS[kind]]
        picture[:, inside] += rng.choice((-1, 1)) * rng.uniform(0.5, 1, (3, 1))
    return pictures.astype(np.float32), kinds


def main(steps: int) -> None:
    """Train, and now and then count right answers among pictures that were not learned."""
    rng = np.random.default_rng(SEED)
    pictures, kinds = draw(rng, 300)
    with TemporaryDirectory() as folder:
        (Path(folder) / "step.yaml").write_text(STEP)
        torshc.compile(
            network(), Path(folder) / "pictures.tsc", train=Path(folder) / "step.yaml",
            serve_while_training=True,
        )  # fmt: skip
        with torshc.load(Path(folder) / "pictures.tsc") as trained, trained.serve() as served:
            for k in range(steps):
                batch, targets = draw(rng, BATCH)
                rate = np.array(0.01 * 0.5 * (1 + math.cos(math.pi * k / steps)), np.float32)
                loss = float(trained.step({"picture": batch, "target": targets, "learning_rate": rate})["loss"])
                if k % 50 == 0 or k == steps - 1:
                    trained.publish()
                    right = float((served(pictures)[0].argmax(1) == kinds).mean())
                    print(f"step {k + 1:3} of {steps}: loss {loss:.3f}, {right:.0%} of other pictures", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else STEPS)
