"""Operators of ai.onnx.ml against ONNX's reference evaluator."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from torshc.errors import ModelError, UnsupportedError
from torshc.formats import import_model

from ..support.evaluate import Array, run
from .test_operators import F32, F64, I64, numbers


def model_of(op: str, *operands: Array, outputs: int = 1, version: int = 3, **attributes: Any) -> onnx.ModelProto:
    names = [f"x{k}" for k in range(len(operands))]
    results = [f"y{k}" for k in range(outputs)]
    node = helper.make_node(op, names, results, domain="ai.onnx.ml", name="it", **attributes)
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in zip(names, operands, strict=True)
    ]
    graph = helper.make_graph([node], "one", inputs, [helper.make_empty_tensor_value_info(n) for n in results])
    opsets = [helper.make_opsetid("ai.onnx.ml", version), helper.make_opsetid("", 20)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def results(op: str, *operands: Array, **attributes: Any) -> list[Array]:
    model = model_of(op, *operands, **attributes)
    return run(import_model(model.SerializeToString()), {f"x{k}": a for k, a in enumerate(operands)})


def check(op: str, *operands: Array, **attributes: Any) -> list[Array]:
    got = results(op, *operands, **attributes)
    model = model_of(op, *operands, **attributes)
    wanted = ReferenceEvaluator(model).run(None, {f"x{k}": a for k, a in enumerate(operands)})
    for g, w in zip(got, wanted, strict=True):
        w = np.asarray(w)
        assert g.shape == w.shape
        np.testing.assert_allclose(g, w, rtol=2e-5, atol=1e-6)
    return got


def test_features() -> None:
    x = numbers(3, 4)
    check("ArrayFeatureExtractor", x, np.array([3, 0, 0], I64))
    check("ArrayFeatureExtractor", numbers(5), np.array([[1, 4]], I64))
    check("Binarizer", x, threshold=0.3)
    check("FeatureVectorizer", x, numbers(3, 2), numbers(3), inputdimensions=[2, 3, 1])
    np.testing.assert_array_equal(results("Binarizer", np.array([-2, 0, 1], I64), threshold=-0.5)[0], [0, 1, 1])


def test_scalings() -> None:
    x = numbers(3, 4)
    check("Scaler", x, offset=[1.0, 2.0, 3.0, 4.0], scale=[0.5])
    for norm in ("MAX", "L1", "L2"):
        check("Normalizer", x, norm=norm)
    x[1, 2] = np.nan
    check("Imputer", x, imputed_value_floats=[7.0, 8.0, 9.0, 10.0], replaced_value_float=float("nan"))
    check("Imputer", np.array([[1, 5], [5, 2]], I64), imputed_value_int64s=[9], replaced_value_int64=5)
    assert results("Scaler", np.arange(4, dtype=I64).reshape(2, 2), scale=[2.0])[0].dtype == F32


@pytest.mark.parametrize("kind", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
def test_linear_models(kind: str) -> None:
    x, weights = numbers(5, 3), numbers(12, seed=3).tolist()
    common = {"coefficients": weights, "intercepts": [0.1, 0.2, 0.3, 0.4], "post_transform": kind}
    check("LinearClassifier", x, outputs=2, classlabels_ints=[3, 1, 4, 1], **common)
    two = {"coefficients": weights[:3], "intercepts": [0.5], "post_transform": kind}
    check("LinearClassifier", x, outputs=2, classlabels_ints=[7, -7], **two)
    check("LinearClassifier", x, outputs=2, **two | {"classlabels_ints": [7]})
    if kind == "NONE":
        check("LinearRegressor", x, targets=4, **common)


def test_refusals() -> None:
    x = numbers(5, 3)
    with pytest.raises(ModelError, match="post_transform 'LOG'"):
        results("LinearRegressor", x, coefficients=[1.0] * 3, post_transform="LOG")
    with pytest.raises(ModelError, match="4 coefficients"):
        results("LinearRegressor", x, coefficients=[1.0] * 4)


def forest(aggregate: str) -> dict[str, Any]:
    """Two trees over three features; a leaf with two targets, and a target that not every row reaches."""
    return {
        "nodes_treeids": [0, 0, 0, 1, 1, 1, 1, 1],
        "nodes_nodeids": [0, 1, 2, 0, 1, 2, 3, 4],
        "nodes_featureids": [0, 0, 0, 2, 1, 0, 0, 0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF", "BRANCH_GT", "BRANCH_LT", "LEAF", "LEAF", "LEAF"],
        "nodes_values": [0.25, 0.0, 0.0, -0.5, 0.75, 0.0, 0.0, 0.0],
        "nodes_truenodeids": [1, 0, 0, 1, 2, 0, 0, 0],
        "nodes_falsenodeids": [2, 0, 0, 4, 3, 0, 0, 0],
        "nodes_missing_value_tracks_true": [0, 0, 0, 1, 0, 0, 0, 0],
        "target_treeids": [0, 0, 0, 1, 1, 1],
        "target_nodeids": [1, 2, 2, 2, 3, 4],
        "target_ids": [0, 0, 1, 1, 0, 0],
        "target_weights": [1.0, -2.0, 0.5, 4.0, 8.0, -16.0],
        "n_targets": 2,
        "aggregate_function": aggregate,
    }


def descend(x: Array, aggregate: str) -> Array:
    """What the forest gives, in so many words."""
    rows = []
    for a, b, c in x:
        reached: list[list[float]] = [[], []]
        reached[0].append(1.0 if a <= 0.25 else -2.0)
        reached[1].extend([] if a <= 0.25 else [0.5])
        if not (c > -0.5 or np.isnan(c)):
            reached[0].append(-16.0)
        else:
            reached[1 if b < 0.75 else 0].append(4.0 if b < 0.75 else 8.0)
        combine = {"SUM": sum, "AVERAGE": lambda v: sum(v) / 2, "MIN": min, "MAX": max}[aggregate]
        rows.append([combine(v) if v else 0.0 for v in reached])
    return np.array(rows, F32)


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_trees(aggregate: str) -> None:
    x = numbers(40, 3)
    x[::7, 2] = np.nan
    (out,) = results("TreeEnsembleRegressor", x, **forest(aggregate))
    np.testing.assert_allclose(out, descend(x, aggregate), rtol=1e-6)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT"])
@pytest.mark.parametrize("kind", ["three", "two", "single", "lonely"])
def test_tree_classifiers(kind: str, transform: str) -> None:
    x = numbers(40, 3)
    x[::7, 2] = np.nan
    tables = {k.replace("target", "class"): v for k, v in forest("SUM").items() if k.startswith(("nodes", "target"))}
    tables["class_weights"] = [0.1, 0.2, 0.05, 0.4, 0.3, 0.15]
    tables["classlabels_int64s"] = {"three": [5, -2, 9], "two": [3, 4], "single": [3, 4], "lonely": [1]}[kind]
    tables["class_ids"] = {"three": [0, 2, 1, 1, 0, 2], "two": [0, 0, 1, 1, 0, 0]}.get(kind, [0] * 6)
    base = [0.01, 0.02, 0.03][: len(tables["classlabels_int64s"])]
    check("TreeEnsembleClassifier", x, outputs=2, post_transform=transform, base_values=base, **tables)


def test_one_signed_score() -> None:
    """Two classes by one score that is no probability, as boosted trees without a transform have it."""
    x, tables = numbers(40, 3), forest("SUM") | {"target_ids": [0] * 6}
    tables = {k.replace("target", "class"): v for k, v in tables.items() if k.startswith(("nodes", "target"))}
    tables |= {"classlabels_int64s": [3, 4], "base_values": [0.25]}
    got = results("TreeEnsembleClassifier", x, outputs=2, **tables)
    model = model_of("TreeEnsembleClassifier", x, outputs=2, **tables)
    wanted = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x0": x})
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


def test_large_ensembles() -> None:
    """A hundred trees of eight levels, all modes, missing values on either side, in f64."""
    rng = np.random.default_rng(0)
    trees, inner = 100, 255
    order = np.arange(inner)
    names = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]
    modes = [names[m] for m in rng.integers(0, 6, inner)] + ["LEAF"] * (inner + 1)
    rest = [0] * (inner + 1)
    one = {
        "nodes_featureids": [*rng.integers(0, 5, inner).tolist(), *rest],
        "nodes_modes": modes,
        "nodes_values": [*rng.integers(-2, 3, inner).astype(float).tolist(), *map(float, rest)],
        "nodes_truenodeids": [*(2 * order + 1).tolist(), *rest],
        "nodes_falsenodeids": [*(2 * order + 2).tolist(), *rest],
        "nodes_missing_value_tracks_true": [*rng.integers(0, 2, inner).tolist(), *rest],
        "nodes_nodeids": list(range(2 * inner + 1)),
        "target_nodeids": list(range(inner, 2 * inner + 1)),
    }
    tables: dict[str, Any] = {k: v * trees for k, v in one.items()}
    tables["nodes_treeids"] = np.repeat(np.arange(trees), 2 * inner + 1).tolist()
    tables["target_treeids"] = np.repeat(np.arange(trees), inner + 1).tolist()
    tables["target_ids"] = [0] * (trees * (inner + 1))
    tables["target_weights"] = rng.standard_normal(trees * (inner + 1)).tolist()
    x = rng.integers(-3, 4, (30, 5)).astype(F32)
    x[rng.uniform(size=x.shape) < 0.1] = np.nan
    check("TreeEnsembleRegressor", x, n_targets=1, aggregate_function="AVERAGE", base_values=[0.5], **tables)


def test_repeated_weights() -> None:
    """Exporters of decision paths write the weight of an only target once for each class."""
    x, tables = numbers(9, 3), forest("SUM") | {"target_ids": [0] * 6, "n_targets": 1}
    again = tables | {k: [v for v in tables[k] for _ in range(3)] for k in tables if k.startswith("target_")}
    (first,) = results("TreeEnsembleRegressor", x, **tables)
    np.testing.assert_array_equal(results("TreeEnsembleRegressor", x, **again)[0], first)
    session = onnxruntime.InferenceSession(model_of("TreeEnsembleRegressor", x, **again).SerializeToString())
    np.testing.assert_allclose(first, session.run(None, {"x0": x})[0], rtol=1e-6)


def test_trees_that_are_no_trees() -> None:
    circle = forest("SUM") | {"nodes_truenodeids": [0, 0, 0, 1, 2, 0, 0, 0]}
    with pytest.raises(UnsupportedError, match="deeper than"):
        results("TreeEnsembleRegressor", numbers(2, 3), **circle)
    with pytest.raises(ModelError, match="reads feature 2"):
        results("TreeEnsembleRegressor", numbers(2, 2).astype(F64), **forest("SUM"))
    lost = forest("SUM") | {"nodes_truenodeids": [9, 0, 0, 1, 2, 0, 0, 0]}
    with pytest.raises(ModelError, match="no node 9"):
        results("TreeEnsembleRegressor", numbers(2, 3), **lost)
