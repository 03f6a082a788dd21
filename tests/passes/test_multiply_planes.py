"""Convolutions of 1x1 of the model's input, whose results are outputs, are products that transpose nothing."""

from __future__ import annotations

import numpy as np
import pytest

from torshc.graph import Graph
from torshc.graph.verify import verify
from torshc.passes.interpret import run_graph

from ..support.pass_graphs import Model, dims, names, random_inputs, run_one


def pixelwise(
    *shape: int, channels: int = 5, bias: bool = True, group: int = 1, stride: int = 1, pad: int = 0
) -> Graph:
    """Relu of a convolution of 1x1."""
    m, rng, rank = Model(), np.random.default_rng(0), len(shape) - 2
    w = rng.standard_normal((6, channels // group, *[1] * rank)).astype(np.float32)
    weights = [m.const(w), *([m.const(rng.standard_normal(6).astype(np.float32))] if bias else [])]
    x = m.input(shape[0], channels, *shape[2:])
    fields = {"strides": (stride,) * rank, "pads": dims(*[pad] * (2 * rank)), "dilations": (1,) * rank, "group": group}
    return m.done(m("Relu", m("Conv", x, *weights, **fields)))


@pytest.mark.parametrize("shape", [(1, 5, 16, 9), (3, 5, 12, 11), (2, 5, 140), (1, 5, 4, 6, 7)], ids=str)
@pytest.mark.parametrize("bias", [False, True])
def test_planes_are_multiplied(shape: tuple[int, ...], bias: bool) -> None:
    graph = pixelwise(*shape, bias=bias)
    fed = random_inputs(graph)
    (before,) = run_graph(graph, fed)
    assert run_one("multiply_planes", graph)
    verify(graph, "multiply_planes")
    assert "Conv" not in names(graph) and names(graph).count("MatMul") == 1
    (after,) = run_graph(graph, fed)
    # Sums of 6 terms of about 1.
    np.testing.assert_allclose(after, before, rtol=0, atol=2e-6)


@pytest.mark.parametrize(
    ("rows", "fields"),
    [(16, {"group": 3, "channels": 6}), (16, {"stride": 2}), (16, {"pad": 1}), (16, {"channels": 4}), (10, {})],
    ids=str,
)
def test_others_stay(rows: int, fields: dict[str, int]) -> None:
    assert not run_one("multiply_planes", pixelwise(1, 0, rows, 12, **fields))


def test_what_a_convolution_reads_stays() -> None:
    m, rng = Model(), np.random.default_rng(0)
    x = m.input(1, 8, 16, 16)
    fields = {"strides": (1, 1), "dilations": (1, 1)}
    y = m("Conv", x, m.const(rng.standard_normal((8, 8, 1, 1))), pads=dims(0, 0, 0, 0), **fields)
    z = m("Conv", m("Relu", y), m.const(rng.standard_normal((8, 8, 3, 3))), pads=dims(1, 1, 1, 1), **fields)
    assert not run_one("multiply_planes", m.done(z))
