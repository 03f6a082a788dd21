"""Pointwise operators against the reference evaluator: every shape, broadcasts, integers, NaN."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.support.compare import assert_close, evaluated, reference
from tests.support.evaluate import Array, run
from tests.support.models import feeds_of, node_model
from tests.support.nodes import BOOL, F32, F64, I64, check, given, numbers
from torshc.formats import import_model
from torshc.ops.math.pointwise import WIDE

SHAPES: list[tuple[int, ...]] = [(), (0,), (1,), (7,), (3, 0, 2), (5, 1, 3)]


UNARY = [
    "Neg", "Abs", "Sign", "Floor", "Ceil", "Round", "Exp", "Tanh", "Erf", "Sigmoid", "Sin", "Cos", "Tan", "Atan",
    "Sinh", "Cosh", "Asinh", "Relu", "Softplus", "Softsign", "HardSwish", "Mish", "Identity", "LeakyRelu",
    "ThresholdedRelu", "Elu", "Celu", "Selu", "HardSigmoid", "Shrink", "Gelu", "IsNaN", "IsInf",
]  # fmt: skip


POSITIVE = ["Sqrt", "Log", "Reciprocal"]


UNIT = ["Asin", "Acos", "Atanh"]


@pytest.mark.parametrize("op", UNARY + POSITIVE + UNIT)
def test_unary(op: str) -> None:
    for shape in SHAPES:
        low, high = (0.1, 3.0) if op in POSITIVE else (-0.9, 0.9) if op in UNIT else (-3.0, 3.0)
        if shape or op != "Softsign":  # where the reference fails
            check(op, numbers(*shape, low=low, high=high))


@pytest.mark.parametrize("op", ["Relu", "Abs", "Neg", "Sign", "Max", "Min", "Sqrt", "IsNaN", "Clip"])
def test_special_values(op: str) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5], dtype=F32)
    if op == "Clip":
        check(op, x, np.asarray(-1, F32), np.asarray(1, F32), fixed=(1, 2))
    else:
        check(op, x, x[::-1].copy()) if op in ("Max", "Min") else check(op, x)


def test_gelu_by_tanh_of_negative_numbers() -> None:
    """Where 1 + tanh(u) would cancel: two units in the last place, 2 u's error, count 2 abs(u) times, 25 at most."""
    x = np.linspace(-6, -1, 101, dtype=F32)
    (got,) = check("Gelu", x, approximate="tanh")
    wide = x.astype(np.float64)
    exact = wide / (1 + np.exp(-2 * np.sqrt(2 / np.pi) * (wide + 0.044715 * wide**3)))
    np.testing.assert_allclose(got, exact, rtol=50 * np.finfo(F32).eps)


INTEGER = ["Add", "Sub", "Mul", "Div", "Max", "Min", "Mod", "BitwiseAnd", "BitwiseOr", "BitwiseXor"]


BROADCAST = [((), ()), ((4,), ()), ((2, 1, 3), (5, 1)), ((0, 3), (1, 3)), ((1,), (3, 0)), ((2, 3), (2, 3))]


@pytest.mark.parametrize(
    "op",
    [
        "Add",
        "Sub",
        "Mul",
        "Div",
        "Pow",
        "Max",
        "Min",
        "Mean",
        "Sum",
        "Less",
        "LessOrEqual",
        "Greater",
        "Equal",
        "PRelu",
    ],
)
def test_binary_broadcasting(op: str) -> None:
    for a, b in BROADCAST:
        if op in ("PRelu", "Mean") and np.broadcast_shapes(a, b) != a:
            continue  # a slope must not widen the operand, and the reference's Mean writes into its first operand
        check(op, numbers(*a, low=0.2), numbers(*b, low=0.2, seed=7))


@pytest.mark.parametrize("op", INTEGER)
@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.int8, np.uint8])
def test_integers(op: str, dtype: Any) -> None:
    rng = np.random.default_rng(3)
    info = np.iinfo(dtype)
    a = rng.integers(max(info.min, -100), 100, (3, 5)).astype(dtype)
    b = rng.integers(1, 9, (5,)).astype(dtype)
    if info.min < 0 and op not in ("Mod",):
        b[0] = -3
    check(op, a, b)


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.int16, np.int8])
def test_the_ends_of_integers(dtype: Any) -> None:
    """The least of them has no absolute value; a negative power is 1 / x^n without its fraction."""
    info = np.iinfo(dtype)
    a = np.array([info.min, info.min, info.min, info.min, info.max, -7, 7, -7, 0], dtype)
    b = np.array([2, 7, -2, info.min, info.min, 2, -2, -7, info.min], dtype)
    (got,) = given("Div", a, b)
    assert got.dtype == dtype
    assert got.tolist() == [
        -(-x // y) if (x < 0) != (y < 0) else x // y for x, y in zip(a.tolist(), b.tolist(), strict=True)
    ]
    if dtype in (np.int16, np.int8):
        return  # Pow has no such integers
    base, power = np.array([3, 1, -1, -1, 0, 2], dtype), np.array([-1, -4, -2, -3, -1, 3], dtype)
    assert given("Pow", base, power)[0].tolist() == [0, 1, 1, -1, 0, 8]


def test_integers_to_powers_that_are_floats() -> None:
    for power in (0.5, 2.0, 1.5):
        check("Pow", np.array([1, 4, 9, 100], np.int32), np.full(4, power, F32))
    (got,) = given("Erf", np.array([-3, 0, 1, 2], np.int32), opset=9)
    assert got.tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("op", ["Sum", "Max", "Min", "Mean"])
def test_many_operands(op: str) -> None:
    """They become several nodes, so that no kernel grows with their number."""
    operands = [numbers(3, seed=k) for k in range(150)]
    graph = import_model(node_model(op, operands).SerializeToString())
    assert max(len(n.operands) for n in graph.nodes) <= WIDE
    (got,) = run(graph, feeds_of(operands))
    wanted = {"Sum": np.sum, "Max": np.max, "Min": np.min, "Mean": np.mean}[op](operands, axis=0)
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)  # 150 roundings of sums up to 30


@pytest.mark.parametrize("op", ["And", "Or", "Xor"])
def test_logic(op: str) -> None:
    a, b = np.array([[True], [False]]), np.array([True, False, True])
    check(op, a, b)
    check("Not", b)


def test_where_takes_the_type_of_its_branches() -> None:
    condition = np.array([[True], [False]])
    for dtype in (F32, F64, np.float16, np.int64):
        check("Where", condition, numbers(3, dtype=dtype, high=9), numbers(2, 1, dtype=dtype, seed=3))


@pytest.mark.parametrize("op", ["LeakyRelu", "HardSigmoid", "Selu", "Elu", "ThresholdedRelu"])
def test_defaults_have_32_bits(op: str) -> None:
    """Whatever is computed with: 0.01 is 0.009999999776."""
    x = numbers(40, dtype=F64)
    model = node_model(op, [x], version=22)
    assert_close(evaluated(model, {"x0": x}), reference(model, {"x0": x}), rtol=1e-13)


@pytest.mark.parametrize("to", [F32, F64, np.int64, np.int32, np.uint8, np.int8, BOOL, np.float16])
def test_cast(to: Any) -> None:
    code = helper.np_dtype_to_tensor_dtype(np.dtype(to))
    check("Cast", np.array([0.0, 1.9, 3.5, 100.25], F32), to=code)
    check("Cast", np.array([0, 1, 7], I64), to=code)
    check("Cast", np.array([True, False]), to=code)


def whole(dtype: Any, *shape: int, seed: int = 0) -> Array:
    info = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(info.min, info.max, shape, dtype, endpoint=True)


def test_casts_of_bits() -> None:
    def bits(x: Array, to: int) -> Array:
        return given("BitCast", x, opset=26, to=to)[0]

    for x, to in ((whole(np.int8, 300), np.uint8), (whole(np.uint16, 300), np.int16), (whole(np.uint32, 9), np.int32)):
        np.testing.assert_array_equal(bits(x, helper.np_dtype_to_tensor_dtype(np.dtype(to))), x.view(to))
    np.testing.assert_array_equal(bits(numbers(3), TensorProto.INT32), numbers(3).view(np.int32))
