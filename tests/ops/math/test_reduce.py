"""Reductions against the reference evaluator, in the forms of old and new opsets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

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
    """They are computed in f32 and lose their fraction."""
    x = np.array([[1, 2, 9], [20, 20, 21]], dtype)
    (got,) = given("ReduceLogSum", x, np.array([1], I64), keepdims=0)
    assert got.dtype == dtype and got.tolist() == [2, 4]
    (got,) = given("ReduceLogSumExp", x, np.array([1], I64), keepdims=0)
    assert got.dtype == dtype and got.tolist() == [9, 21]


def test_reductions_of_nothing() -> None:
    empty = np.zeros((2, 0, 3), F32)
    for op in ("ReduceSum", "ReduceProd", "ReduceL1"):
        check(op, empty, np.array([1], I64), fixed=(1,))
