"""Where the nodes of a step stand."""

from __future__ import annotations

from pathlib import Path

from .networks import Steps, convolutional, write_step

STEP = "weights: '*'\nloss: cross_entropy\noptimizer: {momentum: {learning_rate: 0.1}}\n"


def test_updates_follow_the_gradients_that_they_need(tmp_path: Path) -> None:
    """The last layer's weights are new before the first layer's gradient is computed, and nothing is read too early."""
    graph = Steps(convolutional(), write_step(tmp_path, STEP), {"x": (2, 1, 6, 6)}).graph
    place = {v: k for k, n in enumerate(graph.nodes) for v in n.outputs}
    made = {s.name: place[new] for s, _, new in graph.updates}
    (gradient,) = (k for k, n in enumerate(graph.nodes) if n.op.name == "ConvWeights")
    assert made["linear.weight"] < gradient < made["conv.weight"]
    ready: set[object] = {*graph.inputs}
    for node in graph.nodes:
        assert all(v in ready or v.const is not None for v in node.operands)
        ready.update(node.outputs)
    last = {name: max(k for k, n in enumerate(graph.nodes) if held in n.operands) for name, held in (
        (s.name, old) for s, old, _ in graph.updates if s.trained
    )}  # fmt: skip
    assert all(last[name] <= made[name] for name in last)


def test_clipped_updates_stay_behind_all_gradients(tmp_path: Path) -> None:
    graph = Steps(convolutional(), write_step(tmp_path, STEP + "clip_norm: 1.0\n"), {"x": (2, 1, 6, 6)}).graph
    place = {v: k for k, n in enumerate(graph.nodes) for v in n.outputs}
    (gradient,) = (k for k, n in enumerate(graph.nodes) if n.op.name == "ConvWeights")
    assert all(place[new] > gradient for s, _, new in graph.updates if s.trained)
