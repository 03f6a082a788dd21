#!/usr/bin/env python3
"""Trains the sample model: a small residual CNN on the 8x8 handwritten digits that come with scikit-learn.

Nobody needs to run this: its results are committed. To make them again (about a minute on one core):

    pip install numpy onnx scikit-learn
    python samples/train_digits.py

It writes, beside itself,

* ``digits.onnx``: opset 17, input ``image`` f32 [batch, 1, 8, 8] with grey values in [0, 1], output ``probability``
  f32 [batch, 10]. Batch norms, activations and the residual stand as nodes of their own, as a training framework
  exports them, so that the compiler has something to fuse.
* ``digits_test.npz``: the held-back quarter of the data, ``images`` f32 [n, 1, 8, 8] and ``labels`` i64 [n]. Training
  never sees it: the script trains for a fixed number of steps and only then measures.
* ``digits_train.npz``: the rest, likewise, for samples that train.

The network and its gradients are written out in numpy, so the script needs no framework. The seed is fixed; another
BLAS may round differently and so give other weights of the same quality.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

Array = NDArray[np.float32]

SEED = 7
EPOCHS = 40
BATCH = 64
PEAK_RATE = 3e-3
REQUIRED_ACCURACY = 0.97
HERE = Path(__file__).resolve().parent


class Layer:
    """Forward keeps what backward needs; backward fills ``grads`` (same keys as ``params``) and returns dx."""

    def __init__(self) -> None:
        self.params: dict[str, Array] = {}
        self.grads: dict[str, Array] = {}

    def forward(self, x: Array, training: bool) -> Array:
        raise AssertionError("a layer overrides this")

    def backward(self, dy: Array) -> Array:
        raise AssertionError("a layer overrides this")


class Conv(Layer):
    """3x3 convolution, stride 1, padding 1, no bias (the batch norm after it has one); [n, c, h, w] to [n, o, h, w]."""

    def __init__(self, rng: np.random.Generator, inputs: int, outputs: int) -> None:
        super().__init__()
        scale = np.sqrt(2 / (9 * inputs))  # He et al. 2015, eq. 10
        self.params["w"] = rng.normal(0, scale, (outputs, inputs, 3, 3)).astype(np.float32)

    def forward(self, x: Array, training: bool) -> Array:
        n, c, h, w = x.shape
        padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
        self.columns = windows.transpose(0, 2, 3, 1, 4, 5).reshape(n * h * w, c * 9)
        self.shape = x.shape
        y = self.columns @ self.params["w"].reshape(-1, c * 9).T
        return y.reshape(n, h, w, -1).transpose(0, 3, 1, 2)

    def backward(self, dy: Array) -> Array:
        n, c, h, w = self.shape
        rows = dy.transpose(0, 2, 3, 1).reshape(n * h * w, -1)
        weight = self.params["w"]
        self.grads["w"] = (rows.T @ self.columns).reshape(weight.shape)
        taps = (rows @ weight.reshape(-1, c * 9)).reshape(n, h, w, c, 3, 3)
        dx = np.zeros((n, c, h + 2, w + 2), np.float32)
        for i in range(3):
            for j in range(3):
                dx[:, :, i : i + h, j : j + w] += taps[..., i, j].transpose(0, 3, 1, 2)
        return dx[:, :, 1:-1, 1:-1]


class BatchNorm(Layer):
    """Batch normalisation over n, h, w (Ioffe and Szegedy 2015); running statistics are kept for the export."""

    epsilon = 1e-5

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.params = {"scale": np.ones(channels, np.float32), "bias": np.zeros(channels, np.float32)}
        self.mean, self.var = np.zeros(channels, np.float32), np.ones(channels, np.float32)

    def forward(self, x: Array, training: bool) -> Array:
        mean, var = (x.mean((0, 2, 3)), x.var((0, 2, 3))) if training else (self.mean, self.var)
        if training:
            self.mean = 0.9 * self.mean + 0.1 * mean
            self.var = 0.9 * self.var + 0.1 * var
        self.invstd = (1 / np.sqrt(var + self.epsilon))[:, None, None]
        self.normal = (x - mean[:, None, None]) * self.invstd
        return self.params["scale"][:, None, None] * self.normal + self.params["bias"][:, None, None]

    def backward(self, dy: Array) -> Array:
        self.grads["bias"] = dy.sum((0, 2, 3))
        self.grads["scale"] = (dy * self.normal).sum((0, 2, 3))
        count = np.float32(dy.shape[0] * dy.shape[2] * dy.shape[3])
        centred = dy - (self.grads["bias"][:, None, None] + self.normal * self.grads["scale"][:, None, None]) / count
        return self.params["scale"][:, None, None] * self.invstd * centred


class Relu(Layer):
    """max(x, 0)."""

    def forward(self, x: Array, training: bool) -> Array:
        self.positive = x > 0
        return x * self.positive

    def backward(self, dy: Array) -> Array:
        return dy * self.positive


class MaxPool(Layer):
    """2x2 maximum, stride 2; a tie shares the gradient."""

    def forward(self, x: Array, training: bool) -> Array:
        n, c, h, w = x.shape
        tiles = x.reshape(n, c, h // 2, 2, w // 2, 2)
        y = tiles.max((3, 5))
        self.winners = tiles == y[:, :, :, None, :, None]
        return y

    def backward(self, dy: Array) -> Array:
        n, c, h, w = dy.shape
        share = self.winners / self.winners.sum((3, 5), keepdims=True)
        return (share * dy[:, :, :, None, :, None]).reshape(n, c, 2 * h, 2 * w).astype(np.float32)


class Linear(Layer):
    """[n, ...] flattened, times w [features, outputs], plus b [outputs]."""

    def __init__(self, rng: np.random.Generator, features: int, outputs: int) -> None:
        super().__init__()
        self.params["w"] = rng.normal(0, np.sqrt(1 / features), (features, outputs)).astype(np.float32)
        self.params["b"] = np.zeros(outputs, np.float32)

    def forward(self, x: Array, training: bool) -> Array:
        self.shape, self.rows = x.shape, x.reshape(len(x), -1)
        return self.rows @ self.params["w"] + self.params["b"]

    def backward(self, dy: Array) -> Array:
        self.grads = {"w": self.rows.T @ dy, "b": dy.sum(0)}
        return (dy @ self.params["w"].T).reshape(self.shape)


class Network:
    """conv-bn-relu, conv-bn-relu, pool, conv-bn-add-relu (the pooled value is added), pool, linear: logits [n, 10]."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.convs = [Conv(rng, 1, 16), Conv(rng, 16, 32), Conv(rng, 32, 32)]
        self.norms = [BatchNorm(16), BatchNorm(32), BatchNorm(32)]
        self.linear = Linear(rng, 32 * 2 * 2, 10)
        stem = [self.convs[0], self.norms[0], Relu(), self.convs[1], self.norms[1], Relu(), MaxPool()]
        self.stem: list[Layer] = stem
        self.branch: list[Layer] = [self.convs[2], self.norms[2]]
        self.head: list[Layer] = [Relu(), MaxPool(), self.linear]
        self.layers = [*self.stem, *self.branch, *self.head]

    def forward(self, x: Array, training: bool = False) -> Array:
        for layer in self.stem:
            x = layer.forward(x, training)
        skip = x
        for layer in self.branch:
            x = layer.forward(x, training)
        x = x + skip
        for layer in self.head:
            x = layer.forward(x, training)
        return x

    def backward(self, dy: Array) -> None:
        for layer in reversed(self.head):
            dy = layer.backward(dy)
        skip = dy
        for layer in reversed(self.branch):
            dy = layer.backward(dy)
        dy = dy + skip
        for layer in reversed(self.stem):
            dy = layer.backward(dy)


class Adam:
    """Kingma and Ba 2015, algorithm 1, with decoupled weight decay on arrays of rank 2 and more."""

    def __init__(self, layers: list[Layer]) -> None:
        self.layers = layers
        self.moments = [{k: (np.zeros_like(p), np.zeros_like(p)) for k, p in la.params.items()} for la in layers]
        self.step_number = 0

    def step(self, rate: float) -> None:
        self.step_number += 1
        unbias = np.sqrt(1 - 0.999**self.step_number) / (1 - 0.9**self.step_number)
        for layer, moments in zip(self.layers, self.moments, strict=True):
            for key, p in layer.params.items():
                m, v = moments[key]
                m += 0.1 * (layer.grads[key] - m)
                v += 0.001 * (layer.grads[key] ** 2 - v)
                decay = 1e-2 if p.ndim > 1 else 0.0
                p -= np.float32(rate) * (np.float32(unbias) * m / (np.sqrt(v) + 1e-8) + np.float32(decay) * p)


def shifted(images: Array, rng: np.random.Generator) -> Array:
    """Each image moved by -1, 0 or 1 pixels either way; what enters at a border is blank."""
    padded = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))
    moved = np.empty_like(images)
    for i, (dy, dx) in enumerate(rng.integers(0, 3, (len(images), 2))):
        moved[i] = padded[i, :, dy : dy + 8, dx : dx + 8]
    return moved


def train(images: Array, labels: NDArray[np.int64]) -> Network:
    """Cross-entropy, Adam, a rate that rises for a tenth of the steps and then falls as a cosine."""
    rng = np.random.default_rng(SEED)
    network = Network(rng)
    adam = Adam(network.layers)
    per_epoch = len(images) // BATCH
    total = EPOCHS * per_epoch
    for epoch in range(EPOCHS):
        order, loss = rng.permutation(len(images)), 0.0
        for i in range(per_epoch):
            chosen = order[i * BATCH : (i + 1) * BATCH]
            logits = network.forward(shifted(images[chosen], rng), training=True)
            logp = logits - logits.max(1, keepdims=True)
            logp = logp - np.log(np.exp(logp).sum(1, keepdims=True))
            target = np.eye(10, dtype=np.float32)[labels[chosen]]
            loss -= float((logp * target).sum()) / BATCH / per_epoch
            network.backward((np.exp(logp) - target) / np.float32(BATCH))
            t = (epoch * per_epoch + i + 1) / total
            adam.step(PEAK_RATE * (t / 0.1 if t < 0.1 else 0.5 * (1 + np.cos(np.pi * (t - 0.1) / 0.9))))
        print(f"epoch {epoch + 1:2}/{EPOCHS}  loss {loss:.4f}", flush=True)
    return network


def export(network: Network) -> onnx.ModelProto:
    """The trained network as ONNX, one node for each step."""
    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []

    def weight(name: str, array: Array) -> str:
        weights.append(numpy_helper.from_array(np.ascontiguousarray(array, np.float32), name))
        return name

    def node(op: str, inputs: list[str], output: str, **attributes: object) -> str:
        nodes.append(helper.make_node(op, inputs, [output], name=f"{op.lower()}_{output}", **attributes))
        return output

    def conv_norm(i: int, x: str) -> str:
        conv, norm = network.convs[i], network.norms[i]
        kernel = weight(f"conv{i}.weight", conv.params["w"])
        y = node("Conv", [x, kernel], f"conv{i}", kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[1, 1])
        arrays = {"scale": norm.params["scale"], "bias": norm.params["bias"], "mean": norm.mean, "var": norm.var}
        names = [weight(f"norm{i}.{key}", array) for key, array in arrays.items()]
        return node("BatchNormalization", [y, *names], f"norm{i}", epsilon=norm.epsilon)

    pool = {"kernel_shape": [2, 2], "strides": [2, 2]}
    x = node("Relu", [conv_norm(0, "image")], "relu0")
    x = node("Relu", [conv_norm(1, x)], "relu1")
    skip = node("MaxPool", [x], "pool1", **pool)
    x = node("Relu", [node("Add", [conv_norm(2, skip), skip], "sum2")], "relu2")
    x = node("Flatten", [node("MaxPool", [x], "pool2", **pool)], "features", axis=1)
    names = [weight("linear.weight", network.linear.params["w"]), weight("linear.bias", network.linear.params["b"])]
    x = node("Gemm", [x, *names], "logits")
    node("Softmax", [x], "probability", axis=1)
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 1, 8, 8])
    probability = helper.make_tensor_value_info("probability", TensorProto.FLOAT, ["batch", 10])
    graph = helper.make_graph(nodes, "digits", [image], [probability], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], producer_name="train_digits.py")
    model.ir_version = 8  # the IR version that came with opset 17, so that old readers take the file too
    onnx.checker.check_model(model, full_check=True)
    return model


def main() -> None:
    """Train, measure on the held-back images, write both files."""
    digits = load_digits()
    images = (digits.images / 16).astype(np.float32)[:, None]
    labels = digits.target.astype(np.int64)
    split = train_test_split(images, labels, test_size=0.25, random_state=SEED, stratify=labels)
    train_images, test_images, train_labels, test_labels = split
    network = train(train_images, train_labels)
    accuracy = float((network.forward(test_images).argmax(1) == test_labels).mean())
    print(f"accuracy on {len(test_labels)} held-back images: {accuracy:.4f}")
    if accuracy < REQUIRED_ACCURACY:
        raise SystemExit(f"accuracy is below {REQUIRED_ACCURACY}: nothing written")
    onnx.save(export(network), HERE / "digits.onnx")
    np.savez_compressed(HERE / "digits_test.npz", images=test_images, labels=test_labels)
    np.savez_compressed(HERE / "digits_train.npz", images=train_images, labels=train_labels)


if __name__ == "__main__":
    main()
