"""Determinants and inverses of matrices of any size, against numpy and ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import torshc
from tests.support.compare import onnx_runtime
from tests.support.contrib import compiled, model_of
from tests.support.models import MICROSOFT, Array, model, node
from tests.support.nodes import numbers
from torshc.base.errors import ModelError, TorshcError
from torshc.formats import import_model

SHAPES = [(5, 5), (3, 7, 7), (2, 0, 6, 6), (40, 40)]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_determinants(dtype: type, tmp_path: Path) -> None:
    for k, shape in enumerate(SHAPES[: 3 if dtype is np.float16 else 4]):  # the last is beyond f16
        x = numbers(*shape).astype(dtype)
        (got,) = compiled(model_of("Det", (x,), domain=""), {"x0": x}, tmp_path / str(k))
        assert got.dtype == dtype and got.shape == shape[:-2]
        wanted = np.linalg.det(x.astype(np.float64))
        np.testing.assert_allclose(got, wanted, rtol=1e-12 if dtype is np.float64 else 2 * np.finfo(dtype).eps)


def of_any_size(op: str, folder: Path, domain: str = MICROSOFT) -> torshc.Model:
    x = numbers(2, 3, 3)
    model = model_of(op, (x,), domain=domain, dims={0: ["b", "n", "m"]})
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    torshc.compile(folder / "m.onnx", folder / "m.tsc", threads=1)
    return torshc.load(folder / "m.tsc", threads=1)


def test_determinants_of_any_size(tmp_path: Path) -> None:
    with of_any_size("Det", tmp_path, "") as model:
        for n in (0, 1, 2, 9):
            x = numbers(2, n, n)
            (got,) = model.run({"x0": x}).values()
            np.testing.assert_allclose(got, np.linalg.det(x.astype(np.float64)), rtol=1e-6)
        zero, odd = np.zeros((1, 3, 3), np.float32), numbers(1, 3, 3)
        odd[0, 0, 1] = np.nan
        assert next(iter(model.run({"x0": zero}).values())) == 0
        assert np.isnan(next(iter(model.run({"x0": odd}).values())))
        swapped = np.eye(3, dtype=np.float32)[None, [1, 0, 2]]
        assert next(iter(model.run({"x0": swapped}).values())) == -1
        with pytest.raises(TorshcError, match="fit together"):
            model.run({"x0": numbers(1, 2, 3)})


def well(*shape: int) -> Array:
    """Matrices far from having no inverse."""
    return numbers(*shape) + 4 * np.eye(shape[-1], dtype=np.float32)


@pytest.mark.parametrize("shape", [(3, 3), (2, 3, 8, 8), (1, 1), (0, 2, 2)])
def test_inverses(shape: tuple[int, ...], tmp_path: Path) -> None:
    x = well(*shape)
    model = model_of("Inverse", (x,))
    (got,) = compiled(model, {"x0": x}, tmp_path / "m")
    (wanted,) = onnx_runtime(model, {"x0": x})
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-6)  # ONNX Runtime's are of f32
    np.testing.assert_allclose(got, np.linalg.inv(x.astype(np.float64)), rtol=1e-6, atol=1e-8)


def test_the_gradient_of_inverses(tmp_path: Path) -> None:
    """Of the sum of all elements, against central differences of numpy's."""
    x = well(2, 3, 3).astype(np.float64)
    nodes = [
        node("Inverse", "x", "y", domain=MICROSOFT),
        node("Gradient", "x", "y1", domain="ai.onnx.preview.training", xs=["x"], y="y"),
    ]
    got = compiled(model(nodes, {"x": x}), {"x": x}, tmp_path / "m")[1]
    for k, step in enumerate(1e-5 * np.eye(x.size).reshape(-1, *x.shape)):
        wanted = (np.linalg.inv(x + step).sum() - np.linalg.inv(x - step).sum()) / 2e-5
        np.testing.assert_allclose(got.reshape(-1)[k], wanted, rtol=1e-6, atol=1e-9)


def test_inverses_of_any_size(tmp_path: Path) -> None:
    with of_any_size("Inverse", tmp_path) as model:
        tiny = 1e-30 * np.eye(20, dtype=np.float32)[None]  # of which the determinant is 0 in f64
        np.testing.assert_allclose(next(iter(model.run({"x0": tiny}).values())), 1e30 * np.eye(20)[None], rtol=1e-6)
        with pytest.raises(TorshcError, match=r"matrix 1 has no inverse.*'it'"):
            model.run({"x0": np.stack([np.eye(3), np.ones((3, 3))]).astype(np.float32)})


def test_pivots_of_f64_whose_reciprocal_is_infinite(tmp_path: Path) -> None:
    x = np.array([[[0.0, 1.0], [4e-309, 0.0]]])
    (got,) = compiled(model_of("Det", (x,), domain=""), {"x0": x}, tmp_path / "d")
    assert got == -4e-309
    (got,) = compiled(model_of("Inverse", (x,)), {"x0": x}, tmp_path / "i")
    assert got[0, 1, 0] == 1 and np.isinf(got[0, 0, 1])


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_share_inverses(threads: int, tmp_path: Path) -> None:
    """Whoever meets a matrix that has none first, the error names the first."""
    x = well(64, 16, 16)
    (tmp_path / "m.onnx").write_bytes(model_of("Inverse", (x,)).SerializeToString())
    torshc.compile(tmp_path / "m.onnx", tmp_path / "m")
    with torshc.load(tmp_path / "m", threads=threads) as model:
        np.testing.assert_array_equal(*(next(iter(model.run({"x0": x}).values())) for _ in range(2)))
        np.testing.assert_allclose(next(iter(model.run({"x0": x}).values())), np.linalg.inv(x), rtol=1e-4, atol=1e-6)
        x[[5, 40]] = 1
        with pytest.raises(TorshcError, match="matrix 5 has no inverse"):
            model.run({"x0": x})


@pytest.mark.parametrize(("op", "domain"), [("Det", ""), ("Inverse", MICROSOFT)])
def test_what_is_no_matrix_is_refused(op: str, domain: str) -> None:
    for x in (numbers(5, 6), numbers(5)):
        with pytest.raises(ModelError, match=f"{op} of"):
            import_model(model_of(op, (x,), domain=domain).SerializeToString())
