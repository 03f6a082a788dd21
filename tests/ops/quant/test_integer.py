"""Operators on bytes, compiled: zero points of either side, known or not, of either sign, and what margins count as."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

from tests.support.compare import compiled
from tests.support.evaluate import Array
from tests.support.models import model
from tests.support.seeded import seeded

node = helper.make_node
RNG = seeded(9)


def whole(dtype: Any, *shape: int) -> Array:
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max, shape, dtype, endpoint=True)


def windows(x: Array, kernel: tuple[int, int]) -> Array:
    """[N, H, W, C * kernel] of the places where a kernel fits."""
    n, c = x.shape[:2]
    found = np.lib.stride_tricks.sliding_window_view(x, kernel, axis=(2, 3)).transpose(0, 2, 3, 1, 4, 5)
    return found.reshape(n, *found.shape[1:3], c * kernel[0] * kernel[1])


@pytest.mark.parametrize("left", [np.int8, np.uint8])
@pytest.mark.parametrize("right", [np.int8, np.uint8])
def test_zero_points(left: Any, right: Any, tmp_path: Path) -> None:
    """Products with zero points known at compile time or run time, also where differences exceed bytes."""
    x, w, k = whole(left, 2, 7, 30), whole(right, 30, 21), whole(right, 9, 6, 3, 2)
    image, zero = whole(left, 1, 6, 5, 4), np.asarray(7, left)
    columns = whole(right, 21)
    feeds = {"x": x, "image": image, "zx": zero, "zw": columns}
    known = {"w": w, "k": k, "x0": zero, "w0": columns, "far": np.asarray(np.iinfo(right).max, right)}
    nodes = [
        node("MatMulInteger", ["x", "w"], ["y_plain"]),
        node("MatMulInteger", ["x", "w", "x0", "w0"], ["y_known"]),
        node("MatMulInteger", ["x", "w", "zx", "zw"], ["y_told"]),
        node("ConvInteger", ["image", "k", "zx"], ["y_conv"], pads=[1, 0, 1, 1]),
        node("ConvInteger", ["image", "k", "x0", "far"], ["y_far"], pads=[1, 0, 1, 1]),
    ]
    got = compiled(model(nodes, feeds, weights=known), feeds, tmp_path, jobs=1)
    wide = x.astype(np.int32)
    centred = (wide - int(zero)) @ (w.astype(np.int32) - columns)
    np.testing.assert_array_equal(got["y_plain"], wide @ w.astype(np.int32))
    np.testing.assert_array_equal(got["y_known"], centred)
    np.testing.assert_array_equal(got["y_told"], centred)
    padded = np.pad(image.astype(np.int32) - int(zero), ((0, 0), (0, 0), (1, 1), (0, 1)))
    for name, off in (("y_conv", 0), ("y_far", int(known["far"]))):
        sums = windows(padded, (3, 2)) @ (k.astype(np.int32) - off).reshape(9, -1).T
        np.testing.assert_array_equal(got[name], sums.transpose(0, 3, 1, 2), err_msg=name)


def test_quantised_products(tmp_path: Path) -> None:
    x, w = whole(np.uint8, 1, 8, 6, 5), whole(np.int8, 20, 8, 3, 3)
    scales = RNG.uniform(1e-4, 1e-3, 20).astype(np.float32)
    known: dict[str, Array] = {
        "w": w, "ws": scales, "wz": np.zeros(20, np.int8), "s": np.asarray(0.5, np.float32), "b": whole(np.int16, 20),
        "z": np.asarray(100, np.uint8), "m": whole(np.int8, 5, 11), "mz": np.asarray(0, np.int8),
        "t": np.asarray(0.05, np.float32), "ts": np.asarray(40, np.float32),
    }  # fmt: skip
    known["b"] = known["b"].astype(np.int32)
    nodes = [
        node("QLinearConv", ["x", "s", "z", "w", "ws", "wz", "s", "z", "b"], ["y_conv"], pads=[1, 1, 1, 1]),
        node("QLinearMatMul", ["x", "s", "z", "m", "t", "mz", "ts", "z"], ["y_product"]),
    ]
    got = compiled(model(nodes, {"x": x}, weights=known), {"x": x}, tmp_path, jobs=1)
    padded = np.pad(x.astype(np.int32) - 100, ((0, 0), (0, 0), (1, 1), (1, 1)))
    sums = windows(padded, (3, 3)) @ w.astype(np.int32).reshape(20, -1).T + known["b"]
    wanted = np.clip(np.rint(sums * scales.astype(np.float64)) + 100, 0, 255).transpose(0, 3, 1, 2)
    assert np.abs(got["y_conv"] - wanted).max() <= 1
    assert np.ptp(wanted) > 100
    product = (x.astype(np.int32) - 100) @ known["m"].astype(np.int32)
    assert np.abs(got["y_product"] - np.clip(np.rint(product * (0.5 * 0.05 / 40)) + 100, 0, 255)).max() <= 1
