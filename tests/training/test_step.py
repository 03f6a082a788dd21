"""The graph of a training step: which weights it trains, its gradients, and what it refuses."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from torshc.base.budget import spending
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
    nodes = [helper.make_node("Mul", ["x", "w"], ["p"]), helper.make_node("ArgMax", ["p"], ["i"], keepdims=0)]
    nodes += [helper.make_node("Cast", ["i"], ["y"], to=onnx.TensorProto.DOUBLE)]
    source = model(nodes, {"x": [3]}, {"y": []}, {"w": np.ones(3)}, np.float64)
    with pytest.raises(ConfigError, match="'w' cannot be trained: it influences the loss through integers"):
        Steps(source, step_of(tmp_path, "w", "mse"))
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
    with pytest.raises(UnsupportedError, match="'choose': a branch by a condition that is known only in a run"):
        Steps(source, step_of(tmp_path, "w"))


def cell(name: str) -> bytes:
    """[4, 2, 3] -> an RNN of 2 units, as ONNX's operator or as a Scan or Loop of a body -> [2, 2]."""
    rng = np.random.default_rng(12)
    weights = {"w": rng.standard_normal((2, 3)), "r": rng.standard_normal((2, 2)), "zero": np.zeros((2, 2))}
    ends = {"all": np.array([0]), "most": np.array(4), "yes": np.array(True)}
    kind = onnx.TensorProto.DOUBLE
    states = [helper.make_tensor_value_info(n, kind, [2, 2]) for n in ("h", "n")]
    step = [
        helper.make_node("Gemm", ["part", "w"], ["p"], transB=1), helper.make_node("Gemm", ["h", "r"], ["q"], transB=1),
        helper.make_node("Add", ["p", "q"], ["u"]), helper.make_node("Tanh", ["u"], ["n"]),
    ]  # fmt: skip
    if name == "RNN":
        nodes = [helper.make_node("Unsqueeze", [v, "all"], [f"{v}1"]) for v in ("w", "r")]
        nodes += [helper.make_node("RNN", ["x", "w1", "r1"], ["", "last"], "cell", hidden_size=2)]
        nodes += [helper.make_node("Squeeze", ["last", "all"], ["y"])]
    elif name == "Scan":
        part = helper.make_tensor_value_info("part", kind, [2, 3])
        body = helper.make_graph(step, "body", [states[0], part], [states[1]])
        nodes = [helper.make_node("Scan", ["zero", "x"], ["y"], "cell", body=body, num_scan_inputs=1)]
    else:
        number, going = (helper.make_tensor_value_info(n, k, []) for n, k in (("k", 7), ("c", 9)))
        step = [helper.make_node("Gather", ["x", "k"], ["part"]), helper.make_node("Identity", ["c"], ["d"]), *step]
        more = helper.make_tensor_value_info("d", 9, [])
        body = helper.make_graph(step, "body", [number, going, states[0]], [more, states[1]])
        nodes = [helper.make_node("Loop", ["most", "yes", "zero"], ["y"], "cell", body=body)]
    found = onnx.load_from_string(model(nodes, {"x": [4, 2, 3]}, {"y": [2, 2]}, weights, np.float64))
    found.graph.initializer.extend(onnx.numpy_helper.from_array(a, n) for n, a in ends.items())
    return bytes(found.SerializeToString())


@pytest.mark.parametrize("name", ["Scan", "Loop"])
def test_loops_of_a_known_number_of_turns_are_trained(name: str, tmp_path: Path) -> None:
    """As the operator that computes the same; beyond the budget they are refused with what to do."""
    step = step_of(tmp_path, "[w, r]", "mse")
    one, other = (Steps(cell(n), step) for n in ("RNN", name))
    rng = np.random.default_rng(13)
    for _ in range(3):
        batch = {"x": rng.standard_normal((4, 2, 3)), "target": rng.standard_normal((2, 2))}
        assert one(**batch) == pytest.approx(other(**batch), rel=1e-12)
        for n in ("w", "r"):
            np.testing.assert_allclose(one.states[n], other.states[n], rtol=1e-10, atol=1e-13)
    with spending({"unrolled": 3}), pytest.raises(UnsupportedError, match=r"'cell': a loop of .*4 turns") as caught:
        Steps(cell(name), step)
    assert "--budget unrolled=NUMBER" in caught.value.remedy


def test_a_branch_of_a_known_condition_is_trained(tmp_path: Path) -> None:
    value = helper.make_tensor_value_info("b", onnx.TensorProto.DOUBLE, [3])
    sides = [helper.make_graph([helper.make_node(op, ["x", "w"], ["b"])], op, [], [value]) for op in ("Mul", "Div")]
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]), helper.make_node("Equal", ["s", "three"], ["c"]),
        helper.make_node("If", ["c"], ["y"], "choose", then_branch=sides[0], else_branch=sides[1]),
    ]  # fmt: skip
    found = onnx.load_from_string(model(nodes, {"x": [3]}, {"y": [3]}, {"w": np.full(3, 2.0)}, np.float64))
    found.graph.initializer.append(onnx.numpy_helper.from_array(np.array([3]), "three"))
    steps = Steps(found.SerializeToString(), step_of(tmp_path, "w", "mse"))
    assert steps(x=np.ones(3), target=np.zeros(3)) == 4.0
    np.testing.assert_allclose(steps.states["w"], 2.0 - 4 / 3, rtol=1e-12)  # at a rate of 1: 2 w / 3


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_steps_of_recurrent_networks_are_those_of_pytorch(kind: str, tmp_path: Path) -> None:
    """Of two layers in both directions, from weights of PyTorch's order of the gates."""
    torch = pytest.importorskip("torch")
    order = {"LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2), "RNN": (0,)}[kind]  # PyTorch's gates in ONNX's terms
    rng, size = np.random.default_rng(14), 3
    weights = {"first": rng.standard_normal((2, 2, size))}
    nodes, before, width = [], "x", 4
    for k in range(2):
        rows = size * len(order)
        weights |= {f"w{k}": rng.standard_normal((2, rows, width)), f"r{k}": rng.standard_normal((2, rows, size))}
        weights |= {f"b{k}": rng.standard_normal((2, 2 * rows))}
        more = {"linear_before_reset": 1} if kind == "GRU" else {}
        given = [before, f"w{k}", f"r{k}", f"b{k}", "", "first", *(["first"] if kind == "LSTM" else [])]
        nodes += [
            helper.make_node(kind, given, [f"y{k}"], f"cell{k}", direction="bidirectional", hidden_size=size, **more),
            helper.make_node("Transpose", [f"y{k}"], [f"t{k}"], perm=[0, 2, 1, 3]),
            helper.make_node("Reshape", [f"t{k}", "flat"], [f"z{k}"]),
        ]
        before, width = f"z{k}", 2 * size
    found = onnx.load_from_string(model(nodes, {"x": [5, 2, 4]}, {"z1": [5, 2, 6]}, weights, np.float64))
    found.graph.initializer.append(onnx.numpy_helper.from_array(np.array([5, 2, 6]), "flat"))
    steps = Steps(found.SerializeToString(), step_of(tmp_path, '"*"', "mse"))
    net = getattr(torch.nn, kind)(4, size, 2, bidirectional=True, dtype=torch.float64)
    names = {}
    for k in range(2):
        for d, end in enumerate(("", "_reverse")):
            names |= {f"weight_ih_l{k}{end}": (f"w{k}", d), f"weight_hh_l{k}{end}": (f"r{k}", d)}
            names |= {f"bias_{part}_l{k}{end}": (f"b{k}", d, n) for n, part in enumerate(("ih", "hh"))}

    def of(states: Mapping[str, Array], place: tuple[Any, ...]) -> Array:
        w = states[place[0]][place[1]]
        w = w.reshape(2, -1)[place[2]] if len(place) > 2 else w
        return np.concatenate([np.split(w, len(order))[g] for g in order])

    for name, place in names.items():
        getattr(net, name).data = torch.tensor(of(steps.states, place))
    first = torch.tensor(np.concatenate([weights["first"]] * 2), requires_grad=True)
    x, target = rng.standard_normal((5, 2, 4)), rng.standard_normal((5, 2, 6))
    y, _ = net(torch.tensor(x), (first, first) if kind == "LSTM" else first)
    loss = ((y - torch.tensor(target)) ** 2).mean()
    loss.backward()
    assert steps(x=x, target=target) == pytest.approx(loss.item(), rel=1e-12)
    for name, place in names.items():
        wanted = (getattr(net, name) - getattr(net, name).grad).detach().numpy()
        np.testing.assert_allclose(of(steps.states, place), wanted, rtol=1e-9, atol=1e-12, err_msg=name)
    wanted = weights["first"] - first.grad.numpy().reshape(2, 2, 2, size).sum(0)
    np.testing.assert_allclose(steps.states["first"], wanted, rtol=1e-9, atol=1e-12)


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


def test_outputs_and_gradients_on_request(tmp_path: Path) -> None:
    text = 'weights: "*"\nloss: mse\noutputs: y\ngradients: ["b", "w*"]\noptimizer: {sgd: {learning_rate: 0.5}}\n'
    steps = Steps(affine(), write_step(tmp_path, text))
    rng = np.random.default_rng(2)
    x, target = rng.standard_normal((4, 3)), rng.standard_normal((4, 2))
    before = dict(steps.states)
    steps(x=x, target=target)
    y = x @ before["w"] + before["b"]  # of the weights before the update
    slope = (y - target) * 2 / y.size
    assert [*steps.results] == ["loss", "y", "gradient/b", "gradient/w"]
    for name, wanted in {"y": y, "gradient/b": slope.sum(0), "gradient/w": x.T @ slope}.items():
        np.testing.assert_allclose(steps.results[name], wanted, rtol=1e-12, atol=1e-14)
        if weight := name.partition("/")[2]:
            np.testing.assert_allclose(steps.states[weight], before[weight] - 0.5 * wanted, rtol=1e-12)


def test_outputs_and_gradients_that_are_not_there_are_told_with_their_lines(tmp_path: Path) -> None:
    text = "weights: [w]\nloss: mse\noutputs: [z, v]\ngradients:\n  - b\noptimizer: {sgd: {learning_rate: 0.5}}\n"
    with pytest.raises(ConfigError) as caught:
        Steps(affine(), write_step(tmp_path, text))
    assert "step.yaml:3: the model has no output 'z'" in str(caught.value) and "no output 'v'" in str(caught.value)
    with pytest.raises(ConfigError, match=r"step\.yaml:5: no weight 'b' is trained"):
        Steps(affine(), write_step(tmp_path, text.replace("outputs: [z, v]", "outputs: []")))
