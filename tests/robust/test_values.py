"""NaN, infinities, signed zeros and denormals through the core operators, in any fusion, on every target."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import torshc
from tests.emulation.emulated import emulated_tools
from tests.support.models import model, node
from tests.support.slow import SLOW

TINY = np.float32(1e-45)
VALUES = np.array(
    [np.nan, np.inf, -np.inf, 0.0, -0.0, TINY, -TINY, 1e-38, 1.0, -1.0, 0.5, -0.5, 1.5, -2.5, 3e38, -3e38,
     88.8, -104.0],
    np.float32,
)  # fmt: skip
UNARY = (
    "Neg", "Abs", "Relu", "Exp", "Log", "Sqrt", "Tanh", "Sigmoid", "Erf", "Sin", "Cos", "Atan", "Floor", "Ceil",
    "Round", "Sign", "Reciprocal", "IsNaN", "IsInf", "LeakyRelu", "Elu", "Softplus", "HardSigmoid", "HardSwish", "Sinh",
    "Asinh", "Identity",
)  # fmt: skip
BINARY = ("Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", "Less", "GreaterOrEqual", "Equal")
REDUCE = ("ReduceMax", "ReduceMin", "ReduceSum", "ReduceMean", "ReduceProd", "ReduceL1", "ReduceL2", "ArgMax", "ArgMin")


FUSIONS = ("none", "conservative", "default", "aggressive")
WAYS: dict[str, list[dict[str, Any]]] = {
    "levels": [{"opt_level": 0}, {"opt_level": 3}, {"target": "llvm"}],
    "fusions": [{"fusion": fusion} for fusion in FUSIONS],
    "cuda": [{"opt_level": 0, "target": "cuda"}, *({"target": "cuda", "fusion": fusion} for fusion in FUSIONS)],
    "metal": [{"opt_level": 0, "target": "metal"}, *({"target": "metal", "fusion": fusion} for fusion in FUSIONS)],
}
Compare = Callable[[onnx.ModelProto, dict[str, np.ndarray]], None]


@pytest.fixture(params=["levels", *(pytest.param(name, marks=SLOW) for name in WAYS if name != "levels")])
def compare(
    request: pytest.FixtureRequest, tmp_path: Path, record_property: Callable[[str, object], None]
) -> Iterator[Compare]:
    """Each way against the reference evaluator; signs of zeros too, where ONNX says which: not in max and min.

    All ways agree on these as well, whether they fold constants or compute.
    """
    done = 0

    def run(made: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> None:
        nonlocal done
        free = {o for n in made.graph.node if n.op_type in ("Relu", "Max", "Min", "Clip", "MaxPool") for o in n.output}
        free |= {o for n in made.graph.node if n.op_type in ("ReduceMax", "ReduceMin") for o in n.output}
        signs: dict[str, list[np.ndarray]] = {}
        with np.errstate(all="ignore"):
            wanted = [np.asarray(w, np.float64) for w in ReferenceEvaluator(made).run(None, feeds)]
        onnx.save(made, tmp_path / "m.onnx")
        for way in WAYS[request.param]:
            torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc", **way)
            with torshc.load(tmp_path / "m.tsc") as compiled:
                found = {n: np.asarray(a, np.float64) for n, a in compiled.run(feeds).items()}
            for (name, a), b in zip(found.items(), wanted, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-37, err_msg=f"{name}, {way}")
                zeros = (a == 0) & (b == 0)
                signs.setdefault(name, []).append(np.signbit(a[zeros]))
                if name not in free:
                    np.testing.assert_array_equal(np.signbit(a[zeros]), np.signbit(b[zeros]), f"{name}, {way}")
                done += a.size
        for name, (first, *others) in signs.items():
            for other in others:
                np.testing.assert_array_equal(first, other, f"{name}, signs of zeros in {WAYS[request.param]}")

    with emulated_tools() if request.param in ("cuda", "metal") else nullcontext():
        yield run
    record_property("elements", done)


def test_functions_of_one_operand(compare: Compare) -> None:
    nodes = [node(op, "x", op.lower()) for op in UNARY]
    compare(model(nodes, {"x": [len(VALUES)]}, [op.lower() for op in UNARY]), {"x": VALUES})


def test_functions_of_two_operands(compare: Compare) -> None:
    nodes = [node(op, "x z", op.lower()) for op in BINARY]
    made = model(nodes, {"x": [18, 18], "z": [18, 18]}, [op.lower() for op in BINARY])
    x, z = (np.ascontiguousarray(v) for v in np.meshgrid(VALUES, VALUES))
    compare(made, {"x": x, "z": z})


def test_clip_and_where(compare: Compare) -> None:
    nodes = [
        node("Clip", "x low high", "a"), node("Clip", "x low", "b"), node("Equal", "x x", "same"),
        node("Where", "same x low", "c"), node("Max", "x low high", "d"), node("Min", "low x", "e"),
        node("Not", "same", "f"),
    ]  # fmt: skip
    weights = {"low": np.array(-1, np.float32), "high": np.array(1, np.float32)}
    compare(model(nodes, {"x": [18]}, list("abcdef"), weights), {"x": VALUES})


@pytest.mark.parametrize("axis", [0, 1])
def test_reductions(axis: int, compare: Compare) -> None:
    """Rows without and with NaN, with one and with both infinities, all -inf, and zeros of both signs."""
    nodes, outputs = [], []
    for op in REDUCE:
        nodes.append(node(op, "x", op, axis=axis) if op.startswith("Arg") else node(op, "x axes", op))
        outputs.append(op)
    rows = np.random.default_rng(0).standard_normal((7, 19)).astype(np.float32)
    rows[1, 3], rows[2, 5], rows[3, 18] = np.nan, np.inf, -np.inf
    rows[4, [0, 7]], rows[5] = [np.inf, -np.inf], -np.inf
    made = model(nodes, {"x": [7, 19] if axis else [19, 7]}, outputs, {"axes": np.array([axis])})
    compare(made, {"x": rows if axis else np.ascontiguousarray(rows.T)})


def test_quantised_nan_is_the_least_number(compare: Compare) -> None:
    """Infinities are left out: onnx's evaluator converts what is out of range as the machine does."""
    zeros = {"a": np.int8(0), "b": np.int8(3), "c": np.uint8(3)}
    weights = {"s": np.array(0.5, np.float32), **{n: np.array(z) for n, z in zeros.items()}}
    nodes = [node("QuantizeLinear", f"x s {n}", f"to_{n}") for n in zeros]
    made = model(nodes, {"x": [19]}, [f"to_{n}" for n in zeros], weights)
    compare(made, {"x": np.where(np.arange(19) % 3 == 1, np.nan, np.linspace(-99, 99, 19)).astype(np.float32)})


def test_softmax_and_norms(compare: Compare) -> None:
    nodes = [node("Softmax", "x", "a"), node("LogSoftmax", "x", "b"), node("LayerNormalization", "x s", "c")]
    rows = np.random.default_rng(0).standard_normal((5, 19)).astype(np.float32)
    rows[1, 3], rows[2, 5], rows[3, 18], rows[4] = np.nan, np.inf, -np.inf, 1e4
    made = model(nodes, {"x": [5, 19]}, list("abc"), {"s": np.ones(19, np.float32)})
    compare(made, {"x": rows})


def test_products_carry_nan_and_infinities(compare: Compare) -> None:
    x = np.ones((5, 9), np.float32)
    x[0, 0], x[1, 1], x[2, 8], x[3, [0, 1]] = np.nan, np.inf, -np.inf, [np.inf, -np.inf]
    weights = {"w": np.ones((9, 11), np.float32), "v": np.ones((4, 1, 3, 3), np.float32)}
    nodes = [
        node("MatMul", "x w", "p"), node("Relu", "p", "y"), node("Unsqueeze", "x axes", "u"),
        node("Conv", "u v", "c", pads=[1, 1, 1, 1]),
    ]  # fmt: skip
    made = model(nodes, {"x": [5, 9]}, list("pyc"), {**weights, "axes": np.array([0, 1])})
    compare(made, {"x": x})


def test_rules_do_not_swallow_nan(compare: Compare) -> None:
    """What is the identity on numbers only: x - x, x * 0, x / x, x + 0 on -0, and pairs that cancel."""
    nodes = [
        node("Sub", "x x", "a"), node("Mul", "x zero", "b"), node("Div", "x x", "c"), node("Add", "x zero", "d"),
        node("Neg", "x", "n"), node("Neg", "n", "e"), node("Mul", "x one", "f"), node("Pow", "x zero", "g"),
        node("Sqrt", "x", "r"), node("Mul", "r r", "h"), node("Log", "x", "l"), node("Exp", "l", "i"),
        node("Sub", "zero x", "j"), node("Div", "x two", "k"), node("Pow", "x two", "m"),
    ]  # fmt: skip
    weights = {k: np.array(v, np.float32) for k, v in {"zero": 0, "one": 1, "two": 2}.items()}
    made = model(nodes, {"x": [18]}, list("abcdefghijkm"), weights)
    compare(made, {"x": np.where(np.abs(VALUES) > 1e30, np.sign(VALUES) * 8, VALUES).astype(np.float32)})
    compare(made, {"x": VALUES})


@pytest.mark.parametrize("middle", [10, 16])
def test_casts_to_narrower_types_round(middle: int, compare: Compare) -> None:
    """Through f16 and bf16 and back, in one kernel: rounded, beyond the largest value infinite."""
    made = model([node("Cast", "x", "h", to=middle), node("Cast", "h", "y", to=1)], {"x": [18]}, ["y"])
    x = VALUES.copy()
    x[-4:] = 0.1, 1e5, -1e5, 65519.0
    compare(made, {"x": x})


@pytest.mark.parametrize("weight", [np.inf, np.nan])
def test_weights_that_are_no_numbers_meet_the_margin(weight: float, compare: Compare) -> None:
    """A zero in the margin times infinity is NaN, also where whole taps lie in the margin."""
    x = np.ones((1, 16, 4, 4), np.float32)
    w = np.ones((32, 16, 3, 3), np.float32)
    w[3, 5, 0, 1] = weight
    made = model([node("Conv", "x w", "y", pads=[1, 1, 1, 1])], {"x": list(x.shape)}, ["y"], {"w": w})
    compare(made, {"x": x})


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("weight", [np.inf, np.nan])
def test_weights_that_are_no_numbers_reach_where_an_element_does(weight: float, known: bool, compare: Compare) -> None:
    """A tap of a transposed convolution that meets no element of the operand adds nothing, whatever its weight."""
    x = np.ones((1, 16, 4, 4), np.float32)
    w = np.ones((16, 32, 3, 3), np.float32)
    w[5, 3, 0, 1] = weight
    whole = node("ConvTranspose", "x w", "y", pads=[0, 1, 1, 0])
    nodes = [whole, node("ConvTranspose", "x w", "z", strides=[2, 2])]
    inputs = {"x": x} if known else {"x": x, "w": w}
    shapes = {name: list(array.shape) for name, array in inputs.items()}
    compare(model(nodes, shapes, ["y", "z"], {"w": w} if known else {}), inputs)


def test_which_of_two_zeros_is_the_largest(compare: Compare) -> None:
    """Of +0 and -0, which are equal, the first, whether it is computed or folded: -O0 folds nothing."""
    zeros = np.array([0.0, -0.0, -0.0, 0.0] * 4, np.float32)
    nodes = [
        node("Max", "a b", "max"), node("Min", "a b", "min"), node("Relu", "a", "relu"), node("Clip", "a zero", "clip"),
        node("MaxPool", "image", "pool", kernel_shape=[2]), node("Neg", "x", "neg"),
        node("MaxPool", "image", "half", kernel_shape=[2], strides=[2]),
    ]  # fmt: skip
    weights = {"a": zeros, "b": np.roll(zeros, 1), "zero": np.zeros((), np.float32), "image": zeros.reshape(1, 1, 16)}
    outputs = ["max", "min", "relu", "clip", "pool", "half", "neg"]
    compare(model(nodes, {"x": [1]}, outputs, weights), {"x": zeros[:1]})
