"""Sums of ensembles become one ensemble."""

from __future__ import annotations

import numpy as np

from tests.support.seeded import seeded
from torshc.base.options import CompileOptions
from torshc.graph import Graph
from torshc.passes.interpret import run_graph
from torshc.passes.join_trees import join_trees

from ..support.ensembles import grown, rows
from ..support.pass_graphs import Model

RNG = seeded(0)


def joined(graph: Graph) -> list[str]:
    """What is left, which computes the same."""
    feeds = dict.fromkeys(graph.inputs, rows(np.random.default_rng(0), 9))
    before = run_graph(graph, feeds)
    join_trees(graph, CompileOptions())
    for a, b in zip(run_graph(graph, feeds), before, strict=True):
        # Few leaves, of about 1, in another order.
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    return [n.op.name for n in graph.nodes]


def test_all_forms() -> None:
    m = Model()
    x = m.input(9, 5)
    forms = [["LEQ"], ["LT"], ["NEQ", "GTE"], ["EQ"]]
    trees = [grown(RNG, k + 1, f, targets=2, lost=f == ["EQ"]).add(m.builder, x) for k, f in enumerate(forms)]
    assert joined(m.done(m("Add", m("Sum", *trees[:3]), trees[3]))) == ["Trees"]


def test_what_stays() -> None:
    """Features of another tensor, other terms, a sum that is read twice, another aggregate."""
    m = Model()
    x, z = m.input(9, 5), m.input(9, 5)
    a, b, c, d = (grown(RNG, 2).add(m.builder, v) for v in (x, x, z, x))
    least = grown(RNG, 2).add(m.builder, x, "MIN")
    graph = m.done(m("Sum", a, m("Sigmoid", c), b), m("Add", d, least), m("Neg", d))
    assert sorted(joined(graph)) == ["Add", "Neg", "Sigmoid", "Sum", "Trees", "Trees", "Trees", "Trees"]
