"""Steps that several ranks make together."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import torshc
from tests.support.models import model, node, save
from tests.support.ranks import World
from tests.support.seeded import seeded
from torshc.base.errors import ConfigError, RunError
from torshc.base.options import CompileOptions
from torshc.explain.ranks import ranks_json, ranks_text
from torshc.pipeline.ranks import cut_model, prepare_ranks

from .networks import convolutional, write_step

RNG = seeded(0)
X, TARGET = RNG.standard_normal((3, 8, 1, 6, 6)).astype(np.float32), RNG.integers(0, 3, (3, 8))
STEP = """\
weights: "*"
loss: cross_entropy
optimizer: {adamw: {learning_rate: 0.01}}
weight_decay: 0.1
clip_norm: 0.5
"""
SHARDED = "optimizer_states: sharded\n"


def sharded(folder: Path, source: bytes | Path, step: str, replicas: int = 2, more: str = "", **options: Any) -> Path:
    (folder / "shard.yaml").write_text(f"replicas: {replicas}\n{more}")
    given = {"train": write_step(folder, step), "shard": folder / "shard.yaml", **options}
    torshc.compile(source, folder / "ranks.tsc", **given)
    return folder / "ranks.tsc"


def train(bundle: Path, count: int, x: Any = X, target: Any = TARGET) -> list[tuple[list[float], dict[str, Any]]]:
    """Of each rank, which gets its part of every batch, the losses and the states in the end."""
    found: list[Any] = [None] * count

    def run(rank: int, table: Any) -> None:
        learner = torshc.load(bundle, ranks=ctypes.addressof(table))
        part = slice(rank * x.shape[1] // count, (rank + 1) * x.shape[1] // count)
        losses = [
            float(learner.step({"x": x[k, part], "target": target[k, part]})["loss"].item()) for k in range(len(x))
        ]
        found[rank] = losses, learner.state_dict()

    World(count).each(run)
    return found


@pytest.mark.parametrize("more", ["", SHARDED], ids=["replicated", "sharded"])
@pytest.mark.parametrize("accumulate", [1, 3])
def test_ranks_learn_what_one_does_of_the_whole_batch(accumulate: int, more: str, tmp_path: Path) -> None:
    step = f"{STEP}accumulate: {accumulate}\n"
    found = train(sharded(tmp_path, convolutional(), step, more=more), 2)
    torshc.compile(convolutional(), tmp_path / "whole.tsc", train=tmp_path / "step.yaml")
    learner = torshc.load(tmp_path / "whole.tsc")
    losses = [learner.step({"x": x, "target": t})["loss"].item() for x, t in zip(X, TARGET, strict=True)]
    for own, states in found:
        # Means of parts are in another order: a few units in the last place, which Adam's first steps widen.
        assert np.allclose(own, losses, rtol=1e-5)
        for name, state in learner.state_dict().items():
            assert np.allclose(states[name], state, rtol=0, atol=1e-5 * max(np.abs(state).max(initial=0), 1e-3)), name
    assert all(np.array_equal(found[0][1][name], state) for name, state in found[1][1].items())


def test_statistics_of_batches_are_equal_on_all_ranks(tmp_path: Path) -> None:
    """Each normalises by its own part; what is kept is the mean of theirs."""
    ones = np.ones(3, np.float32)
    made = model(
        [node("BatchNormalization", "x s b m v", "n", momentum=0.5), node("ReduceMean", "n", "y", axes=[1])],
        {"x": ("float32", ("batch", 3))}, ["y"], {"s": ones, "b": 0 * ones, "m": 0 * ones, "v": ones}, opset=17,
    )  # fmt: skip
    step = "weights: [s, b]\nloss: mse\noptimizer: {sgd: {learning_rate: 0.1}}\n"
    x = RNG.standard_normal((2, 8, 3)).astype(np.float32)
    bundle = sharded(tmp_path, save(made, tmp_path / "m.onnx"), step)
    (_, first), (_, second) = train(bundle, 2, x, np.ones((2, 8, 1), np.float32))
    assert all(np.array_equal(first[name], second[name]) for name in first)
    want = np.zeros(3, np.float32)
    for k in range(2):
        want = (want + np.mean([x[k, :4].mean(0), x[k, 4:].mean(0)], 0)) / 2
    assert np.allclose(first["m"], want, atol=1e-6)


def test_ranks_draw_different_numbers(tmp_path: Path) -> None:
    """With the same examples, what dropout drops differs, and so do losses before their mean; states are equal."""
    made = model(
        [node("Mul", "x w", "p"), node("Dropout", "p half on", "d"), node("ReduceMean", "d", "y", axes=[1])],
        {"x": ("float32", ("batch", 64))}, ["y"],
        {"w": np.ones(64, np.float32), "half": np.array(0.5, np.float32), "on": np.array(True)}, opset=17,
    )  # fmt: skip
    step = "weights: w\nloss: mse\noptimizer: {sgd: {learning_rate: 1}}\n"
    bundle = sharded(tmp_path, save(made, tmp_path / "m.onnx"), step)
    (_, first), (_, second) = train(bundle, 2, np.ones((1, 2, 64), np.float32), np.zeros((1, 2, 1), np.float32))
    assert np.array_equal(first["w"], second["w"])
    assert len(np.unique(first["w"])) == 4  # dropped by none, by either or by both; of equal draws there are 2


def test_exchanges_follow_their_gradients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last layer's is exchanged before the first layer's is computed, and no launch awaits it before all are begun.

    Updates come then, and write where the old states lie: a step that has not failed by then can no longer fail.
    """
    monkeypatch.setattr("torshc.training.replicas.BUCKET", 1)
    (tmp_path / "shard.yaml").write_text("replicas: 2\n")
    options = CompileOptions(
        train=write_step(tmp_path, STEP.replace("clip_norm: 0.5\n", "")), shard=tmp_path / "shard.yaml"
    )
    done = prepare_ranks(convolutional(), options)
    shapes = [t.type.static_shape for t in done.cut.transfers]
    assert shapes[0] == () and [set(shapes[1:3]), set(shapes[3:])] == [{(3,), (16, 3)}, {(4,), (4, 1, 3, 3)}]
    kinds = [n.op.name for n in done.compilations[0].graph.nodes]
    exchanges = [k for k, kind in enumerate(kinds) if kind == "AllReduce"]
    assert exchanges[-1] - exchanges[0] > len(exchanges)
    steps = done.compilations[0].program.steps
    begun = [k for k, step in enumerate(steps) if step.begins]
    (end,) = (k for k, step in enumerate(steps) if step.awaits)
    assert len(begun) == 5 and begun[-1] < end and begun[-1] - begun[0] > 5
    assert [k for k, step in enumerate(steps) if step.meanwhile] == [*range(begun[0], end - 1)]
    assert {b.space for step in steps[end:] for b in step.buffers} >= {"state"}
    assert [m.bytes for m in done.compilations[0].program.moves] in ([], [8])  # at most the number of steps


@pytest.mark.parametrize("more", ["", SHARDED], ids=["replicated", "sharded"])
def test_small_tensors_share_an_exchange(more: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all sizes of buckets states have the same bits, as sums are those of the same two numbers."""
    found = []
    for size in (1, 60, 1 << 20):
        monkeypatch.setattr("torshc.training.replicas.BUCKET", size)
        bundle = sharded(tmp_path, convolutional(), STEP.replace("clip_norm: 0.5\n", ""), more=more)
        found.append(train(bundle, 2))
    for other in found[1:]:
        for (losses, states), (same, equal) in zip(found[0], other, strict=True):
            assert losses == same and all(np.array_equal(states[name], equal[name]) for name in states)


def test_more_exchanges_than_are_under_way_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest is awaited then; states have the bits of one exchange of all."""
    weights = {f"w{k}": RNG.standard_normal((4, 4)).astype(np.float32) for k in range(20)}
    chain = [node("MatMul", f"{f'h{k}' if k else 'x'} w{k}", f"m{k}") for k in range(20)]
    chain += [node("Tanh", f"m{k}", f"h{k + 1}") for k in range(20)]
    made = model(chain, {"x": ("float32", ("batch", 4))}, ["h20"], weights)
    source, found = save(made, tmp_path / "m.onnx"), []
    for size in (1, 1 << 20):
        monkeypatch.setattr("torshc.training.replicas.BUCKET", size)
        bundle = sharded(tmp_path, source, "weights: '*'\nloss: cross_entropy\noptimizer: {sgd: {learning_rate: 1}}\n")
        found.append(train(bundle, 2, X[:1, :, 0, 0, :4]))
    (one, two), (same, equal) = found
    for (_, states), (_, other) in ((one, same), (two, equal)):
        assert all(np.array_equal(states[name], other[name]) for name in weights)
        assert not np.array_equal(states["w0"], weights["w0"])


def test_a_rank_that_does_not_come_is_named(tmp_path: Path) -> None:
    """By the launch that awaits what was begun before."""
    bundle = sharded(tmp_path, convolutional(), STEP)

    def run(rank: int, table: Any) -> None:
        learner = torshc.load(bundle, ranks=ctypes.addressof(table))
        if rank == 0:
            with pytest.raises(RunError, match=r"exchanges before it: rank 1 of 2 did not answer within 0.3 s"):
                learner.step({"x": X[0, :4], "target": TARGET[0, :4]})

    World(2, seconds=0.3).each(run)


@pytest.mark.parametrize("optimizer", ["momentum", "adagrad", "lion", "sgd"])
def test_optimizers_of_shared_states(optimizer: str, tmp_path: Path) -> None:
    """Of sgd what is shared are the sums of gradients between two updates."""
    weights = {"w": RNG.standard_normal((4, 3)).astype(np.float32), "b": np.zeros(3, np.float32)}
    made = model([node("Gemm", "x w b", "y")], {"x": ("float32", ("batch", 4))}, ["y"], weights)
    source, x = save(made, tmp_path / "m.onnx"), X[:, :, 0, 0, :4]
    step = f"weights: '*'\nloss: cross_entropy\noptimizer: {{{optimizer}: {{learning_rate: 0.01}}}}\n"
    step += "accumulate: 3\n" if optimizer == "sgd" else "gradients: ['*']\n"
    whole = train(sharded(tmp_path, source, step), 2, x)
    parts = train(sharded(tmp_path, source, step, more=SHARDED), 2, x)
    for (losses, states), (own, found) in zip(whole, parts, strict=True):
        assert np.allclose(own, losses, rtol=1e-6)
        for name, state in states.items():  # another kernel may round products before it adds them
            assert np.allclose(found[name], state, rtol=1e-6, atol=1e-7 * np.abs(state).max(initial=0)), name


def test_ranks_leave_the_same_updates_out(tmp_path: Path) -> None:
    """Of a gradient that is infinite in one rank's part alone: no rank takes it, and the scale is halved on both."""
    weights = RNG.standard_normal((4, 2)).astype(np.float32)
    made = model([node("MatMul", "x w", "y")], {"x": ("float32", ("batch", 4))}, ["y"], {"w": weights})
    source = save(made, tmp_path / "m.onnx")
    step = 'weights: "*"\nloss: cross_entropy\noptimizer: {adam: {learning_rate: 0.01}}\n'
    bundle = sharded(tmp_path, source, step + "loss_scale: {initial: 65536, growth_interval: 9}\n", more=SHARDED)
    x = RNG.standard_normal((3, 4, 4)).astype(np.float32)
    x[1, :, 0] = 1e36  # times the scale no f32; that of the other rank's weights is one
    for _, states in train(bundle, 2, x, RNG.integers(0, 2, (3, 4))):
        counted = {n: states[f"torshc.{n}"].item() for n in ("loss_scale", "skipped_steps", "good_steps")}
        assert counted == {"loss_scale": 32768, "skipped_steps": 1, "good_steps": 1}
        assert all(np.isfinite(state).all() for state in states.values())
        assert not np.array_equal(states["w"], weights)


def test_ranks_keep_their_parts_of_states(tmp_path: Path) -> None:
    """Of weights whose number of elements ranks divide; the others' states are whole on each."""
    (tmp_path / "shard.yaml").write_text(f"replicas: 3\n{SHARDED}")
    done = prepare_ranks(
        convolutional(), CompileOptions(train=write_step(tmp_path, STEP), shard=tmp_path / "shard.yaml")
    )
    for c in done.compilations:
        states = {s.name: s for s in c.program.states}
        for name in ("first_moment", "second_moment"):
            mine = {s.name.partition("/")[2]: s for s in states.values() if s.name.startswith(f"torshc.{name}/")}
            assert {n: s.parts for n, s in mine.items()} == {
                n: 3 if np.prod(states[n].dims) % 3 == 0 else 1 for n in mine
            }
            assert all(4 * np.prod(s.dims) == s.bytes * s.parts for s in mine.values())
            assert {s.parts for s in mine.values()} == {1, 3}  # a bias of 4 has no three parts
    kinds = {t.kind for t in done.cut.transfers}
    assert kinds == {"AllReduce", "ReduceScatter", "AllGather"}
    # Of 36 + 4 + 48 + 3 elements the bias of 4 is whole: two moments of f32 of 87, of which two thirds are elsewhere.
    rows = ranks_json(done)["ranks"]
    assert [r["shared_state_bytes"] for r in rows] == [2 * 4 * 58] * 3
    assert all(r["state_bytes"] == 8 + 4 * (91 + 2 * 4 + 2 * 29) for r in rows)
    text = ranks_text(done)
    assert "its part of the optimizer's, 464 B less than all; those of conv.bias are whole on each" in text
    assert re.search(r"ReduceScatter +1 +348 B +232 B", text) and re.search(r"AllGather +3 +116 B +232 B", text)


def test_files_of_states_are_those_of_one_rank(tmp_path: Path) -> None:
    """What one rank saved two go on with, and the other way round; all ranks write the same file."""
    bundle = sharded(tmp_path, convolutional(), STEP, more=SHARDED)
    torshc.compile(convolutional(), tmp_path / "whole.tsc", train=tmp_path / "step.yaml")
    one = torshc.load(tmp_path / "whole.tsc")
    one.step({"x": X[0], "target": TARGET[0]})
    one.save_state(tmp_path / "one.safetensors")

    def run(rank: int, table: Any) -> None:
        learner = torshc.load(bundle, ranks=ctypes.addressof(table))
        learner.load_state(tmp_path / "one.safetensors")
        learner.save_state(tmp_path / f"same{rank}.safetensors")
        part = slice(rank * 4, rank * 4 + 4)
        learner.step({"x": X[1, part], "target": TARGET[1, part]})
        learner.save_state(tmp_path / f"two{rank}.safetensors")

    World(2).each(run)
    same = [(tmp_path / f"{name}.safetensors").read_bytes() for name in ("one", "same0", "same1")]
    assert same[0] == same[1] == same[2]
    one.step({"x": X[1], "target": TARGET[1]})
    want = one.state_dict()
    assert (tmp_path / "two0.safetensors").read_bytes() == (tmp_path / "two1.safetensors").read_bytes()
    one.load_state(tmp_path / "two1.safetensors")
    for name, state in one.state_dict().items():
        assert np.allclose(state, want[name], rtol=0, atol=1e-5 * max(np.abs(want[name]).max(initial=0), 1e-3)), name


def test_states_that_one_rank_alone_reads_are_refused(tmp_path: Path) -> None:
    """Reading them is an exchange, which ends when its time is over."""
    bundle = sharded(tmp_path, convolutional(), STEP, more=SHARDED)

    def run(rank: int, table: Any) -> None:
        learner = torshc.load(bundle, ranks=ctypes.addressof(table))
        if rank == 0:
            with pytest.raises(RunError, match="parts of a state"):
                learner.save_state(tmp_path / "alone.safetensors")

    World(2, seconds=0.2).each(run)
    assert not (tmp_path / "alone.safetensors").exists() and not [*tmp_path.glob("*.partial")]


WRONG = {
    "stages: 2\n": "ranks train as replicas: 2",
    "auto:2": "replicas: 2, or as many",
}


@pytest.mark.parametrize("shard", WRONG)
def test_only_replicas_train(shard: str, tmp_path: Path) -> None:
    (tmp_path / "shard.yaml").write_text(shard)
    file = Path(shard) if shard.startswith("auto") else tmp_path / "shard.yaml"
    with pytest.raises(ConfigError) as caught:
        prepare_ranks(convolutional(), CompileOptions(train=write_step(tmp_path, STEP), shard=file))
    assert WRONG[shard] in caught.value.remedy


def test_what_replicas_do_not_have_is_refused(tmp_path: Path) -> None:
    (tmp_path / "shard.yaml").write_text("replicas: 2\n")
    with pytest.raises(ConfigError, match="replicas without --train"):
        cut_model(convolutional(), CompileOptions(shard=tmp_path / "shard.yaml"))
    for text, why in (("stages: 2\n", "without replicas"), ("replicas: 2\n", "unknown states 'shared'")):
        (tmp_path / "shard.yaml").write_text(text + "optimizer_states: shared\n")
        with pytest.raises(ConfigError, match=why):
            cut_model(convolutional(), CompileOptions(shard=tmp_path / "shard.yaml"))
    (tmp_path / "shard.yaml").write_text(f"replicas: 2\n{SHARDED}")
    step = write_step(tmp_path, "weights: '*'\nloss: cross_entropy\noptimizer: {sgd: {learning_rate: 1}}\n")
    with pytest.raises(ConfigError, match="sgd keeps none"):
        prepare_ranks(convolutional(), CompileOptions(train=step, shard=tmp_path / "shard.yaml"))
    step = write_step(tmp_path, STEP + "refuse_nan: true\n")
    with pytest.raises(ConfigError, match="refuse_nan with --shard"):
        prepare_ranks(convolutional(), CompileOptions(train=step, shard=tmp_path / "shard.yaml"))
