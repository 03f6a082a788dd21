"""Outputs are told apart, whatever they are."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import ModelProto

from .cases import Case, all_cases
from .compare import compare, defined, is_random, same


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


@pytest.mark.parametrize(
    ("dtype", "inside", "outside"),
    [
        (ml_dtypes.int4, [-8.9, -8, 7.9], [-9, 8, np.nan, np.inf]), (ml_dtypes.uint2, [-0.9, 3.9], [-1, 4, -np.inf]),
        (np.uint8, [-0.9, 255.9], [-1, 256]), (np.int32, [-(2.0**31), 2.0**31 - 1], [2.0**31]),
        (np.int64, [-(2.0**63), 2.0**62], [2.0**63]), (np.uint64, [2.0**63], [2.0**64]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("operator", ["Cast", "CastLike", "(CastLike)"])
def test_integers_that_onnx_leaves_open_may_be_any(
    operator: str, dtype: Any, inside: list[float], outside: list[float]
) -> None:
    x = np.array([*inside, *outside])
    wanted = np.array([*map(int, inside), *[0] * len(outside)]).astype(dtype)
    case = Case("c", operator, ModelProto(), (((x,), (wanted,)),), 0, 0)
    for place in range(x.size):
        got = wanted.copy()
        got[place] = 1
        if place >= len(inside):
            compare(case, {"y": got}, 0)
            continue
        with pytest.raises(AssertionError):
            compare(case, {"y": got}, 0)
    with pytest.raises(AssertionError, match="shape"):
        compare(case, {"y": wanted[1:]}, 0)


def test_only_casts_of_floats_to_integers_leave_elements_open() -> None:
    far = np.array([1e9, np.nan])
    for operator, x, y in (
        ("Cast", far, far), ("Cast", np.array([1000]), np.zeros(1, np.int8)), ("Add", far, np.zeros(2, np.int8)),
    ):  # fmt: skip
        assert defined(Case("c", operator, ModelProto(), (((x,), (y,)),), 0, 0), 0) is ...
    with pytest.raises(AssertionError, match="no element"):
        defined(Case("c", "Cast", ModelProto(), (((far,), (np.zeros(2, np.int8),)),), 0, 0), 0)
