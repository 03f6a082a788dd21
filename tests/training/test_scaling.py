"""Scaled losses: steps of halves beside PyTorch's algorithm written out in NumPy, with overflows that are provoked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import torshc
from tests.emulation.emulated import emulated_tools
from tests.support.compilers import needed
from torshc.base.errors import ConfigError
from torshc.base.options import CompileOptions
from torshc.pipeline.compiler import prepare

from .networks import ADAM, Array, Reference, Steps, batches, convolutional, model, write_step

HALF, FLOAT = onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT
SGD = 'weights: "*"\nloss: mse\noptimizer: {sgd: {learning_rate: 0.25}}\n'
KEPT = {"torshc.loss_scale", "torshc.good_steps", "torshc.skipped_steps"}


def halves() -> bytes:
    """x f32[4, 6] -> products with w and v in f16, a Relu between them -> f32[4, 3]."""
    rng = np.random.default_rng(3)
    weights = {"w": rng.standard_normal((6, 5)) * 0.5, "v": rng.standard_normal((5, 3)) * 0.5}
    nodes = [helper.make_node("Cast", [n], [f"{n}h"], to=HALF) for n in ("x", "w", "v")]
    nodes += [
        helper.make_node("MatMul", ["xh", "wh"], ["p"]), helper.make_node("Relu", ["p"], ["r"]),
        helper.make_node("MatMul", ["r", "vh"], ["q"]), helper.make_node("Cast", ["q"], ["y"], to=FLOAT),
    ]  # fmt: skip
    return model(nodes, {"x": [4, 6]}, {"y": [4, 3]}, weights, np.float32)


class Scaler:
    """PyTorch's GradScaler around steps of `halves` by SGD, in NumPy."""

    def __init__(self, scale: float, interval: int | None, parts: int = 1, clip: float | None = None) -> None:
        found = onnx.load_from_string(halves()).graph.initializer
        self.weights = {w.name: onnx.numpy_helper.to_array(w) for w in found}
        self.scale, self.interval, self.parts, self.clip = np.float32(scale), interval, parts, clip
        self.good = self.skipped = self.steps = self.part = 0
        self.sums = {n: np.zeros_like(w) for n, w in self.weights.items()}

    def gradients(self, x: Array, target: Array) -> dict[str, Array]:
        """Of the scaled loss: products are sums of f32, rounded to halves."""
        half = np.float16
        with np.errstate(over="ignore", invalid="ignore"):
            x, w, v = (a.astype(half).astype(np.float32) for a in (x, self.weights["w"], self.weights["v"]))
            p = (x @ w).astype(half)
            r = np.maximum(p, half(0)).astype(np.float32)
            y = (r @ v).astype(half).astype(np.float32)
            d = (self.scale * 2 * (y - target) / np.float32(y.size)).astype(half).astype(np.float32)
            back = np.where(p > 0, (d @ v.T).astype(half), half(0)).astype(np.float32)
            found = {"w": x.T @ back, "v": r.T @ d}
            return {n: g.astype(half).astype(np.float32) for n, g in found.items()}

    def step(self, x: Array, target: Array) -> None:
        with np.errstate(invalid="ignore"):
            for name, g in self.gradients(x, target).items():
                self.sums[name] = self.sums[name] + g / self.scale / self.parts
        self.part = (self.part + 1) % self.parts
        if self.part:
            return
        found, self.sums = self.sums, {n: np.zeros_like(w) for n, w in self.weights.items()}
        finite = all(np.isfinite(g).all() for g in found.values())
        if finite:
            norm = np.sqrt(sum((g**2).sum() for g in found.values()))
            factor = 1.0 if self.clip is None else min(1.0, self.clip / (norm + 1e-6))
            self.weights = {n: (w - 0.25 * factor * found[n]).astype(np.float32) for n, w in self.weights.items()}
            self.steps += 1
        self.skipped += not finite
        if self.interval is not None:
            self.good = self.good + 1 if finite else 0
            self.scale *= np.float32(1 if finite else 0.5)
            if self.good == self.interval:
                self.scale, self.good = self.scale * np.float32(2), 0


def drawn(count: int, wild: Mapping[int, float]) -> list[dict[str, Array]]:
    """Batches; the targets of those in `wild` are so large that gradients are infinite in halves, or NaN."""
    rng, found = np.random.default_rng(4), []
    for k in range(count):
        target = rng.standard_normal((4, 3)).astype(np.float32)
        target[1, 2] = wild.get(k, float(target[1, 2]))
        found.append({"x": rng.standard_normal((4, 6)).astype(np.float32), "target": target})
    return found


MORE = ["", "clip_norm: 0.2\n", "accumulate: 3\n", "clip_norm: 0.2\naccumulate: 2\n"]


@pytest.mark.parametrize("more", MORE)
@pytest.mark.parametrize("target", ["c", "llvm", "cuda"])
def test_steps_of_halves_are_those_of_a_grad_scaler(target: str, more: str, tmp_path: Path) -> None:
    """Overflows at first, as the scale begins too large, then provoked ones; after three updates the scale doubles."""
    needed()
    parts = int(more.partition("accumulate: ")[2] or 1)
    reference = Scaler(2.0**20, 3, parts, 0.2 if "clip" in more else None)
    step = write_step(tmp_path, SGD + "loss_scale: {initial: 1048576, growth_interval: 3}\n" + more)
    if target != "cuda":
        torshc.compile(halves(), tmp_path / "m.tsc", train=step, target=target)
        compare(tmp_path / "m.tsc", reference, parts)
        return
    with emulated_tools():  # kernels of several nodes do not round a product's sums to halves that one of them casts
        torshc.compile(halves(), tmp_path / "m.tsc", train=step, target="cuda", arch="sm_90a", opt_level=0)
        compare(tmp_path / "m.tsc", reference, parts)


def compare(bundle: Path, reference: Scaler, parts: int) -> None:
    """Steps of a bundle beside those of a reference, stopped in their midst."""
    trained = [torshc.load(bundle, threads=1), torshc.load(bundle, threads=2)]
    scales = set[float]()
    for k, batch in enumerate(drawn(24 * parts, {9 * parts: 1e7, 15 * parts + parts // 2: np.nan})):
        before, skipped = reference.scale, reference.skipped
        reference.step(**batch)
        found = [m.step(batch) for m in trained]
        assert len({f["loss"].tobytes() for f in found}) == 1
        assert found[0]["loss_scale"] == before and found[0]["skipped"] == (reference.skipped > skipped), k
        states = trained[0].state_dict()
        assert states["torshc.loss_scale"] == reference.scale and states["torshc.good_steps"] == reference.good
        assert states["torshc.skipped_steps"] == reference.skipped and states["torshc.step"] == reference.steps
        for name, w in reference.weights.items():
            # A sum in another order may round to the next half: 2^-10 of an update's numbers, which sum up.
            np.testing.assert_allclose(states[name], w, rtol=0, atol=1e-3, err_msg=f"{name} {k}")
        scales.add(float(before))
        if k == 11 * parts:
            trained[0].save_state(bundle.with_suffix(".state"))
            trained[0].close()
            trained[0] = torshc.load(bundle)
            trained[0].load_state(bundle.with_suffix(".state"))
    one, other = (m.state_dict() for m in trained)
    assert all(one[n].tobytes() == other[n].tobytes() for n in one)
    assert reference.skipped >= 4 and len(scales) >= 4 and reference.steps >= 12


def test_products_of_f16_on_a_card_are_trained_with_a_scale(tmp_path: Path) -> None:
    """`--precision f16`: the scale begins too large for halves; then steps are those of f64, in halves' errors."""
    step = write_step(tmp_path, ADAM + "loss_scale: {initial: 67108864}\n")
    with emulated_tools():
        torshc.compile(convolutional(), tmp_path / "m.tsc", train=step, target="cuda", arch="sm_90a", precision="f16")
        reference, trained, skipped = Reference(), torshc.load(tmp_path / "m.tsc"), 0
        for k, batch in enumerate(batches(24)):
            found = trained.step(batch)
            if found["skipped"]:
                skipped += 1
                continue
            # Factors are rounded by 2^-11, in three products; Adam's first updates are signs times the rate.
            assert found["loss"] == pytest.approx(reference.step(**batch), rel=2e-2, abs=2e-3), k
        assert 2 < skipped < 12 and trained.state_dict()["torshc.skipped_steps"] == skipped


def test_f16_asks_for_a_scale(tmp_path: Path) -> None:
    step = write_step(tmp_path, ADAM)
    with pytest.raises(ConfigError, match="--precision f16 without loss_scale") as caught:
        prepare(convolutional(), CompileOptions(train=step, target="cuda", precision="f16"))
    assert "loss_scale: dynamic" in caught.value.remedy


def test_small_gradients_vanish_without_a_scale(tmp_path: Path) -> None:
    needed()
    (batch,) = drawn(1, {})
    moved: list[float] = []
    for said in ("", "loss_scale: 1048576\n"):
        step = write_step(tmp_path, SGD.replace("0.25", "1000") + said)
        torshc.compile(halves(), tmp_path / f"{len(moved)}.tsc", train=step)
        trained = torshc.load(tmp_path / f"{len(moved)}.tsc")
        near = 1e-7 + forward(trained.state_dict(), batch["x"])
        before = trained.state_dict()
        trained.step({**batch, "target": near.astype(np.float32)})
        moved.append(float(np.abs(trained.state_dict()["v"] - before["v"]).max()))
    assert moved[0] == 0 and moved[1] > 0  # 2e-7 / 12 rounds to no half but 0


def forward(weights: Mapping[str, Array], x: Array) -> Array:
    """What `halves` computes."""
    half = np.float16
    x, w, v = (a.astype(half).astype(np.float32) for a in (x, weights["w"], weights["v"]))
    r = np.maximum((x @ w).astype(half), half(0)).astype(np.float32)
    return np.asarray((r @ v).astype(half).astype(np.float32))


@pytest.mark.parametrize("more", ["", "accumulate: 2\n"])
def test_a_power_of_two_changes_no_bit_of_wide_steps(more: str, tmp_path: Path) -> None:
    """Adam, clipped and with weight decay: products with 2^16 and 2^-16 are exact."""
    found = []
    for said in ("", "loss_scale: dynamic\n", "loss_scale: 65536\n"):
        steps = Steps(convolutional(np.float64), write_step(tmp_path, ADAM + more + said), {"x": (8, 1, 6, 6)})
        for batch in batches(6):
            steps(x=batch["x"].astype(np.float64), target=batch["target"])
        found.append(steps.states)
    for other, kept in ((found[1], KEPT), (found[2], {"torshc.skipped_steps"})):
        assert other.keys() - found[0].keys() == kept
        assert all(np.array_equal(other[n], s) for n, s in found[0].items())


def test_masks_after_a_skipped_update_are_other_ones(tmp_path: Path) -> None:
    """As the number of updates, by which masks are drawn, stays."""
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["p"]), helper.make_node("Dropout", ["p", "half"], ["y"], "drop"),
    ]  # fmt: skip
    weights = {"w": np.ones(64), "half": np.array(0.5)}
    source = model(nodes, {"x": [64]}, {"y": [64]}, weights, np.float64)
    text = "weights: w\nloss: mse\noutputs: y\nloss_scale: dynamic\noptimizer: {sgd: {learning_rate: 1}}\n"
    steps = Steps(source, write_step(tmp_path, text))
    shown: list[Array] = []
    for _ in range(2):
        steps(x=np.ones(64), target=np.full(64, np.inf))
        assert steps.states["torshc.step"] == 0 and steps.results["skipped"]
        shown.append(steps.results["y"])
    assert not np.array_equal(shown[0], shown[1])


def test_a_scale_that_went_to_the_least_number_grows_again(tmp_path: Path) -> None:
    text = SGD + "loss_scale: {growth_interval: 1}\n"
    steps = Steps(halves(), write_step(tmp_path, text))
    steps.states["torshc.loss_scale"] = np.array(2.0**-125, np.float32)
    (bad,), (good,) = drawn(1, {0: np.nan}), drawn(1, {})
    scales: list[float] = []
    for batch in (bad, bad, good, good):
        steps(**batch)
        scales.append(float(steps.states["torshc.loss_scale"]))
    assert scales == [2.0**-126, 2.0**-126, 2.0**-125, 2.0**-124]
    steps.states["torshc.loss_scale"] = np.array(2.0**127, np.float32)  # a scale never becomes infinite
    steps.states |= {n: np.zeros_like(steps.states[n]) for n in ("w", "v")}
    steps(x=good["x"], target=np.zeros((4, 3), np.float32))
    assert steps.states["torshc.loss_scale"] == 2.0**127 and not steps.results["skipped"]


def test_outputs_of_the_model_with_names_of_a_step_are_refused(tmp_path: Path) -> None:
    nodes = [helper.make_node("Mul", ["x", "w"], ["skipped"])]
    source = model(nodes, {"x": [3]}, {"skipped": [3]}, {"w": np.ones(3)}, np.float64)
    text = "weights: w\nloss: mse\noutputs: skipped\noptimizer: {sgd: {learning_rate: 1}}\n"
    Steps(source, write_step(tmp_path, text))
    with pytest.raises(ConfigError, match="a step gives its own 'skipped'"):
        Steps(source, write_step(tmp_path, text + "loss_scale: dynamic\n"))


@pytest.mark.parametrize("parts", [1, 2])
def test_steps_are_those_of_pytorch_with_its_grad_scaler(parts: int, tmp_path: Path) -> None:
    torch: Any = pytest.importorskip("torch")
    needed()
    text = 'weights: "*"\nloss: mse\noptimizer: {adam: {learning_rate: 0.01}}\nclip_norm: 0.2\n'
    more = f"accumulate: {parts}\nloss_scale: {{initial: 4194304, growth_interval: 3}}\n"
    torshc.compile(halves(), tmp_path / "m.tsc", train=write_step(tmp_path, text + more))
    trained = torshc.load(tmp_path / "m.tsc")
    first = trained.state_dict()
    weights = [torch.tensor(first[n], requires_grad=True) for n in ("w", "v")]
    optimizer = torch.optim.Adam(weights, lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**22, growth_interval=3)
    for k, batch in enumerate(drawn(24 * parts, {9 * parts: 1e7})):
        w, v = (a.half() for a in weights)
        y = (torch.relu(torch.tensor(batch["x"]).half() @ w) @ v).float()
        loss = torch.nn.functional.mse_loss(y, torch.tensor(batch["target"]))
        scaler.scale(loss).backward()
        assert trained.step(batch)["loss"] == pytest.approx(loss.item(), rel=1e-2)
        if (k + 1) % parts == 0:
            scaler.unscale_(optimizer)
            for a in weights:
                a.grad /= parts
            torch.nn.utils.clip_grad_norm_(weights, 0.2)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        states = trained.state_dict()
        assert states["torshc.loss_scale"] == scaler.get_scale(), k
        for name, a in zip(("w", "v"), weights, strict=True):
            np.testing.assert_allclose(states[name], a.detach().numpy(), rtol=0, atol=2e-3, err_msg=f"{name} {k}")
    assert trained.state_dict()["torshc.skipped_steps"] > 2
