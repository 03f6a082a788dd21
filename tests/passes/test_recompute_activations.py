"""Images that steps compute again on the way back, where they ask for it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

from tests.training.networks import model, write_step
from torshc.formats import load_graph
from torshc.graph import Graph
from torshc.graph.verify import verify
from torshc.passes.interpret import run_graph
from torshc.passes.policy import Policy
from torshc.plan.finalise import finalise
from torshc.plan.place import make_plan
from torshc.training import make_training_graph, read_training

from ..support.pass_graphs import OPTIONS, Model, dims, names, random_inputs, run_one

FORM: dict[str, Any] = {"strides": (1, 1), "pads": dims(0, 0, 0, 0), "dilations": (1, 1), "group": 1}


def step(kept: bool = True) -> Graph:
    """A scaled image and its Relu, of which a loss is made and, on the way back, the gradient of weights."""
    m = Model()
    image, weights = m.input(4, 16, 32, 32), m.input(16, 16, 1, 1)
    z = m("Conv", image, weights, **FORM)
    scale = m("ReduceMean", z, axes=(0, 2, 3), keepdims=True)
    a = m("Relu", m("Mul", z, scale))
    loss = m("ReduceSum", m("Conv", a, weights, **FORM), axes=(0, 1, 2, 3), keepdims=False)
    g = m("Sin", z) if kept else m("Sin", image)
    back = m("ConvWeights", a, m("Mul", g, loss), domain="torshc", shape=dims(16, 16, 1, 1), **FORM)
    graph = m.done(loss, back)
    graph.recomputes = True
    return graph


def test_an_image_is_computed_before_the_way_back_reads_it() -> None:
    """By a kernel of its own, so that its memory is free until then."""
    graph = step()
    fed = random_inputs(graph)
    before = run_graph(graph, fed)
    assert run_one("recompute_activations", graph, OPTIONS)
    verify(graph, "recompute_activations")
    assert names(graph).count("Relu") == 2 and names(graph).index("ReduceSum") < names(graph).index("Separator")
    for a, b in zip(run_graph(graph, fed), before, strict=True):
        np.testing.assert_array_equal(a, b)
    groups = make_plan(finalise(graph, Policy.of())).groups
    assert [sum(n.op.name == "Relu" for n in g.nodes) for g in groups].count(1) == 2


def test_steps_that_do_not_ask_stay() -> None:
    graph = step()
    graph.recomputes = False
    assert not run_one("recompute_activations", graph, OPTIONS)


@pytest.mark.parametrize("change", ["not kept", "small"])
def test_images_that_save_nothing_stay(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What they are computed of would have to be kept for it, or they are few bytes."""
    if change == "small":
        monkeypatch.setattr("torshc.passes.recompute_activations._LEAST", 2**17)
    assert not run_one("recompute_activations", step(kept=change == "small"), OPTIONS)


def test_folded_pictures_are_made_again_of_an_input() -> None:
    m = Model()
    taps = {"box": (2, 2), "steps": (2, 2), "starts": (0, 0), "sizes": (64, 64), "channels": 32}
    folded = m("Relu", m("FoldedTaps", m.input(4, 3, 128, 128), domain="torshc", **taps))
    loss = m("ReduceSum", m("Conv", folded, m.input(16, 32, 1, 1), **FORM), axes=(0, 1, 2, 3), keepdims=False)
    slope = m("Mul", m.input(4, 16, 64, 64), loss)
    back = m("ConvWeights", folded, slope, domain="torshc", shape=dims(16, 32, 1, 1), **FORM)
    graph = m.done(loss, back)
    graph.recomputes = True
    fed = random_inputs(graph)
    before = run_graph(graph, fed)
    assert run_one("recompute_activations", graph, OPTIONS)
    verify(graph, "recompute_activations")
    assert names(graph).count("FoldedTaps") == 2
    for a, b in zip(run_graph(graph, fed), before, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(("images", "asked"), [(1, False), (2, False), (1, True)])
def test_what_slopes_alone_read_is_never_stored(images: int, asked: bool) -> None:
    """In any training step: a slope reads the image of which its operand was made, where that is one.

    Where a step asks for it, what follows from that operand is computed again of the same image.
    """
    m = Model()
    image, weights = m.input(4, 16, 32, 32), m.input(16, 16, 1, 1)
    z = m("Conv", image, weights, **FORM)
    scale = m("ReduceMean", z, axes=(0, 2, 3), keepdims=True)
    y = m("Mul", z, scale) if images == 1 else m("Add", m("Mul", z, scale), image)
    a = m("Clip", y, low=0.0, high=0.5)
    loss = m("ReduceSum", m("Conv", a, weights, **FORM), axes=(0, 1, 2, 3), keepdims=False)
    back = m("ConvWeights", a, m("Mul", y, loss), domain="torshc", shape=dims(16, 16, 1, 1), **FORM)
    kept = m("ConvWeights", image, m("Mul", z, loss), domain="torshc", shape=dims(16, 16, 1, 1), **FORM)
    graph = m.done(loss, back, kept)
    fed = random_inputs(graph)
    before = run_graph(graph, fed)
    assert not run_one("recompute_activations", graph, OPTIONS)
    graph.recomputes = asked
    training = dataclasses.replace(OPTIONS, train=Path("step.yaml"))
    assert run_one("recompute_activations", graph, training) == (images == 1)
    verify(graph, "recompute_activations")
    assert names(graph).count("Clip") == 1 + asked
    image_bytes, scale_bytes = 4 * 4 * 16 * 32 * 32, 4 * 16
    assert [r.cost for r in graph.recomputations] == [2 * image_bytes + scale_bytes] * asked  # of one kernel
    for a_, b in zip(run_graph(graph, fed), before, strict=True):
        np.testing.assert_array_equal(a_, b)
    stored = {v for g in make_plan(finalise(graph, Policy.of())).groups for v in g.outputs}
    assert (y in stored) == (images == 2)


@pytest.mark.parametrize("segments", [2, 4, 8])
def test_segments_that_are_computed_again_give_the_same_bits(segments: int, tmp_path: Path) -> None:
    """A step of a chain of products, forwards and backwards, by NumPy; of fewer segments fewer values are kept."""
    rng, x = np.random.default_rng(8), "x"
    weights, nodes = dict[str, Any](), []
    for k in range(12):
        weights[f"w{k}"] = rng.standard_normal((16, 16)) * 0.25
        nodes += [helper.make_node("MatMul", [x, f"w{k}"], [f"p{k}"]), helper.make_node("Tanh", [f"p{k}"], [f"t{k}"])]
        x = f"t{k}"
    source = model(nodes, {"x": [8, 16]}, {x: [8, 16]}, weights, np.float64)
    step = write_step(tmp_path, "weights: '*'\nloss: mse\noptimizer: {sgd: {learning_rate: 1}}\n")
    graph = load_graph(source, None, {})
    make_training_graph(graph, read_training(step))
    fed = random_inputs(graph)
    before, products = run_graph(graph, fed), names(graph).count("MatMul")
    graph.bound = segments, range(2**31)
    assert run_one("recompute_activations", graph, OPTIONS)
    verify(graph, "recompute_activations")
    found = graph.recomputations
    assert 1 <= len(found) <= segments and all(r.chosen for r in found)
    assert names(graph).count("MatMul") == products + sum(
        v.producer is not None and v.producer.op.name == "MatMul" for r in found for v in r.values
    )
    for a, b in zip(run_graph(graph, fed), before, strict=True):
        np.testing.assert_array_equal(a, b)
