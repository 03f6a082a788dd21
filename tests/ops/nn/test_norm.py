"""Softmax and normalisations against the reference evaluator."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.compare import reference
from tests.support.models import node_model
from tests.support.nodes import F32, check, given, numbers, refused


@pytest.mark.parametrize("opset", [7, 11, 13, 20])
@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
def test_softmax(op: str, opset: int) -> None:
    x = numbers(2, 3, 4)
    for axis in (0, 1, 2):
        if opset >= 13:
            check(op, x, opset=opset, axis=axis)
            continue
        # The reference evaluator has no form of these opsets: the operand as a matrix, by hand.
        matrix = x.reshape(int(np.prod(x.shape[:axis])), -1)
        (wanted,) = reference(node_model(op, [matrix], version=13, axis=1), {"x0": matrix})
        np.testing.assert_allclose(given(op, x, opset=opset, axis=axis)[0], wanted.reshape(x.shape), rtol=1e-5)


def test_hardmax_of_nothing() -> None:
    for shape in ((3, 0), (0, 3)):
        (out,) = given("Hardmax", np.zeros(shape, F32))
        assert out.shape == shape


def test_normalisations() -> None:
    x = numbers(2, 6, 5)
    check("LayerNormalization", x, numbers(5, seed=1), numbers(5, seed=2))
    check("LayerNormalization", x, numbers(6, 5, seed=1), outputs=3, axis=1)
    check("InstanceNormalization", x, numbers(6, seed=1), numbers(6, seed=2))
    check("GroupNormalization", x, numbers(6, seed=1), numbers(6, seed=2), num_groups=3, opset=21)
    check("LRN", numbers(7, 7, 3, 3), size=3)  # the reference is right only where N is C
    check("LRN", numbers(7, 7, 3, 3), size=4, alpha=0.1, beta=0.5, bias=2.0)
    check("LpNormalization", np.abs(x), p=1, axis=1)  # the reference forgets the absolute value
    check("LpNormalization", x)
    check("MeanVarianceNormalization", numbers(2, 3, 4, 5))
    vectors = [numbers(6, low=0.2, seed=k) for k in range(4)]
    check("BatchNormalization", x, *vectors)
    check("BatchNormalization", x, *vectors, opset=14, epsilon=0.1)
    check("RMSNormalization", x, numbers(5, seed=1), opset=23)


def test_groups_divide_the_channels() -> None:
    refused("GroupNormalization", numbers(2, 4, 3), numbers(4), numbers(4), num_groups=3, match="in 3 groups")
    refused("GroupNormalization", numbers(4), numbers(4), numbers(4), num_groups=2, match="in 2 groups")


def test_a_scale_that_widens_the_operand_is_refused() -> None:
    for op in ("RMSNormalization", "LayerNormalization"):
        refused(op, numbers(2, 1), numbers(8), opset=23, match="with a scale or bias")


def test_lp_normalisation_of_zeros_is_zero() -> None:
    np.testing.assert_array_equal(given("LpNormalization", np.zeros((2, 3), F32))[0], 0)


def test_batch_normalization_in_training() -> None:
    x = numbers(4, 3, 5)
    vectors = [np.abs(numbers(3, seed=k)) for k in range(4)]
    check("BatchNormalization", x, *vectors, outputs=3, training_mode=1, momentum=0.7)


@pytest.mark.parametrize("offset", [0.0, 1e4, -3e5])
def test_statistics_of_a_batch_far_from_zero(offset: float) -> None:
    """Sums over differences from a first element lose nothing to a mean that is many deviations away from 0."""
    x = (numbers(8, 2, 5, 6) + offset).astype(F32)
    vectors = [np.ones(2, F32), np.zeros(2, F32), np.zeros(2, F32), np.zeros(2, F32)]
    y, *_ = given("BatchNormalization", x, *vectors, opset=15, training_mode=1, outputs=3)
    wide = x.astype(np.float64)
    mean, variance = wide.mean((0, 2, 3), keepdims=True), wide.var((0, 2, 3), keepdims=True)
    # The mean, and products of it and of x with 1 / deviation, are rounded to 2^-24 of themselves.
    tolerance = 1e-5 + 2.0**-22 * abs(offset) / float(variance.min()) ** 0.5
    np.testing.assert_allclose(y, (wide - mean) / np.sqrt(variance + 1e-5), atol=tolerance)


def test_a_constant_channel_has_no_variance() -> None:
    x = np.full((4, 1, 3, 3), 0.1, F32)
    vectors = [np.ones(1, F32), np.zeros(1, F32), np.zeros(1, F32), np.ones(1, F32)]
    y, mean, variance = given("BatchNormalization", x, *vectors, opset=15, training_mode=1, momentum=0.0, outputs=3)
    assert (y == 0).all() and mean[0] == F32(0.1) and variance[0] == 0
