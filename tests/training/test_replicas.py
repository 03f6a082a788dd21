"""Steps that several ranks make together."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import torshc
from tests.support.models import model, node, save
from tests.support.ranks import World
from tests.support.seeded import seeded
from torshc.base.errors import ConfigError
from torshc.base.options import CompileOptions
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


def sharded(folder: Path, source: bytes | Path, step: str, replicas: int = 2, **options: Any) -> Path:
    (folder / "shard.yaml").write_text(f"replicas: {replicas}\n")
    more = {"train": write_step(folder, step), "shard": folder / "shard.yaml", **options}
    torshc.compile(source, folder / "ranks.tsc", **more)
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


@pytest.mark.parametrize("accumulate", [1, 3])
def test_ranks_learn_what_one_does_of_the_whole_batch(accumulate: int, tmp_path: Path) -> None:
    step = f"{STEP}accumulate: {accumulate}\n"
    found = train(sharded(tmp_path, convolutional(), step), 2)
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


def test_exchanges_follow_their_gradients(tmp_path: Path) -> None:
    """The last layer's is exchanged before the first layer's is computed."""
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
    step = write_step(tmp_path, STEP + "refuse_nan: true\n")
    with pytest.raises(ConfigError, match="refuse_nan with --shard"):
        prepare_ranks(convolutional(), CompileOptions(train=step, shard=tmp_path / "shard.yaml"))
