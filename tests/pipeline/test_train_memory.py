"""Steps within a bound of memory: what they compute again, what they allocate, and that they stay the same steps."""

from __future__ import annotations

from collections.abc import Callable, Container
from ctypes import byref, c_size_t
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from onnx import helper

import torshc
from tests.emulation.emulated import emulated_tools
from tests.support.compilers import needed
from tests.training.networks import Array, convolutional, model, write_step
from torshc.base.errors import ConfigError
from torshc.base.options import CompileOptions
from torshc.cli import cli
from torshc.explain import explain, to_text
from torshc.expr import F32, as_int, const
from torshc.graph import Recomputation
from torshc.ops.math.pointwise import relu_slope
from torshc.pipeline.compilation import Compilation
from torshc.pipeline.compiler import prepare
from torshc.pipeline.train_memory import fit_memory, peak_bytes

STEP = "weights: '*'\nloss: mse\noptimizer: {momentum: {learning_rate: 0.1}}\n"
SHAPE = [4, 8, 16, 16]
Within = Callable[[float], tuple[Path, Compilation]]


def tower(depth: int = 5, residual: bool = True) -> bytes:
    """Blocks of Conv, BatchNormalization, Relu and a residual, and a Dropout in the midst; or just the three."""
    rng, x = np.random.default_rng(21), "x"
    weights: dict[str, Array] = {"half": np.array(0.5)}
    nodes = []
    for k in range(depth):
        weights |= {f"w{k}": rng.standard_normal((8, 8, 3, 3)) * 0.2, f"s{k}": np.ones(8), f"b{k}": np.zeros(8)}
        weights |= {f"m{k}": np.zeros(8), f"v{k}": np.ones(8)}
        nodes += [
            helper.make_node("Conv", [x, f"w{k}"], [f"c{k}"], f"conv{k}", pads=[1, 1, 1, 1]),
            helper.make_node("BatchNormalization", [f"c{k}", *(f"{n}{k}" for n in "sbmv")], [f"n{k}"], f"norm{k}"),
            helper.make_node("Relu", [f"n{k}"], [f"r{k}"], f"relu{k}"),
        ]
        if not residual:
            x = f"r{k}"
            continue
        if k == depth // 2:
            nodes.append(helper.make_node("Dropout", [f"r{k}", "half"], [f"d{k}"], "drop"))
        nodes.append(helper.make_node("Add", [f"{'d' if k == depth // 2 else 'r'}{k}", x], [f"a{k}"], f"add{k}"))
        x = f"a{k}"
    return model(nodes, {"x": SHAPE}, {x: SHAPE}, weights, np.float32)


def steps_of(bundle: Path, count: int = 3) -> tuple[list[float], dict[str, Array]]:
    rng, losses = np.random.default_rng(22), list[float]()
    with torshc.load(bundle, threads=2) as trained:
        for _ in range(count):
            batch = {n: rng.standard_normal(SHAPE).astype(np.float32) for n in ("x", "target")}
            losses.append(float(trained.step(batch)["loss"]))
        return losses, trained.state_dict()


def allocated(bundle: Path, threads: int) -> int:
    """Bytes of the workspace that the library asks for."""
    with torshc.load(bundle, threads=threads) as trained:
        batch = {n: np.zeros(SHAPE, np.float32) for n in ("x", "target")}
        trained.step(batch)
        found = c_size_t()
        assert trained._opened is not None
        status = trained._library.torshc_workspace_size(trained._opened.handle, trained._in.tensors, 2, byref(found))
        assert status == 0
        return found.value


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Compilation]:
    needed()
    folder = tmp_path_factory.mktemp("plain")
    step = write_step(folder, STEP)
    return step, torshc.compile(tower(), folder / "m.tsc", train=step)


@pytest.fixture(scope="module")
def within(plain: tuple[Path, Compilation]) -> Within:
    """The step within a part of the memory that it takes, compiled once: finding it takes whole plans."""
    step, whole = plain

    @cache
    def compiled(part: float) -> tuple[Path, Compilation]:
        bundle = step.parent / f"{part}.tsc"
        return bundle, torshc.compile(tower(), bundle, train=step, train_memory=int(part * (peak_bytes(whole) or 0)))

    return compiled


def test_a_bound_is_kept_and_steps_are_the_same(plain: tuple[Path, Compilation], within: Within) -> None:
    step, whole = plain
    bundle, done = within(0.8)
    peak, bound = peak_bytes(done), int(0.8 * (peak_bytes(whole) or 0))
    assert peak is not None and peak <= bound
    chosen = [r for r in done.graph.recomputations if r.chosen]
    assert chosen and len(chosen) < len(done.graph.recomputations)
    # What is planned is what is allocated: workspaces of one thread and of two differ by what a thread needs.
    one, two = (allocated(bundle, n) for n in (1, 2))
    assert 0 <= (2 * one - two) - (as_int(done.arena_bytes) or 0) < 64
    (losses, states), (wanted, others) = steps_of(bundle), steps_of(step.parent / "m.tsc")
    # The same numbers by other kernels, some hundred roundings of 6e-8 behind each other, in masks that are the same.
    np.testing.assert_allclose(losses, wanted, rtol=1e-5)
    for name, w in others.items():
        np.testing.assert_allclose(states[name], w, rtol=1e-4, atol=1e-5, err_msg=name)


def test_less_memory_costs_more(within: Within) -> None:
    costs = [sum(r.cost for r in within(part)[1].graph.recomputations if r.chosen) for part in (1.0, 0.8, 0.6)]
    assert costs[0] == 0 < costs[1] < costs[2]


def test_the_last_recomputation_is_exchanged_for_one_that_suffices() -> None:
    """It would free more than is needed, for more time than one behind it in the order takes."""
    sizes = (100, 100), (100, 100), (300, 600), (80, 200), (50, 150)  # bytes that each frees, and its cost

    def plan(chosen: Container[int]) -> Any:
        found = [Recomputation((), 1, n, cost, k in chosen) for k, (n, cost) in enumerate(sizes)]
        rest = const(1000 - sum(r.bytes for r in found if r.chosen))
        states = SimpleNamespace(states=())
        graph = SimpleNamespace(recomputations=found)
        return SimpleNamespace(arena_bytes=rest, program=states, held_weights_bytes=0, graph=graph)

    def chosen(bound: int) -> list[int]:
        done: Any = fit_memory(plan(()), bound, lambda segments, wanted: plan(wanted))
        return [k for k, r in enumerate(done.graph.recomputations) if r.chosen]

    assert chosen(800) == [0, 1]
    assert chosen(740) == [0, 1, 3]
    assert chosen(500) == [0, 1, 2]


def test_a_bound_that_is_too_small_states_the_least_that_would_do(plain: tuple[Path, Compilation]) -> None:
    step, whole = plain
    with pytest.raises(ConfigError, match=r"--train-memory 1000 is too small: .* takes (\d+) bytes at least") as caught:
        prepare(tower(), CompileOptions(train=step, train_memory=1000))
    least = int(caught.value.remedy.split()[1])
    assert least < 0.6 * (peak_bytes(whole) or 0)
    assert peak_bytes(prepare(tower(), CompileOptions(train=step, train_memory=least))) == least


def test_explain_shows_what_is_kept_and_what_is_computed_again(plain: tuple[Path, Compilation], within: Within) -> None:
    whole, done = plain[1], within(0.6)[1]
    found, before = explain(done), explain(whole)
    assert found.training is not None and before.training is not None
    assert found.training.kept_bytes < before.training.kept_bytes and before.training.again == ()
    assert found.training.peak_bytes == peak_bytes(done)
    freed = sum(r.bytes for r in done.graph.recomputations if r.chosen)
    assert found.training.again_bytes == freed
    text = to_text(found)
    assert "again       " in text and "conv" in " ".join(found.training.again)
    assert "again  " not in to_text(before)


def test_a_card_computes_again_too(plain: tuple[Path, Compilation], tmp_path: Path) -> None:
    step, _ = plain
    options: dict[str, Any] = {"train": step, "target": "cuda", "arch": "sm_90a"}
    top = peak_bytes(prepare(tower(4), CompileOptions(**options))) or 0
    with emulated_tools():
        done = torshc.compile(tower(4), tmp_path / "less.tsc", **options, train_memory=int(0.75 * top))
        torshc.compile(tower(4), tmp_path / "c.tsc", train=step)
        assert (peak_bytes(done) or top) <= 0.75 * top
        (losses, states), (wanted, others) = (steps_of(tmp_path / n, 2) for n in ("less.tsc", "c.tsc"))
    np.testing.assert_allclose(losses, wanted, rtol=1e-4)  # sums in another order, as of other targets
    for name, w in others.items():
        np.testing.assert_allclose(states[name], w, rtol=1e-3, atol=1e-4, err_msg=name)


@pytest.mark.parametrize("part", [1.0, 0.8])
def test_a_card_computes_slopes_with_gradients_of_normalisations(
    part: float, plain: tuple[Path, Compilation], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And for a bound of memory the activations for gradients of weights, in the same kernels."""
    step, _ = plain
    monkeypatch.setattr("torshc.passes.recompute_activations._LEAST", 2**10)  # images are small here
    source, options = tower(6, residual=False), CompileOptions(train=step, target="cuda", arch="sm_90a")
    top = peak_bytes(prepare(source, options)) or 0
    with emulated_tools():
        done = torshc.compile(
            source, tmp_path / "less.tsc", train=step, target="cuda", arch="sm_90a", train_memory=int(part * top)
        )
        torshc.compile(source, tmp_path / "c.tsc", train=step)
        (losses, states), (wanted, others) = (steps_of(tmp_path / n, 2) for n in ("less.tsc", "c.tsc"))
    slope = relu_slope(F32, F32)
    made = [g for g in done.plan.groups if g.kind == "row" and any(n.op == slope for n in g.nodes)]
    stored = [v for g in made for v in g.outputs if v.producer is not None and v.producer.op.name == "Relu"]
    assert len(made) == 6 and bool(stored) == (part < 1)
    np.testing.assert_allclose(losses, wanted, rtol=1e-4)  # sums in another order, as of other targets
    for name, w in others.items():
        np.testing.assert_allclose(states[name], w, rtol=1e-3, atol=1e-4, err_msg=name)


def test_a_card_has_no_copy_of_what_states_begin_with(plain: tuple[Path, Compilation]) -> None:
    step, whole = plain
    done = prepare(tower(), CompileOptions(train=step, target="cuda", arch="sm_90a"))
    states = sum(s.bytes for s in done.program.states if s.trained)
    assert done.held_weights_bytes <= done.weights_bytes - states
    assert whole.held_weights_bytes == whole.weights_bytes >= states
    found = explain(done).training
    assert found is not None and found.peak_bytes == peak_bytes(done)


def test_bounds_that_say_nothing_are_refused(tmp_path: Path) -> None:
    step = write_step(tmp_path, STEP.replace("mse", "cross_entropy"))
    with pytest.raises(ConfigError, match="--train-memory of a step whose sizes are known only in a run"):
        prepare(convolutional(), CompileOptions(train=step, train_memory=10**9))
    with pytest.raises(ConfigError, match="--train-memory without --train"):
        CompileOptions(train_memory=5)
    (tmp_path / "m.onnx").write_bytes(convolutional())
    for size, code, said in (("4GB2", 4, "no number of bytes"), ("100B", 4, "is too small")):
        words = ["explain", str(tmp_path / "m.onnx"), "--train", str(step), "--shapes", "x:8x1x6x6"]
        result = CliRunner().invoke(cli, [*words, "--train-memory", size])
        assert result.exit_code == code and said in result.output
