"""The interpreter against NumPy, and what it must not copy."""

from __future__ import annotations

import numpy as np
import pytest

from torshc.base.errors import UnsupportedError
from torshc.expr import I8, I32
from torshc.passes.interpret import run_graph

from ..support.pass_graphs import Model, dims


def test_views_are_not_copied() -> None:
    m = Model()
    x = m.input(4, 6)
    parts = m("Slice", m("Transpose", x, perm=(1, 0)), starts=dims(5, 1), sizes=dims(3, 2), steps=(-2, 2))
    array = np.arange(24, dtype=np.float32).reshape(4, 6)
    (got,) = run_graph(m.done(parts), {x: array})
    np.testing.assert_array_equal(got, array.T[5::-2, 1::2])
    assert np.shares_memory(got, array)


def test_concat_pad_and_reductions() -> None:
    m = Model()
    x = m.input(2, 3)
    y = m("Pad", m("Concat", x, x, axis=0), before=dims(1, 0), after=dims(0, 2))
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    whole = np.pad(np.concatenate([array, array]), [(1, 0), (0, 2)])
    graph = m.done(y, m("ReduceMax", y, axes=(1,)), m("ReduceMean", y, axes=(0, 1), keepdims=False))
    for got, wanted in zip(
        run_graph(graph, {x: array}), (whole, whole.max(1, keepdims=True), whole.mean()), strict=True
    ):
        np.testing.assert_allclose(got, wanted, rtol=1e-6)


def test_casts_saturate() -> None:
    m = Model()
    x = m.input(5)
    graph = m.done(m("Cast", x, to=I8), m("Cast", x, to=I32))
    array = np.asarray([np.nan, np.inf, -np.inf, 300.7, -1.9], np.float32)
    small, wide = run_graph(graph, {x: array})
    assert small.tolist() == [0, 127, -128, 127, -1]
    assert wide.tolist() == [0, 2**31 - 1, -(2**31), 300, -1]


def test_empty_tensors() -> None:
    m = Model()
    x = m.input(0, 3)
    graph = m.done(m("Exp", x), m("ReduceSum", x, axes=(0,)), m("ReduceMax", x, axes=(0,)))
    exp, total, largest = run_graph(graph, {x: np.zeros((0, 3), np.float32)})
    assert exp.shape == (0, 3) and total.tolist() == [[0, 0, 0]] and np.all(largest == -np.inf)


def test_what_is_symbolic_is_refused() -> None:
    m = Model()
    x = m.input("n")
    with pytest.raises(UnsupportedError):
        run_graph(m.done(m("Exp", x)), {x: np.zeros(3, np.float32)})
