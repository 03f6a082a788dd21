"""Slopes of activations that steps compute where the gradient of a normalisation is."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from torshc.expr import F16, F32
from torshc.graph import Graph, Value
from torshc.graph.verify import verify
from torshc.ops.math.pointwise import relu_slope
from torshc.passes.interpret import run_graph
from torshc.passes.policy import Policy
from torshc.plan.finalise import finalise
from torshc.plan.group import Group
from torshc.plan.place import make_plan

from ..support.pass_graphs import OPTIONS, Model, dims, names, random_inputs, run_one

FORM: dict[str, Any] = {"strides": (1, 1), "pads": dims(0, 0, 0, 0), "dilations": (1, 1), "group": 1}
TRAINING = dataclasses.replace(OPTIONS, train=Path("step.yaml"), target="cuda", arch="sm_90a")


def step(meets: str = "source") -> tuple[Graph, Value]:
    """A scaled image and its Relu, a loss, and on the way back what a normalisation makes of the Relu's slope.

    Returns:
        Beside the graph, what the slope reads: the result of a product.
    """
    m = Model()
    image, weights, seed = m.input(4, 16, 32, 32), m.input(16, 16, 1, 1), m.input(4, 16, 32, 32)
    z = m("Conv", image, weights, **FORM)
    scale = m("ReduceMean", z, axes=(0, 2, 3), keepdims=True)
    a = m("Relu", m("Mul", z, scale))
    loss = m("ReduceSum", m("Conv", a, weights, **FORM), axes=(0, 1, 2, 3), keepdims=False)
    g = m("Conv", m("Mul", seed, loss), weights, **FORM)
    slope = m.builder.one(relu_slope(F32, F32), g, a)
    if meets == "halves":
        slope = m("Cast", m("Cast", slope, to=F16), to=F32)
    beside = image if meets == "another" else z
    sums = m("ReduceSum", m("Mul", slope, beside), axes=(0, 2, 3), keepdims=True)
    other = m("ConvWeights", image, m("Mul", z, loss), domain="torshc", shape=dims(16, 16, 1, 1), **FORM)
    back = m(
        "ConvWeights", a, m("Sub", slope, m("Mul", beside, sums)), domain="torshc", shape=dims(16, 16, 1, 1), **FORM
    )
    return m.done(loss, back, other), g


def groups_of(graph: Graph) -> list[Group]:
    return make_plan(finalise(graph, Policy.of())).groups


def test_a_slope_is_computed_where_its_source_is_read() -> None:
    """The product before it reads no image more, and the activation is stored for the products that read it."""
    graph, g = step()
    fed = random_inputs(graph)
    before = run_graph(graph, fed)
    assert run_one("recompute_activations", graph, TRAINING)
    verify(graph, "recompute_activations")
    assert names(graph).count("Relu") == 2 and not graph.recomputations
    for a, b in zip(run_graph(graph, fed), before, strict=True):
        np.testing.assert_array_equal(a, b)
    groups = groups_of(graph)
    (product,) = (group for group in groups if g in group.outputs)
    assert [n.op.name for n in product.nodes] == ["Conv"]
    assert sum(n.op.name == "Relu" for group in groups for n in group.nodes if not group.outputs) == 0
    (sums,) = (group for group in groups if g in group.reads)
    assert {"Expression", "ReduceSum", "Relu", "Sub"} <= {n.op.name for n in sums.nodes} and sums.kind == "row"


def test_an_activation_that_is_computed_again_comes_of_the_same_kernel() -> None:
    """For a bound of memory it costs what it takes to write it, as its source is read there anyway."""
    graph, g = step()
    graph.bound = 1, range(1)
    fed = random_inputs(graph)
    before = run_graph(graph, fed)
    assert run_one("recompute_activations", graph, TRAINING)
    (again,) = graph.recomputations
    assert again.chosen and again.cost == again.bytes + 4 * 16  # with a scale of each channel
    for a, b in zip(run_graph(graph, fed), before, strict=True):
        np.testing.assert_array_equal(a, b)
    (sums,) = (group for group in groups_of(graph) if g in group.reads)
    assert [v.producer.op.name for v in sums.outputs if v.producer is not None] in (["Sub", "Relu"], ["Relu", "Sub"])


@pytest.mark.parametrize("meets", ["another", "halves"])
def test_slopes_that_meet_their_source_nowhere_stay(meets: str) -> None:
    """What comes after them reads another image, or the slope's result from memory, as halves."""
    graph, _ = step(meets)
    assert not run_one("recompute_activations", graph, TRAINING)


def test_processors_which_it_takes_time_stay() -> None:
    """MobileNetV2's step of 16 pictures takes 2.5 % more with it on two threads of a Zen 5."""
    assert not run_one("recompute_activations", step()[0], dataclasses.replace(TRAINING, target="c", arch=""))
