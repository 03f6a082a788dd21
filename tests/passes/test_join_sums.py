"""Sums of sums are one sum, where the target cuts long sums into pieces."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from torshc.graph.verify import verify
from torshc.passes.interpret import run_graph

from ..support.pass_graphs import OPTIONS, Model, names, random_inputs, run_one

CUDA = replace(OPTIONS, target="cuda", arch="sm_90a")


def test_sums_of_sums_are_one() -> None:
    m = Model()
    graph = m.done(m("ReduceSum", m("ReduceSum", m.input(3, 5, 4, 2), axes=(2, 3)), axes=(0,)))
    fed = random_inputs(graph)
    before = run_graph(graph, fed)
    assert not run_one("join_sums", graph)  # C sums sample by sample, in parallel
    assert run_one("join_sums", graph, CUDA)
    verify(graph, "join_sums")
    assert [getattr(n.op, "axes", None) for n in graph.nodes if n.op.name == "ReduceSum"] == [(0, 2, 3)]
    np.testing.assert_allclose(run_graph(graph, fed)[0], before[0], rtol=1e-5)


@pytest.mark.parametrize("kind", ["ReduceMax", "ReduceMean", "two readers", "dropped dimensions"])
def test_others_stay(kind: str) -> None:
    m = Model()
    inner = m(kind if kind.startswith("Reduce") else "ReduceSum", m.input(3, 5, 4), axes=(2,))
    outer = m("ReduceSum", inner, axes=(0,), keepdims=kind != "dropped dimensions")
    graph = m.done(outer, *([inner] if kind == "two readers" else []))
    assert not run_one("join_sums", graph, CUDA) and len(names(graph)) == 2
