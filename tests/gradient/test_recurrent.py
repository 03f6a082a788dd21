"""Gradients of recurrent networks with their steps written out, and as loops: those of their parts.

What the gradients of the parts are, central differences show in `tests/ops/nn/test_recurrent_parts.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.ops.nn.test_recurrent_parts import network, parts
from torshc.base.budget import spending
from torshc.gradient import gradients
from torshc.graph import Builder, Graph, Value
from torshc.ops.control.flow import bodies
from torshc.ops.core.tensor import Tensor
from torshc.passes.interpret import run_graph

from .differences import evaluate, seed

Array = np.ndarray[Any, Any]
CASES = [
    ("LSTM", "all"), ("LSTM", "peephole"), ("LSTM", "forget"), ("LSTM", "activations"), ("LSTM", "reverse lengths"),
    ("GRU", "all"), ("GRU", "before"), ("GRU", "plain"), ("RNN", "all"),
]  # fmt: skip
ALMOST = {"rtol": 1e-10, "atol": 1e-12}  # the same sums of numbers near 1 in f64, in another order


def weighted_sum(graph: Graph, values: Sequence[Value]) -> Value:
    """Of all elements, each with a weight of its own."""
    total = None
    for k, v in enumerate(values):
        t = Tensor(Builder(graph), v)
        dims = v.type.static_shape
        assert dims is not None
        part = (t * t.constant(seed(int(np.prod(dims))).reshape(dims) + k)).sum(range(t.rank), keep=False)
        total = part if total is None else total + part
    assert total is not None
    return total.value


def compute_gradients(op: str, how: str, apart: bool, unrolled: int = 256, order: int = 1) -> tuple[list[Array], bool]:
    """Gradients of a weighted sum of all results, or of their weighted sum and so on; and whether there are loops.

    Args:
        apart: whether the network is taken apart before.
        unrolled: steps that are written out.
    """
    graph, feeds = network(op, how, np.float64)
    xs = [v for v in graph.inputs if v.dtype.is_float]
    found: Sequence[Value] = parts(graph) if apart else graph.results
    with spending({"unrolled": unrolled}):
        for _ in range(order):
            found = gradients(Builder(graph), weighted_sum(graph, found), xs)
    graph.outputs = list(found)
    return run_graph(graph, feeds, evaluate), any(bodies(n) for n in graph.nodes)


def require_equal(a: Sequence[Array], b: Sequence[Array]) -> None:
    for x, y in zip(a, b, strict=True):
        np.testing.assert_allclose(x, y, **ALMOST)


@pytest.mark.parametrize(("op", "how"), CASES)
def test_steps_written_out_have_the_gradients_of_the_parts(op: str, how: str) -> None:
    found, loops = compute_gradients(op, how, apart=False)
    assert not loops and all(abs(g).max() > 0.01 for g in found)
    require_equal(found, compute_gradients(op, how, apart=True)[0])


@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
def test_more_steps_than_the_budget_are_a_loop_with_equal_gradients(op: str) -> None:
    found, loops = compute_gradients(op, "all", apart=False, unrolled=2)
    assert loops
    require_equal(found, compute_gradients(op, "all", apart=False, unrolled=3)[0])


@pytest.mark.parametrize(("op", "how"), [("LSTM", "plain"), ("GRU", "plain")])
def test_gradients_have_gradients(op: str, how: str) -> None:
    found, _ = compute_gradients(op, how, apart=False, order=2)
    require_equal(found, compute_gradients(op, how, apart=True, order=2)[0])
