"""What is constant is computed, within a budget."""

from __future__ import annotations

import numpy as np
import pytest

from torshc.expr import DTYPES
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


@pytest.mark.parametrize("dtype", ["f32", "f16", "i8"])
@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
def test_scatters_of_constants_take_a_step_for_each_update(reduction: str, dtype: str) -> None:
    """In their order, at rows that are also counted from the end; a nest of 1e8 steps is left to runs."""
    m, rng, kind, n = Model(), np.random.default_rng(1), DTYPES[dtype].numpy, 9000
    data, updates = rng.uniform(-3, 3, (2, n, 2)).astype(kind)
    rows = rng.integers(-n, n, (n, 2))
    operands = m.const(data, dtype), m.const(rows, "i64"), m.const(updates, dtype)
    elements = m("ScatterElements", *operands, axis=0, reduction=reduction)
    slices = m("ScatterND", operands[0], m.const(rows[:, :1], "i64"), operands[2], reduction=reduction)
    graph = m.done(elements, slices)
    PASSES["fold_constants"](graph, OPTIONS)
    assert names(graph) == []
    one = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}.get(reduction, lambda a, b: b)
    wide = DTYPES[DTYPES[dtype].compute].numpy
    wanted = np.stack([data, data]).astype(wide)
    for row, update in zip(rows, updates.astype(wide), strict=True):
        wanted[0, row, [0, 1]] = one(wanted[0, row, [0, 1]], update)
        wanted[1, row[0]] = one(wanted[1, row[0]], update)
    for output, array in zip(graph.outputs, wanted, strict=True):
        np.testing.assert_array_equal(output.const, array.astype(kind))
