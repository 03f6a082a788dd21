"""Quantisation and products of bytes against the reference evaluator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.evaluate import Array
from tests.support.nodes import F32, I64, check, given, numbers, refused

SCALES = [F32(0.05), np.array([0.05, 0.1, 0.02], F32)]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16])
def test_quantise_and_back(dtype: Any) -> None:
    x = numbers(2, 3, 4, low=-9, high=9)
    for scale in SCALES:
        zero = np.full(np.shape(scale), 3, dtype)
        (q,) = check("QuantizeLinear", x, np.asarray(scale), zero, opset=21, axis=1)
        check("DequantizeLinear", q, np.asarray(scale), zero, opset=21, axis=1)
    one = np.asarray(1.7, F32), np.array([0.05], F32), np.array([3], dtype)  # a scalar stays one
    (q,) = check("QuantizeLinear", *one, opset=21)
    check("DequantizeLinear", q, *one[1:], opset=21)
    blocks = np.abs(numbers(2, 2, 4)) + F32(0.1)
    check("QuantizeLinear", x, blocks, np.zeros((2, 2, 4), dtype), opset=21, axis=1, block_size=2)


@pytest.mark.parametrize("opset", [10, 11, 12])
def test_axes_in_opsets_before_them(opset: int) -> None:
    """As ONNX Runtime's quantiser writes weights and biases; with axis 1 the square weights have other values."""
    rng = np.random.default_rng(opset)
    scales, zeros = np.array([0.5, 2, 0.25], F32), np.array([0, 1, -2], np.int8)
    for shape in ((3,), (3, 3), (3, 2, 2)):
        weights = rng.integers(-99, 99, shape).astype(np.int8)
        along = (-1, *(1,) * (len(shape) - 1))
        (out,) = given("DequantizeLinear", weights, scales, zeros, opset=opset, axis=0)
        np.testing.assert_array_equal(out, (weights - zeros.reshape(along).astype(F32)) * scales.reshape(along))
        (back,) = given("QuantizeLinear", out, scales, zeros, opset=opset, axis=0)
        np.testing.assert_array_equal(back, weights)
    refused("DequantizeLinear", weights[:, 0, 0], scales, zeros, opset=13, axis=1, match="axis 1 is out of range")


def test_quantise_special_values() -> None:
    x = np.array([np.nan, np.inf, -np.inf, 1e30, 0.5, 1.5, 2.5, -0.5], F32)
    (out,) = given("QuantizeLinear", x, np.asarray(1, F32), np.asarray(0, np.int8), opset=21)
    np.testing.assert_array_equal(out, [-128, 127, -128, 127, 0, 2, 2, 0])


def whole(dtype: Any, *shape: int, seed: int = 0) -> Array:
    info = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(info.min, info.max, shape, dtype, endpoint=True)


@pytest.mark.parametrize("left", [np.int8, np.uint8])
@pytest.mark.parametrize("right", [np.int8, np.uint8])
def test_integer_products(left: Any, right: Any) -> None:
    a, w = whole(left, 3, 70, seed=1), whole(right, 70, 5, seed=2)
    check("MatMulInteger", a, w, np.asarray(5, left), whole(right, 5, seed=3))
    zeros = whole(left, 3, seed=4)  # of the rows, which the reference cannot read
    (out,) = given("MatMulInteger", a, w, zeros)
    np.testing.assert_array_equal(out, (a.astype(np.int32) - zeros[:, None]) @ w.astype(np.int32))
    (out,) = given("ConvInteger", whole(left, 1, 4, 5, 6), whole(right, 6, 2, 3, 2), group=2, pads=[1, 0, 1, 1])
    x = np.pad(whole(left, 1, 4, 5, 6).astype(I64), ((0, 0), (0, 0), (1, 1), (0, 1)))
    k = whole(right, 6, 2, 3, 2).astype(I64)
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 2), axis=(2, 3))
    wanted = np.einsum("ngchwij,gocij->ngohw", windows.reshape(1, 2, 2, 5, 6, 3, 2), k.reshape(2, 3, 2, 3, 2))
    np.testing.assert_array_equal(out, wanted.reshape(1, 6, 5, 6))
