"""Optimizers over some updates, against their formulas in f64 and, where it is there, PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from .networks import Array, Steps, affine

UPDATES, RATE = 4, 0.05


def step_of(folder: Path, optimizer: str, more: str = "") -> Path:
    file = folder / "step.yaml"
    file.write_text(f"weights: [w, b]\nloss: mse\noptimizer: {optimizer}\n{more}")
    return file


# Each: a weight, its gradient, the number of the update from 1 on and what is kept; gives the new weight.
Update = Callable[[Array, Array, int, dict[str, Any]], Array]


def sgd(w: Array, g: Array, t: int, kept: dict[str, Any]) -> Array:
    return w - RATE * g


def momentum(w: Array, g: Array, t: int, kept: dict[str, Any]) -> Array:
    kept["v"] = 0.8 * kept.get("v", 0) + g
    return np.asarray(w - RATE * kept["v"])


def nesterov(w: Array, g: Array, t: int, kept: dict[str, Any]) -> Array:
    kept["v"] = 0.8 * kept.get("v", 0) + g
    return np.asarray(w - RATE * (g + 0.8 * kept["v"]))


def adam(w: Array, g: Array, t: int, kept: dict[str, Any]) -> Array:
    kept["m"] = 0.8 * kept.get("m", 0) + 0.2 * g
    kept["v"] = 0.9 * kept.get("v", 0) + 0.1 * g * g
    m, v = kept["m"] / (1 - 0.8**t), kept["v"] / (1 - 0.9**t)
    return np.asarray(w - RATE * m / (np.sqrt(v) + 1e-3))


def adagrad(w: Array, g: Array, t: int, kept: dict[str, Any]) -> Array:
    kept["h"] = kept.get("h", 0) + g * g
    return np.asarray(w - RATE * g / (np.sqrt(kept["h"]) + 1e-10))


def rmsprop(w: Array, g: Array, t: int, kept: dict[str, Any]) -> Array:
    kept["h"] = 0.9 * kept.get("h", 0) + 0.1 * g * g
    return np.asarray(w - RATE * g / (np.sqrt(kept["h"]) + 1e-8))


def lion(w: Array, g: Array, t: int, kept: dict[str, Any]) -> Array:
    m = kept.get("m", 0)
    kept["m"] = 0.99 * m + 0.01 * g
    return w - RATE * np.sign(0.9 * m + 0.1 * g)


# The optimizer in a file, its formula, whether decay is decoupled, and PyTorch's name of it with its arguments.
CASES: dict[str, tuple[str, Update, bool, tuple[str, dict[str, Any]] | None]] = {
    "sgd": ("", sgd, False, ("SGD", {})),
    "momentum": ("momentum: 0.8", momentum, False, ("SGD", {"momentum": 0.8})),
    "momentum nesterov": (
        "momentum: 0.8, nesterov: true", nesterov, False, ("SGD", {"momentum": 0.8, "nesterov": True})
    ),
    "adam": (
        "beta1: 0.8, beta2: 0.9, epsilon: 0.001", adam, False, ("Adam", {"betas": (0.8, 0.9), "eps": 1e-3})
    ),
    "adamw": (
        "beta1: 0.8, beta2: 0.9, epsilon: 0.001", adam, True, ("AdamW", {"betas": (0.8, 0.9), "eps": 1e-3})
    ),
    "adagrad": ("", adagrad, False, ("Adagrad", {})),
    "rmsprop": ("alpha: 0.9", rmsprop, False, ("RMSprop", {"alpha": 0.9})),
    "lion": ("", lion, True, None),
}  # fmt: skip


def data() -> tuple[Array, Array]:
    rng = np.random.default_rng(11)
    return rng.standard_normal((4, 3)), rng.standard_normal((4, 2))


def gradients(x: Array, t: Array, w: Array, b: Array) -> tuple[Array, Array]:
    d = 2 * (x @ w + b - t) / t.size
    return x.T @ d, d.sum(0)


def trained(name: str, folder: Path, more: str = "") -> dict[str, Array]:
    numbers = f"learning_rate: {RATE}" + (f", {CASES[name][0]}" if CASES[name][0] else "")
    steps = Steps(affine(), step_of(folder, f"{{{name.split()[0]}: {{{numbers}}}}}", more))
    x, target = data()
    for _ in range(UPDATES):
        steps(x=x, target=target)
    assert steps.states["torshc.step"] == UPDATES
    return steps.states


def first(folder: Path) -> dict[str, Array]:
    return Steps(affine(), step_of(folder, "{sgd: {learning_rate: 0}}")).states


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("name", CASES)
def test_updates_follow_the_formula(name: str, decay: float, tmp_path: Path) -> None:
    _, update, decoupled, _ = CASES[name]
    states = first(tmp_path)
    (w, b), (x, t) = (states["w"], states["b"]), data()
    kept: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
    for number in range(1, UPDATES + 1):
        pairs = zip((w, b), gradients(x, t, w, b), kept, strict=True)
        w, b = (
            update(v * (1 - RATE * decay) if decoupled else v, g if decoupled else g + decay * v, number, k)
            for v, g, k in pairs
        )
    found = trained(name, tmp_path, f"weight_decay: {decay}\n")
    # In f64: a few roundings an update, and the corrections of Adam by expm1.
    np.testing.assert_allclose(found["w"], w, rtol=1e-11)
    np.testing.assert_allclose(found["b"], b, rtol=1e-11)


@pytest.mark.parametrize("name", [n for n, c in CASES.items() if c[3] is not None])
def test_updates_are_those_of_pytorch(name: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    kind, arguments = CASES[name][3] or ("", {})
    states = first(tmp_path)
    w, b = (torch.tensor(states[n], requires_grad=True) for n in ("w", "b"))
    x, t = map(torch.tensor, data())
    optimizer = getattr(torch.optim, kind)([w, b], lr=RATE, weight_decay=0.1, **arguments)
    for _ in range(UPDATES):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(x @ w + b, t).backward()
        torch.nn.utils.clip_grad_norm_([w, b], 0.5)
        optimizer.step()
    found = trained(name, tmp_path, "weight_decay: 0.1\nclip_norm: 0.5\n")
    np.testing.assert_allclose(found["w"], w.detach().numpy(), rtol=1e-11)
    np.testing.assert_allclose(found["b"], b.detach().numpy(), rtol=1e-11)


@pytest.mark.parametrize("norm", [1e-3, 1e3])
def test_gradients_are_clipped_together(norm: float, tmp_path: Path) -> None:
    steps = Steps(affine(), step_of(tmp_path, "{sgd: {learning_rate: 1}}", f"clip_norm: {norm}\n"))
    before, (x, t) = dict(steps.states), data()
    found = gradients(x, t, before["w"], before["b"])
    steps(x=x, target=t)
    scale = min(1.0, norm / (np.sqrt(sum((g**2).sum() for g in found)) + 1e-6))
    for name, g in zip(("w", "b"), found, strict=True):
        np.testing.assert_allclose(before[name] - steps.states[name], g * scale, rtol=1e-9)


def test_the_learning_rate_can_be_an_input(tmp_path: Path) -> None:
    steps = Steps(affine(), step_of(tmp_path, "{sgd: {learning_rate: input}}"))
    before, (x, t) = dict(steps.states), data()
    g, _ = gradients(x, t, before["w"], before["b"])
    assert [v.name for v in steps.graph.given] == ["x", "target", "learning_rate"]
    steps(x=x, target=t, learning_rate=np.float32(0.25))
    np.testing.assert_allclose(before["w"] - steps.states["w"], 0.25 * g, rtol=1e-12)
