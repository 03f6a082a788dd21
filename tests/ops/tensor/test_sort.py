"""TopK against NumPy, with ties and NaN."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.evaluate import Array
from tests.support.nodes import F32, F64, I64, given, numbers, refused


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("dtype", [F32, np.int32, np.uint8])
def test_topk(largest: int, dtype: Any) -> None:
    x = numbers(3, 7, 2, dtype=dtype, low=0, high=4)
    for axis, k in ((1, 3), (-1, 2), (0, 0), (1, 7)):
        got = given_topk(x, k, axis, largest)
        order = np.argsort(-x.astype(F64) if largest else x.astype(F64), axis=axis, kind="stable")
        places = np.take(order, np.arange(k), axis=axis)
        np.testing.assert_array_equal(got[1], places)
        np.testing.assert_array_equal(got[0], np.take_along_axis(x, places, axis))


def given_topk(x: Array, k: int, axis: int, largest: int) -> list[Array]:
    form = {"axis": axis, "largest": largest, "sorted": 0}
    return given("TopK", x, np.array([k], I64), fixed=(1,), outputs=2, **form)


def test_topk_takes_nan_for_the_largest() -> None:
    x = np.array([1, np.nan, np.inf, np.nan, -np.inf], F32)
    np.testing.assert_array_equal(given_topk(x, 4, 0, 1)[1], [1, 3, 2, 0])
    np.testing.assert_array_equal(given_topk(x, 5, 0, 0)[1], [4, 0, 2, 1, 3])
    refused("TopK", x, np.array([6], I64), fixed=(1,), outputs=2, match="6 largest of 5")
