"""ONNX's experimental operators of its first releases, against ONNX Runtime, or ONNX's text where that has none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.contrib import check, compiled, model_of
from tests.support.evaluate import run
from tests.support.models import Array, feeds_of
from tests.support.nodes import numbers
from torshc.base.errors import ModelError, TorshcError, UnsupportedError
from torshc.formats import import_model

F32, I32, I64 = np.float32, np.int32, np.int64
X = numbers(2, 3, 4, 5)


def same(op: str, *operands: Array, **form: Any) -> None:
    for opset in (4, 7, 9):
        check(op, *operands, domain="", version=opset, **form)


def made(op: str, *operands: Array, fixed: tuple[int, ...] = (), **form: Any) -> Array:
    model = model_of(op, operands, fixed, domain="", version=7, **form)
    return run(import_model(model.SerializeToString()), feeds_of(operands, fixed))[0]


def refused(op: str, *operands: Array, match: str, **form: Any) -> None:
    with pytest.raises((ModelError, UnsupportedError), match=match):
        made(op, *operands, **form)


@pytest.mark.parametrize("x", [X, numbers(0, 2), numbers(), np.array([np.nan, np.inf, -np.inf, -0.0, 200], F32)])
def test_functions_of_elements(x: Array) -> None:
    same("Affine", x, alpha=2.0, beta=-0.5)
    same("Affine", x)
    same("ScaledTanh", x, alpha=2.0, beta=0.5)
    same("ParametricSoftplus", x, alpha=2.0, beta=0.75)
    same("ThresholdedRelu", x, alpha=0.25)
    same("ThresholdedRelu", x)
    for scale in (1.0, -2.5):  # ONNX Runtime's Scale is not an operator of ONNX, but WinML's models have it
        np.testing.assert_array_equal(made("Scale", x, scale=scale), x * F32(scale))


def test_halves() -> None:
    x = X.astype(np.float16)
    got = made("ScaledTanh", x, alpha=2.0, beta=0.5)
    assert got.dtype == np.float16
    wanted = 2 * np.tanh(x.astype(np.float64) / 2)
    np.testing.assert_allclose(got, wanted, rtol=4e-3, atol=1e-3)  # three roundings of 2^-11


def test_images() -> None:
    for size in ((2, 3, 4, 5), (1, 3, 1, 1)):
        same("ImageScaler", numbers(*size), scale=0.5, bias=[1.0, -2.0, 3.0])
    same("ImageScaler", X, bias=[1.0, -2.0, 3.0])
    same("Crop", X, border=[1, 0, 2, 1])
    same("Crop", X, border=[0, 0, 0, 0])
    same("Crop", X, border=[1, 2, 0, 0], scale=[2, 3])
    np.testing.assert_array_equal(made("Crop", X, border=[3, 1, 2, 0]), X[:, :, 1:, 3:3])


def test_images_of_symbolic_sizes(tmp_path: Path) -> None:
    """What does not fit is refused by the run."""
    model = model_of("Crop", (X,), domain="", version=7, dims={0: ["n", 3, "h", "w"]}, border=[1, 0, 2, 1])
    for x in (X, numbers(1, 3, 1, 3)):
        np.testing.assert_array_equal(compiled(model, {"x0": x}, tmp_path)[0], x[:, :, :-1, 1:-2])
    with pytest.raises(TorshcError, match=r"below zero|fit"):
        compiled(model, {"x0": numbers(1, 3, 4, 2)}, tmp_path)
    model = model_of("ImageScaler", (X,), domain="", version=7, dims={0: ["n", "c", 4, "w"]}, bias=[1.0, 2.0, 3.0])
    (got,) = compiled(model, {"x0": X}, tmp_path)
    np.testing.assert_allclose(got, X + np.array([1, 2, 3], F32).reshape(3, 1, 1), rtol=1e-6)
    with pytest.raises(TorshcError, match=r"c == 3 does not hold, 2 is not 3"):
        compiled(model, {"x0": numbers(2, 2, 4, 5)}, tmp_path)


@pytest.mark.parametrize("normalize", [0, 1])
@pytest.mark.parametrize("across", [0, 1])
def test_normalisation(across: int, normalize: int) -> None:
    form = {"across_channels": across, "normalize_variance": normalize}
    for opset in (1, 8):
        check("MeanVarianceNormalization", X, domain="", version=opset, rtol=1e-4, atol=1e-5, **form)
    refused("MeanVarianceNormalization", numbers(2, 3), match="no spatial dimensions")
    refused("MeanVarianceNormalization", X, axes=[0, 2], match="no attribute 'axes'")


def test_slices_by_operands() -> None:
    starts, ends = np.array([1, -3], I64), np.array([4, 100], I64)
    for fixed in ((), (1, 2, 3)):
        got = made("DynamicSlice", X, starts, ends, np.array([2, 3], I64), fixed=fixed)
        np.testing.assert_array_equal(got, X[:, :, 1:4, -3:])
    np.testing.assert_array_equal(made("DynamicSlice", X, starts, ends, fixed=(1, 2)), X[1:4, -3:])


def test_constants_of_an_attribute() -> None:
    """As ONNX's text has them: the shape is an attribute, or that of an operand, or its elements."""
    got = made("ConstantFill", shape=[2, 3], value=1.5)
    assert got.dtype == F32 and got.tolist() == [[1.5] * 3] * 2
    got = made("ConstantFill", X, extra_shape=[2], value=7.9, dtype=6)
    assert got.dtype == I32 and got.shape == (2, 3, 4, 5, 2) and (got == 7).all()
    got = made("ConstantFill", np.array([2, 0], I64), input_as_shape=1, extra_shape=[3])
    assert got.shape == (2, 0, 3)
    got = made("ConstantFill", np.array([2, 4], I64), input_as_shape=1, dtype=9, value=1.0, fixed=(0,))
    assert got.dtype == np.bool_ and got.shape == (2, 4) and got.all()
    assert made("ConstantFill", value=2.0).shape == ()
    refused("ConstantFill", X, shape=[2], match="an operand and a shape")
    refused("ConstantFill", extra_shape=[2], match="without an operand")
    refused("ConstantFill", shape=[-2], match=r"'shape' is -2")
    refused("ConstantFill", shape=[2], dtype=8, match="element type 8")
    refused("ConstantFill", shape=[2], dtype=7, value=float("inf"), match="with inf")


def test_given_tensors() -> None:
    values = [float(v) for v in range(6)]
    np.testing.assert_array_equal(made("GivenTensorFill", shape=[2, 3], values=values), np.reshape(values, (2, 3)))
    got = made("GivenTensorFill", np.array([3], I64), input_as_shape=1, extra_shape=[2], values=values, fixed=(0,))
    np.testing.assert_array_equal(got, np.reshape(values, (3, 2)))
    got = made("GivenTensorFill", numbers(3), extra_shape=[2], values=values)
    assert got.dtype == F32 and got.shape == (3, 2)
    refused("GivenTensorFill", shape=[2, 2], values=values, match=r"shape \[2, 2\] with 6 values")


@pytest.mark.parametrize(
    ("op", "form", "match"),
    [
        ("ScaledTanh", {"alpha": 1.0}, "ScaledTanh lacks its attribute 'beta'"),
        ("ParametricSoftplus", {"beta": 1.0}, "lacks its attribute 'alpha'"),
        ("ImageScaler", {}, "lacks its attribute 'bias'"),
        ("ImageScaler", {"bias": [1.0]}, "with 1 biases"),
        ("Crop", {"border": [1, 2]}, r"by \[1, 2\]"),
        ("Crop", {"border": [3, 0, 3, 0]}, "more than its size"),
        ("Crop", {"border": [1, 0, 0, 0], "scale": [2, 5]}, "more than its size"),
        ("Crop", {"border": [-1, 0, 0, 0]}, "more than its size"),
        ("Affine", {"gamma": 1.0}, "Affine has no attribute 'gamma'"),
        ("GRUUnit", {}, "'it' .GRUUnit.: GRUUnit was experimental, .* export the model with GRU"),
        ("ATen", {"operator": "embedding_bag"}, "PyTorch's own operator 'embedding_bag'; export"),
    ],
)
def test_what_is_refused(op: str, form: dict[str, Any], match: str) -> None:
    refused(op, X, match=match, **form)


def test_statistics_of_each_activation() -> None:
    """BatchNormalization up to opset 8 with spatial = 0."""
    rest = [np.abs(numbers(3, 4, 5, seed=k)) + F32(0.5) for k in range(4)]
    for opset in (7, 8):
        check("BatchNormalization", X, *rest, domain="", version=opset, spatial=0, epsilon=1e-3, rtol=1e-4)
    scale, bias, mean, variance = rest
    got = made("BatchNormalization", X, *rest, spatial=0)
    np.testing.assert_allclose(got, (X - mean) / np.sqrt(variance + 1e-5) * scale + bias, rtol=1e-4, atol=1e-5)
    refused("BatchNormalization", X, *(r[0] for r in rest), spatial=0, match="for each element of a sample")
