"""Resize in all its modes, and the operators that move pixels, against the reference evaluator."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support import contrib
from tests.support.nodes import F32, I64, check, given, numbers


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("transform", ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"])
def test_resize(mode: str, transform: str) -> None:
    x = numbers(1, 2, 5, 4)
    for scales in ([1, 1, 2, 2], [1, 1, 0.6, 1.7], [1, 1, 0.3, 3]):
        if transform == "pytorch_half_pixel" and 0.3 in scales:
            continue  # where one pixel is left, ONNX's text says coordinate 0 and the reference says otherwise
        check("Resize", x, None, np.array(scales, F32), fixed=(2,), mode=mode, coordinate_transformation_mode=transform)
    sizes = np.array([1, 2, 7, 3], I64)
    check("Resize", x, None, None, sizes, fixed=(3,), mode=mode, coordinate_transformation_mode=transform)


@pytest.mark.parametrize("rounding", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
def test_nearest(rounding: str) -> None:
    for scale in (0.5, 2.0, 1.5, 0.7):
        check("Resize", numbers(5, 4), None, np.array([scale, 1], F32), fixed=(2,), nearest_mode=rounding)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int32])
@pytest.mark.parametrize(("mode", "antialias"), [("linear", 0), ("cubic", 0), ("linear", 1), ("cubic", 1)])
def test_integers_are_weighted_as_floats_and_rounded(mode: str, antialias: int, dtype: type) -> None:
    """Halves to even, and what is beyond the type to its nearest; ONNX Runtime drops the fraction."""
    low, high = (0, 255) if dtype is np.uint8 else (-128, 127)
    x = np.random.default_rng(0).choice([low, low + 1, 7, high - 1, high], (1, 2, 4, 9)).astype(dtype)
    x[0, 0] = 7  # which thirds of it may miss
    scales = [[1, 1, 0.5, 0.6]] if antialias else [[1, 1, 2, 2], [1, 1, 3, 1]]
    for scale in scales:
        check("Resize", x, None, np.array(scale, F32), fixed=(2,), mode=mode, antialias=antialias)


def test_upsample() -> None:
    x = numbers(1, 1, 2, 3)
    scales = np.array([1, 1, 2, 3], F32)
    wanted = x.repeat(2, axis=2).repeat(3, axis=3)
    old = given("Upsample", x, opset=7, scales=[1.0, 1.0, 2.0, 3.0], mode="nearest")
    newer = given("Upsample", x, scales, fixed=(1,), opset=9, mode="nearest")
    resize = given("Resize", x, scales, fixed=(1,), opset=10, mode="nearest")
    for (got,) in (old, newer, resize):
        np.testing.assert_array_equal(got, wanted)


def test_opset_10_rounds_up_where_a_dimension_shrinks() -> None:
    """As onnx's case of that opset shows, test_resize_downsample_nearest, and as ONNX Runtime has it."""
    x, scales = np.arange(1, 9, dtype=F32).reshape(1, 1, 2, 4), np.array([1, 1, 0.6, 0.6], F32)
    (got,) = given("Resize", x, scales, fixed=(1,), opset=10, mode="nearest")
    np.testing.assert_array_equal(got, [[[[1, 3]]]])
    for scale in ([1, 1, 0.75, 1.25], [1, 1, 2.5, 0.3]):
        operands = numbers(1, 2, 7, 11), np.array(scale, F32)
        contrib.check("Resize", *operands, fixed=(1,), domain="", version=10, mode="nearest")


def test_shuffles() -> None:
    x = numbers(2, 8, 3, 5)
    check("DepthToSpace", x, blocksize=2)
    check("DepthToSpace", x, blocksize=2, mode="CRD")
    check("SpaceToDepth", numbers(2, 3, 4, 6), blocksize=2)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_resize_of_a_crop(mode: str) -> None:
    roi, sizes = np.array([0, 0.15, -0.2, 1, 0.7, 1.3], F32), np.array([2, 5, 1], I64)
    check(
        "Resize", numbers(2, 6, 7), roi, None, sizes, fixed=(1, 3), mode=mode, extrapolation_value=3.0,
        coordinate_transformation_mode="tf_crop_and_resize",
    )  # fmt: skip
