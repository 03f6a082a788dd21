"""Rows of padding are left out of what works on each row by itself."""

from __future__ import annotations

import pytest

from tests.support.padded import encoder
from torshc.base.options import CompileOptions
from torshc.formats import load_graph
from torshc.graph import Graph, PaddingMask
from torshc.graph.verify import verify
from torshc.passes import run_pipeline
from torshc.passes.drop_padding import drop_padding
from torshc.pipeline.job import jobs_of


def packed(tail: str) -> Graph:
    """The graph of an encoder after the passes."""
    graph = load_graph(encoder(tail).SerializeToString())
    graph.padding = PaddingMask(graph.inputs[1])
    (job,) = jobs_of(CompileOptions())
    run_pipeline(graph, job.pipeline, job.options, job.features)
    verify(graph, "drop_padding")
    return graph


def test_products_have_the_rows_that_are_kept() -> None:
    """Attention and the sum over rows have whole values."""
    graph = packed("mean")
    rows = {"MatMul": 0, "Attention": 0, "ReduceSum": 0}
    for node in graph.nodes:
        if node.op.name in rows:
            shape = [str(d) for d in node.operands[0].shape]
            assert (shape[0] == "mask.rows") == (node.op.name == "MatMul"), shape
            rows[node.op.name] += 1
    assert rows["MatMul"] == 4 and rows["Attention"] == 1 and rows["ReduceSum"] >= 1
    assert graph.sources["mask.rows"].kind == "count"


def test_it_happens_once_and_where_it_is_asked_for() -> None:
    graph = packed("mean")
    assert not drop_padding(graph, CompileOptions())
    plain = load_graph(encoder().SerializeToString())
    assert not drop_padding(plain, CompileOptions())


@pytest.mark.parametrize("tail", ["mean", "parts"])
def test_rows_are_gathered_once(tail: str) -> None:
    """What several nodes read as rows is gathered for the first of them."""
    graph = packed(tail)
    gathers = [n for n in graph.nodes if n.op.name == "Gather"]
    assert len({(n.operands[0], n.operands[1]) for n in gathers}) == len(gathers)
