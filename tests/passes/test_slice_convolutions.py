"""The first pixel of a convolution is computed by itself where sums over all pixels are of differences from it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from torshc.graph import Graph
from torshc.graph.verify import verify
from torshc.passes import slice_convolutions
from torshc.passes.interpret import run_graph

from ..support.pass_graphs import OPTIONS, Model, dims, names, random_inputs, run_one

Case = tuple[int, int, int, int, int, int, int]  # channels in and out, groups, kernel, stride, dilation, margin
CASES: list[Case] = [
    (5, 7, 1, 1, 1, 1, 0), (6, 6, 6, 3, 1, 1, 1), (6, 6, 6, 3, 2, 1, 1), (3, 4, 1, 3, 2, 1, 1),
    (4, 4, 4, 3, 1, 2, 3), (3, 5, 1, 5, 1, 1, 4), (3, 5, 1, 3, 2, 2, 0),
]  # fmt: skip


def differences(case: Case, bias: bool = False, far: bool = True) -> Graph:
    """The sums of a convolution's differences from its first pixel, or of this pixel alone."""
    i, o, groups, size, stride, dilation, pad = case
    m = Model()
    x, w = m.input(2, i, 9, 8), m.input(o, i // groups, size, size)
    fields = {"strides": (stride, stride), "dilations": (dilation, dilation), "group": groups}
    y = m("Conv", x, w, *([m.input(o)] if bias else []), pads=dims(pad, pad, pad, pad), **fields)
    first = m("Slice", y, starts=dims(0, 0, 0, 0), sizes=dims(1, o, 1, 1), steps=(1, 1, 1, 1))
    return m.done(m("ReduceSum", m("Sub", y, first), axes=(2, 3)) if far else m("Neg", first), y)


@pytest.mark.parametrize("case", CASES)
def test_a_first_pixel_is_a_sum_over_its_window(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slice_convolutions, "LARGE", 1)
    graph = differences(case)
    fed = random_inputs(graph)
    before = run_graph(graph, fed)
    assert run_one("slice_convolutions", graph)
    verify(graph, "slice_convolutions")
    assert names(graph).count("ReduceSum") == 2
    for found, wanted in zip(run_graph(graph, fed), before, strict=True):
        # A first pixel, a sum of at most 75 terms of about 1, rounds by some 1e-6; it is taken from at most 156 pixels.
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["small", "bias", "grouped", "alone", "cuda", "in the margin"])
def test_others_stay(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if kind != "small":
        monkeypatch.setattr(slice_convolutions, "LARGE", 1)
    case = {"grouped": (6, 4, 2, 1, 1, 1, 0), "in the margin": (5, 7, 1, 1, 1, 1, 2)}.get(kind, CASES[0])
    graph = differences(case, bias=kind == "bias", far=kind != "alone")
    options = replace(OPTIONS, target="cuda", arch="sm_90a") if kind == "cuda" else OPTIONS
    assert not run_one("slice_convolutions", graph, options)
