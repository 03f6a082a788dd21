"""Reverse mode over graphs: what is independent, what is constant, ties, symbolic sizes, compiled gradients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import torshc
from tests.support.evaluate import run
from tests.support.models import Shape, model, node
from torshc.base.errors import UnsupportedError
from torshc.entry.inprocess import load_model
from torshc.formats import import_model
from torshc.gradient import gradients
from torshc.graph import Builder, Graph, Value

Array = np.ndarray[Any, Any]
F32 = np.float32


def graph_of(nodes: list[Any], inputs: dict[str, Shape], outputs: str) -> Graph:
    return import_model(model(nodes, inputs, outputs.split()).SerializeToString())


def named(graph: Graph, name: str) -> Value:
    return next(v for v in (*graph.inputs, *graph.results) if v.name == name)


def with_gradients(graph: Graph, y: str, xs: list[str]) -> Graph:
    """The graph with the gradients of an output with respect to inputs or outputs as its outputs."""
    found = gradients(Builder(graph), named(graph, y), [named(graph, x) for x in xs])
    graph.declare_outputs(found, [f"d{x}" for x in xs])
    return graph


INF, NAN = float("inf"), float("nan")
TIES: list[tuple[str, dict[str, Any], list[list[float]], list[list[float]]]] = [
    # An operator, its attributes, its operands, and their gradients as PyTorch 2.13 has them.
    ("Relu", {}, [[-1, 0, -0.0, 1]], [[0, 0, 0, 1]]),
    ("Abs", {}, [[-1, 0, -0.0, 1]], [[-1, 0, 0, 1]]),
    ("Sign", {}, [[-1, 0, 1]], [[0, 0, 0]]),
    ("Floor", {}, [[0.5, 1]], [[0, 0]]),
    ("Round", {}, [[0.5, 1.5]], [[0, 0]]),
    ("LeakyRelu", {"alpha": 0.5}, [[-1, 0, 1]], [[0.5, 0.5, 1]]),
    ("PRelu", {}, [[-1, 0, 1], [0.5] * 3], [[0.5, 0.5, 1], [-1, 0, 0]]),
    ("Elu", {"alpha": 2.0}, [[0, 1]], [[2, 1]]),
    ("Celu", {"alpha": 2.0}, [[0, 1]], [[1, 1]]),
    ("HardSigmoid", {"alpha": 0.25}, [[-2, 0, 2]], [[0, 0.25, 0]]),
    ("HardSwish", {}, [[-3, 0, 3]], [[0, 0.5, 1]]),
    ("ThresholdedRelu", {}, [[0, 1, 2]], [[0, 0, 1]]),
    ("Shrink", {}, [[-0.5, 0, 0.5, 1]], [[0, 0, 0, 1]]),
    ("Shrink", {"bias": 0.5}, [[-0.5, 0, 0.5, 1]], [[0, 0, 0, 1]]),
    ("Softsign", {}, [[-1, 0, 1]], [[0.25, 1, 0.25]]),
    ("Sqrt", {}, [[0, 4]], [[INF, 0.25]]),
    ("Pow", {}, [[0, 0, -2], [2, 0, 2]], [[0, 0, -4], [0, 0, NAN]]),
    ("Mod", {"fmod": 1}, [[5.5, -4], [2, 2]], [[1, 1], [-2, 2]]),
    ("Max", {}, [[1, 2, 3], [2, 2, 2]], [[0, 0.5, 1], [1, 0.5, 0]]),
    ("Max", {}, [[2], [2], [2]], [[0.25], [0.25], [0.5]]),
    ("Min", {}, [[1, 2, 3], [2, 2, 2]], [[1, 0.5, 0], [0, 0.5, 1]]),
    ("ReduceMax", {}, [[2, 1, 2]], [[0.5, 0, 0.5]]),
    ("ReduceMin", {}, [[2, 1, 1]], [[0, 0.5, 0.5]]),
    ("ReduceProd", {}, [[2, 0, 3]], [[0, 6, 0]]),
    ("ReduceProd", {}, [[0, 0, 3]], [[0, 0, 0]]),
    ("ReduceL1", {}, [[-2, 0, 3]], [[-1, 0, 1]]),
    ("ReduceL2", {}, [[0, 0]], [[0, 0]]),
    ("ReduceLogSumExp", {}, [[-INF, -INF]], [[0, 0]]),  # where PyTorch has NaN
]


@pytest.mark.parametrize(("op", "attributes", "operands", "wanted"), TIES)
def test_where_slopes_jump(
    op: str, attributes: dict[str, Any], operands: list[list[float]], wanted: list[list[float]]
) -> None:
    """As PyTorch has it."""
    names = [f"x{k}" for k in range(len(operands))]
    graph = graph_of([node(op, " ".join(names), "y", **attributes)], {n: [len(operands[0])] for n in names}, "y")
    got = run(with_gradients(graph, "y", names), {n: np.array(x, F32) for n, x in zip(names, operands, strict=True)})
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize(
    ("how", "data", "updates"),
    [("max", [1 / 3, 1], [1 / 3, 1 / 3, 0]), ("mul", [4, 0], [4, 4, 1])],
)
def test_ties_and_zeros_where_scattered(how: str, data: list[float], updates: list[float]) -> None:
    """As PyTorch's scatter_reduce has it: of two updates that equal what is there, and of a 0."""
    nodes = [node("Constant", "", "i", value_ints=[0, 0, 1]), node("ScatterElements", "x i u", "y", reduction=how)]
    graph = graph_of(nodes, {"x": [2], "u": [3]}, "y")
    feeds = {"x": np.array([2, 1], F32), "u": np.array([2, 2, 0], F32)}
    got = run(with_gradients(graph, "y", ["x", "u"]), feeds)
    for g, w in zip(got, (data, updates), strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-6)


@pytest.mark.parametrize(
    ("op", "x", "attributes", "wanted"),
    [("TopK", [3, 1, 3, 3], {}, [1, 0, 1, 0]), ("MaxPool", [1, 1, 0, 0], {"kernel_shape": [2]}, [1, 1, 1, 0])],
)
def test_the_first_of_equals_is_taken(op: str, x: list[float], attributes: dict[str, Any], wanted: list[float]) -> None:
    """Where ONNX says which place a result is from, that place has the gradient."""
    shape = [1, 1, len(x)] if op == "MaxPool" else [len(x)]
    inputs, outputs = ("x k", "y p") if op == "TopK" else ("x", "y")
    k = node("Constant", "", "k", value_ints=[2])
    graph = graph_of([k, node(op, inputs, outputs, **attributes)], {"x": shape}, "y")
    (got,) = run(with_gradients(graph, "y", ["x"]), {"x": np.array(x, F32).reshape(shape)})
    assert got.reshape(-1).tolist() == wanted


def test_bounds_and_ties_of_two_operands() -> None:
    nodes = [node("Clip", "x low high", "a"), node("Max", "x high", "b"), node("Add", "a b", "y")]
    graph = graph_of(nodes, {"x": [4], "low": [], "high": []}, "y")
    feeds = {"x": np.array([0, 1, 2, 3], F32), "low": np.array(1, F32), "high": np.array(2, F32)}
    got = run(with_gradients(graph, "y", ["x", "low", "high"]), feeds)
    assert [g.tolist() for g in got] == [[0, 1, 1.5, 1], 1, 1 + 2.5]


def test_what_is_independent_and_what_is_constant() -> None:
    """Of an intermediate value nothing goes on to what it was made from; what integers lead to is constant."""
    nodes = [
        node("Mul", "x x", "h"), node("Cast", "x", "i", to=7), node("Cast", "i", "f", to=1),
        node("Mul", "h f", "a"), node("Add", "a x", "y"),
    ]  # fmt: skip
    graph = graph_of(nodes, {"x": [], "z": [2]}, "y h")
    got = run(with_gradients(graph, "y", ["x", "h", "z"]), {"x": np.array(3.5, F32), "z": np.zeros(2, F32)})
    assert [g.tolist() for g in got] == [1, 3, [0, 0]]


def test_all_that_is_in_the_way_is_named() -> None:
    nodes = [
        node("Cast", "x", "a", name="down", to=17), node("Cast", "a", "b", name="up", to=1), node("Exp", "b", "c"),
        node("Cast", "c", "d", name="again", to=19), node("Cast", "d", "y", to=1),
    ]  # fmt: skip
    graph = graph_of(nodes, {"x": [2]}, "y")
    with pytest.raises(UnsupportedError) as found:
        with_gradients(graph, "y", ["x"])
    problems = found.value.problems
    assert [p.partition(", ")[2] for p in problems] == [
        f"{name!r}): Cast has no gradient: floats of 8 bits and fewer have none"
        for name in ("y", "again", "up", "down")
    ]


@pytest.mark.parametrize(("n", "m"), [(1, 1), (2, 5), (3, 1)])
def test_symbolic_sizes(n: int, m: int) -> None:
    """Sums over symbolic sizes, means, products; of the gradient of a gradient too."""
    nodes = [
        node("MatMul", "x w", "a"), node("Add", "a b", "h"), node("Tanh", "h", "t"), node("Mul", "t c", "s"),
        node("ReduceMean", "s", "y", keepdims=0),
    ]  # fmt: skip
    inputs: dict[str, Shape] = {"x": ["n", 3], "w": [3, "m"], "b": ["m"], "c": ["n", 1]}
    graph = graph_of(nodes, inputs, "y")
    xs = [named(graph, k) for k in inputs]
    first = gradients(Builder(graph), named(graph, "y"), xs)
    second = gradients(Builder(graph), first[1], xs)
    graph.declare_outputs([*first, *second], [f"d{k}" for k in range(8)])
    rng = np.random.default_rng(7)
    sizes = {"n": n, "m": m}
    feeds = {k: rng.normal(size=[sizes.get(str(d), d) for d in s]).astype(F32) for k, s in inputs.items()}
    h = feeds["x"] @ feeds["w"] + feeds["b"]
    back = feeds["c"] * (1 - np.tanh(h) ** 2) / h.size
    wanted = [back @ feeds["w"].T, feeds["x"].T @ back, back.sum(0), (np.tanh(h) / h.size).sum(1, keepdims=True)]
    interpreted = run(graph, feeds)
    compiled = load_model(graph)(*feeds.values())
    for got in (interpreted, compiled):
        for g, w in zip(got, wanted, strict=False):
            np.testing.assert_allclose(g, w, rtol=2e-5, atol=1e-6)
    for g, w in zip(compiled, interpreted, strict=True):
        np.testing.assert_allclose(g, w, rtol=2e-5, atol=1e-6)


def test_the_gradients_of_a_network_in_a_library_of_c(tmp_path: Path) -> None:
    """Convolution, maximum, product, bias and loss, in f32, against f64 by the operators' own definitions."""
    nodes = [
        node("Conv", "x w b", "c", pads=[1, 1, 1, 1]), node("Relu", "c", "r"),
        node("MaxPool", "r", "m", kernel_shape=[2, 2], strides=[2, 2]), node("Flatten", "m", "f"),
        node("Gemm", "f v u", "s"), node("SoftmaxCrossEntropyLoss", "s t", "y"),
    ]  # fmt: skip
    inputs: dict[str, Shape] = {"x": [5, 2, 6, 7], "w": [3, 2, 3, 3], "b": [3], "v": [27, 4], "u": [4], "t": [5]}
    rng = np.random.default_rng(3)
    feeds: dict[str, Array] = {k: rng.normal(size=[int(d) for d in s]) for k, s in inputs.items()}
    feeds["t"] = np.array([3, 0, 1, 1, 2])

    def made(kind: str) -> Graph:
        likes = {k: ("int64" if k == "t" else kind, s) for k, s in inputs.items()}
        graph = import_model(model(nodes, likes, "y").SerializeToString())
        found = gradients(Builder(graph), graph.results[0], [named(graph, k) for k in "xwbvu"])
        checks = graph.outputs[len(graph.results) :]  # of indices
        graph.outputs, graph.output_names = [*found, *checks], [*(f"d{k}" for k in "xwbvu"), *("" for _ in checks)]
        return graph

    wanted = run(made("float64"), feeds)
    torshc.compile(made("float32"), tmp_path / "slope.tsc", target="c")
    with torshc.load(tmp_path / "slope.tsc") as compiled:
        got = compiled.run({k: a.astype(F32) if k != "t" else a for k, a in feeds.items()})
    for k, w in zip("xwbvu", wanted, strict=True):
        # Sums of at most 210 terms near 1, each rounded by 2**-24 of it.
        np.testing.assert_allclose(got[f"d{k}"], w, rtol=0, atol=2e-5)
