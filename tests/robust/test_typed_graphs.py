"""Random typed graphs, compiled in one of several ways each, against onnx's evaluator."""

from __future__ import annotations

import random

import numpy as np
import onnx
import pytest

from tests.support.slow import SLOW

from .graph_check import COMPILERS, GOOD, LEVELS, WAYS, checked, keep, located, ways_of
from .reduce import least
from .typed_compare import difference
from .typed_graphs import cut, make_graph, model_of, smaller
from .typed_nodes import drawable, step
from .typed_values import SAMPLES, TYPES, Maker, Rejected, Value, defined, draw
from .workers import Outcome, outcomes

COMPILED = 3  # a seed, by each compiler
COUNT = 8  # a seed; `make graph-fuzz` takes more, each in all ways


@pytest.mark.parametrize("seed", [0, pytest.param(10**6, marks=SLOW)])
def test_random_typed_graphs(seed: int) -> None:
    graphs = [make_graph(seed + k) for k in range(COUNT)]
    ways = list(WAYS)
    found = list(outcomes(((g, (ways[g.seed % len(ways)],)) for g in graphs), checked))
    bad = [f"{keep(g, o)}: {o.cause}\n{o.detail}" for (g, _), o in found if o.kind not in GOOD]
    assert not bad, "\n".join(bad)
    assert sum(o.kind == "fine" for _, o in found) > 0.8 * COUNT


@pytest.mark.parametrize("seed", [2, pytest.param(2 * 10**6, marks=SLOW)])
def test_compilers_agree(seed: int) -> None:
    """LLVM, clang and gcc, of one program each; `make graph-fuzz ARGS=--compilers` takes more."""
    if len(COMPILERS) < 3:
        pytest.skip("needs clang and gcc")
    graphs = [make_graph(seed + k) for k in range(COMPILED)]
    found = list(outcomes(((g, tuple(COMPILERS)) for g in graphs), checked))
    bad = [f"{keep(g, o)}: {o.cause}\n{o.detail}" for (g, _), o in found if o.kind not in GOOD]
    assert not bad, "\n".join(bad)
    assert any(o.kind == "fine" for _, o in found)


def test_a_graph_depends_on_its_seed_alone() -> None:
    one, two = (model_of(make_graph(4)) for _ in range(2))
    assert one.SerializeToString(deterministic=True) == two.SerializeToString(deterministic=True)
    assert 3 <= len(make_graph(4).nodes) <= 15


def test_each_level_is_compiled_by_both_targets() -> None:
    """Of each graph all levels, and over some graphs each of them both by LLVM and in C."""
    tried = [ways_of(seed) for seed in range(10)]
    assert all([how.removesuffix(" llvm") for how in ways] == [*LEVELS] for ways in tried)
    assert {how for ways in tried for how in ways} == {*WAYS}


def test_every_operator_is_drawn() -> None:
    """Each operator of the default domain, alone, from a few operands of all types and ranks."""
    never = []
    for op in drawable():
        for seed in range(60):
            m = _maker(seed)
            try:
                step(m, op)
            except Rejected:
                continue
            break
        else:
            never.append(op)
    assert not never


def _maker(seed: int) -> Maker:
    m = Maker(random.Random(seed), np.random.default_rng(seed), 1)
    for k, dtype in enumerate((*TYPES, "float32", "float32", "uint8", "int8")):
        for j, shape in enumerate(([], [3], [2, 4], [2, 2, 2], [1, 4, 6], [1, 4, 4, 4])):
            row = (draw(m.generator, dtype, shape),) * (SAMPLES + 1)
            m.values.append(Value(f"x{k}_{j}", (row,)))
    return m


def test_what_rounding_explains() -> None:
    """A sum that cancels may be off by some units of its terms, and what is 1 is either 1 or wrong."""
    one, near = np.float32([1.0, 1e-7]), np.float32([1.0, 2e-7])
    assert not difference(one, [one, near]) and not difference(near, [one, near])
    wide, off = np.array([1.0]), np.array([1.0 + 2e-7])
    assert difference(off, [wide, wide]) and not difference(off, [wide, wide], float(np.finfo(np.float32).eps))
    assert "at [1]" in difference(np.float32([1.0, 5e-6]), [one, near])
    assert "at [0]" in difference(np.float32([1.0001, 1e-7]), [one, near])
    assert difference(one, [np.float32([np.nan, 1e-7])] * 2) and difference(np.float32([np.nan] * 2), [one, near])
    count, other = np.array([3, 4]), np.array([3, 5])
    assert not difference(other, [count, other]) and difference(np.array([4, 4]), [count, other])
    assert difference(count.astype(np.int32), [count, count]) and difference(count[:1], [count, count])
    assert difference(one, [one, near], other=np.float32([1.0001, 1e-7])) and not difference(
        one, [one, near], other=near
    )


def test_what_rounding_moves_by_its_own_size() -> None:
    """1 / x beside 0 may be infinite; what is as large and is not moved so may not."""
    row = [np.float32([3e16, 3e16]), np.float32([2e7, 3e16]), np.float32([-2e7, 3e16])]
    assert not difference(np.float32([np.inf, 3e16]), row)
    assert "at [1]" in difference(np.float32([3e16, np.inf]), row)
    assert "at [1]" in difference(np.float32([3e16, 2e16]), row)


def test_products_of_halves_that_vanish() -> None:
    """1e-4 squared is 0 in halves, which f32 keeps; products that halves hold are drawn."""
    m = Maker(random.Random(0), np.random.default_rng(0), 1)
    small, one = (Value(n, ((np.full(2, v, np.float16),) * (SAMPLES + 1),)) for n, v in (("s", 1e-4), ("o", 1.0)))
    assert m.emit("Mul", [small, one])
    with pytest.raises(Rejected, match="vanishes"):
        m.emit("Mul", [small, small])


def test_powers_that_the_reference_rounds() -> None:
    """(-1280)^4 is 0 in 32 bits that wrap, and no i32 in f64, to which NumPy takes i32 and u64."""
    base, small = (Value("x", ((np.array([n], np.int32),),)) for n in (-1280, -128))
    four = {d: Value("y", ((np.array([4], d),),)) for d in ("uint64", "int64")}
    defined("Pow", [base, four["int64"]], {})
    defined("Pow", [small, four["uint64"]], {})
    with pytest.raises(Rejected, match="Pow: ONNX leaves"):
        defined("Pow", [base, four["uint64"]], {})


def test_windows_of_padding_alone() -> None:
    """The maximum of nothing is -inf, and 0 by the evaluator; without images there is no window either."""
    for shape in ((1, 2, 3, 4), (0, 2, 3, 4)):
        defined("MaxPool", [Value("x", ((np.ones(shape, np.float32),),))], {})
    with pytest.raises(Rejected, match="MaxPool: ONNX leaves"):
        defined("MaxPool", [Value("x", ((np.ones((1, 2, 0, 4), np.float32),),))], {})


def test_failures_are_made_smaller() -> None:
    """As long as a graph has its last node, here, which no other reads."""
    graph = next(g for g in map(make_graph, range(50)) if len(g.nodes) > 8 and g.bindings > 1)
    wanted = graph.nodes[-1]
    small = least(graph, lambda g: wanted in g.nodes, smaller)
    assert small.operators == [wanted.op_type] and small.bindings == 1
    assert any(part.operators == [wanted.op_type] for part in cut(graph, 1))
    onnx.checker.check_model(model_of(small), full_check=True)


def test_a_wrong_answer_is_found() -> None:
    """One whose reference is another number."""
    graph = next(g for g in map(make_graph, range(50)) if len(g.nodes) < 5 and "x0" in g.inputs)
    wrong = {n: Value(n, tuple(tuple(_next(a) for a in row) for row in graph.values[n].rows)) for n in graph.outputs}
    graph.values.update(wrong)
    ((_, outcome),) = outcomes([(graph, ("O0",))], checked)
    assert isinstance(outcome, Outcome) and outcome.kind == "wrong answer" and "in place of" in outcome.detail
    ((_, place),) = outcomes([(graph, ("O0",))], located)
    assert place.kind == "wrong answer" and "step none, node" in place.detail


def _next(a: np.ndarray) -> np.ndarray:
    return ~a if a.dtype == bool else np.asarray(a + a.dtype.type(1))
