"""What is constant is computed, within a budget."""

from __future__ import annotations

import numpy as np

from torshc.passes import PASSES

from ..support.ensembles import grown, rows
from ..support.pass_graphs import OPTIONS, Model, dims, names


def test_fold_constants_leaves_large_broadcasts_alone() -> None:
    m = Model()
    graph = m.done(
        m("Expand", m.const([[1.0]]), shape=dims(1024, 1024)), m("Transpose", m.const(np.ones((600, 600))), perm=(1, 0))
    )
    PASSES["fold_constants"](graph, OPTIONS)
    assert names(graph) == ["Expand"]


def test_fold_constants_leaves_results_that_would_be_copies_of_constants() -> None:
    m = Model()
    one, row = m.const([[1.0]]), m.const(np.ones((1, 256)))
    inner = m("Add", m.input(256, 256), m("Expand", row, shape=dims(256, 256)))
    graph = m.done(m("Expand", one, shape=dims(200, 200)), m("Expand", one, shape=dims(8, 8)), inner)
    PASSES["fold_constants"](graph, OPTIONS)
    assert sorted(names(graph)) == ["Add", "Expand"]


def test_fold_constants_leaves_one_element_to_the_readers_of_its_broadcast() -> None:
    m = Model()
    one = m.const([[1.0]])
    few, many = (m("Expand", one, shape=dims(n, n)) for n in (64, 200))
    graph = m.done(m("Add", m.input(64, 64), few), m("Add", m.input(200, 200), many))
    PASSES["fold_constants"](graph, OPTIONS)
    assert sorted(names(graph)) == ["Add", "Add", "Expand"]


def test_fold_constants_has_a_budget() -> None:
    m = Model()
    x = m.const(np.ones((1, 1)))
    graph = m.done(m("Expand", x, shape=dims(1 << 21, 1 << 21)))
    assert not PASSES["fold_constants"](graph, OPTIONS)


def test_trees_of_constants() -> None:
    """What they are made of depends on the contents of their tables."""
    m, rng = Model(), np.random.default_rng(0)
    made, x = grown(rng, 3), rows(rng, 9)
    graph = m.done(made.add(m.builder, m.const(x)))
    PASSES["fold_constants"](graph, OPTIONS)
    np.testing.assert_array_equal(graph.outputs[0].const, made.run(x))


def test_scatters_of_constants_whose_indices_are_broadcasts_of_one_element() -> None:
    """As a table of relative positions is written: of equal indices the last update counts."""
    m, rng, n = Model(), np.random.default_rng(0), 200
    data, updates = rng.standard_normal((2, n, n), np.float32), rng.standard_normal(n * n, np.float32)
    rows, columns = rng.integers(0, n, (n * n, 1)), rng.integers(-n, n, (n * n, 1))
    plane = m("Expand", m.const([[1]], "i64"), shape=dims(n * n, 1))
    indices = m("Concat", plane, m.const(rows, "i64"), m.const(columns, "i64"), axis=1)
    graph = m.done(m("ScatterND", m.const(data), indices, m.const(updates)))
    PASSES["fold_constants"](graph, OPTIONS)
    wanted = data.copy()
    for row, column, update in zip(rows[:, 0], columns[:, 0], updates, strict=True):
        wanted[1, row, column] = update
    assert names(graph) == []
    np.testing.assert_array_equal(graph.outputs[0].const, wanted)
