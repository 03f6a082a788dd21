"""Ensembles of trees against a walk in Python, bit for bit: modes, NaN, few and many rows, trees and targets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.ensembles import COMPARE, Ensemble, grown, rows
from tests.support.kernels import Maker
from tests.support.run_kernel import Program, compilers, kind_of, kinds, native_lanes
from tests.support.seeded import seeded
from torshc.expr import F32, F64
from torshc.kernels.machine import Machine
from torshc.ops.ml.forest import NEUTRAL

LANES = sorted({native_lanes(), 4 if native_lanes() >= 4 else 1, 1})
RNG = seeded(0)
COUNTS = (0, 1, 5, 16, 17, 300)
FORMS = {
    "le": (["LEQ"], False), "lt": (["LT"], False), "ge": (["GTE"], False), "ne": (["NEQ"], False),
    "le, missing": (["LEQ"], True), "any": (list(COMPARE), False), "any, missing": (list(COMPARE), True),
}  # fmt: skip


def check(made: Ensemble, aggregate: str = "SUM", counts: tuple[int, ...] = COUNTS, **chosen: Any) -> None:
    dtype = F64 if made.weights.dtype == np.float64 else F32
    x = rows(np.random.default_rng(1), max(counts), dtype=dtype)
    wanted = made.run(x, aggregate)
    for count in counts:
        m = Maker()
        m.output(made.add(m.builder, m.input("n", 5, dtype=dtype), aggregate))
        built = Program(m.graph, {"n": count}, **chosen)
        assert kinds(built) == ["trees"]
        np.testing.assert_array_equal(built.run(x[:count])[0], wanted[:count])


@pytest.mark.parametrize("trees", [1, 16, 37])
@pytest.mark.parametrize("form", FORMS)
def test_forms(form: str, trees: int) -> None:
    modes, lost = FORMS[form]
    check(grown(np.random.default_rng(trees), trees, modes, lost=lost))


@pytest.mark.parametrize("aggregate", ["AVERAGE", "MIN", "MAX"])
def test_aggregates(aggregate: str) -> None:
    made = grown(RNG, 21, targets=2)
    made.weights[::3, 0] = NEUTRAL.get(aggregate, 0.0)
    made.weights[:, 1] = NEUTRAL.get(aggregate, 0.0)
    check(made, aggregate)


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("compiler", compilers())
def test_lanes_and_compilers(compiler: str, lanes: int) -> None:
    machine = Machine(lanes=lanes, compiler=kind_of(compiler))
    for dtype, targets, lost in ((F32, 1, False), (F64, 3, True), (F32, 19, True)):
        made = grown(RNG, 18, list(COMPARE) if lost else ["LT"], targets=targets, lost=lost, dtype=dtype)
        check(made, counts=(37,), machine=machine, compiler=compiler)


def test_trees_that_are_leaves() -> None:
    check(grown(RNG, 3, depth=0))


def test_one_deep_way() -> None:
    """Deeper than what a loop nest is written out for."""
    branches = [(0, "LEQ", k / 100, False, -1 - k, k + 1 if k < 199 else -201) for k in range(200)]
    check(Ensemble(branches, [0, 0], np.arange(201, dtype=np.float32)[:, None]), counts=(17,))


@pytest.mark.parametrize("targets", [1, 3])
def test_what_follows_joins(targets: int) -> None:
    """One axis where nothing tells targets from each other, two where a bias does."""
    made, bias = grown(RNG, 9, targets=targets), np.arange(targets, dtype=np.float32)
    for other in (np.float32(2), bias):
        m = Maker()
        scores = made.add(m.builder, m.input("n", 5))
        m.output(m.add("Sigmoid", m.add("Add", scores, m.constant(np.asarray(other)))), scores)
        built, x = Program(m.graph, {"n": 37}), rows(RNG, 37)
        assert kinds(built) == ["trees"]
        got, wanted = built.run(x), made.run(x)
        np.testing.assert_array_equal(got[1], wanted)
        np.testing.assert_allclose(got[0], 1 / (1 + np.exp(-(wanted + other))), rtol=1e-5)


def test_features_that_do_not_lie_side_by_side() -> None:
    made, x = grown(RNG, 9), rows(RNG, 37)
    m = Maker()
    m.output(made.add(m.builder, m.add("Transpose", m.input(5, "n"), perm=(1, 0))))
    built = Program(m.graph, {"n": 37})
    assert kinds(built) == ["transpose", "trees"]
    np.testing.assert_array_equal(built.run(x.T)[0], made.run(x))
