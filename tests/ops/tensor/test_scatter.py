"""Operators that write elements at indices, against the reference evaluator."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from tests.support.nodes import F32, F64, I64, check, given, numbers, refused
from torshc.expr.text import condition_text
from torshc.formats import import_model


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
@pytest.mark.parametrize("dtype", [F32, F64, np.int32, np.uint8])
def test_scatters(reduction: str, dtype: Any) -> None:
    data, updates = numbers(4, 5, dtype=dtype, low=1, high=9), numbers(2, 3, dtype=dtype, low=1, high=9)
    repeats = reduction != "none"
    rows = np.array([[0, -1, 2], [0 if repeats else 3, 1, -2]], dtype=I64)
    check("ScatterElements", data, rows, updates, axis=0, reduction=reduction)
    check("ScatterElements", data, rows, updates, axis=-1, reduction=reduction)
    places = np.array([[[0, 1], [3, -1]], [[2, 2], [0 if repeats else 1, 1]]], dtype=I64)
    check("ScatterND", data, places, numbers(2, 2, dtype=dtype, low=1, high=9), reduction=reduction)
    check("ScatterND", data, places[..., :1][:, 0], numbers(2, 5, dtype=dtype, low=1, high=9), reduction=reduction)


def test_scatters_without_a_reduction_keep_the_last_update_and_drop_places_that_do_not_exist() -> None:
    zeros = np.zeros(3, F32)
    (out,) = given("ScatterElements", zeros, np.array([1, 1, 7], I64), np.array([1, 2, 3], F32))
    np.testing.assert_array_equal(out, [0, 2, 0])
    (out,) = given("ScatterND", zeros, np.array([[1], [1], [-9]], I64), np.array([1, 2, 3], F32))
    np.testing.assert_array_equal(out, [0, 2, 0])


def test_scatters_of_other_types() -> None:
    flags = np.array([True, False, True])
    check("ScatterElements", flags, np.array([1], I64), np.array([True]))
    refused("ScatterElements", flags, np.array([1], I64), flags[:1], reduction="max", match="booleans")


def test_many_updates_take_time_in_proportion_to_their_number() -> None:
    many = np.arange(1 << 17, dtype=I64) % 4
    (out,) = given("ScatterND", np.zeros(4, F32), many[:, None], np.ones(1 << 17, F32), reduction="add")
    np.testing.assert_array_equal(out, [1 << 15] * 4)


def test_unpooling_takes_the_places_back() -> None:
    x = np.arange(64, dtype=F32).reshape(1, 1, 8, 8) + 1
    pooled, places = given("MaxPool", x, outputs=2, kernel_shape=[2, 2], strides=[2, 2])
    (out,) = check("MaxUnpool", pooled, places, kernel_shape=[2, 2], strides=[2, 2])
    np.testing.assert_array_equal(out, np.where((x % 2 == 0) & ((x - 1) // 8 % 2 == 1), x, 0))


def test_caches_are_written_in_a_circle() -> None:
    cache, update = numbers(2, 5, 3), numbers(2, 2, 3, seed=1)
    (out,) = given("TensorScatter", cache, update, np.array([4, 1], I64), opset=24, mode="circular")
    wanted = cache.copy()
    wanted[0, [4, 0]], wanted[1, [1, 2]] = update[0], update[1]
    np.testing.assert_array_equal(out, wanted)
    refused("TensorScatter", cache, update, np.array([[4], [1]], I64), opset=24, match="at places i64.2, 1.")


def test_empty_tensors() -> None:
    refused("GridSample", np.zeros((1, 1, 0, 3), F32), numbers(1, 2, 2, 2), match="no elements")
    data = numbers(2, 3)
    check("ScatterElements", data, np.zeros((0, 3), I64), np.zeros((0, 3), F32))
    check("ScatterND", data, np.zeros((0, 1), I64), np.zeros((0, 3), F32))


def test_indices_that_reach_beyond_the_data_are_a_condition() -> None:
    """Beside the axis there may be fewer of them; more would be written behind a row, and behind the last one."""
    made = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 18]>
        g (float[n, m] x, int64[k, j] i, float[k, j] u) => (float[n, m] y, float[k, j] z) {
            y = ScatterElements <axis = 0> (x, i, u)
            z = GatherElements <axis = 0> (x, i)
        }""")
    found = {condition_text(left, right) for left, right in import_model(made.SerializeToString()).constraints}
    assert found == {"j <= m"}
