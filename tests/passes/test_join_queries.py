"""Queries of heads that share keys become those of one head."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from torshc.base.options import CompileOptions
from torshc.graph import Graph, Value
from torshc.graph.verify import verify
from torshc.passes.interpret import run_graph

from ..support.pass_graphs import OPTIONS, Model, names, random_inputs, run_one


def step(m: Model, *, heads: int = 4, queries: int = 1, keys: int = 1, mask: Value | None = None, **form: Any) -> Graph:
    """Heads of queries, 8 wide, over 2 heads of 6 keys each."""
    q = m.input(1, 2, heads, queries, 8)
    k, v = (m.input(1, 2, keys, 6, 8) for _ in range(2))
    return m.done(m("Attention", q, k, v, *([mask] if mask else []), domain="torshc", scale=0.4, **form))


def joined(graph: Graph, options: CompileOptions = OPTIONS) -> list[tuple[str, ...]]:
    """Shapes of queries after the pass; results are what they were."""
    fed = random_inputs(graph)
    before = run_graph(graph, fed)
    run_one("join_queries", graph, options)
    verify(graph, "join_queries")
    np.testing.assert_allclose(run_graph(graph, fed)[0], before[0], rtol=1e-5, atol=1e-6)
    assert "Attention" in names(graph)
    return [tuple(map(str, n.operands[0].shape)) for n in graph.nodes if n.op.name == "Attention"]


def test_heads_that_share_keys_are_queries_of_one() -> None:
    assert joined(step(Model())) == [("1", "2", "4", "8")]


@pytest.mark.parametrize("shape", [(1, 1, 1, 1, 6), (1, 2, 1, 1, 6), (1, 6)], ids=str)
def test_masks_that_all_of_them_have(shape: tuple[int, ...]) -> None:
    m = Model()
    mask = m.const(np.where(np.arange(6) < 4, 0, -np.inf) * np.ones(shape))
    assert joined(step(m, mask=mask)) == [("1", "2", "4", "8")]


@pytest.mark.parametrize("form", [{"queries": 2}, {"keys": 4}, {"heads": 1}, {"causal": True}], ids=str)
def test_others_stay(form: dict[str, Any]) -> None:
    """Several queries of a head, heads with keys of their own, one head, and what depends on the place of a query."""
    ((*_, _, width),) = joined(step(Model(), **form))
    assert width == "8" and len(joined(step(Model(), **form))[0]) == 5


def test_a_mask_of_each_head_stays() -> None:
    m = Model()
    assert len(joined(step(m, mask=m.const(np.random.default_rng(0).random((1, 2, 4, 1, 6)))))[0]) == 5


def test_targets_with_kernels_for_caches_do_without() -> None:
    graph = step(Model())
    run_one("join_queries", graph, CompileOptions(target="cuda", arch="sm_90a"))
    assert names(graph) == ["Attention"]
