"""Batch normalisation and dropout in a step: statistics that move, masks that each step draws."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from torshc.base.errors import UnsupportedError

from .networks import Array, Steps, model, write_step

STEP = "weights: '*'\nloss: mse\noptimizer: {sgd: {learning_rate: 0.5}}\n"
SHAPE = (5, 3, 2, 2)


def normalised(training: bool = False, momentum: float = 0.8, shared: bool = False) -> bytes:
    """A convolution of one tap, then two batch normalisations, f64."""
    rng = np.random.default_rng(3)
    weights = {"w": rng.standard_normal((3, 3, 1, 1)), "bias": rng.standard_normal(3)}
    for k in range(2):
        weights |= {f"{k}.scale": rng.standard_normal(3), f"{k}.bias": rng.standard_normal(3)}
        weights |= {f"{k}.mean": rng.standard_normal(3), f"{k}.var": rng.uniform(0.5, 2, 3)}
    parts = ("scale", "bias", "mean", "var")
    other = [f"{0 if shared and p in ('mean', 'var') else 1}.{p}" for p in parts]
    more = {"momentum": momentum, **({"training_mode": 1} if training else {})}
    tails = (["a.mean", "a.var"], ["b.mean", "b.var"]) if training else ([], [])
    nodes = [
        helper.make_node("Conv", ["x", "w", "bias"], ["c"], "conv"),
        helper.make_node("BatchNormalization", ["c", *(f"0.{p}" for p in parts)], ["a", *tails[0]], "first", **more),
        helper.make_node("Relu", ["a"], ["r"], "relu"),
        helper.make_node("BatchNormalization", ["r", *other], ["y", *tails[1]], "second", **more),
    ]
    return model(nodes, {"x": ["n", *SHAPE[1:]]}, {"y": ["n", *SHAPE[1:]]}, weights, np.float64)


def batches(count: int) -> list[dict[str, Array]]:
    rng = np.random.default_rng(4)
    return [{"x": rng.standard_normal(SHAPE), "target": rng.standard_normal(SHAPE)} for _ in range(count)]


@pytest.mark.parametrize("training", [False, True])
def test_batches_normalise_by_their_own_statistics_as_in_pytorch(training: bool, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    steps = Steps(normalised(training), write_step(tmp_path, STEP), {"x": SHAPE})
    names = [f"{k}.{p}" for k in range(2) for p in ("scale", "bias")]
    assert [s.name for s in steps.graph.states if s.trained] == ["w", "bias", *names]
    now = {n: torch.tensor(v, requires_grad=n in ("w", "bias", *names)) for n, v in steps.states.items()}
    f = torch.nn.functional
    for batch in batches(3):
        h = f.conv2d(torch.tensor(batch["x"]), now["w"], now["bias"])
        for k in range(2):
            of = [now[f"{k}.{p}"] for p in ("mean", "var", "scale", "bias")]
            h = f.batch_norm(h if k == 0 else torch.relu(h), *of, training=True, momentum=0.2)
        loss = f.mse_loss(h, torch.tensor(batch["target"]))
        loss.backward()
        assert steps(**batch) == pytest.approx(loss.item(), rel=1e-9)
        for name, v in now.items():
            if v.requires_grad:
                v.data -= 0.5 * v.grad
                v.grad = None
            if name != "torshc.step":
                np.testing.assert_allclose(steps.states[name], v.detach().numpy(), rtol=1e-7, atol=1e-12, err_msg=name)


def test_statistics_move_to_those_of_the_batch(tmp_path: Path) -> None:
    """By NumPy: the variance is divided by one less than there are elements."""
    steps = Steps(normalised(), write_step(tmp_path, STEP), {"x": SHAPE})
    (batch,), before = batches(1), dict(steps.states)
    steps(**batch)
    c = np.einsum("nchw,oc->nohw", batch["x"], before["w"][:, :, 0, 0]) + before["bias"][:, None, None]
    for name, found in (("mean", c.mean((0, 2, 3))), ("var", c.var((0, 2, 3), ddof=1))):
        wanted = 0.8 * before[f"0.{name}"] + 0.2 * found
        np.testing.assert_allclose(steps.states[f"0.{name}"], wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("training", [False, True])
def test_running_statistics_stay_on_request(training: bool, tmp_path: Path) -> None:
    steps = Steps(normalised(training), write_step(tmp_path, STEP + "batch_norm: running\n"), {"x": SHAPE})
    assert not [n for n in steps.states if n.endswith((".mean", ".var"))]
    (batch,), s = batches(1), dict(steps.states)
    weights = {w.name: w for w in steps.graph.weights.values()}
    h = np.einsum("nchw,oc->nohw", batch["x"], s["w"][:, :, 0, 0]) + s["bias"][:, None, None]
    for k in range(2):
        mean, var = (weights[f"{k}.{p}"].const[:, None, None] for p in ("mean", "var"))
        h = (h - mean) / np.sqrt(var + 1e-5) * s[f"{k}.scale"][:, None, None] + s[f"{k}.bias"][:, None, None]
        h = np.maximum(h, 0) if k == 0 else h
    assert steps(**batch) == pytest.approx(np.square(h - batch["target"]).mean(), rel=1e-9)


def test_normalisations_that_share_statistics_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"'second'.*'0\.mean' is that of another") as caught:
        Steps(normalised(shared=True), write_step(tmp_path, STEP), {"x": SHAPE})
    assert "batch_norm: running" in caught.value.remedy


def test_one_element_a_channel_has_no_variance(tmp_path: Path) -> None:
    weights = {n: np.ones(3) for n in ("scale", "bias", "mean", "var")}
    nodes = [helper.make_node("BatchNormalization", ["x", *weights], ["y"], "norm")]
    source = model(nodes, {"x": [1, 3]}, {"y": [1, 3]}, weights, np.float64)
    with pytest.raises(UnsupportedError, match=r"'norm'.*one element a channel"):
        Steps(source, write_step(tmp_path, STEP))


def dropping(training: bool) -> bytes:
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["p"], "product"),
        helper.make_node("Dropout", ["p", "ratio", *(["on"] if training else [])], ["d"], "drop"),
        helper.make_node("ReduceSum", ["d"], ["y"], "sum", keepdims=0),
    ]
    found = model(nodes, {"x": [1000]}, {"y": []}, {"w": np.ones(1000), "ratio": np.array(0.25)}, np.float64)

    made = onnx.load_from_string(found)
    if training:
        made.graph.initializer.append(onnx.numpy_helper.from_array(np.array(True), "on"))
    return bytes(made.SerializeToString())


DROP = "weights: w\nloss: {output: y}\noptimizer: {sgd: {learning_rate: 1}}\n"


@pytest.mark.parametrize("training", [False, True])
def test_each_step_drops_others(training: bool, tmp_path: Path) -> None:
    steps = Steps(dropping(training), write_step(tmp_path, DROP + "seed: 7\n"))
    x, masks = np.full(1000, 3.0), []
    for _ in range(3):
        before = steps.states["w"]
        loss = steps(x=x)
        moved = before - steps.states["w"]  # the gradient: x / (1 - ratio) where an element was kept
        kept = moved != 0
        np.testing.assert_allclose(moved[kept], 4.0)
        assert loss == pytest.approx(float((before * x / 0.75)[kept].sum()))
        assert abs(kept.sum() - 750) < 5 * np.sqrt(1000 * 0.25 * 0.75)
        masks.append(kept)
    # two independent masks differ where one alone drops: 375 of 1000, with a deviation of 15
    assert all(300 < (masks[a] != masks[b]).sum() < 450 for a, b in ((0, 1), (0, 2), (1, 2)))
    again = Steps(dropping(training), write_step(tmp_path, DROP + "seed: 8\n"))
    again(x=x)
    assert 300 < ((again.states["w"] != 1) != masks[0]).sum() < 450


def test_a_step_draws_by_the_states_that_it_finds(tmp_path: Path) -> None:
    file = write_step(tmp_path, DROP)
    whole, resumed = Steps(dropping(True), file), Steps(dropping(True), file)
    x = np.ones(1000)
    for _ in range(2):
        whole(x=x)
    resumed.states = dict(whole.states)
    assert whole(x=x) == resumed(x=x)
    np.testing.assert_array_equal(whole.states["w"], resumed.states["w"])


def test_the_seed_is_an_input_on_request(tmp_path: Path) -> None:
    steps = Steps(dropping(True), write_step(tmp_path, DROP + "seed: input\n"))
    assert [v.name for v in steps.graph.given] == ["x", "seed"] and "torshc.seed" not in steps.states
    x, start = np.ones(1000), dict(steps.states)
    found = []
    for seed in (3, 4, 3):
        steps.states = dict(start)
        found.append(steps(x=x, seed=np.array(seed)))
    assert found[0] == found[2] != found[1]


@pytest.mark.parametrize("training", [False, True])
def test_nothing_is_dropped_on_request(training: bool, tmp_path: Path) -> None:
    steps = Steps(dropping(training), write_step(tmp_path, DROP + "dropout: false\n"))
    assert steps(x=np.full(1000, 3.0)) == 3000 and "torshc.seed" not in steps.states
