"""What explain says of a training step."""

from __future__ import annotations

import json
from pathlib import Path

from tests.training.networks import convolutional
from torshc.base.options import CompileOptions
from torshc.explain import explain, to_json, to_text
from torshc.pipeline.compiler import prepare

STEP = "weights: '*'\nloss: cross_entropy\noptimizer: {momentum: {learning_rate: 0.1}}\n"


def test_a_step_is_shown_with_its_memory(tmp_path: Path) -> None:
    (tmp_path / "step.yaml").write_text(STEP)
    done = prepare(convolutional(), CompileOptions(train=tmp_path / "step.yaml"))
    found = explain(done, {"batch": 8})
    assert [t.name for t in found.inputs] == ["x", "target"] and [t.name for t in found.outputs] == ["loss"]
    step = found.training
    assert step is not None and (step.loss, step.optimizer) == ("cross_entropy", "momentum")
    assert step.weights == ("conv.weight", "conv.bias", "linear.weight", "linear.bias")
    weights = 4 * (36 + 4 + 48 + 3)
    assert (step.weights_bytes, step.state_bytes) == (weights, 2 * weights + 8)
    # What MaxPool gave and the probabilities, 8 x (16 + 3) numbers, and a byte for the place of each maximum.
    assert (step.kept, step.kept_bytes) == (3, 8 * (16 + 3) * 4 + 8 * 16)
    assert step.peak_bytes == step.state_bytes + found.weights_bytes + found.arena_bytes
    text = to_text(found)
    assert "trains      conv.weight, conv.bias, linear.weight, linear.bias: 364 B" in text
    assert "step        cross_entropy, momentum; states 736 B" in text and "for the backward pass" in text
    assert json.loads(to_json(found))["training"]["peak_bytes"] == step.peak_bytes
    assert step.loss_scale == "" and "loss scale" not in text
    (tmp_path / "step.yaml").write_text(STEP + "outputs: y\nloss_scale: dynamic\n")
    scaled = explain(prepare(convolutional(), CompileOptions(train=tmp_path / "step.yaml")), {"batch": 8})
    assert [t.name for t in scaled.outputs] == ["loss", "loss_scale", "skipped", "y"]
    assert "loss scale  65536 at first, doubled after 2000 updates" in to_text(scaled)
    plain = explain(prepare(convolutional(), CompileOptions()))
    assert plain.training is None and "trains" not in to_text(plain)
