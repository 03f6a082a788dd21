"""Functions that are compiled when they are called, in the process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import torshc
from torshc.base.errors import RunError, UnsupportedError


@torshc.jit
def blend(a: Any, b: Any, scale: float = 2.0) -> Any:
    """A product that is shifted."""
    return {"y": a * b + scale, "total": (a * b).sum()}


A, B = np.ones((3, 4), np.float32), np.full((3, 4), 2, np.float32)


def test_a_function_is_traced_once_for_types_and_ranks() -> None:
    before = blend.stats().traces
    for rows in (3, 5, 7):
        a = np.ones((rows, 4), np.float32)
        found = blend(a, a + 1)
        assert found["y"].shape == (rows, 4) and found["total"] == 8 * rows
    assert blend.stats().traces == before + 1
    assert blend(A.astype(np.float64), B)["y"].dtype == np.float64
    assert blend.stats().traces == before + 2
    assert blend.__doc__ == "A product that is shifted."


def test_a_dimension_of_one_is_broadcast_as_numpy_does() -> None:
    np.testing.assert_array_equal(blend(A, B[:1])["y"], A * B[:1] + 2)
    np.testing.assert_array_equal(blend(A, B[0])["y"], A * B[0] + 2)
    with pytest.raises(RunError, match="has the shape"):
        blend(A, B[:2])


def test_numbers_of_python_are_constants() -> None:
    assert blend(A, B, scale=1.0)["y"][0, 0] == 3 and blend(A, B, 4.0)["y"][0, 0] == 6


def test_results_of_rank_0_are_numbers() -> None:
    assert type(blend(A, B)["total"]) is np.float32


def test_a_call_takes_what_does_not_lie_in_order() -> None:
    @torshc.jit
    def double(x: Any) -> Any:
        return x * 2

    for x in (A, A[:, ::2], A.T, A[::-1], A.astype(">f4")):
        np.testing.assert_array_equal(double(x), x * 2)


def test_a_trace_is_saved_explained_and_compiled(tmp_path: Path) -> None:
    traced = torshc.trace(lambda a, b: np.maximum(a @ b, 0), A, B.T)
    traced.save(tmp_path / "relu.json")
    again = torshc.load_model(tmp_path / "relu.json")
    np.testing.assert_array_equal(again(A, B.T.copy())[0], A @ B.T)
    assert "MatMul" in traced.explain()
    assert traced.compile()(A, B.T.copy())[0].shape == (3, 3)


def test_large_constants_lie_beside_a_saved_trace(tmp_path: Path) -> None:
    table = np.arange(5000, dtype=np.float32)
    torshc.trace(lambda i: table[:1] + i, A[0, 0]).save(tmp_path / "small.json")
    torshc.trace(lambda i: np.take(i * 0 + 1, [0]) + table, A[0]).save(tmp_path / "large.json")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["large.c4.npy", "large.json", "small.json"]
    assert torshc.load_model(tmp_path / "large.json")(A[0])[0][-1] == 5000


def test_state_is_refused() -> None:
    count = 0

    def counts(x: Any) -> Any:
        nonlocal count
        count += 1
        return x

    with pytest.raises(UnsupportedError, match=r"test_jit.py:\d+: keeps state in 'count'"):
        torshc.jit(counts)(A)
    kept = []

    def leaks(x: Any) -> Any:
        kept.append(x * 2)
        return x

    torshc.jit(leaks)(A)
    with pytest.raises(UnsupportedError, match=r"another trace|has ended"):
        torshc.jit(lambda x: x + kept[0])(A)


def test_what_meets_is_one_kernel() -> None:
    """Dimensions that have to be equal are one, so that both operands are read in the same loop."""
    traced = torshc.trace(lambda a, b: np.tanh(a) + np.exp(b), A, B)
    assert traced.compile().stats().kernels == 1
    assert traced.document()["inputs"]["a1"]["shape"] == ["a0_0", "a0_1"]


def test_equal_functions_share_a_model() -> None:
    first, second = (torshc.jit(lambda x: x * 3 - 1) for _ in range(2))
    first(A)
    runs = first.stats().runs
    second(A)
    assert first.stats().runs == runs + 1
