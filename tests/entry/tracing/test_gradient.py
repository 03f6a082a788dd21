"""Gradients of functions written in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest

import torshc
from tests.support.seeded import seeded
from torshc.base.errors import UnsupportedError
from torshc.formats import load_graph
from torshc.gradient import reverse

Function = Callable[..., Any]
RNG = seeded(11)
W = {"hidden": RNG.normal(size=(4, 5)), "out": RNG.normal(size=(5, 2))}
X = RNG.normal(size=(3, 4))


def loss(w: Any, x: Any, scale: float = 1.0) -> Any:
    return np.mean((np.tanh(x @ w["hidden"]) @ w["out"]) ** 2) * scale


def slope(f: Callable[[np.ndarray[Any, Any]], Any], x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Central differences."""
    found = np.zeros(x.size)
    for k in range(x.size):
        step = np.zeros(x.size)
        step[k] = 1e-6
        found[k] = (f(x + step.reshape(x.shape)) - f(x - step.reshape(x.shape))) / 2e-6
    return found.reshape(x.shape)


def test_values_and_gradients_have_the_form_of_their_arguments() -> None:
    value, (by_w, by_x) = torshc.value_and_grad(loss, argnums=(0, 1))(W, X)
    assert value == pytest.approx(loss(W, X)) and by_w.keys() == W.keys()
    for name in W:
        np.testing.assert_allclose(by_w[name], slope(lambda v, n=name: loss({**W, n: v}, X), W[name]), atol=1e-8)
    np.testing.assert_allclose(by_x, slope(lambda v: loss(W, v), X), atol=1e-8)
    np.testing.assert_array_equal(torshc.grad(loss, 1)(W, X), by_x)
    np.testing.assert_allclose(torshc.grad(loss, -1)(W, X, 2.0), slope(lambda v: loss(W, X, v), np.array(2.0)))


def test_other_shapes_are_no_other_compilation() -> None:
    f = torshc.grad(lambda x: (x * x).sum())
    for rows in (2, 3, 7):
        np.testing.assert_array_equal(f(X[:1].repeat(rows, 0)), 2 * X[:1].repeat(rows, 0))


def test_gradients_of_gradients() -> None:
    def f(x: Any) -> Any:
        return np.sin(x) * x

    wanted = [lambda x: np.sin(x) + x * np.cos(x), lambda x: 2 * np.cos(x) - x * np.sin(x)]
    wanted += [lambda x: -3 * np.sin(x) - x * np.cos(x), lambda x: -4 * np.cos(x) + x * np.sin(x)]
    for exact in wanted:
        f = torshc.grad(f)
        assert f(0.7) == pytest.approx(exact(0.7), rel=1e-12)


def test_inside_of_other_functions() -> None:
    """The gradient is of what the inner function does with its argument, not of what else depends on that."""

    @torshc.jit
    def step(w: Any, x: Any) -> Any:
        inner = torshc.grad(lambda v: loss(v, x) + (w["out"] ** 2).sum())(w)
        return {k: w[k] - 0.1 * inner[k] for k in w}

    wanted = torshc.grad(loss)(W, X)
    for name, got in step(W, X).items():
        np.testing.assert_allclose(got, W[name] - 0.1 * wanted[name], rtol=1e-12)


def test_a_jitted_function_and_numbers() -> None:
    square = torshc.jit(lambda x: x * x)
    assert torshc.grad(square)(3.0) == 6 and torshc.grad(square)(np.float32(3)).dtype == np.float32
    assert torshc.grad(lambda x, n: x**n)(2.0, 3) == 12
    assert torshc.grad(lambda x: np.float64(4))(np.ones(2)).tolist() == [0, 0]


@dataclass
class Scale:
    by: Any

    def __call__(self, x: Any) -> Any:
        return (x * self.by).sum()


def scaled(x: Any, *, by: Any = 1.0) -> Any:
    return (x * by).sum()


WEIGHTS = {"by": np.array([1.0, 2.0])}
CALLABLES: dict[str, tuple[Function, tuple[Any, ...], Any]] = {
    "function of NumPy": (np.sin, (0.3,), np.cos(0.3)),
    "of two arguments": (np.multiply, (2.0, 3.0), 3.0),
    "with defaults of NumPy's own": (np.sum, (WEIGHTS["by"],), [1, 1]),
    "method of one": (np.add.reduce, (WEIGHTS["by"],), [1, 1]),
    "of Python": (abs, (-2.0,), -1),
    "keyword": (partial(scaled, by=3.0), (WEIGHTS["by"],), [3, 3]),
    "array as keyword": (partial(scaled, **WEIGHTS), (np.ones(2),), [1, 2]),
    "first argument": (partial(np.multiply, 3.0), (2.0,), 3),
    "object": (Scale(3.0), (2.0,), 3),
    "method": (Scale(3.0).__call__, (2.0,), 3),
    "lambda with a default": (lambda x, *, by=3.0: scaled(x, by=by), (2.0,), 3),
    "gradient": (torshc.grad(np.sin), (0.3,), -np.sin(0.3)),
}


@pytest.mark.parametrize("name", CALLABLES)
def test_anything_that_can_be_called(name: str) -> None:
    function, args, wanted = CALLABLES[name]
    np.testing.assert_allclose(torshc.grad(function)(*args), wanted, rtol=1e-12)


def test_a_default_that_is_an_array_is_read_at_each_call() -> None:
    weights = {"by": np.ones(2)}
    gradient = torshc.grad(lambda x, *, w=weights: (x * w["by"]).sum())
    assert gradient(np.ones(2)).tolist() == [1, 1]
    weights["by"][:] = 5
    assert gradient(np.ones(2)).tolist() == [5, 5]


def test_a_gradient_is_a_model(tmp_path: Any) -> None:
    traced = torshc.trace(torshc.grad(lambda x: np.exp(x).sum()), X)
    traced.save(tmp_path / "slope.json")
    graph = load_graph(tmp_path / "slope.json")
    assert [v.type.rank for v in graph.results] == [2]
    np.testing.assert_allclose(torshc.load_model(tmp_path / "slope.json")(X)[0], np.exp(X))


def bend(x: Any) -> Any:
    y = x.astype(np.float32)
    return np.cumprod(y).sum()


REFUSED: dict[str, tuple[Function, tuple[Any, ...], str]] = {
    "rank": (lambda x: x, (X,), r"test_gradient.py:\d+: returns an array of rank 2 of float64"),
    "type": (lambda x: x.sum() > 0, (X,), "returns an array of rank 0 of bool"),
    "nothing": (lambda x: None, (X,), "returns a NoneType"),
    "integers": (lambda x: x.sum(), (np.ones(2, int),), r"test_gradient.py:\d+, .*with respect to an array of int64"),
    "number": (lambda x: x, (2,), "with respect to a int"),
    "none": (lambda x: 1.0, ([],), "with respect to nothing"),
    "missing": (lambda x: x, (), "argument 0, which the gradient is with respect to, is not given by position"),
    "without a signature": (max, (2.0, 1.0), "control flow"),
    "inside": (lambda x: x if x.sum() > 0 else -x, (X,), r"test_gradient.py:\d+, .*control flow"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_gradient_is_told_with_its_line(name: str) -> None:
    function, args, match = REFUSED[name]
    with pytest.raises(UnsupportedError, match=match):
        torshc.grad(function)(*args)


def test_operators_without_gradient_are_named_by_their_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that can be traced has one; CumProd by its loop nest."""
    monkeypatch.setattr(reverse, "nest_parts", lambda *_: None)
    with pytest.raises(UnsupportedError, match=r"CumProd, 'test_gradient.py:\d+'\): CumProd has no gradient"):
        torshc.grad(bend)(X)
