"""Core operators with every dimension that may be symbolic at 0, 1, 2 and 7, each compiled once."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import torshc
from tests.support.evaluate import Array
from tests.support.models import Shape, model, node, save

# Nodes, the shapes of the inputs; inputs whose names begin with i are indices below the smallest size, 1.
CASES: dict[str, tuple[list[onnx.NodeProto], dict[str, Shape]]] = {
    "elementwise": ([node("Mul", "x z", "a"), node("Tanh", "a", "y")], {"x": ["n", "m"], "z": ["n", "m"]}),
    "broadcast": ([node("Sub", "x z", "a"), node("Add", "a w", "y")], {"x": ["n", 1, "k"], "z": ["m", 1], "w": ["k"]}),
    "Where": ([node("Greater", "x z", "c"), node("Where", "c x z", "y")], {"x": ["n", "m"], "z": ["m"]}),
    "MatMul": ([node("MatMul", "x z", "y")], {"x": ["n", "k"], "z": ["k", "m"]}),
    "MatMul of batches": ([node("MatMul", "x z", "y")], {"x": ["b", 1, "n", 3], "z": ["c", 3, "m"]}),
    "Gemm": ([node("Gemm", "x z w", "y", transA=1, beta=0.5)], {"x": ["k", "n"], "z": ["k", "m"], "w": ["m"]}),
    "Gemm, transposed": (
        [node("Gemm", "x z", "g", transB=1), node("Relu", "g", "y")], {"x": ["n", "k"], "z": ["m", "k"]},
    ),
    "Conv": ([node("Conv", "x f", "y", pads=[1, 1, 1, 1])], {"x": ["n", 2, "h", "w"], "f": ["m", 2, 3, 3]}),
    "Conv with steps": (
        [node("Conv", "x f", "y", pads=[1, 1, 1, 1], strides=[2, 2])], {"x": ["n", 2, "h", 4], "f": [3, 2, 3, 3]},
    ),
    "MaxPool": ([node("MaxPool", "x", "y", kernel_shape=[2, 2], pads=[1, 1, 1, 1])], {"x": ["n", "c", "h", 4]}),
    "AveragePool": (
        [node("AveragePool", "x", "y", kernel_shape=[2, 2], pads=[1, 1, 1, 1])], {"x": ["n", 2, "h", "w"]},
    ),
    "GlobalAveragePool": ([node("GlobalAveragePool", "x", "y")], {"x": ["n", "c", "h", 3]}),
    "Softmax": ([node("Softmax", "x", "y", axis=1)], {"x": ["n", "m", "k"]}),
    "LayerNormalization": ([node("LayerNormalization", "x s b", "y")], {"x": ["n", "m"], "s": ["m"], "b": ["m"]}),
    "Concat": ([node("Concat", "x z x", "y", axis=0)], {"x": ["n", "m"], "z": ["k", "m"]}),
    "Slice": (
        [node("Slice", "x one far zero two", "a"), node("Slice", "a last first_ zero last", "y")], {"x": ["n", "m"]},
    ),
    "Slice by the longest step": (
        [node("Slice", "x zero far zero far", "a"), node("Slice", "a last first_ one first_", "y")], {"x": ["n", "m"]},
    ),
    "Pad": ([node("Pad", "x pads", "y")], {"x": ["n", "m"]}),
    "Gather": ([node("Gather", "x i", "y", axis=1)], {"x": ["n", 7, "m"], "i": ["k"]}),
    "Transpose": ([node("Transpose", "x", "t", perm=[2, 0, 1]), node("Exp", "t", "y")], {"x": ["n", "m", "k"]}),
    "Reshape": ([node("Reshape", "x shape", "y")], {"x": ["n", "m", 2]}),
    "Reshape by sizes": (
        [node("Shape", "x", "s", start=0, end=1), node("Shape", "x", "t", start=2),
         node("Concat", "t s last", "u", axis=0), node("Transpose", "x", "z", perm=[2, 0, 1]),
         node("Reshape", "z u", "y", allowzero=1)],
        {"x": ["n", 3, "k"]},
    ),
    "TopK": ([node("TopK", "x two", "y at", axis=0)], {"x": [7, "n"]}),
    "CumSum": ([node("CumSum", "x zero_", "y", exclusive=1, reverse=1)], {"x": ["n", "m"]}),
    "Resize": ([node("Resize", "x _ scales", "y", mode="linear")], {"x": ["n", "c", "h", "w"]}),
    "Resize, nearest": ([node("Resize", "x _ scales", "y", mode="nearest")], {"x": ["n", 2, "h", 3]}),
    **{op: ([node(op, "x one", "y", keepdims=0)], {"x": ["n", "m", "k"]}) for op in (
        "ReduceSum", "ReduceMean", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp",
        "ReduceMax", "ReduceMin",
    )},
    "ArgMax": ([node("ArgMax", "x", "y", axis=1, keepdims=0)], {"x": ["n", 7, "m"]}),
}  # fmt: skip
WEIGHTS = {
    "zero": np.array([0]), "one": np.array([1]), "two": np.array([2]), "far": np.array([(1 << 63) - 1]),
    "last": np.array([-1]),
    "first_": np.array([-(1 << 63)]), "zero_": np.array(0), "pads": np.array([0, 2, 1, 0]), "shape": np.array([-1, 2]),
    "scales": np.array([1, 1, 2, 1.5], np.float32),
}  # fmt: skip
SIZES = (0, 1, 2, 7)


def feeds(inputs: dict[str, Shape], size: dict[str, int], rng: np.random.Generator) -> dict[str, Array]:
    shapes = {name: tuple(size[d] if isinstance(d, str) else d for d in shape) for name, shape in inputs.items()}
    return {
        name: rng.integers(0, 7, s) if name[0] == "i" else rng.uniform(0.1, 2, s).astype(np.float32)
        for name, s in shapes.items()
    }


def wanted(made: onnx.ModelProto, given: dict[str, Array]) -> Array | None:
    """The reference's answer; None where it cannot do an operator without elements."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return np.asarray(next(iter(ReferenceEvaluator(made).run(None, given))))
        except (ValueError, IndexError, ZeroDivisionError, RuntimeError, TypeError, AttributeError):
            assert any(0 in a.shape for a in given.values())
            return None


def combinations(names: list[str]) -> list[dict[str, int]]:
    """All sizes of up to two symbols; of more, each with all others at 2, all together, and some at random."""
    if len(names) < 3:
        return [dict(zip(names, s, strict=True)) for s in itertools.product(SIZES, repeat=len(names))]
    found = [{**dict.fromkeys(names, 2), n: s} for n in names for s in SIZES] + [dict.fromkeys(names, s) for s in SIZES]
    rng = np.random.default_rng(1)
    return found + [{n: int(rng.choice(SIZES)) for n in names} for _ in range(12)]


@pytest.mark.parametrize("case", CASES)
def test_every_size(case: str, tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    nodes, inputs = CASES[case]
    used = {i for n in nodes for i in n.input}
    weights = {k: v for k, v in WEIGHTS.items() if k in used}
    likes = {name: ("int64" if name[0] == "i" else "float32", list(s)) for name, s in inputs.items()}
    made = model(nodes, likes, "y", weights)
    torshc.compile(save(made, tmp_path), tmp_path / "m.tsc", threads=1)
    rng, empty = np.random.default_rng(0), 0
    with torshc.load(tmp_path / "m.tsc", threads=1) as compiled:
        names = list(dict.fromkeys(d for shape in inputs.values() for d in shape if isinstance(d, str)))
        for size in combinations(names):
            given = feeds(inputs, size, rng)
            got, want = compiled.run(given)["y"], wanted(made, given)
            if want is None:
                empty += 1
                continue
            assert got.shape == want.shape, size
            np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5, err_msg=str(size))
    assert empty < len(combinations(names)) / 2
    record_property("runs", len(combinations(names)))
