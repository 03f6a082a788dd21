"""Ensembles of trees against the reference evaluator and ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import numpy_helper

from tests.support.evaluate import Array
from tests.support.ml_nodes import check, forest, model_of, results
from tests.support.models import ML
from tests.support.nodes import F32, F64, numbers
from torshc.base.errors import ModelError, UnsupportedError


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
    """Two classes by one score that is not a probability, as boosted trees without a transform have it."""
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


def test_missing_values_of_one_comparison() -> None:
    """TreeEnsemble compares NaN as it is: it differs from every value."""
    modes = ["LEQ", "LT", "GTE", "GT", "EQ", "NEQ"]
    tables = {
        "nodes_featureids": [0] * 6, "nodes_truenodeids": [2 * k for k in range(6)],
        "nodes_falsenodeids": [2 * k + 1 for k in range(6)], "nodes_trueleafs": [1] * 6, "nodes_falseleafs": [1] * 6,
        "nodes_modes": numpy_helper.from_array(np.arange(6, dtype=np.uint8)),
        "nodes_splits": numpy_helper.from_array(np.full(6, 0.5, F32)),
        "leaf_targetids": [k // 2 for k in range(12)],
        "leaf_weights": numpy_helper.from_array(np.arange(12, dtype=F32)),
        "tree_roots": list(range(6)), "n_targets": len(modes),
    }  # fmt: skip
    x = np.array([[np.nan], [0.5], [0.0], [1.0]], F32)
    check("TreeEnsemble", x, opset={ML: 5}, **tables)
    with pytest.raises(UnsupportedError, match=r"12 leaves and 1099511627776 targets take .* the budget 'folding'"):
        results("TreeEnsemble", x, opset={ML: 5}, **{**tables, "n_targets": 1 << 40})
    with pytest.raises(ModelError, match="12 leaf_targetids and 11 leaf_weights"):
        fewer = numpy_helper.from_array(np.arange(11, dtype=F32))
        results("TreeEnsemble", x, opset={ML: 5}, **{**tables, "leaf_weights": fewer})


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
    with pytest.raises(ModelError, match="lead to each other"):
        results("TreeEnsembleRegressor", numbers(2, 3), **circle)
    with pytest.raises(ModelError, match="reads feature 2"):
        results("TreeEnsembleRegressor", numbers(2, 2).astype(F64), **forest("SUM"))
    lost = forest("SUM") | {"nodes_truenodeids": [9, 0, 0, 1, 2, 0, 0, 0]}
    with pytest.raises(ModelError, match="no node 9"):
        results("TreeEnsembleRegressor", numbers(2, 3), **lost)
    twice = forest("SUM") | {"nodes_nodeids": [0] * 8}
    with pytest.raises(ModelError, match="two nodes 0 in tree"):
        results("TreeEnsembleRegressor", numbers(2, 3), **twice)
