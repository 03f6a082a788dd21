"""What NumPy's functions become, compared with NumPy by the interpreter of graphs: nothing is compiled."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from torshc.base.errors import UnsupportedError
from torshc.entry import tracing
from torshc.formats import load_graph
from torshc.passes.interpret import run_graph

Function = Callable[..., Any]


def interpreted(function: Function, *arrays: Any) -> Any:
    """What the traced graph computes, read back from its JSON with the sizes of these arrays."""
    text = json.dumps(tracing.trace(function, *arrays).document()).encode()
    graph = load_graph(text, {f"a{k}": np.shape(a) for k, a in enumerate(arrays)})
    feeds = {v: np.asarray(a) for v, a in zip(graph.inputs, arrays, strict=True)}
    return run_graph(graph, feeds)[: len(graph.results)]


F = np.linspace(-2.3, 3.1, 12, dtype=np.float32).reshape(3, 4)
G = (F[::-1] * 0.7).copy()
K = np.arange(-6, 6, dtype=np.int32).reshape(3, 4)
J = np.array([[3, -2, 5, 1]] * 3, np.int32)
B = F > 0.5

CASES: dict[str, tuple[Function, tuple[Any, ...]]] = {
    "arithmetic": (lambda x, y: (x + y) * 2 - x / (y + 10) + -x, (F, G)),
    "mixed types": (lambda x, i: x * i + 1, (F, K)),
    "integer division": (lambda i, j: (i // j, i % j, i / j, np.fmod(i, j)), (K, J)),
    "float division": (lambda x, y: (x // y, x % y), (F, G + 5)),
    "powers": (lambda x: (x**2, np.sqrt(abs(x)), np.square(x), 2.0**x), (F,)),
    "exponentials": (lambda x: (np.exp(x), np.expm1(x / 50), np.log1p(abs(x) / 50), np.logaddexp(x, 0.5)), (F,)),
    "rounding": (lambda x: (np.floor(x), np.ceil(x), np.rint(x), np.trunc(x), np.round(x, 1), np.sign(x)), (F,)),
    "comparisons": (lambda x, y: ((x < y) & (x != 0) | ~(y >= x)) ^ np.isfinite(x), (F, G)),
    "bits": (lambda i, j: (i & j, i | j, i ^ j, ~i), (K, J)),
    "choices": (lambda x, b: (np.where(b, x, 0), np.clip(x, -1, 1), np.maximum(x, 0), np.fmin(x, 1)), (F, B)),
    "sums": (lambda x: (x.sum(), x.sum(0), np.sum(x, axis=(0, 1), keepdims=True), x.prod(-1)), (F,)),
    "reductions of ufuncs": (lambda x, b: (np.add.reduce(x), np.maximum.reduce(x, 1), np.logical_or.reduce(b)), (F, B)),
    "integer sums": (lambda i, b: (i.sum(1), b.sum(), b.any(0), b.all(), i.max(), b.max(1)), (K, B)),
    "statistics": (lambda x: (x.mean(), x.var(0), np.std(x, axis=1, ddof=1), np.mean(x > 0)), (F,)),
    "places": (lambda x: (x.argmax(), np.argmin(x, axis=1), np.argmax(x, 0, keepdims=True)), (F,)),
    "running": (lambda x: (x.cumsum(), np.cumsum(x, axis=1)), (F,)),
    "shapes": (lambda x: (x.reshape(-1, 2), x.T, x.ravel(), x[None, :, 0], np.moveaxis(x, 0, 1)), (F,)),
    "run-time shapes": (lambda x: (x.reshape(x.shape[1], x.shape[0]), x.sum() / x.shape[0] / x.size), (F,)),
    "slices to run-time sizes": (lambda x, y: (y[: x.shape[0]], y[x.shape[0] - 2 :, 1:]), (F, F.T.copy())),
    "slices": (lambda x: (x[1:, ::2], x[..., -1], x[::-1], x[:, 1:-1], x[2, 3], x[-2]), (F,)),
    "gathers": (lambda x, i: (x[i], np.take(x, i, axis=1), x[:, [0, 2]]), (F, np.array([2, 0, 1]))),
    "joining": (
        lambda x, y: (np.concatenate([x, y], 1), np.stack([x, y]), np.vstack([x, y]), np.hstack([x, x])),
        (F, G),
    ),
    "repeating": (lambda x: (np.tile(x, (2, 1)), np.repeat(x, 2, axis=1), np.flip(x, 0), np.pad(x, 1)), (F,)),
    "products": (lambda x, y: (x @ y.T, np.dot(x, y.T), np.einsum("ij,kj->ik", x, y), np.tensordot(x, y)), (F, G)),
    "vectors": (lambda x, y: (np.outer(x[0], y[0]), np.inner(x, y), np.vdot(x, y), np.dot(x, y[0])), (F, G)),
    "triangles": (lambda x: (np.tril(x), np.triu(x, 1), np.diff(x, axis=1)), (F,)),
    "likes": (lambda x: (np.zeros_like(x) + 1, np.full_like(x, 3), np.ones_like(x, dtype=int)), (F,)),
    "in place": (lambda x, y: _in_place(x, y), (F, G)),
    "constants": (lambda x: (x + np.arange(4, dtype=np.float32), 7.0), (F,)),
}


def _in_place(x: Any, y: Any) -> Any:
    total = x * 2
    total += y
    total *= 3
    return total


def _flat(results: Any) -> list[Any]:
    return [r for x in results for r in _flat(x)] if isinstance(results, tuple) else [np.asarray(results)]


@pytest.mark.parametrize("name", CASES)
def test_results_and_types_are_those_of_numpy(name: str) -> None:
    function, arrays = CASES[name]
    with np.errstate(all="ignore"):
        want = _flat(function(*arrays))
        got = interpreted(function, *arrays)
    assert [g.dtype for g in got] == [w.dtype for w in want]
    assert [g.shape for g in got] == [w.shape for w in want]
    for g, w in zip(got, want, strict=True):
        # Sums may be in another order, and functions differ by some units in the last place.
        np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-6)


REFUSED: dict[str, tuple[Function, str]] = {
    "if": (lambda x: x if x.sum() > 0 else -x, "control flow"),
    "loop": (lambda x: sum(y for y in x), "known only at run time"),
    "number": (lambda x: float(x[0, 0]) * x, "Python number"),
    "mask": (lambda x: x[x > 0], "mask"),
    "where": (lambda x: np.where(x), "how many there are"),
    "unknown": (lambda x: np.linalg.inv(x), "numpy.linalg.inv"),
    "method": (lambda x: x.sort(), "method sort"),
    "nothing": (lambda x: None, "returns nothing"),
    "argument": (lambda x: _in_place_of(x), "in place"),
    "elements": (lambda x: x.__setitem__(0, 1), "writes to elements"),
    "random": (lambda x: x * np.random.rand(), "random"),
    "types": (lambda x: x & 1, "bitwise_and"),
    "text": (lambda x: x + "a", "numpy.add"),
    "wider in place": (lambda x: _wider(x > 0), "cannot write float64 into an array of bool"),
    "keyword": (lambda x: np.sum(x, where=x > 0), "numpy.sum"),
    "complex": (lambda x: x * 1j, "complex"),
}


def _wider(x: Any) -> Any:
    total = ~x
    total += 1.5
    return total


def _in_place_of(x: Any) -> Any:
    x += 1
    return x


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_traced_is_refused_with_its_line(name: str) -> None:
    function, words = REFUSED[name]
    with pytest.raises(UnsupportedError, match=words) as refused:
        tracing.trace(function, F)
    assert "test_functions.py:" in str(refused.value)
