"""Reductions against the reference evaluator, in the forms of old and new opsets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import torshc
from tests.support.nodes import F32, I64, check, given, numbers

REDUCTIONS = [
    "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare",
    "ReduceLogSum", "ReduceLogSumExp",
]  # fmt: skip


@pytest.mark.parametrize("op", REDUCTIONS)
def test_reductions(op: str) -> None:
    x = numbers(3, 4, 5, low=0.1, high=1.5)
    for keepdims in (0, 1):
        check(op, x, np.array([1], I64), fixed=(1,), keepdims=keepdims)
        check(op, x, np.array([-1, 0], I64), fixed=(1,), keepdims=keepdims)
        check(op, x, keepdims=keepdims)
    check(op, x, opset=11, axes=[1, 2])
    if op != "ReduceLogSumExp":  # where the reference fails
        check(op, numbers(low=0.1))
    check(op, numbers(4, low=0.1), np.array([], I64), fixed=(1,), noop_with_empty_axes=1)


def test_logarithms_of_infinite_sums() -> None:
    """By ONNX's definition; its evaluator has NaN for the logarithm of a sum of zeros."""
    inf, nan = np.inf, np.nan
    x = np.array([[1, 2, inf], [-inf, 3, 1], [inf, -inf, 0], [nan, inf, 1], [1e30, 0, 1]], F32)
    for axis in (1, 0):
        check("ReduceLogSumExp", x, np.array([axis], I64), fixed=(1,))
        check("ReduceLogSumExp", x, np.array([axis], I64))
    (got,) = given("ReduceLogSumExp", np.full((2, 3), -inf, F32), np.array([1], I64), keepdims=0)
    assert got.tolist() == [-inf, -inf]


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32])
def test_logarithms_of_integers(dtype: Any) -> None:
    """They lose their fraction."""
    x = np.array([[1, 2, 9], [20, 20, 21]], dtype)
    (got,) = given("ReduceLogSum", x, np.array([1], I64), keepdims=0)
    assert got.dtype == dtype and got.tolist() == [2, 4]
    (got,) = given("ReduceLogSumExp", x, np.array([1], I64), keepdims=0)
    assert got.dtype == dtype and got.tolist() == [9, 21]


def test_whole_results_of_integers() -> None:
    """Roots and logarithms of integers that no float holds, over axes of the model and of the run."""
    # (2 k^2)^2 + (2 k)^2 is one less than a square
    steps = {"int32": [1, 9, 152], "uint32": [181], "int64": [1000, 9000, 38900], "uint64": [1000, 46340]}
    logs = [[2**30 + 1, 1, 1], [7, 5, 10], [20, 20, 21], [0, 0, 0]]
    signed = [[-5, -5, -5], [-1, -2, -2], [-(2**31), 2**31 - 1, 0], [-(2**31), -(2**31), -(2**31)]]
    nodes, inputs, feeds, wanted = [], [], {"axis": np.array([1])}, {}
    for name, ks in steps.items():
        dtype = np.dtype(name)
        pairs = [[2 * k * k, more] for k in ks for more in (0, 2 * k)]
        plain = [*logs, *(signed if name.startswith("i") else [])]
        rows = {"L2": (pairs, [first for first, _ in pairs]), "LogSumExp": (plain, [_log_sum_exp(r) for r in plain])}
        for op, (table, results) in rows.items():
            own = f"{name}_{op}"
            feeds[own] = np.array(table, dtype)
            kind = helper.np_dtype_to_tensor_dtype(dtype)
            inputs.append(helper.make_tensor_value_info(own, kind, feeds[own].shape))
            for axis in ("one", "axis"):
                nodes.append(helper.make_node(f"Reduce{op}", [own, axis], [f"{own}_{axis}"]))
                wanted[f"{own}_{axis}"] = results
    inputs.append(helper.make_tensor_value_info("axis", TensorProto.INT64, [1]))
    outputs = [helper.make_empty_tensor_value_info(name) for name in wanted]
    graph = helper.make_graph(nodes, "g", inputs, outputs, [numpy_helper.from_array(np.array([1]), "one")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=8)
    found = torshc.compile(model.SerializeToString(), opt_level=1).run(feeds)
    assert {name: array[:, 0].tolist() for name, array in found.items()} == wanted


def _log_sum_exp(row: Sequence[int]) -> int:
    """Towards 0."""
    most = max(row)
    return math.trunc(most + Fraction(math.log(sum(math.exp(x - most) for x in row))))


def test_reductions_of_nothing() -> None:
    empty = np.zeros((2, 0, 3), F32)
    for op in ("ReduceSum", "ReduceProd", "ReduceL1"):
        check(op, empty, np.array([1], I64), fixed=(1,))
