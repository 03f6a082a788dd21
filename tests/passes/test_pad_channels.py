"""Pictures that convolutions learn from have whole packets of channels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from torshc.base.options import CompileOptions
from torshc.graph import Graph
from torshc.graph.verify import verify
from torshc.passes.interpret import run_graph

from ..support.pass_graphs import OPTIONS, Model, dims, names, random_inputs, run_one

CUDA = replace(OPTIONS, target="cuda", arch="sm_90a")


def step(channels: int, group: int = 1, learns: bool = True) -> Graph:
    """A convolution, and the gradient of its weights."""
    m = Model()
    form: dict[str, Any] = {"strides": (2, 1), "pads": dims(1, 0, 1, 1), "dilations": (1, 1), "group": group}
    x, w, bias = m.input(2, channels, 7, 6), m.input(6, channels // group, 3, 2), m.input(6)
    y = m("Conv", x, w, bias, **form)
    shape = dims(6, channels // group, 3, 2)
    return m.done(y, *([m("ConvWeights", x, y, domain="torshc", shape=shape, **form)] if learns else []))


@pytest.mark.parametrize(("precision", "width"), [("f32", "4"), ("tf32", "4"), ("bf16", "8")])
def test_channels_come_in_packets(precision: str, width: str) -> None:
    graph = step(3)
    fed = random_inputs(graph)
    before = run_graph(graph, fed)
    assert run_one("pad_channels", graph, replace(CUDA, precision=precision))
    run_one("common_subexpressions", graph)
    verify(graph, "pad_channels")
    assert sorted(names(graph)) == ["Conv", "ConvWeights", "Pad", "Pad", "Slice"]
    assert {str(n.operands[0].shape[1]) for n in graph.nodes if n.op.name.startswith("Conv")} == {width}
    for b, a in zip(before, run_graph(graph, fed), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("graph", "options"),
    [
        (step(4), CUDA),
        (step(1), CUDA),
        (step(2, group=2), CUDA),
        (step(3, learns=False), CUDA),
        (step(3), OPTIONS),
        (step(3), replace(CUDA, arch="sm_80")),
    ],
    ids=["packets", "one", "groups", "learns nothing", "C", "Ampere"],
)
def test_others_stay(graph: Graph, options: CompileOptions) -> None:
    assert not run_one("pad_channels", graph, options)
