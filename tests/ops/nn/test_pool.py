"""Pools against the reference evaluator."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.nodes import check, given, numbers, refused


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
def test_pools(op: str) -> None:
    x = numbers(1, 2, 7, 9)
    check(op, x, kernel_shape=[3, 2])
    check(op, x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    if op != "LpPool":
        check(op, x, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
        check(op, x, kernel_shape=[2, 2], dilations=[2, 3], opset=19)
    if op == "AveragePool":
        check(op, x, kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1)


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_a_window_larger_than_the_data(op: str) -> None:
    """The last window may reach beyond the data by less than a step, and it may be the first; so pools EfficientNet."""
    x = numbers(1, 3, 7, 5)
    mean = {"count_include_pad": 1} if op == "AveragePool" else {}
    wanted = (x.max if op == "MaxPool" else x.mean)((2, 3), keepdims=True)
    for size in (8, 13, 5000):
        (got,) = given(op, x, kernel_shape=[size] * 2, strides=[size] * 2, ceil_mode=1, opset=19, **mean)
        np.testing.assert_allclose(got, wanted, rtol=1e-5)
    refused(op, x, kernel_shape=[8, 5], strides=[1, 1], ceil_mode=1, match="a kernel of 8 does not fit into 7")


def test_the_mean_of_a_window_in_the_margin() -> None:
    """It has no elements, so that it is NaN, also where it lies outside along both axes."""
    for more in ({}, {"dilations": [2, 3]}):
        (got,) = given("AveragePool", numbers(1, 1, 4, 4), kernel_shape=[2, 2], pads=[5, 5, 4, 1], opset=19, **more)
        outside = np.isnan(got[0, 0])
        assert outside[0].all() and outside[:, 0].all() and outside[:2, :2].all() and not outside[5, 5]


@pytest.mark.parametrize("op", ["GlobalAveragePool", "GlobalMaxPool"])
def test_global_pools(op: str) -> None:
    check(op, numbers(2, 3, 5, 4))
    if op == "GlobalAveragePool":  # the reference's maximum drops the channels here
        check(op, numbers(2, 3, 5))


def test_global_lp_pool() -> None:
    x = numbers(2, 3, 5, 4)
    for p in (1, 2, 3):
        (got,) = given("GlobalLpPool", x, p=p)
        wanted = (np.abs(x) ** p).sum(axis=(2, 3), keepdims=True) ** (1 / p)
        np.testing.assert_allclose(got, wanted, rtol=1e-5)


def test_places_of_maxima() -> None:
    x = numbers(2, 3, 7, 6)
    x[0, 0, 2:4, 1:3] = 5  # equal maxima
    for columns in (0, 1):
        for strides in ([1, 1], [2, 3]):
            model = {"kernel_shape": [3, 2], "strides": strides, "storage_order": columns}
            pooled, places = given("MaxPool", x, outputs=2, pads=[1, 0, 1, 1], **model)
            order = x.transpose(0, 1, 3, 2) if columns else x
            np.testing.assert_array_equal(order.reshape(-1)[places], pooled)


@pytest.mark.parametrize("op", ["LpPool", "GlobalLpPool"])
def test_an_order_that_is_none(op: str) -> None:
    more = {"kernel_shape": [2, 2]} if op == "LpPool" else {}
    refused(op, numbers(1, 2, 3, 4), p=0, **more, match=r"'it' .*attribute 'p' is 0, and must be 1 or more")
