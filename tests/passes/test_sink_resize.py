"""Convolutions of 1x1 compute before what they read is resized to more pixels."""

from __future__ import annotations

import numpy as np
import pytest

from torshc.graph import Graph
from torshc.graph.verify import verify
from torshc.ops.image.taps import ResizeAxis
from torshc.passes.interpret import run_graph

from ..support.pass_graphs import Model, dims, names, random_inputs, run_one


def head(sizes: list[int], mode: str = "linear", filters: int = 4, bias: bool = True, joined: bool = True) -> Graph:
    """Maps of 6x8 pixels, made of ones of these many rows, and a convolution of them."""
    m, rng = Model(), np.random.default_rng(0)
    parts = []
    for k, rows in enumerate(sizes):
        source = m.input(2, 4 + k, rows, rows * 4 // 3)
        scales = [(4 + k, 1, 1), (6, 6, rows), (8, 8, rows * 4 // 3)]
        axes = [ResizeAxis(*dims(size, up, down)) for size, up, down in [(2, 1, 1), *scales]]
        parts.append(source if rows == 6 else m("Resize", source, axes=tuple(axes), mode=mode))
    x = m("Concat", *parts, axis=1) if joined else parts[0]
    channels = sum(4 + k for k in range(len(sizes)))
    weights = [m.const(rng.standard_normal((filters, channels, 1, 1)).astype(np.float32))]
    weights += [m.const(rng.standard_normal(filters).astype(np.float32))] if bias else []
    return m.done(m("Conv", x, *weights, strides=(1, 1), pads=dims(0, 0, 0, 0), dilations=(1, 1)))


CASES = [([3, 6], "linear"), ([6, 3, 6], "nearest"), ([3, 3], "cubic"), ([3], "linear"), ([9, 3, 6], "linear")]


@pytest.mark.parametrize(("sizes", "mode"), CASES)
@pytest.mark.parametrize("bias", [False, True])
def test_fewer_pixels_are_convolved(sizes: list[int], mode: str, bias: bool) -> None:
    graph = head(sizes, mode, bias=bias, joined=len(sizes) > 1)
    fed = random_inputs(graph)
    (before,) = run_graph(graph, fed)
    assert run_one("sink_resize", graph)
    verify(graph, "sink_resize")
    small, kept = sizes.count(3), any(s != 3 for s in sizes)
    assert names(graph).count("Conv") == small + kept
    assert names(graph).count("Add") == small + kept - 1
    assert not run_one("sink_resize", graph)
    (after,) = run_graph(graph, fed)
    # Sums of at most 15 terms of about 1, which are sums of at most 16 pixels, are off by some 31 roundings of 6e-8.
    np.testing.assert_allclose(after, before, rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", ["fewer pixels", "as many", "more channels"])
def test_others_stay(kind: str) -> None:
    rows = {"fewer pixels": 9, "as many": 6}.get(kind, 3)
    graph = head([rows], filters=5 if kind == "more channels" else 4, joined=False)
    assert not run_one("sink_resize", graph)


def test_what_another_reads_stays() -> None:
    graph = head([3, 6])
    graph.outputs.append(next(n for n in graph.nodes if n.op.name == "Resize").output)
    assert not run_one("sink_resize", graph)
