"""Outputs are told apart, whatever they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto

from .cases import Case, all_cases
from .compare import compare, is_random, same


def _case(*outputs: Any) -> Case:
    return Case("c", "Op", ModelProto(), (((), outputs),), 1e-3, 1e-7)


def _texts(*texts: str) -> np.ndarray[Any, Any]:
    return np.array(texts, object)


X = np.arange(3, dtype=np.float32)


@pytest.mark.parametrize("value", [X, [X, X[:2]], [], None, _texts("a", "b"), [[X]], X.astype(np.int64), X * 1j])
def test_equal_values_are_equal(value: Any) -> None:
    compare(_case(value), {"y": value}, 0)
    assert same(value, value)


@pytest.mark.parametrize(
    ("got", "wanted"),
    [
        (X, X + 1), (X, X[:2]), (X, X.astype(np.float64)), ([X], [X, X]), ([X], X), (X, [X]), (None, X), (X, None),
        ([X], [X + 1]), (_texts("a"), _texts("b")), (_texts("a"), X[:1]), (np.array([b"a"], object), _texts("a")),
    ],
)  # fmt: skip
def test_different_values_are_told_apart(got: Any, wanted: Any) -> None:
    with pytest.raises(AssertionError):
        compare(_case(wanted), {"y": got}, 0)
    assert not same(got, wanted)


def test_drawn_values_have_to_be_legal() -> None:
    cases = {c.name: c for c in all_cases()}
    bernoulli, dropout = cases["bernoulli"], cases["training_dropout_mask"]
    assert is_random(bernoulli) and is_random(dropout) and is_random(cases["bernoulli_seed_expanded"])
    assert not is_random(cases["dropout_default"]) and not is_random(cases["training_dropout_zero_ratio"])
    wanted = bernoulli.data_sets[0][1][0]
    compare(bernoulli, {"y": 1 - wanted}, 0)
    with pytest.raises(AssertionError, match="neither 0 nor 1"):
        compare(bernoulli, {"y": wanted + 0.5}, 0)
    y, mask = dropout.data_sets[0][1]
    compare(dropout, {"y": y, "z": mask}, 0)
    with pytest.raises(AssertionError, match="mask"):
        compare(dropout, {"y": y, "z": ~mask}, 0)
