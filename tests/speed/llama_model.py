"""A model of Llama's layers, as large as one asks for, and models of files whose weights are drawn."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from tests.support.models import model, node


def read_model(file: Path) -> onnx.ModelProto:
    """A model; weights of f32 that its file only has shapes of are drawn, as GPT-2's are before it is trained."""
    found = onnx.load(file)
    rng = np.random.default_rng(3)
    for tensor in found.graph.initializer:
        if (
            tensor.data_type == onnx.TensorProto.FLOAT
            and not (tensor.raw_data or tensor.float_data)
            and 0 not in tensor.dims
        ):
            drawn = rng.standard_normal(tuple(tensor.dims), np.float32) * np.float32(0.02)
            tensor.CopyFrom(numpy_helper.from_array(drawn, tensor.name))
    return found


@dataclass(frozen=True)
class Llama:
    """Sizes of a model: its layers, their width within and between them, and the width of a head."""

    layers: int
    width: int
    inner: int
    depth: int
    rows: int
    dtype: Any

    @property
    def heads(self) -> int:
        """How many there are."""
        return self.width // self.depth

    def make(self) -> onnx.ModelProto:
        """The model: what comes out of its layers for a sequence of vectors, each of which sees those before it."""
        rng = np.random.default_rng(1)

        def weight(rows: int, columns: int) -> Any:
            return (rng.standard_normal((rows, columns), np.float32) / rows**0.5).astype(self.dtype)

        shapes = dict.fromkeys("qkvo", (self.width, self.width))
        shapes |= {"gate": (self.width, self.inner), "up": (self.width, self.inner), "down": (self.inner, self.width)}
        drawn = {name: weight(*shape) for name, shape in shapes.items()}
        angles = np.outer(np.arange(self.rows), 10000.0 ** (-np.arange(self.depth // 2) / (self.depth // 2)))
        constants: dict[str, Any] = {
            "heads": np.array([0, 0, self.heads, self.depth]), "together": np.array([0, 0, self.width]),
            "cos": np.cos(np.hstack([angles, angles])).astype(self.dtype),
            "sin": np.sin(np.hstack([angles, angles])).astype(self.dtype),
            "mask": np.triu(np.full((self.rows, self.rows), -10000.0), 1).astype(self.dtype),
            "factor": np.array(self.depth**-0.5, self.dtype), "scale": np.ones(self.width, self.dtype),
            "zero": np.array([0]), "half": np.array([self.depth // 2]), "all": np.array([self.depth]),
            "last": np.array([3]),
        }  # fmt: skip
        nodes, x = [], "x"
        for k in range(self.layers):
            constants |= {f"{k}.{n}": np.roll(w, 7919 * k, axis=1) for n, w in drawn.items()}  # no two are equal
            nodes += self._layer(k, x)
            x = f"y{k}" if k < self.layers - 1 else "y"
        shape = (1, self.rows, self.width)
        return model(nodes, {"x": (self.dtype, shape)}, ["y"], constants, opset=23)

    def _layer(self, k: int, x: str) -> list[onnx.NodeProto]:
        y = f"y{k}" if k < self.layers - 1 else "y"
        lines = [node("RMSNormalization", f"{x} scale", f"n{k}", axis=-1)]
        for n in "qkv":
            lines += [node("MatMul", f"n{k} {k}.{n}", f"{n}a{k}"), node("Reshape", f"{n}a{k} heads", f"{n}b{k}"),
                      node("Transpose", f"{n}b{k}", f"{n}c{k}", perm=[0, 2, 1, 3])]  # fmt: skip
        for n in "qk":
            c = f"{n}c{k}"
            lines += [
                node("Slice", f"{c} half all last", f"{n}d{k}"), node("Neg", f"{n}d{k}", f"{n}e{k}"),
                node("Slice", f"{c} zero half last", f"{n}f{k}"),
                node("Concat", f"{n}e{k} {n}f{k}", f"{n}g{k}", axis=3),
                node("Mul", f"{c} cos", f"{n}h{k}"), node("Mul", f"{n}g{k} sin", f"{n}i{k}"),
                node("Add", f"{n}h{k} {n}i{k}", f"{n}j{k}"),
            ]  # fmt: skip
        return [
            *lines,
            node("Transpose", f"kj{k}", f"kt{k}", perm=[0, 1, 3, 2]), node("MatMul", f"qj{k} kt{k}", f"s{k}"),
            node("Mul", f"s{k} factor", f"t{k}"), node("Add", f"t{k} mask", f"u{k}"),
            node("Softmax", f"u{k}", f"p{k}", axis=-1), node("MatMul", f"p{k} vc{k}", f"m{k}"),
            node("Transpose", f"m{k}", f"ma{k}", perm=[0, 2, 1, 3]), node("Reshape", f"ma{k} together", f"mb{k}"),
            node("MatMul", f"mb{k} {k}.o", f"o{k}"), node("Add", f"o{k} {x}", f"r{k}"),
            node("RMSNormalization", f"r{k} scale", f"rn{k}", axis=-1),
            node("MatMul", f"rn{k} {k}.gate", f"g{k}"), node("MatMul", f"rn{k} {k}.up", f"w{k}"),
            node("Sigmoid", f"g{k}", f"ga{k}"), node("Mul", f"g{k} ga{k}", f"gb{k}"),
            node("Mul", f"gb{k} w{k}", f"gc{k}"), node("MatMul", f"gc{k} {k}.down", f"d{k}"),
            node("Add", f"d{k} r{k}", y),
        ]  # fmt: skip
