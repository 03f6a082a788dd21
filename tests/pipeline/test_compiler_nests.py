"""Whole path on nests: map and row kernels at both ends of the optimisation levels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.seeded import seeded

from ..support.compare import check
from ..support.models import model, node
from ..support.slow import some_pairs

RNG = seeded(0)


def random(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


CASES: dict[str, tuple[Any, list[tuple[int, ...]]]] = {
    "chain": (
        model([node("Neg", "x", "a"), node("Abs", "a", "b"), node("Relu", "b", "y")], {"x": ["n", 5, 37]}, ["y"]),
        [(3, 5, 37), (1, 5, 37), (0, 5, 37)],
    ),
    "softmax last": (
        model([node("Softmax", "x", "y", axis=-1)], {"x": ["n", 5, "m"]}, ["y"]),
        [(3, 5, 37), (1, 5, 1), (2, 5, 8), (7, 5, 65)],
    ),
    "softmax middle": (model([node("Softmax", "x", "y", axis=1)], {"x": [3, 5, 37]}, ["y"]), [(3, 5, 37)]),
    "log softmax": (model([node("LogSoftmax", "x", "y")], {"x": ["n", 9]}, ["y"]), [(3, 9)]),
    "layer norm": (
        model(
            [node("LayerNormalization", "x s b", "y", axis=-1)],
            {"x": ["n", 5, 37]},
            ["y"],
            {"s": random(37), "b": random(37)},
        ),
        [(3, 5, 37)],
    ),
    "reduce of a transposed": (
        model(
            [
                node("Transpose", "x", "a", perm=[2, 0, 1]),
                node("Sigmoid", "a", "b"),
                node("ReduceMean", "b axes", "y", keepdims=0),
            ],
            {"x": ["n", 5, 37]},
            ["y"],
            {"axes": np.array([1])},
        ),
        [(3, 5, 37), (1, 5, 37)],
    ),
    "reduce of outer axes": (
        model(
            [
                node("ReduceSum", "x zero", "s", keepdims=0),
                node("ReduceMax", "x one", "t", keepdims=0),
                node("Exp", "t", "y"),
            ],
            {"x": ["a", "b", "c"]},
            ["s", "y"],
            {"zero": np.array([0]), "one": np.array([1])},
        ),
        [(40, 3, 70), (3, 41, 64), (2, 1, 131), (0, 2, 65), (33, 5, 1)],
    ),
    "max pool": (
        model(
            [node("MaxPool", "x", "y", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])],
            {"x": ["n", 3, 17, 19]},
            ["y"],
        ),
        [(2, 3, 17, 19)],
    ),
    "pad and slice": (
        model(
            [node("Pad", "x pads", "a"), node("Slice", "a starts ends axes steps", "y")],
            {"x": [2, 9]},
            ["y"],
            {
                "pads": np.array([1, 2, 0, 3]),
                "starts": np.array([12]),
                "ends": np.array([-20]),
                "axes": np.array([1]),
                "steps": np.array([-2]),
            },
        ),
        [(2, 9)],
    ),
    "rank 0": (
        model([node("ReduceSum", "x", "s", keepdims=0), node("Exp", "s", "y")], {"x": ["n"]}, ["y"]),
        [(4,), (1,), (0,)],
    ),
    "split unevenly": (
        model([node("Split", "x", "p q r", axis=1, num_outputs=3)], {"x": ["n", 8]}, ["p", "q", "r"]),
        [(2, 8)],
    ),
    "two readers": (
        model(
            [
                node("Exp", "x", "e"),
                node("ReduceSum", "e", "s", keepdims=1),
                node("Div", "e s", "y"),
                node("Sqrt", "e", "z"),
            ],
            {"x": [4, 33]},
            ["y", "z", "e"],
        ),
        [(4, 33)],
    ),
}


@pytest.mark.parametrize(("name", "level"), some_pairs(CASES, [3, 0], 3))
def test_agrees_with_reference(name: str, level: int, tmp_path: Path) -> None:
    made, shapes = CASES[name]
    for shape in shapes:
        check(made, {"x": random(*shape)}, tmp_path, opt_level=level)


def test_concatenation_of_unaligned_parts(tmp_path: Path) -> None:
    made = model([node("Concat", "a b", "c", axis=1), node("Tanh", "c", "y")], {"a": [3, 37], "b": [3, 7]}, ["y"])
    check(made, {"a": random(3, 37), "b": random(3, 7)}, tmp_path)


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint32"])
def test_remainders_of_constants(dtype: str, tmp_path: Path) -> None:
    """Of powers of two they are bits, which must be right below 0 too; the smallest divisor and others beside it."""
    nodes = [node("Mod", f"x m{k}", f"y{k}") for k in (1, 8, 64, 7)]
    weights = {f"m{k}": np.array(k, dtype) for k in (1, 8, 64, 7)}
    made = model(nodes, {"x": (dtype, [39])}, [f"y{k}" for k in (1, 8, 64, 7)], weights)
    info = np.iinfo(dtype)
    x = np.array([info.min, info.max, *np.arange(37) - 18], np.int64).astype(dtype)
    check(made, {"x": x}, tmp_path)


def test_nan_and_infinities_keep_their_meaning(tmp_path: Path) -> None:
    made = model([node("Max", "a b", "m"), node("Relu", "m", "y")], {"a": [6], "b": [6]}, ["y"])
    a = np.array([np.nan, 1, -np.inf, np.inf, -0.0, 2], np.float32)
    b = np.array([1, np.nan, -1, 0, 0.0, np.nan], np.float32)
    check(made, {"a": a, "b": b}, tmp_path)


def test_equal_bytes_whatever_the_number_of_threads(tmp_path: Path) -> None:
    import onnx

    import torshc

    onnx.save(CASES["softmax last"][0], tmp_path / "m.onnx")
    torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc")
    x = random(64, 5, 301)
    outputs = []
    for threads in (1, 2, 5):
        with torshc.load(tmp_path / "m.tsc", threads=threads) as compiled:
            outputs.append(compiled.run({"x": x})["y"].tobytes())
    assert len(set(outputs)) == 1


def test_norms_of_integers(tmp_path: Path) -> None:
    """The root loses its fraction."""
    kinds = ("int64", "int32", "uint32", "uint64")
    nodes = [node("ReduceL2", f"{k} axis", f"l_{k}") for k in kinds]
    weights = {"axis": np.array([1])}
    made = model(nodes, {k: (k, [3, 5]) for k in kinds}, [f"l_{k}" for k in kinds], weights)
    feeds = {k: np.arange(15).reshape(3, 5).astype(k) for k in kinds}
    check(made, feeds, tmp_path, opt_level=0)
