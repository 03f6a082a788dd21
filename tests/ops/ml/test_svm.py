"""Support vector machines against ONNX's reference evaluator, and compiled beside trees."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import torshc
from tests.support.ml_nodes import check, forest, model_of, results
from tests.support.nodes import numbers
from torshc.base.errors import ModelError

KERNELS = {"LINEAR": None, "POLY": [0.5, 1.0, 3.0], "SIGMOID": [0.5, 0.1, 0.0], "RBF": [0.7, 0.0, 0.0]}


def machine(kernel: str, rows: int, vectors: int, **more: Any) -> dict[str, Any]:
    given: dict[str, Any] = {"kernel_type": kernel, "support_vectors": numbers(vectors * 3, seed=5).tolist(), **more}
    given["coefficients"] = numbers(rows * vectors, seed=6).tolist()
    return given | ({"kernel_params": KERNELS[kernel]} if KERNELS[kernel] else {})


@pytest.mark.parametrize("kernel", KERNELS)
def test_regressors(kernel: str) -> None:
    x = numbers(9, 3)
    check("SVMRegressor", x, rho=[0.3], n_supports=5, **machine(kernel, 1, 5))
    check("SVMRegressor", x, rho=[0.3], n_supports=5, one_class=1, **machine(kernel, 1, 5))
    check("SVMRegressor", x, rho=[-0.3], coefficients=[0.5, -1.0, 2.0], n_supports=0)


@pytest.mark.parametrize("kind", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_classifiers(kernel: str, kind: str) -> None:
    x, three = numbers(19, 3), {"classlabels_ints": [7, -2, 5], "post_transform": kind}
    two = {"classlabels_ints": [4, 9], "post_transform": kind, "outputs": 2}
    check(
        "SVMClassifier",
        x,
        outputs=2,
        rho=[0.1, 0.2, -0.3],
        vectors_per_class=[2, 3, 1],
        **machine(kernel, 2, 6, **three),
    )
    some = machine(kernel, 1, 5)
    check("SVMClassifier", x, rho=[0.1], vectors_per_class=[2, 3], **some, **two)
    positive = some | {"coefficients": np.abs(some["coefficients"]).tolist()}
    check("SVMClassifier", x, rho=[0.1], vectors_per_class=[2, 3], **positive, **two)
    weights = numbers(9, seed=2).tolist()
    check("SVMClassifier", x, outputs=2, rho=[0.1, 0.1, 0.1], coefficients=weights, **three)
    check("SVMClassifier", x, outputs=2, rho=[0.1], coefficients=weights, **three)
    check("SVMClassifier", x, rho=[0.1], coefficients=weights[:6], **two)


def test_compiled(tmp_path: Path) -> None:
    """A machine and trees in one bundle each, with the interpreter's results."""
    x = numbers(33, 3)
    x[::5, 1] = np.nan
    some = {"rho": [0.1], "vectors_per_class": [2, 3], "classlabels_ints": [4, 9], **machine("RBF", 1, 5)}
    cases: list[tuple[str, int, dict[str, Any]]] = [
        ("SVMClassifier", 2, some),
        ("TreeEnsembleRegressor", 1, forest("MAX")),
    ]
    for op, outputs, attributes in cases:
        onnx.save(model_of(op, x, outputs=outputs, **attributes), tmp_path / "m.onnx")
        torshc.compile(tmp_path / "m.onnx", tmp_path / f"{op}.tsc", jobs=1)
        with torshc.load(tmp_path / f"{op}.tsc") as loaded:
            got = loaded.run({"x0": x}).values()
        for a, b in zip(got, results(op, x, outputs=outputs, **attributes), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_trees_of_doubles_compiled(tmp_path: Path) -> None:
    """They walk and sum in f64 and give f32; without passes, the kernel that sums is no other's."""
    x = numbers(9, 3).astype(np.float64)
    onnx.save(model_of("TreeEnsembleRegressor", x, **forest("SUM")), tmp_path / "m.onnx")
    torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc", jobs=1, opt_level=0)
    with torshc.load(tmp_path / "m.tsc") as loaded:
        (got,) = loaded.run({"x0": x}).values()
    np.testing.assert_array_equal(got, results("TreeEnsembleRegressor", x, **forest("SUM"))[0])
    assert got.dtype == np.float32


@pytest.mark.parametrize("slope", [1.0, 1000.0])  # the steep one makes chances of pairs 0 and 1
@pytest.mark.parametrize("counts", [(2, 3), (1, 2, 1, 3)])
def test_probabilities(counts: tuple[int, ...], slope: float, tmp_path: Path) -> None:
    """Against ONNX Runtime: onnx's reference couples more than two classes by another matrix than the paper's."""
    x, classes = numbers(17, 3), len(counts)
    pairs = classes * (classes - 1) // 2
    some = {"rho": numbers(pairs, seed=1).tolist(), "vectors_per_class": counts, "classlabels_ints": range(classes)}
    some |= {"prob_a": (-slope * np.abs(numbers(pairs, seed=2))).tolist(), "prob_b": numbers(pairs, seed=3).tolist()}
    model = model_of("SVMClassifier", x, outputs=2, **some, **machine("RBF", classes - 1, sum(counts)))
    onnx.save(model, tmp_path / "m.onnx")
    torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc", jobs=1)
    with torshc.load(tmp_path / "m.tsc") as loaded:
        label, got = loaded.run({"x0": x}).values()
    wanted = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x0": x})
    np.testing.assert_array_equal(label, wanted[0])
    # The coupling ends when its gradient is small, so that a rounding can cost it a step of a thousandth of that.
    np.testing.assert_allclose(got, wanted[1], atol=2e-5)
    np.testing.assert_allclose(got.sum(axis=1), 1, atol=1e-5)


def test_faults() -> None:
    x = numbers(4, 3)
    with pytest.raises(ModelError, match="15 numbers in support vectors and not 6 times 3"):
        results("SVMRegressor", x, rho=[0.3], n_supports=6, **machine("RBF", 1, 5))
    with pytest.raises(ModelError, match="of 1 pairs with 1 prob_a and 0 prob_b"):
        more = {"prob_a": [1.0], "classlabels_ints": [0, 1], "rho": [0.1], "outputs": 2}
        results("SVMClassifier", x, vectors_per_class=[2, 3], **machine("RBF", 1, 5), **more)
