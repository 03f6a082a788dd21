"""Losses against their definitions, and what they refuse."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from torshc.base.errors import ConfigError

from .networks import Array, Steps, affine, model


def step_of(folder: Path, loss: str, weights: str = '"*"') -> Path:
    file = folder / "step.yaml"
    file.write_text(f"weights: {weights}\nloss: {loss}\noptimizer: {{sgd: {{learning_rate: 0.1}}}}\n")
    return file


def sigmoid(z: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-z)))


def entropy(y: Array, t: Array) -> Array:
    with np.errstate(divide="ignore"):
        return -(t * np.maximum(np.log(y), -100) + (1 - t) * np.maximum(np.log(1 - y), -100))


CASES = {
    "mse": ("Identity", lambda z, t: (z - t) ** 2),
    "l1": ("Identity", lambda z, t: abs(z - t)),
    "bce of a sigmoid": ("Sigmoid", lambda z, t: entropy(sigmoid(z), t)),
    "bce": ("HardSigmoid", lambda z, t: entropy(np.clip(float(np.float32(0.2)) * z + 0.5, 0, 1), t)),
}


@pytest.mark.parametrize("name", CASES)
def test_a_loss_is_the_mean_of_its_definition(name: str, tmp_path: Path) -> None:
    after, definition = CASES[name]
    rng = np.random.default_rng(3)
    steps = Steps(affine(after=after), step_of(tmp_path, name.split()[0]))
    x, target = rng.standard_normal((4, 3)), rng.uniform(0, 1, (4, 2))
    z = x @ steps.states["w"] + steps.states["b"]
    assert steps(x=x, target=target) == pytest.approx(np.mean(definition(z, target)), rel=1e-12)


@pytest.mark.parametrize("after", ["Identity", "Softmax", "LogSoftmax"])
def test_cross_entropy_is_of_logits(after: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    steps = Steps(affine(after=after), step_of(tmp_path, "cross_entropy"))
    x, target = rng.standard_normal((4, 3)) * 100, np.array([0, 1, 1, 0])
    z = x @ steps.states["w"] + steps.states["b"]
    expected = np.log(np.exp(z - z.max(1, keepdims=True)).sum(1)) + z.max(1) - z[np.arange(4), target]
    assert steps(x=x, target=target) == pytest.approx(expected.mean(), rel=1e-12)


@pytest.mark.parametrize("after", ["Softmax", "LogSoftmax", "Exp"])
def test_kl_is_of_distributions(after: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    steps = Steps(affine(after=after), step_of(tmp_path, "kl"))
    x, target = rng.standard_normal((4, 3)), np.array([[0.5, 0.5], [0, 1], [0.3, 0.7], [1, 0]])
    z = x @ steps.states["w"] + steps.states["b"]
    logs = z if after == "Exp" else z - np.log(np.exp(z).sum(1, keepdims=True))
    expected = (np.where(target > 0, target * (np.log(np.maximum(target, 1e-9)) - logs), 0)).sum(1).mean()
    assert steps(x=x, target=target) == pytest.approx(expected, rel=1e-12)
    assert all(np.isfinite(s).all() for s in steps.states.values())


def test_cross_entropy_of_places(tmp_path: Path) -> None:
    nodes = [helper.make_node("Mul", ["x", "w"], ["y"], "scale")]
    source = model(nodes, {"x": [2, 3, 4, 5]}, {"y": [2, 3, 4, 5]}, {"w": np.ones((3, 1, 1))}, np.float64)
    rng = np.random.default_rng(5)
    x, target = rng.standard_normal((2, 3, 4, 5)), rng.integers(0, 3, (2, 4, 5))
    logs = x - np.log(np.exp(x).sum(1, keepdims=True))
    expected = -np.take_along_axis(logs, target[:, None], 1).mean()
    assert Steps(source, step_of(tmp_path, "cross_entropy"))(x=x, target=target) == pytest.approx(expected)


def test_bce_stays_finite_where_an_output_is_certain(tmp_path: Path) -> None:
    steps = Steps(affine(after="HardSigmoid"), step_of(tmp_path, "bce"))
    assert np.isfinite(steps(x=np.full((4, 3), 1e3), target=np.full((4, 2), 0.5)))
    assert all(np.isfinite(s).all() for s in steps.states.values())


def test_an_output_of_the_model_can_be_the_loss(tmp_path: Path) -> None:
    nodes = [helper.make_node("Mul", ["x", "w"], ["p"]), helper.make_node("ReduceSum", ["p"], ["y"])]
    source = model(nodes, {"x": [3]}, {"y": [1]}, {"w": np.array([1.0, 2.0, 3.0])}, np.float64)
    steps = Steps(source, step_of(tmp_path, "{output: y}"))
    x = np.array([1.0, 1.0, 2.0])
    assert steps(x=x) == 9.0
    np.testing.assert_allclose(steps.states["w"], [0.9, 1.9, 2.8])


REFUSED = {
    "{output: y}": "the loss 'y' is f64[4, 2]",
    "{mse: {of: z}}": "the model has no output 'z'",
    "{mse: {target: x}}": "the model has an input 'x' already",
}


@pytest.mark.parametrize("loss", REFUSED)
def test_a_loss_that_does_not_fit_is_told_with_its_line(loss: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        Steps(affine(), step_of(tmp_path, loss))
    assert "step.yaml:2: " + REFUSED[loss] in str(caught.value) and caught.value.remedy


def test_losses_refuse_outputs_of_other_forms(tmp_path: Path) -> None:
    nodes = [helper.make_node("Mul", ["x", "w"], ["y"]), helper.make_node("Neg", ["y"], ["z"])]
    source = model(nodes, {"x": [3]}, {"y": [3], "z": [3]}, {"w": np.ones(3)}, np.float64)
    with pytest.raises(ConfigError, match=r"step\.yaml:2: the model has the outputs 'y', 'z'"):
        Steps(source, step_of(tmp_path, "mse"))
    with pytest.raises(ConfigError, match=r"step\.yaml:2: cross_entropy of 'y', which is f64\[3\]"):
        Steps(source, step_of(tmp_path, "{cross_entropy: {of: y}}"))
    nodes = [helper.make_node("Mul", ["x", "w"], ["z"]), helper.make_node("Softmax", ["z"], ["y"], "s", axis=2)]
    source = model(nodes, {"x": [2, 3, 4]}, {"y": [2, 3, 4]}, {"w": np.ones(4)}, np.float64)
    with pytest.raises(ConfigError, match=r"cross_entropy of node 1 \(Softmax, 's'\), which is not along axis 1"):
        Steps(source, step_of(tmp_path, "cross_entropy"))
