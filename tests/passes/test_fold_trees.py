"""What follows from a leaf becomes what the leaf says."""

from __future__ import annotations

import numpy as np
import pytest

from torshc.base.options import CompileOptions
from torshc.graph import Graph, Value
from torshc.passes.fold_trees import fold_trees
from torshc.passes.interpret import run_graph

from ..support.ensembles import grown, rows
from ..support.pass_graphs import Model, dims


def numbered(m: Model, x: Value) -> Value:
    """A tree whose leaves say their number."""
    made = grown(np.random.default_rng(3), 1, depth=4)
    made.weights[:, 0] = np.arange(len(made.weights))
    return made.add(m.builder, x)


def looked_up(m: Model, leaf: Value) -> Value:
    """A depth for each number, corrected, in the way that exporters of isolation forests write it."""
    keys = m.const(np.arange(40), "i64")
    places = m("KeyPlace", m("Cast", leaf, to=keys.dtype), keys, domain="torshc")
    table = np.linspace(0, 3, 41)
    depth, count = (m("Gather", m.const(t), places, axis=0) for t in (table, table[::-1]))
    part = m("Mul", m("Log", m("Max", count, 0.5)), 2.0)
    return m("Add", m("Where", m("Greater", count, 1.0), part, depth), depth)


def folded(graph: Graph, count: int) -> list[str]:
    """What is left, which computes the same."""
    x = rows(np.random.default_rng(0), count)
    feeds = dict.fromkeys(graph.inputs, x)
    before = run_graph(graph, feeds)
    names = [n.op.name for n in graph.nodes]
    changed = fold_trees(graph, CompileOptions())
    left = [n.op.name for n in graph.nodes]
    assert changed == (left != names)
    for a, b in zip(run_graph(graph, feeds), before, strict=True):
        np.testing.assert_array_equal(a, b)
    return left


@pytest.mark.parametrize("count", [1, 9])
def test_what_follows_from_a_leaf(count: int) -> None:
    m = Model()
    x = m.input(count, 5)
    assert folded(m.done(m("Exp", m("Add", looked_up(m, numbered(m, x)), looked_up(m, numbered(m, x))))), count) == [
        "Trees", "Trees", "Add", "Exp",
    ]  # fmt: skip


def test_features_that_were_chosen() -> None:
    m = Model()
    x = m.input(9, 5)
    chosen = m("Gather", x, m.const([4, 0, -3, 1, 1], "i64"), axis=1)
    assert folded(m.done(numbered(m, chosen)), 9) == ["Trees"]
    m = Model()
    part = m("Slice", m.input(9, 5), starts=dims(0, 4), sizes=dims(9, 5), steps=(1, -1))
    assert folded(m.done(numbered(m, part)), 9) == ["Trees"]


def test_what_depends_on_more_than_the_leaf_stays() -> None:
    """Rows that are summed or weighted one by one, two results that are read, and several trees."""
    m = Model()
    x = m.input(9, 5)
    leaf = numbered(m, x)
    graph = m.done(m("ReduceSum", leaf, axes=(0,)), m("Mul", leaf, m.const(np.arange(9.0)[:, None])), m("Neg", leaf))
    assert folded(graph, 9) == ["Trees", "ReduceSum", "Mul", "Neg"]
    m = Model()
    forest = grown(np.random.default_rng(0), 2).add(m.builder, m.input(9, 5))
    assert folded(m.done(m("Neg", forest)), 9) == ["Trees", "Neg"]


def test_a_reduction_over_rows_alone_stays() -> None:
    """Of one row it has the shape of a row's result."""
    m = Model()
    graph = m.done(m("ReduceMax", numbered(m, m.input(1, 5)), axes=(0,), keepdims=1))
    assert folded(graph, 1) == ["Trees", "ReduceMax"]
