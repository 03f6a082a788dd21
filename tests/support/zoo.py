"""Small models over all kinds of kernels, with sizes that leave tails in every loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from tests.support.models import Shape, model, node, with_types

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Specimen:
    """A model with the shapes of its inputs, one set for each run.

    Attributes:
        ints: inputs that hold integers, with their bound.
        rtol: what results may differ by; products of f16 are not rounded to f16 while they stay in registers.
    """

    model: onnx.ModelProto
    shapes: tuple[dict[str, tuple[int, ...]], ...]
    ints: dict[str, int]
    rtol: float = 2e-5

    def feeds(self, run: int, seed: int = 0) -> dict[str, Array]:
        """Random inputs of a run, the same each time."""
        rng = np.random.default_rng(seed + run)
        out: dict[str, Array] = {}
        for name, shape in self.shapes[run].items():
            if name in self.ints:
                out[name] = rng.integers(-self.ints[name], self.ints[name], shape)
            else:
                out[name] = np.asarray(rng.standard_normal(shape), np.float32)
        return out


def _weights(**shapes: tuple[int, ...]) -> dict[str, Array]:
    rng = np.random.default_rng(7)
    return {n: (rng.standard_normal(s) * 0.5).astype(np.float32) for n, s in shapes.items()}


def _make(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, Shape],
    outputs: str,
    *shapes: dict[str, tuple[int, ...]],
    weights: dict[str, Array] | None = None,
    ints: dict[str, int] | None = None,
    rtol: float = 2e-5,
) -> Specimen:
    ints = ints or {}
    likes = {n: ("int64" if n in ints else "float32", list(s)) for n, s in inputs.items()}
    made = with_types(model(nodes, likes, outputs, weights))
    static = {n: tuple(d for d in s if isinstance(d, int)) for n, s in inputs.items()}
    return Specimen(made, shapes or (static,), ints, rtol)


def zoo() -> dict[str, Specimen]:
    """Specimens by name."""
    parts = (_loops(), _sizes(), _reductions(), _products(), _convolutions(), _networks())
    return {name: specimen for part in parts for name, specimen in part.items()}


def _loops() -> dict[str, Specimen]:
    """Loops over elements, and views."""
    return {
        "map": _make(
            [node("Sigmoid", "x", "a"), node("Mul", "a b", "c"), node("Erf", "c", "y"), node("Pow", "a c", "z")],
            {"x": ["n", 5, 13], "b": [13]},
            "y z",
            *({"x": (n, 5, 13), "b": (13,)} for n in (0, 1, 2, 7)),
        ),
        "functions": _make(
            [
                *(node(f, "x", f"o{k}") for k, f in enumerate(("Exp", "Tanh", "Sin", "Atan", "Softplus", "Round"))),
                node("Mod", "x b", "m", fmod=1), node("Floor", "m", "o6"), node("IsNaN", "x", "q"),
                node("Where", "q b x", "o7"),
            ],
            {"x": [3, 11], "b": [3, 11]},
            "o0 o1 o2 o3 o4 o5 o6 o7",
        ),
        "views": _make(
            [
                node("Transpose", "x", "t", perm=[2, 0, 1]), node("Pad", "t pads", "p", mode="reflect"),
                node("Slice", "p starts ends axes steps", "s"), node("Concat", "s s", "c", axis=1),
                node("Neg", "c", "y"),
            ],
            {"x": ["n", 5, 9]},
            "y",
            *({"x": (n, 5, 9)} for n in (2, 7)),
            weights={
                "pads": np.array([1, 0, 2, 3, 0, 1]), "starts": np.array([9]), "ends": np.array([-99]),
                "axes": np.array([2]), "steps": np.array([-2]),
            },
        ),
        "gather": _make(
            [node("Gather", "x i", "g", axis=1), node("GatherElements", "x i2", "h", axis=0), node("Relu", "g", "y")],
            {"x": [6, 11], "i": [3], "i2": [4, 11]},
            "y h",
            ints={"i": 11, "i2": 6},
        ),
    }  # fmt: skip


def _sizes() -> dict[str, Specimen]:
    """Sizes that take several steps to compute, and no sizes at all."""
    return {
        "sizes of many steps": _make(
            [
                n
                for k in range(7)
                for n in (
                    node("MaxPool", f"x{k}", f"p{k}", kernel_shape=[2], strides=[2], pads=[1, 1]),
                    node("Concat", f"x{k} p{k}", f"c{k}", axis=2),
                    node("Cos", f"c{k}", f"x{k + 1}"),
                )
            ],
            {"x0": [1, 3, "n"]},
            "x7",
            *({"x0": (1, 3, n)} for n in (1, 6)),
        ),
        "sizes in other types": _make(
            [
                node("Shape", "x", "s", end=1), node("Cast", "s", "f", to=1), node("Mul", "f half", "h"),
                node("Ceil", "h", "k"), node("Cast", "k", "i", to=6), node("Mul", "i i", "p"),
                node("Less", "f seven", "q"), node("Where", "q p i", "w"), node("Cast", "w", "l", to=7),
                node("Concat", "l three", "c", axis=0), node("Expand", "row c", "e"), node("Sin", "e", "y"),
            ],
            {"x": ["n"]},
            "y",
            *({"x": (n,)} for n in (0, 1, 6, 21)),
            weights={
                "half": np.array(0.7, np.float32), "seven": np.array(7, np.float32), "three": np.array([3]),
                "row": np.array([0.5, 1, 2], np.float32),
            },
        ),
        "no inputs": _make([node("Range", "a b c", "r"), node("Neg", "r", "y")], {}, "y", weights={
            "a": np.array(3, np.float32), "b": np.array(20, np.float32), "c": np.array(2, np.float32),
        }),
        "parts as outputs": _make(
            [
                node("Pad", "x pads", "p"), node("Slice", "p zero ten zero", "y"), node("Reshape", "p all", "z"),
                node("Reshape", "p all", "q"),
            ],
            {"x": [20, 3]},
            "y z q",
            weights={
                "pads": np.array([0, 1, 0, 1]), "zero": np.array([0]), "ten": np.array([10]), "all": np.array([-1]),
            },
        ),
    }  # fmt: skip


def _reductions() -> dict[str, Specimen]:
    """Reductions, alone and over rows."""
    axes = np.array([1])
    return {
        "softmax": _make(
            [node("Softmax", "x", "y", axis=-1), node("Softmax", "x", "z", axis=0)],
            {"x": ["n", "m"]},
            "y z",
            *({"x": s} for s in ((1, 1), (2, 7), (7, 33), (0, 3))),
        ),
        "layer norm": _make(
            [node("Add", "x r", "a"), node("LayerNormalization", "a s b", "y", axis=-1), node("Gelu", "y", "z")],
            {"x": ["n", 37], "r": ["n", 37]},
            "y z",
            *({"x": (n, 37), "r": (n, 37)} for n in (1, 7)),
            weights=_weights(s=(37,), b=(37,)),
        ),
        "reductions": _make(
            [
                node("ReduceMax", "x a1", "p", keepdims=0), node("ReduceLogSumExp", "x a1", "q"),
                node("ReduceProd", "x a0", "r"), node("ArgMax", "x", "i", axis=1), node("ReduceMean", "x", "m"),
                node("CumSum", "x c", "s"), node("ArgMin", "x", "j", axis=0, keepdims=0, select_last_index=1),
            ],
            {"x": [5, 13, 3]},
            "p q r i m s j",
            weights={"a1": axes, "a0": np.array([0, 2]), "c": np.array(2)},
        ),
        "einsum": _make(
            [node("Einsum", "x", "t", equation="ijk->kj"), node("Einsum", "x z", "y", equation="ijk,kl->jil"),
             node("Exp", "t", "u")],
            {"x": [4, 3, 9], "z": [9, 5]},
            "u y",
        ),
        "pool": _make(
            [
                node("MaxPool", "x", "m", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
                node("AveragePool", "x", "a", kernel_shape=[2, 3], pads=[0, 1, 1, 1], ceil_mode=1, strides=[2, 2]),
                node("GlobalAveragePool", "x", "g"),
            ],
            {"x": ["n", 3, 11, 13]},
            "m a g",
            *({"x": (n, 3, 11, 13)} for n in (1, 2)),
        ),
    }  # fmt: skip


def _products() -> dict[str, Specimen]:
    """Products."""
    return {
        "gemm": _make(
            [node("Gemm", "x w b", "h", transB=1), node("Relu", "h", "r"), node("MatMul", "r v", "y")],
            {"x": ["n", 29]},
            "y h",
            *({"x": (n, 29)} for n in (0, 1, 2, 7, 65)),
            weights=_weights(w=(37, 29), b=(37,), v=(37, 3)),
        ),
        "batched product": _make(
            [node("MatMul", "x z", "a"), node("Add", "a c", "y"), node("Neg", "c", "d")],
            {"x": ["n", 3, 5, 7], "z": ["n", 1, 7, 9], "c": ["n", 3, 5, 9]},
            "y d",
            *({"x": (n, 3, 5, 7), "z": (n, 1, 7, 9), "c": (n, 3, 5, 9)} for n in (1, 3)),
        ),
        "results over operands": _make(
            [
                node("MatMul", "x w", "t"), node("Greater", "x zero", "c"), node("Where", "c one two", "u"),
                node("Add", "u t", "v"), node("Trilu", "t", "l"), node("Sub", "l t", "d"), node("MatMul", "u w", "o"),
                node("MatMul", "v w", "p"), node("MatMul", "l w", "q"), node("MatMul", "d w", "r"),
            ],
            {"x": [9, 9]},
            "o p q r",
            weights={**_weights(w=(9, 9)), "zero": np.float32(0), "one": np.float32(1), "two": np.float32(2)},
        ),
    }  # fmt: skip


def _convolutions() -> dict[str, Specimen]:
    """Convolutions."""
    return {
        "convolutions": _make(
            [
                node("Conv", "x w", "a", pads=[1, 1, 1, 1]), node("BatchNormalization", "a g b m v", "n"),
                node("Relu", "n", "r"), node("Conv", "r u", "c", strides=[2, 2], pads=[1, 0, 0, 1]),
                node("Conv", "r d", "e", group=10, pads=[1, 1, 1, 1], strides=[2, 2]),
                node("Conv", "e p pb", "f"), node("Concat", "c f", "h", axis=1),
                node("Conv", "h q", "y", group=2, dilations=[2, 2], pads=[2, 2, 2, 2]),
            ],
            {"x": ["n", 3, 13, 11]},
            "y",
            *({"x": (n, 3, 13, 11)} for n in (1, 2)),
            weights={
                **_weights(
                    w=(10, 3, 3, 3), g=(10,), b=(10,), m=(10,), u=(6, 10, 2, 2), d=(10, 1, 3, 3), p=(6, 10, 1, 1),
                    pb=(6,), q=(4, 6, 3, 3),
                ),
                "v": np.full(10, 0.5, np.float32),
            },
        ),
        "convolution of one dimension": _make(
            [node("Conv", "x w b", "a", pads=[2, 1], strides=[2]), node("HardSwish", "a", "y")],
            {"x": [2, 5, 19]},
            "y",
            weights=_weights(w=(7, 5, 4), b=(7,)),
        ),
        "transposed convolution": _make(
            [node("ConvTranspose", "x w b", "y", strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1])],
            {"x": [2, 5, 4, 7]},
            "y",
            weights=_weights(w=(5, 3, 3, 3), b=(3,)),
        ),
    }  # fmt: skip


def _networks() -> dict[str, Specimen]:
    """Kernels of whole layers, and all element types."""
    return {
        "attention": _make(
            [
                node("Transpose", "k", "kt", perm=[0, 1, 3, 2]), node("MatMul", "q kt", "s"),
                node("Mul", "s scale", "t"), node("Add", "t mask", "u"), node("Softmax", "u", "p"),
                node("MatMul", "p v", "y"),
            ],
            {"q": ["n", 2, "s", 12], "k": ["n", 2, "t", 12], "v": ["n", 2, "t", 10], "mask": ["n", 1, 1, "t"]},
            "y",
            *(
                {"q": (n, 2, s, 12), "k": (n, 2, t, 12), "v": (n, 2, t, 10), "mask": (n, 1, 1, t)}
                for n, s, t in ((1, 1, 1), (2, 7, 5), (1, 33, 65))
            ),
            weights={"scale": np.array(0.25, np.float32)},
        ),
        "lstm": _make(
            [node("LSTM", "x w r b", "y h c", hidden_size=5, direction="bidirectional")],
            {"x": [4, 3, 7]},
            "y h c",
            weights=_weights(w=(2, 20, 7), r=(2, 20, 5), b=(2, 40)),
        ),
        "gru": _make(
            [node("GRU", "x w r b", "y h", hidden_size=5, linear_before_reset=1)],
            {"x": [4, 3, 7]},
            "y h",
            weights=_weights(w=(1, 15, 7), r=(1, 15, 5), b=(1, 30)),
        ),
        "types": _make(
            [
                node("Cast", "x", "h", to=10), node("Mul", "h h", "hh"), node("Cast", "hh", "y", to=1),
                node("Cast", "x", "u", to=2), node("BitShift", "u u", "s", direction="RIGHT"),
                node("Cast", "s", "si", to=7), node("Div", "i two", "d"), node("Cast", "x", "w", to=11),
                node("Exp", "w", "e"), node("Greater", "x zero", "g"), node("Not", "g", "ng"),
            ],
            {"x": [3, 11], "i": [19]},
            "y si d e ng",
            weights={"two": np.array(3), "zero": np.array(0, np.float32)},
            ints={"i": 100},
            rtol=1e-3,
        ),
    }  # fmt: skip


__all__ = ["Specimen", "zoo"]
