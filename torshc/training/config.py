"""A training step as a user writes it (YAML), read into typed data; mistakes are told with their lines.

weights: ["conv*.weight", linear.weight]
loss: cross_entropy
optimizer:
  adamw: {learning_rate: input}
weight_decay: 0.01
batch_norm: running
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..base.errors import did_you_mean
from ..ops.core.bounds import RATE, RATE_MOST
from ..passes.config import Item, Problems, read_yaml
from .optimizers import INPUT, OPTIMIZERS, Optimizer

KEYS = (
    "weights",
    "loss",
    "outputs",
    "gradients",
    "optimizer",
    "weight_decay",
    "clip_norm",
    "batch_norm",
    "dropout",
    "seed",
    "accumulate",
    "loss_scale",
    "refuse_nan",
    "recompute",
)
REQUIRED = ("weights", "loss", "optimizer")
LOSSES = ("cross_entropy", "mse", "l1", "bce", "kl")
LOSS_KEYS = ("of", "target")
BATCH, RUNNING = "batch", "running"
SEED_MOST = 2**31 - 1
PARTS_MOST = 1_000_000
DYNAMIC, SCALE_KEYS = "dynamic", ("initial", "growth_interval")
SCALES = (1e-8, 1e8)  # the least and the largest that a file may state
INTERVAL_MOST = 1_000_000_000
OUTPUT = "output"  # a loss that is an output of the model
SEED = "seed"
MOST = 1e30


@dataclass(frozen=True)
class Loss:
    """What a step makes smaller.

    Attributes:
        kind: one of `LOSSES`, or "output": an output of the model.
        of: the output; empty for the only one.
        target: the input that holds what the output should be.
        where: file and line, for messages.
    """

    kind: str
    of: str = ""
    target: str = "target"
    where: str = ""


@dataclass(frozen=True)
class Choice:
    """A weight's name or a pattern of names (`*`, `?`, `[ab]`), and where it stands."""

    text: str
    where: str = ""


@dataclass(frozen=True)
class LossScale:
    """By what a step multiplies the loss, so that small gradients do not vanish in halves; updates take it out again.

    Attributes:
        initial: the factor, or the first one. The default is PyTorch's.
        growth_interval: after how many updates in a row a dynamic scale doubles; None for a scale that stays.
    """

    initial: float = 65536.0
    growth_interval: int | None = 2000


@dataclass(frozen=True)
class Training:
    """A training step.

    Attributes:
        weights: what is trained.
        loss, optimizer: as they say.
        outputs: outputs of the model that a step gives too.
        gradients: the trained weights whose gradients a step gives too.
        weight_decay: decay of every trained weight, as the optimizer takes it: L2 in the gradient, or decoupled.
        clip_norm: the largest norm of all gradients together; None for any.
        batch_norm: the statistics that batch normalisation uses: those of the batch, to which the running ones move, or
            the running ones, which stay.
        dropout: whether Dropout drops anything.
        seed: seed of what steps draw; None where it is an input.
        accumulate: how many steps, each of a part of a batch, make one update, by the mean of their gradients.
        loss_scale: by what the loss is multiplied while gradients are computed; None for not at all.
        refuse_nan: whether a step whose loss is no finite number is refused.
        recompute: whether activations are computed again for the backward pass, where others say what they are.
        file: where it was read.
        rank, ranks: which of how many processes this step is for, each with a part of the batch, as long as those of
            others; no file says this.
        shard_states: whether each of them keeps its part of what the optimizer keeps; no file of steps says this.
    """

    weights: tuple[Choice, ...]
    loss: Loss
    optimizer: Optimizer
    outputs: tuple[Choice, ...] = ()
    gradients: tuple[Choice, ...] = ()
    weight_decay: float = 0.0
    clip_norm: float | None = None
    batch_norm: str = BATCH
    dropout: bool = True
    seed: int | None = 0
    accumulate: int = 1
    loss_scale: LossScale | None = None
    refuse_nan: bool = False
    recompute: bool = False
    file: str = ""
    rank: int = 0
    ranks: int = 1
    shard_states: bool = False


def read_training(path: Path) -> Training:
    """The training step in a file.

    Raises:
        ConfigError: with all that is wrong with it, each with its line.
    """
    top = read_yaml(path)
    problems, found = Problems(), dict[str, Any]()
    with problems.gather():
        items = top.mapping()
        for key, item in items.items():
            with problems.gather():
                top_key(item, key)
                found[key] = _READERS[key](item)
        for key in REQUIRED:
            with problems.gather():
                if key not in items:
                    raise top.error(f"the key {key!r} is missing")
    problems.settle()
    return Training(file=top.file, **found)


def top_key(item: Item, key: str) -> None:
    """Refuse a key that no file has.

    Raises:
        ConfigError: it is one.
    """
    if key not in KEYS:
        raise item.error(f"unknown key {key!r}{did_you_mean(key, KEYS)}", f"known: {', '.join(KEYS)}")


def _place(item: Item) -> str:
    return f"{item.file}:{item.line}"


def _weights(item: Item) -> tuple[Choice, ...]:
    found = _choices(item)
    if not found:
        raise item.error("no weights are named", 'name some, or all by "*"')
    return found


def _choices(item: Item) -> tuple[Choice, ...]:
    items = item.sequence() if isinstance(item.value, list) else [item]
    return tuple(Choice(i.text(), _place(i)) for i in items)


def _loss(item: Item) -> Loss:
    """A word, or a mapping with one key: the loss and what it is of, or `output` and its name."""
    if isinstance(item.value, dict):
        if len(item.value) != 1:
            raise item.error("a loss is one of its names, or a mapping with one key", f"one of: {_known_losses()}")
        ((kind, more),) = item.value.items()
        if kind == OUTPUT:
            return Loss(OUTPUT, of=more.text(), where=_place(item))
        stated = {k: v.text() for k, v in more.mapping(LOSS_KEYS).items()}
    else:
        kind, more, stated = item.text(), item, {}
    if kind not in LOSSES:
        raise more.error(f"unknown loss {kind!r}{did_you_mean(kind, (*LOSSES, OUTPUT))}", f"one of: {_known_losses()}")
    return Loss(kind, where=_place(item), **stated)


def _known_losses() -> str:
    return ", ".join((*LOSSES, f"{OUTPUT}: NAME"))


def _optimizer(item: Item) -> Optimizer:
    if not isinstance(item.value, dict) or len(item.value) != 1:
        remedy = "write its name with its numbers below, as {adam: {learning_rate: 0.001}}"
        raise item.error("an optimizer is a mapping with one key, its name", remedy)
    ((name, more),) = item.value.items()
    if name not in OPTIMIZERS:
        known = ", ".join(OPTIMIZERS)
        raise more.error(f"unknown optimizer {name!r}{did_you_mean(name, [*OPTIMIZERS])}", f"one of: {known}")
    kind = OPTIMIZERS[name]
    fields = {f.name: f for f in dataclasses.fields(kind)}
    items = more.mapping([*fields], required=(RATE,))
    stated: dict[str, Any] = {}
    for key, value in items.items():
        if key == RATE:
            stated[key] = INPUT if value.value == INPUT else value.number(0.0, RATE_MOST)
        elif isinstance(fields[key].default, bool):
            stated[key] = value.flag()
        else:
            stated[key] = value.number(**fields[key].metadata)
    return kind(**stated)


def _batch_norm(item: Item) -> str:
    text = item.text()
    if text not in (BATCH, RUNNING):
        raise item.error(f"unknown statistics {text!r}{did_you_mean(text, (BATCH, RUNNING))}", f"{BATCH} or {RUNNING}")
    return text


def _loss_scale(item: Item) -> LossScale:
    """A number, `dynamic`, or a mapping with the numbers of a dynamic one."""
    if item.value == DYNAMIC:
        return LossScale()
    if not isinstance(item.value, dict):
        if isinstance(item.value, str) and (hint := did_you_mean(item.value, (DYNAMIC,))):
            raise item.error(f"unknown loss scale {item.value!r}{hint}", f"{DYNAMIC}, or a number")
        return LossScale(item.number(*SCALES), None)
    stated: dict[str, Any] = {}
    for key, value in item.mapping(SCALE_KEYS).items():
        stated[key] = value.number(*SCALES) if key == SCALE_KEYS[0] else value.integer(1, INTERVAL_MOST)
    return LossScale(**stated)


_READERS: Mapping[str, Any] = {
    "weights": _weights,
    "loss": _loss,
    "outputs": _choices,
    "gradients": _choices,
    "optimizer": _optimizer,
    "weight_decay": lambda item: item.number(0.0, MOST),
    "clip_norm": lambda item: item.number(1e-30, MOST),
    "batch_norm": _batch_norm,
    "dropout": lambda item: item.flag(),
    "seed": lambda item: None if item.value == INPUT else item.integer(0, SEED_MOST),
    "accumulate": lambda item: item.integer(1, PARTS_MOST),
    "loss_scale": _loss_scale,
    "refuse_nan": lambda item: item.flag(),
    "recompute": lambda item: item.flag(),
}
