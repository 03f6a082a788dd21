"""Opsets 1 to 6: broadcasting along an axis, slopes of channels, attributes that became operands."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.evaluate import Array
from tests.support.nodes import given
from torshc.base.errors import ModelError, UnsupportedError

F32, I64 = np.float32, np.int64


def result(op: str, *operands: Array, opset: int, fixed: int = 0, **more: Any) -> Array:
    """The first result of a node; the last `fixed` operands are initializers."""
    known = tuple(range(len(operands) - fixed, len(operands)))
    return given(op, *operands, fixed=known, opset=opset, **more)[0]


def numbers(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).uniform(-2, 2, shape).astype(F32)


@pytest.mark.parametrize("opset", [1, 6])
def test_broadcasting_along_an_axis(opset: int) -> None:
    x, columns, block = numbers(2, 3, 4, 5), numbers(3), numbers(3, 4)
    out = result("Mul", x, columns, opset=opset, broadcast=1, axis=1)
    np.testing.assert_array_equal(out, x * columns[:, None, None])
    out = result("Sub", x, block, opset=opset, broadcast=1, axis=-3)
    np.testing.assert_array_equal(out, x - block[:, :, None])
    out = result("Add", x, numbers(5), opset=opset, broadcast=1)
    np.testing.assert_array_equal(out, x + numbers(5))
    with pytest.raises(ModelError, match="broadcast is not set"):
        result("Add", x, numbers(5), opset=opset)
    with pytest.raises(ModelError, match="does not fit"):
        result("Add", x, block, opset=opset, broadcast=1, axis=3)


@pytest.mark.parametrize("opset", [1, 6])
def test_slopes_belong_to_channels(opset: int) -> None:
    x, slope = numbers(2, 3, 3), numbers(3)
    np.testing.assert_array_equal(result("PRelu", x, slope, opset=opset), np.where(x < 0, x * slope[:, None], x))
    np.testing.assert_array_equal(result("PRelu", x, slope[:1], opset=opset), np.where(x < 0, x * slope[0], x))


def test_attributes_that_changed() -> None:
    x = numbers(2, 3)
    assert result("Cast", x, opset=1, to="INT64").dtype == I64
    np.testing.assert_array_equal(result("Reshape", x, opset=1, shape=[3, -1]), x.reshape(3, 2))
    np.testing.assert_array_equal(result("Concat", x, x, opset=1), np.concatenate([x, x], 1))
    np.testing.assert_array_equal(result("Pad", x, opset=1, paddings=[1, 0, 0, 2]), np.pad(x, ((1, 0), (0, 2))))
    np.testing.assert_array_equal(result("Relu", x, opset=1, consumed_inputs=[0]), np.maximum(x, 0))
    times = np.asarray(3, F32), np.asarray(1, F32)
    np.testing.assert_array_equal(result("Tile", x, *times, opset=1, fixed=2), np.tile(x, (1, 3)))
    image = numbers(1, 1, 2, 2)
    out = result("Upsample", image, opset=1, height_scale=2.0, width_scale=3.0)
    np.testing.assert_array_equal(out, image.repeat(2, 2).repeat(3, 3))


def along(x: Array, y: Array) -> Array:
    """y as x's channels, dimension 1."""
    return y.reshape(-1, *(1,) * (x.ndim - 2))


X, M, V = numbers(2, 3, 4, 5), numbers(2, 6), numbers(3)
WINDOWS = [X[:, :, i : i + 3, j : j + 4] for i in (0, 1) for j in (0, 1)]
LARGE = [np.abs(numbers(3, 4, 5)) + F32(k + 0.5) for k in range(4)]  # scale, bias, mean, variance of each activation
FORMS: list[tuple[str, tuple[Array, ...], dict[str, Any], Array]] = [
    ("Split", (M,), {"axis": 1, "split": [2, 4], "outputs": 2}, M[:, :2]),
    ("Split", (M,), {"axis": 1, "outputs": 2}, M[:, :3]),
    ("Slice", (X,), {"starts": [0, 1], "ends": [1, 3], "axes": [0, 2]}, X[:1, :, 1:3]),
    ("Slice", (X,), {"starts": [0, 1], "ends": [1, -1]}, X[:1, 1:-1]),
    ("Squeeze", (X[:1],), {"axes": [0]}, X[0]),
    ("Unsqueeze", (M,), {"axes": [0, 3]}, M[None, :, :, None]),
    ("Gemm", (numbers(3, 4), numbers(4, 5), numbers(5)), {"broadcast": 1, "alpha": 0.5, "beta": 2.0},
     numbers(3, 4) @ numbers(4, 5) / 2 + 2 * numbers(5)),
    ("Less", (X, V), {"broadcast": 1, "axis": 1}, along(X, V) > X),
    ("And", (X > 0, V > 0), {"broadcast": 1, "axis": 1}, (X > 0) & along(X, V > 0)),
    ("Pow", (np.abs(X), V), {"broadcast": 1, "axis": 1}, np.abs(X) ** along(X, V)),
    ("Div", (X, V[:1]), {"broadcast": 1, "axis": 0}, X / V[0]),
    ("LpPool", (X,), {"kernel_shape": [2, 2]}, np.sqrt(sum(np.square(w) for w in WINDOWS))),
    ("MaxPool", (X,), {"kernel_shape": [2, 2]}, np.max(WINDOWS, 0)),
    ("Softmax", (X,), {}, np.exp(X) / np.exp(X).sum((1, 2, 3), keepdims=True)),
    ("ReduceSum", (X,), {"axes": [1], "keepdims": 0}, X.sum(1)),
    ("TopK", (M,), {"k": 2, "outputs": 2}, -np.sort(-M, 1)[:, :2]),
    ("Clip", (X,), {"min": -0.5}, X.clip(-0.5)),
    ("ThresholdedRelu", (X,), {}, np.where(X > 1, X, 0)),
    ("BatchNormalization", (X, *LARGE), {"is_test": 1, "spatial": 0},
     (X - LARGE[2]) / np.sqrt(LARGE[3] + 1e-5) * LARGE[0] + LARGE[1]),
]  # fmt: skip


@pytest.mark.parametrize("opset", [1, 4, 6])
@pytest.mark.parametrize(("op", "operands", "form", "wanted"), FORMS, ids=[f"{f[0]}{k}" for k, f in enumerate(FORMS)])
def test_forms_of_old(op: str, operands: tuple[Array, ...], form: dict[str, Any], wanted: Array, opset: int) -> None:
    """Against what the texts of those opsets say, in NumPy."""
    hints = {"consumed_inputs": [0] * len(operands)} if op in ("Clip", "BatchNormalization") and opset < 6 else {}
    got = result(op, *operands, opset=opset, **form, **hints)
    assert got.shape == wanted.shape
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


def test_test_mode() -> None:
    x, vectors = numbers(2, 3, 4), [np.abs(numbers(3)) + F32(k) for k in range(4)]
    out = result("BatchNormalization", x, *vectors, opset=6, is_test=1, epsilon=0.0)
    scale, bias, mean, variance = (v[:, None] for v in vectors)
    np.testing.assert_allclose(out, (x - mean) / np.sqrt(variance) * scale + bias, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(result("Dropout", x, opset=6, is_test=1), x)
    with pytest.raises(UnsupportedError, match="training mode"):
        result("BatchNormalization", x, *vectors, opset=6)
    trained = result("Dropout", x, opset=6)
    np.testing.assert_allclose(trained, np.where(trained == 0, 0, 2 * x), rtol=1e-6)


def test_what_has_no_translation_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"a norm with p = 1.5"):
        result("GlobalLpPool", numbers(1, 2, 4), opset=1, p=1.5)
    with pytest.raises(UnsupportedError, match="known only at run time"):
        result("Tile", numbers(2), np.asarray(3, F32), np.asarray(0, F32), opset=1)
