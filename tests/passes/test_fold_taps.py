"""Convolutions of pictures sum over places of their kernels as over channels."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from torshc.base.options import CompileOptions
from torshc.expr import as_int
from torshc.graph import Graph
from torshc.graph.verify import verify
from torshc.passes.interpret import run_graph

from ..support.pass_graphs import OPTIONS, Model, dims, names, random_inputs, run_one

CUDA = replace(OPTIONS, target="cuda", arch="sm_90a")


def step(
    kernel: tuple[int, int],
    strides: tuple[int, int],
    pads: tuple[int, ...],
    size: tuple[int, int],
    channels: int = 3,
    group: int = 1,
    learns: bool = True,
    dilation: int = 1,
    batch: int = 2,
    filters: int = 6,
) -> Graph:
    """A convolution, and the gradient of its weights."""
    m = Model()
    form: dict[str, Any] = {
        "strides": strides, "pads": dims(*pads), "dilations": (dilation, dilation), "group": group
    }  # fmt: skip
    x, w, bias = m.input(batch, channels, *size), m.input(filters, channels // group, *kernel), m.input(filters)
    y = m("Conv", x, w, bias, **form)
    shape = dims(filters, channels // group, *kernel)
    return m.done(y, *([m("ConvWeights", x, y, domain="torshc", shape=shape, **form)] if learns else []))


@pytest.mark.parametrize("precision", ["tf32", "bf16"])
@pytest.mark.parametrize(
    "form",
    [
        ((7, 7), (2, 2), (3, 3, 3, 3), (22, 18)),
        ((7, 7), (2, 2), (3, 3, 2, 2), (23, 19)),
        ((11, 11), (4, 4), (2, 2, 2, 2), (39, 35), 2),
        ((3, 3), (2, 2), (1, 1, 1, 1), (15, 12)),
        ((3, 5), (1, 1), (1, 0, 0, 3), (9, 8)),
        ((4, 5), (2, 3), (0, 0, 1, 2), (13, 17)),
    ],
)
def test_taps_become_channels(form: Any, precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torshc.passes.fold_taps._FEWEST", 1)
    graph = step(*form)
    fed = random_inputs(graph)
    before = run_graph(graph, fed)
    assert run_one("fold_taps", graph, replace(CUDA, precision=precision))
    run_one("dead_code", graph)
    verify(graph, "fold_taps")
    assert names(graph).count("FoldedTaps") == 1
    for node in (n for n in graph.nodes if n.op.name.startswith("Conv")):
        shape = node.operands[1].shape if node.op.name == "Conv" else node.output.shape
        assert (as_int(shape[1]) or 0) % (32 if precision == "tf32" else 64) == 0
        assert math.prod(as_int(d) or 0 for d in shape[2:]) < math.prod(form[0]) / 4
    for b, a in zip(before, run_graph(graph, fed), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize(
    ("form", "halves", "floats"),
    [
        (((7, 7), (2, 2), (3, 3, 3, 3), (224, 224)), (64, 64, 4, 1), (64, 32, 4, 2)),
        (((11, 11), (4, 4), (2, 2, 2, 2), (224, 224)), (64, 64, 3, 3), (64, 64, 3, 3)),
        (((3, 3), (2, 2), (1, 1, 1, 1), (224, 224)), (64, 64, 1, 1), (64, 32, 2, 1)),
    ],
    ids=["resnet", "alexnet", "mobilenet"],
)
def test_networks_have_small_kernels(form: Any, halves: tuple[int, ...], floats: tuple[int, ...]) -> None:
    for precision, shape in (("bf16", halves), ("tf32", floats)):
        graph = step(*form, batch=64, filters=64)
        assert run_one("fold_taps", graph, replace(CUDA, precision=precision))
        (node,) = (n for n in graph.nodes if n.op.name == "Conv")
        assert tuple(map(as_int, node.operands[1].shape)) == shape


@pytest.mark.parametrize(
    ("graph", "options"),
    [
        (step((7, 7), (2, 2), (3, 3, 3, 3), (22, 18), channels=4), CUDA),
        (step((7, 7), (2, 2), (3, 3, 3, 3), (22, 18), channels=1), CUDA),
        (step((7, 7), (2, 2), (3, 3, 3, 3), (22, 18), channels=2, group=2), CUDA),
        (step((7, 7), (2, 2), (3, 3, 3, 3), (22, 18), learns=False), CUDA),
        (step((3, 3), (1, 1), (3, 3, 3, 3), (22, 18), dilation=2), CUDA),
        (step((2, 2), (1, 1), (0, 0, 0, 0), (22, 18)), CUDA),
        (step((7, 7), (2, 2), (3, 3, 3, 3), (22, 18)), OPTIONS),
        (step((7, 7), (2, 2), (3, 3, 3, 3), (22, 18)), replace(CUDA, arch="sm_80")),
    ],
    ids=["packets", "one", "groups", "learns nothing", "dilated", "small", "C", "Ampere"],
)
def test_others_stay(graph: Graph, options: CompileOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torshc.passes.fold_taps._FEWEST", 1)
    assert not run_one("fold_taps", graph, options)


def test_few_pixels_stay() -> None:
    assert not run_one("fold_taps", step((7, 7), (2, 2), (3, 3, 3, 3), (22, 18)), CUDA)
