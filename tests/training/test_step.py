"""The graph of a training step: which weights it trains, its gradients, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from torshc.base.errors import ConfigError, UnsupportedError

from .networks import DIGITS, Array, Steps, affine, convolutional, model, wide, write_step


def step_of(folder: Path, weights: str, loss: str = "mse") -> Path:
    return write_step(folder, f"weights: {weights}\nloss: {loss}\noptimizer: {{sgd: {{learning_rate: 1}}}}\n")


def trained(steps: Steps) -> list[str]:
    return [s.name for s in steps.graph.states if s.trained]


def test_patterns_take_what_can_be_trained(tmp_path: Path) -> None:
    assert trained(Steps(affine(), step_of(tmp_path, '"*"'))) == ["w", "b"]
    assert trained(Steps(affine(), step_of(tmp_path, "b"))) == ["b"]
    found = trained(Steps(DIGITS, step_of(tmp_path, '["norm*", linear.bias]', "cross_entropy")))
    assert found == [
        "norm0.scale",
        "norm0.bias",
        "norm1.scale",
        "norm1.bias",
        "norm2.scale",
        "norm2.bias",
        "linear.bias",
    ]


def test_weights_that_cannot_be_trained_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        Steps(affine(), step_of(tmp_path, "\n  - ww\n  - n\n  - b\n  - 'v.*'"))
    text = str(caught.value)
    assert "step.yaml:2: the model has no weight 'ww'; did you mean 'w'? (its weights are w, b, n)" in text
    assert (
        "step.yaml:3: weight 'n' cannot be trained: it is i64[3], and only floats have gradients (leave it out)" in text
    )
    assert "step.yaml:5: the model has no weight 'v.*'" in text


def test_weights_without_a_path_to_the_loss_are_refused(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["y"]), helper.make_node("Mul", ["x", "v"], ["z"]),
        helper.make_node("Clip", ["z", "low"], ["u"]),
    ]  # fmt: skip
    weights = {"w": np.ones(3), "v": np.ones(3), "unread": np.ones(3), "low": np.array(0.0)}
    source = model(nodes, {"x": [3]}, {"y": [3], "u": [3]}, weights, np.float64)
    with pytest.raises(ConfigError) as caught:
        Steps(source, step_of(tmp_path, "[w, v, unread]", "{mse: {of: y}}"))
    text = str(caught.value)
    assert "weight 'v' cannot be trained: it does not influence the loss" in text
    assert "weight 'unread' cannot be trained: it is read by no node" in text
    assert trained(Steps(source, step_of(tmp_path, '"*"', "{mse: {of: y}}"))) == ["w"]
    with pytest.raises(ConfigError, match=r"'norm0\.mean' cannot be trained: it is a running statistic"):
        Steps(DIGITS, step_of(tmp_path, "norm0.mean", "cross_entropy"))


def test_halves_are_refused(tmp_path: Path) -> None:
    found = onnx.load_from_string(affine(np.float32))
    for k, w in enumerate(found.graph.initializer):
        array = onnx.numpy_helper.to_array(w)
        if array.dtype == np.float32:
            found.graph.initializer[k].CopyFrom(onnx.numpy_helper.from_array(array.astype(np.float16), w.name))
    for v in (*found.graph.input, *found.graph.output):
        v.type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
    with pytest.raises(ConfigError, match="training needs weights of f32 or f64"):
        Steps(found.SerializeToString(), step_of(tmp_path, "w"))


def test_operators_without_gradient_are_told_at_once(tmp_path: Path) -> None:
    down, up = onnx.TensorProto.FLOAT8E4M3FN, onnx.TensorProto.DOUBLE
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["p"]), helper.make_node("Cast", ["p"], ["q"], "first", to=down),
        helper.make_node("Cast", ["q"], ["r"], "up", to=up), helper.make_node("Add", ["r", "v"], ["s"]),
        helper.make_node("Cast", ["s"], ["t"], "second", to=down), helper.make_node("Cast", ["t"], ["y"], "end", to=up),
    ]  # fmt: skip
    source = model(nodes, {"x": [3]}, {"y": [3]}, {"w": np.ones(3), "v": np.ones(3)}, np.float64, opset=19)
    with pytest.raises(UnsupportedError) as caught:
        Steps(source, step_of(tmp_path, '"*"'))
    assert [p.split("'")[1] for p in caught.value.problems] == ["end", "second", "up", "first"]
    assert "train only weights behind them" in caught.value.remedy


def test_branches_and_loops_are_refused(tmp_path: Path) -> None:
    value = helper.make_tensor_value_info("b", onnx.TensorProto.DOUBLE, [3])
    body = helper.make_graph([helper.make_node("Mul", ["x", "w"], ["b"])], "body", [], [value])
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0), helper.make_node("Greater", ["s", "zero"], ["c"]),
        helper.make_node("If", ["c"], ["y"], "choose", then_branch=body, else_branch=body),
    ]  # fmt: skip
    source = model(nodes, {"x": [3]}, {"y": [3]}, {"w": np.ones(3), "zero": np.array(0.0)}, np.float64)
    with pytest.raises(UnsupportedError, match=r"'choose'.*a training step has no branches and loops"):
        Steps(source, step_of(tmp_path, "w"))


def test_gradients_of_the_digits_are_those_of_differences(tmp_path: Path) -> None:
    """The directional derivative along a random direction of each weight, in f64."""
    step = step_of(tmp_path, '"*"', "cross_entropy")
    shapes = {"image": (3, 1, 8, 8)}
    steps = Steps(wide(), step, shapes)
    rng = np.random.default_rng(6)
    image, target = rng.uniform(0, 1, (3, 1, 8, 8)), np.array([3, 1, 4])
    start = dict(steps.states)

    def loss(states: dict[str, Array]) -> float:
        steps.states = dict(states)
        return steps(image=image, target=target)

    loss(start)
    gradients = {n: start[n] - steps.states[n] for n in trained(steps)}
    assert len(gradients) == 11
    for name, g in gradients.items():
        along, h = rng.standard_normal(g.shape), 1e-6
        far = [loss({**start, name: start[name] + s * h * along}) for s in (1, -1)]
        # The error of a central difference: h^2 of the third derivative, and the roundings of two losses over 2 h.
        assert (far[0] - far[1]) / (2 * h) == pytest.approx(float((g * along).sum()), rel=1e-6, abs=1e-8), name


def test_first_steps_are_those_of_pytorch(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    steps = Steps(convolutional(np.float64), step_of(tmp_path, '"*"', "cross_entropy"), {"x": (5, 1, 6, 6)})
    w = {n: torch.tensor(v, requires_grad=True) for n, v in steps.states.items() if n != "torshc.step"}
    rng = np.random.default_rng(8)
    for _ in range(3):
        x, target = rng.standard_normal((5, 1, 6, 6)), rng.integers(0, 3, 5)
        f = torch.nn.functional
        y = f.max_pool2d(torch.relu(f.conv2d(torch.tensor(x), w["conv.weight"], w["conv.bias"])), 2)
        loss = f.cross_entropy(y.flatten(1) @ w["linear.weight"] + w["linear.bias"], torch.tensor(target))
        found = torch.autograd.grad(loss, list(w.values()))
        assert steps(x=x, target=target) == pytest.approx(loss.item(), rel=1e-12)
        w = {n: (v - g).detach().requires_grad_() for (n, v), g in zip(w.items(), found, strict=True)}
        for name, v in w.items():
            np.testing.assert_allclose(steps.states[name], v.detach().numpy(), rtol=1e-9, atol=1e-12)


def test_patterns_take_no_single_numbers(tmp_path: Path) -> None:
    nodes = [helper.make_node("Mul", ["x", "w"], ["z"]), helper.make_node("Mul", ["z", "scale"], ["y"])]
    source = model(nodes, {"x": [3]}, {"y": [3]}, {"w": np.ones(3), "scale": np.ones(1)}, np.float64)
    assert trained(Steps(source, step_of(tmp_path, '"*"'))) == ["w"]
    assert trained(Steps(source, step_of(tmp_path, "[w, scale]"))) == ["w", "scale"]
    with pytest.raises(ConfigError, match="'scale' cannot be trained: it is a single number, which no pattern takes"):
        Steps(source, step_of(tmp_path, "sc*"))


@pytest.mark.parametrize("more", ["", "clip_norm: 0.5\nweight_decay: 0.1\n"])
def test_parts_of_a_batch_make_the_update_of_the_whole(more: str, tmp_path: Path) -> None:
    """As means of parts of one size are the mean of all; in f64, so that only roundings differ."""
    text = "weights: '*'\nloss: cross_entropy\noptimizer: {adam: {learning_rate: 0.1}}\n" + more
    whole = Steps(convolutional(np.float64), write_step(tmp_path, text), {"x": (6, 1, 6, 6)})
    parts = Steps(convolutional(np.float64), write_step(tmp_path, text + "accumulate: 3\n"), {"x": (2, 1, 6, 6)})
    rng, shown = np.random.default_rng(5), [n for n in whole.states if n != "torshc.step"]
    for turn in range(2):
        x, target = rng.standard_normal((6, 1, 6, 6)), rng.integers(0, 3, 6)
        before, losses = dict(parts.states), []
        for k in range(3):
            assert int(parts.states["torshc.step"]) == turn and int(parts.states["torshc.micro_step"]) == k
            assert all(np.array_equal(parts.states[n], before[n]) for n in shown)
            losses.append(parts(x=x[2 * k : 2 * k + 2], target=target[2 * k : 2 * k + 2]))
        assert np.mean(losses) == pytest.approx(whole(x=x, target=target), rel=1e-12)
        for name in shown:
            np.testing.assert_allclose(parts.states[name], whole.states[name], rtol=1e-7, atol=1e-10, err_msg=name)
    assert not any(s.any() for n, s in parts.states.items() if n.startswith("torshc.gradient/"))
