"""Symbolic dimensions at 0, 1, 2 and 7, no dimensions, and dimensions that only weights tell."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import torshc
from tests.support.models import model, node
from tests.support.slow import some, some_pairs
from torshc.base.errors import ModelError, RunError

W = {
    k: np.random.default_rng(3).standard_normal(s).astype(np.float32)
    for k, s in {
        "v7": (7,),
        "v4": (4,),
        "m": (7, 5),
        "c": (4, 3, 3, 3),
        "t": (3, 4, 3, 3),
        "d": (3, 1, 3, 3),
        "c16": (8, 16, 3, 3),
        "c1": (8, 16, 1, 1),
        "lw": (1, 8, 3),
        "lr": (1, 8, 2),
    }.items()
}
AXES = {"a0": np.array([0]), "a1": np.array([1]), "all": np.array([0, 1])}
NM = ["n", "m"]
CASES = {
    "pointwise": ([node("Sigmoid", "x", "a"), node("Mul", "a x", "y")], NM),
    "softmax": ([node("Softmax", "x", "y", axis=-1)], NM),
    "softmax over n": ([node("LogSoftmax", "x", "y", axis=0)], NM),
    "sum": ([node("ReduceSum", "x a1", "y", keepdims=0)], NM),
    "sum of all": ([node("ReduceSum", "x all", "y", keepdims=0)], NM),
    "product": ([node("ReduceProd", "x a0", "y")], NM),
    "square sum": ([node("ReduceSumSquare", "x a1", "y")], NM),
    "l2": ([node("ReduceL2", "x a1", "y")], NM),
    "transpose": ([node("Transpose", "x", "u"), node("Exp", "u", "y")], NM),
    "concat": ([node("Concat", "x x", "y", axis=1), node("Abs", "y", "z")], NM),
    "slice": ([node("Slice", "x a0 a1 a0", "y")], NM),
    "cumsum": ([node("CumSum", "x one", "y")], NM),
    "expand": ([node("Shape", "x", "s"), node("Expand", "zero s", "e"), node("Add", "e x", "y")], NM),
    "flatten": ([node("Flatten", "x", "f"), node("Relu", "f", "y")], ["n", "m", 2]),
    "einsum": ([node("Einsum", "x x", "y", equation="ij,kj->ik")], NM),
    "matmul": ([node("MatMul", "x m", "y")], ["n", 7]),
    "matmul over n": ([node("Transpose", "x", "u"), node("MatMul", "u x", "y")], NM),
    "gemm": ([node("Gemm", "x m", "g", alpha=0.5), node("Relu", "g", "y")], ["n", 7]),
    "layer norm": ([node("LayerNormalization", "x v7 v7", "y")], ["n", 7]),
    "conv": ([node("Conv", "x c v4", "a", pads=[1, 1, 1, 1]), node("Relu", "a", "y")], ["n", 3, 5, 4]),
    "conv over sizes": ([node("Conv", "x c", "y", pads=[1, 1, 1, 1], strides=[2, 2])], [1, 3, "n", "m"]),
    "conv of many channels": ([node("Conv", "x c16", "y", pads=[1, 1, 1, 1], strides=[2, 2])], [1, 16, "n", "m"]),
    "pointwise conv": ([node("Conv", "x c1", "a"), node("Relu", "a", "y")], ["n", 16, "m", 3]),
    "depthwise over sizes": ([node("Conv", "x d", "y", pads=[1, 1, 1, 1], group=3)], [1, 3, "n", "m"]),
    "conv transpose over sizes": ([node("ConvTranspose", "x t", "y", strides=[2, 2])], [1, 3, "n", "m"]),
    "pool over sizes": ([node("AveragePool", "x", "y", kernel_shape=[2, 2], pads=[1, 1, 1, 1])], [1, 3, "n", "m"]),
    "attention": (
        [
            node("Transpose", "x", "u"),
            node("MatMul", "x u", "s"),
            node("Softmax", "s", "p"),
            node("MatMul", "p x", "y"),
        ],
        NM,
    ),
    "lstm over steps": ([node("LSTM", "x lw lr", "y h", hidden_size=2)], ["n", "m", 3]),
    "depthwise": ([node("Conv", "x d", "y", pads=[1, 1, 1, 1], group=3)], ["n", 3, 5, 4]),
    "conv transpose": ([node("ConvTranspose", "x t", "y", strides=[2, 2])], ["n", 3, 5, 4]),
    "pool": ([node("MaxPool", "x", "y", kernel_shape=[2, 2], pads=[1, 1, 1, 1])], ["n", 3, 5, 4]),
    "average": ([node("GlobalAveragePool", "x", "y")], ["n", 3, 5, 4]),
}
EXTRA = {**W, **AXES, "one": np.array(1), "zero": np.array(0, np.float32)}


def sizes(shape: list[int | str]) -> list[tuple[int, ...]]:
    """All combinations of the sizes for the names in a shape."""
    found: list[tuple[int, ...]] = [()]
    for d in shape:
        found = [(*f, k) for f in found for k in ((0, 1, 2, 7) if isinstance(d, str) else (d,))]
    return found


@pytest.mark.parametrize(("name", "level"), some_pairs(CASES, [3, 0], 4))
def test_every_symbolic_size(
    name: str, level: int, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    nodes, shape = CASES[name]
    used = {i for n in nodes for i in n.input}
    weights = {k: v for k, v in EXTRA.items() if k in used}
    made = model(nodes, {"x": shape}, [nodes[-1].output[0]], weights)
    onnx.save(made, tmp_path / "m.onnx")
    torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc", opt_level=level)
    rng = np.random.default_rng(0)
    with torshc.load(tmp_path / "m.tsc", threads=2) as compiled:
        for size in sizes(shape):
            x = rng.standard_normal(size).astype(np.float32)
            got = next(iter(compiled.run({"x": x}).values()))
            wanted = _reference(made, x)
            if wanted is None:
                assert got.size == 0 or name.endswith("over sizes") or name == "conv of many channels"
                continue
            assert got.shape == wanted.shape, size
            np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=2e-5, err_msg=str(size))
    record_property("runs", len(sizes(shape)))


def _reference(made: onnx.ModelProto, x: np.ndarray) -> np.ndarray | None:
    """The evaluator's answer, or None: it cannot do some operators without elements."""
    try:
        with np.errstate(all="ignore"):
            return np.asarray(ReferenceEvaluator(made).run(None, {"x": x})[0])
    except (ValueError, IndexError, ZeroDivisionError, RuntimeError, TypeError, AttributeError):
        assert x.size == 0
        return None


@pytest.mark.parametrize("name", some(CASES, 3))
def test_static_sizes_of_0(name: str, tmp_path: Path) -> None:
    """The same with sizes that are known when compiling."""
    nodes, shape = CASES[name]
    used = {i for n in nodes for i in n.input}
    made = model(nodes, {"x": shape}, [nodes[-1].output[0]], {k: v for k, v in EXTRA.items() if k in used})
    onnx.save(made, tmp_path / "m.onnx")
    for keep in dict.fromkeys(shape):
        size = tuple(d if isinstance(d, int) else 2 if d == keep else 0 for d in shape)
        try:
            torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc", shapes={"x": size})
        except ModelError as error:
            assert "does not fit into 0" in str(error)  # a window larger than what it runs over
            continue
        with torshc.load(tmp_path / "m.tsc") as compiled:
            x = np.ones(size, np.float32)
            got = next(iter(compiled.run({"x": x}).values()))
            wanted = _reference(made, x)
            if wanted is not None:
                np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=2e-5, err_msg=str(size))


@pytest.mark.parametrize("level", [0, 3])
def test_rank_0(level: int, tmp_path: Path) -> None:
    nodes = [
        node("Exp", "x", "a"), node("Add", "a b", "y"), node("Unsqueeze", "y a0", "u"),
        node("Concat", "u u", "c", axis=0), node("ReduceMax", "x", "m"), node("Softmax", "u", "s"),
        node("Transpose", "x", "t"), node("Neg", "t", "n"),
    ]  # fmt: skip
    made = model(nodes, {"x": [], "b": []}, ["y", "c", "m", "s", "n"], {"a0": np.array([0])})
    onnx.save(made, tmp_path / "m.onnx")
    torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc", opt_level=level)
    feeds = {"x": np.array(0.5, np.float32), "b": np.array(2, np.float32)}
    with torshc.load(tmp_path / "m.tsc") as compiled:
        for a, b in zip(compiled.run(feeds).values(), ReferenceEvaluator(made).run(None, feeds), strict=True):
            assert a.shape == np.shape(b)
            np.testing.assert_allclose(a, b, rtol=1e-6)


NORMS = {
    "LayerNormalization": ("x v7 v7", ["n", "d"], {"x": (2, 7)}),
    "RMSNormalization": ("x v7", ["n", "d"], {"x": (2, 7)}),
    "BatchNormalization": ("x v4 v4 v4 p4", ["n", "c", "h"], {"x": (2, 4, 3)}),
    "InstanceNormalization": ("x v4 v4", ["n", "c", "h"], {"x": (2, 4, 3)}),
    "Gemm": ("x m v5", ["n", "d"], {"x": (2, 7)}),
    "PRelu": ("x v7", ["n", "d"], {"x": (2, 7)}),
}


@pytest.mark.parametrize("op", NORMS)
def test_dimensions_that_only_weights_tell(op: str, tmp_path: Path) -> None:
    operands, shape, good = NORMS[op]
    weights = {**W, "v5": np.ones(5, np.float32), "p4": np.full(4, 0.5, np.float32)}
    made = model(
        [node(op, operands, "y")],
        {"x": shape},
        ["y"],
        {k: v for k, v in weights.items() if k in operands.split()},
        opset=23,
    )
    onnx.save(made, tmp_path / "m.onnx")
    torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc")
    x = np.random.default_rng(0).standard_normal(good["x"]).astype(np.float32)
    with torshc.load(tmp_path / "m.tsc") as compiled:
        (got,) = compiled.run({"x": x}).values()
        (wanted,) = ReferenceEvaluator(made).run(None, {"x": x})
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)
        with pytest.raises(RunError, match=r"expected|d == 7 does not hold"):
            compiled.run({"x": np.ones((2, 6, 3)[: len(shape)], np.float32)})
