"""Features, scalings and linear models against the reference evaluator."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.ml_nodes import check, results
from tests.support.nodes import F32, I64, numbers
from torshc.base.errors import ModelError


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
    with pytest.raises(ModelError, match="'post_transform' is 'LOG'"):
        results("LinearRegressor", x, coefficients=[1.0] * 3, post_transform="LOG")
    with pytest.raises(ModelError, match="4 coefficients"):
        results("LinearRegressor", x, coefficients=[1.0] * 4)
