"""Products of weights of 4 bits with each other, with norms before them and with gates behind."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tests.support.seeded import seeded
from torshc.base.options import CompileOptions
from torshc.expr import as_int
from torshc.graph import Graph, Value
from torshc.graph.verify import verify
from torshc.ops.quant.narrow import PairMatMul
from torshc.passes import PASSES
from torshc.passes.interpret import run_graph

from ..support.pass_graphs import OPTIONS, Model, names, run_one

RNG = seeded(3)


def product(m: Model, x: Value, columns: int) -> Value:
    depth = as_int(x.shape[-1])
    assert depth is not None
    scales = m.const(RNG.uniform(0.1, 0.3, (columns, depth // 32)), "f16")
    weights = m.const(RNG.integers(0, 256, (columns, depth // 2)), "u8")
    return m.builder.one(PairMatMul(32), x, weights, scales)


def joined(graph: Graph, feeds: Sequence[tuple[int, ...]] = ((1, 2, 64),)) -> list[str]:
    """The operators after the pass, of which the results are what they were."""
    arrays = [RNG.standard_normal(f).astype(np.float16) for f in feeds]
    fed = dict(zip(graph.inputs, arrays, strict=True))
    before = run_graph(graph, fed)
    run_one("join_pairs", graph, CompileOptions(target="cuda"))
    PASSES["dead_code"](graph, OPTIONS)
    verify(graph, "join_pairs")
    for got, wanted in zip(run_graph(graph, fed), before, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=2e-2, atol=2e-2)  # halves: sums in another order
    return names(graph)


@pytest.mark.parametrize("columns", [(64, 5), (4096, 5), (4096, 4096)])
def test_products_of_one_factor_are_one(columns: tuple[int, int]) -> None:
    """Unless all have columns enough."""
    m = Model()
    x = m.input(1, 2, 64, dtype="f16")
    found = joined(m.done(*(m("Relu", product(m, x, n)) for n in columns)))
    few = min(columns) < 4096
    assert found.count("PairMatMul") == (1 if few else 2) and found.count("Split") == few


@pytest.mark.parametrize("turned", [False, True])
def test_a_gate_and_what_it_lets_through(turned: bool) -> None:
    m = Model()
    x = m.input(1, 2, 64, dtype="f16")
    factors = [m("Swish", product(m, x, 16)), product(m, x, 16)]
    assert joined(m.done(m("Mul", *factors[:: -1 if turned else 1]))) == ["PairLayer"]


@pytest.mark.parametrize("case", ["alpha", "another use", "nine rows", "odd halves", "other factors"])
def test_gates_that_stay(case: str) -> None:
    m = Model()
    rows = 9 if case == "nine rows" else 1
    x, other = (m.input(1, rows, 64, dtype="f16") for _ in range(2))
    first = product(m, x, 4100 if case == "odd halves" else 4096)
    gate = m("Swish", first, alpha=2.0) if case == "alpha" else m("Swish", first)
    second = product(m, other if case == "other factors" else x, 4100 if case == "odd halves" else 4096)
    extra = [m("Relu", first)] if case == "another use" else [m("Relu", other)]
    found = joined(m.done(m("Mul", gate, second), *extra), [(1, rows, 64)] * 2)
    assert found.count("PairMatMul") == 2 and "PairLayer" not in found


@pytest.mark.parametrize("columns", [(16,), (16, 8), (4096, 4096)])
def test_norms_before(columns: tuple[int, ...]) -> None:
    """Of what only products read, each of which normalises it."""
    m = Model()
    x = m.input(1, 2, 64, dtype="f16")
    normal = m("RMSNormalization", x, m.const(RNG.uniform(0.5, 1.5, 64), "f16"), epsilon=0.1)
    found = joined(m.done(*(m("Relu", product(m, normal, n)) for n in columns)))
    assert "RMSNormalization" not in found and found.count("PairLayer") == (2 if columns[0] == 4096 else 1)


@pytest.mark.parametrize("case", ["an output", "another reader", "another axis", "long rows"])
def test_norms_that_stay(case: str) -> None:
    m = Model()
    shape = (1, 2, 8224) if case == "long rows" else (1, 2, 64)
    x = m.input(*shape, dtype="f16")
    axis = 1 if case == "another axis" else -1
    normal = m("RMSNormalization", x, m.const(np.ones(shape[axis:]), "f16"), axis=axis)
    results = [product(m, normal, 8)]
    results += [normal] if case == "an output" else [m("Relu", normal)] if case == "another reader" else []
    assert "RMSNormalization" in joined(m.done(*results), [shape])


def test_all_of_them() -> None:
    m = Model()
    x = m.input(1, 1, 64, dtype="f16")
    normal = m("RMSNormalization", x, m.const(np.ones(64), "f16"))
    d = m("Mul", m("Gelu", product(m, normal, 24)), product(m, normal, 24))
    assert joined(m.done(d), [(1, 1, 64)]) == ["PairLayer"]


def test_other_targets_have_none() -> None:
    m = Model()
    x = m.input(1, 1, 64, dtype="f16")
    graph = m.done(product(m, x, 8), product(m, x, 8))
    assert not run_one("join_pairs", graph, OPTIONS)
