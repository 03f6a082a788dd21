"""Activations that convolutions of a training step read are tf32 where they are stored."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from torshc.base.options import CompileOptions
from torshc.graph import Graph
from torshc.graph.verify import verify
from torshc.passes.interpret import run_graph

from ..support.pass_graphs import OPTIONS, Model, dims, names, random_inputs, run_one

STEP = replace(OPTIONS, target="cuda", arch="sm_90a", precision="tf32", train=Path("step.yaml"))


def step() -> Graph:
    """A convolution of what a Relu makes, a residual beside it, and the gradient of its weights."""
    m = Model()
    form: dict[str, Any] = {"strides": (1, 1), "pads": dims(1, 1, 1, 1), "dilations": (1, 1), "group": 1}
    x = m("Relu", m.input(2, 8, 5, 4))
    y = m("Add", m("Conv", x, m.input(8, 8, 3, 3), **form), x)
    return m.done(y, m("ConvWeights", x, m.input(2, 8, 5, 4), domain="torshc", shape=dims(8, 8, 3, 3), **form))


def test_an_activation_is_rounded_once_for_all_that_read_it() -> None:
    graph = step()
    fed = {
        v: (a.view(np.uint32) & 0xFFFFE000).view(np.float32) if v.type.rank == 4 else a
        for v, a in random_inputs(graph).items()
    }
    before = run_graph(graph, fed)
    assert run_one("round_activations", graph, STEP)
    verify(graph, "round_activations")
    assert sorted(names(graph)) == ["Add", "Conv", "ConvWeights", "Relu", "RoundToTf32", "RoundToTf32"]
    (add,) = [n for n in graph.nodes if n.op.name == "Add"]
    assert add.operands[1].producer is not None and add.operands[1].producer.op.name == "RoundToTf32"
    for a, b in zip(run_graph(graph, fed), before, strict=True):
        np.testing.assert_array_equal(a, b)  # what is tf32 stays
    assert not run_one("round_activations", graph, STEP)


def test_places_of_maxima_are_looked_for_among_what_was_not_rounded() -> None:
    """A maximum that is rounded, as a convolution reads it, is in no window of what was not."""
    m = Model()
    pool: dict[str, Any] = {"kernel": (2, 2), "strides": (2, 2), "pads": dims(0, 0, 0, 0), "dilations": (1, 1)}
    x = m("Relu", m.input(2, 8, 6, 4))
    y = m("MaxPool", x, **pool)
    tap = m("PoolTap", x, y, domain="torshc", **pool)
    z = m("Conv", y, m.input(8, 8, 1, 1), strides=(1, 1), pads=dims(0, 0, 0, 0), dilations=(1, 1), group=1)
    graph = m.done(tap, z)
    fed = random_inputs(graph)
    before = run_graph(graph, fed)[0]
    assert before.max() == 3 and run_one("round_activations", graph, STEP)
    assert "RoundToTf32" in names(graph)
    np.testing.assert_array_equal(run_graph(graph, fed)[0], before)


def test_weights_of_windows_of_one_pixel_are_rounded_for_products_alone() -> None:
    """They lie as kernels read them; an update reads them as they are."""
    m = Model()
    x, w = m.input(2, 8, 5, 4), m.input(8, 8, 1, 1)
    y = m("Conv", x, w, strides=(1, 1), pads=dims(0, 0, 0, 0), dilations=(1, 1), group=1)
    graph = m.done(y, m("Mul", w, w))
    assert run_one("round_activations", graph, STEP)
    (conv,), (square,) = ([n for n in graph.nodes if n.op.name == name] for name in ("Conv", "Mul"))
    assert all(v.producer is not None and v.producer.op.name == "RoundToTf32" for v in conv.operands)
    assert [*square.operands] == [w, w]


def test_numbers_are_the_nearest_of_ten_bits() -> None:
    m = Model()
    graph = m.done(m("RoundToTf32", m.input(7), domain="torshc"))
    x = np.array([1 + 2**-11, 1 + 2**-11 - 2**-23, -1 - 2**-11, np.inf, -np.inf, np.nan, -0.0], np.float32)
    (found,) = run_graph(graph, {graph.inputs[0]: x})
    np.testing.assert_array_equal(found, np.array([1 + 2**-10, 1, -1 - 2**-10, np.inf, -np.inf, np.nan, -0.0], "f4"))
    assert np.signbit(found[-1])


@pytest.mark.parametrize(
    "options",
    [replace(STEP, train=None), replace(STEP, precision="f32"), replace(STEP, arch="sm_80"), OPTIONS],
    ids=["no step", "f32", "Ampere", "C"],
)
def test_others_stay(options: CompileOptions) -> None:
    assert not run_one("round_activations", step(), options)
