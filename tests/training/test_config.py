"""Files of training steps, and what is wrong with them, by line."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from torshc.base import resources
from torshc.base.errors import ConfigError
from torshc.training import read_training
from torshc.training.config import KEYS, LOSS_KEYS, LOSSES, SCALE_KEYS, LossScale
from torshc.training.optimizers import OPTIMIZERS, Adam, Momentum, Sgd

from .networks import write_step

WHOLE = """\
weights: [a, "b.*"]
loss: {mse: {of: y, target: t}}
optimizer:
  momentum: {learning_rate: 1e-3, momentum: 0.8, nesterov: true}
weight_decay: 0.01
clip_norm: 2
batch_norm: running
dropout: false
seed: 7
accumulate: 4
loss_scale: {initial: 1024, growth_interval: 50}
refuse_nan: true
"""


def test_a_file_says_all_of_it(tmp_path: Path) -> None:
    found = read_training(write_step(tmp_path, WHOLE))
    assert [c.text for c in found.weights] == ["a", "b.*"]
    assert (found.loss.kind, found.loss.of, found.loss.target) == ("mse", "y", "t")
    assert found.optimizer == Momentum(learning_rate=1e-3, momentum=0.8, nesterov=True)
    assert (found.weight_decay, found.clip_norm) == (0.01, 2.0)
    assert (found.batch_norm, found.dropout, found.seed) == ("running", False, 7)
    assert (found.accumulate, found.refuse_nan) == (4, True)
    assert found.loss_scale == LossScale(1024.0, 50)


def test_a_file_says_as_little_as_it_can(tmp_path: Path) -> None:
    text = 'weights: "*"\nloss: {output: y}\noptimizer: {sgd: {learning_rate: input}}\n'
    found = read_training(write_step(tmp_path, text))
    assert (found.loss.kind, found.loss.of, found.optimizer) == ("output", "y", Sgd(learning_rate="input"))
    assert (found.weight_decay, found.clip_norm) == (0.0, None)
    assert (found.batch_norm, found.dropout, found.seed) == ("batch", True, 0)
    assert (found.accumulate, found.refuse_nan, found.loss_scale) == (1, False, None)
    short = "weights: w\nloss: l1\noptimizer: {adam: {learning_rate: 0.1}}\n"
    assert read_training(write_step(tmp_path, short)).optimizer == Adam(learning_rate=0.1)
    for said, scale in (("dynamic", LossScale()), ("{}", LossScale()), ("1e3", LossScale(1000.0, None))):
        assert read_training(write_step(tmp_path, f"{short}loss_scale: {said}\n")).loss_scale == scale


WRONG = {
    "weight: w": (1, "unknown key 'weight'; did you mean 'weights'?"),
    "weights: []": (1, "no weights are named"),
    "weights: [3]": (1, "expected text, found 3"),
    "loss: mse2": (2, "unknown loss 'mse2'; did you mean 'mse'?"),
    "loss: {mse: {off: y}}": (2, "unknown key 'off'; did you mean 'of'?"),
    "loss: {mse: y}": (
        2,
        "expected a mapping, found the text 'y'\n  remedy: write `key: value`, with a key of: of,",
    ),
    "loss: {mse: {}, l1: {}}": (2, "a loss is one of its names, or a mapping with one key"),
    "optimizer: adam": (3, "an optimizer is a mapping with one key, its name"),
    "optimizer: {adamm: {learning_rate: 1}}": (3, "unknown optimizer 'adamm'; did you mean 'adam'?"),
    "optimizer: {adam: {}}": (3, "the key 'learning_rate' is missing"),
    "optimizer: {adam: {learning_rate: fast}}": (3, "expected a number from 0 to 1e+30, found 'fast'"),
    "optimizer: {adam: {learning_rate: 1, epsilom: 1}}": (3, "unknown key 'epsilom'; did you mean 'epsilon'?"),
    "optimizer: {adam: {learning_rate: 1, beta1: 1.5}}": (3, "expected a number from 0 to 0.999999, found 1.5"),
    "optimizer: {momentum: {learning_rate: 1, nesterov: 1}}": (3, "expected true or false, found 1"),
    "weight_decay: -1": (4, "expected a number from 0 to 1e+30, found -1"),
    "clip_norm: 0": (4, "expected a number from 1e-30 to 1e+30, found 0"),
    "batch_norm: runing": (4, "unknown statistics 'runing'; did you mean 'running'?"),
    "dropout: 1": (4, "expected true or false, found 1"),
    "accumulate: 0": (4, "expected a whole number from 1 to 1000000, found 0"),
    "loss_scale: dynamc": (4, "unknown loss scale 'dynamc'; did you mean 'dynamic'?"),
    "loss_scale: true": (4, "expected a number from 1e-08 to 1e+08, found True"),
    "loss_scale: 0": (4, "expected a number from 1e-08 to 1e+08, found 0"),
    "loss_scale: {growth_intervall: 5}": (4, "unknown key 'growth_intervall'; did you mean 'growth_interval'?"),
    "loss_scale: {growth_interval: 0}": (4, "expected a whole number from 1 to 1000000000, found 0"),
    "refuse_nan: 1": (4, "expected true or false, found 1"),
    "seed: -1": (4, "expected a whole number from 0 to 2147483647, found -1"),
}
LINES = {"weights": "weights: w", "loss": "loss: mse", "optimizer": "optimizer: {sgd: {learning_rate: 1}}"}


def changed(wrong: str) -> str:
    key = wrong.partition(":")[0]
    lines = {**LINES, **({key: wrong} if key != "weight" else {"weights": wrong + "\nweights: w"})}
    return "\n".join(lines.values()) + "\n"


@pytest.mark.parametrize("wrong", WRONG)
def test_a_mistake_is_told_with_its_line(wrong: str, tmp_path: Path) -> None:
    line, message = WRONG[wrong]
    with pytest.raises(ConfigError) as caught:
        read_training(write_step(tmp_path, changed(wrong)))
    assert f"step.yaml:{line}: {message}" in str(caught.value)


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read_training(write_step(tmp_path, "weights: []\nloss: no\noptimizer: {sgd: {learning_rate: 1}}\nclip: 1\n"))
    assert all(f"step.yaml:{k}: " in str(caught.value) for k in (1, 2, 4))
    with pytest.raises(ConfigError) as caught:
        read_training(write_step(tmp_path, "weights: w\nlos: mse\n"))
    for mistake in ("unknown key 'los'; did you mean 'loss'?", "'loss' is missing", "'optimizer' is missing"):
        assert mistake in str(caught.value)


def test_the_schema_says_what_the_reader_takes(tmp_path: Path) -> None:
    schema = json.loads((resources.rules() / "train.schema.json").read_text())
    properties = schema["properties"]
    assert properties.keys() == set(KEYS)
    assert {*properties["loss"]["oneOf"][0]["enum"]} == set(LOSSES)
    assert properties["loss"]["oneOf"][1]["properties"].keys() == {*LOSSES, "output"}
    assert schema["$defs"]["of"]["properties"].keys() == set(LOSS_KEYS)
    assert properties["optimizer"]["properties"].keys() == set(OPTIMIZERS)
    assert properties["loss_scale"]["oneOf"][2]["properties"].keys() == set(SCALE_KEYS)
    for name, kind in OPTIMIZERS.items():
        assert properties["optimizer"]["properties"][name]["properties"].keys() == {
            f.name for f in dataclasses.fields(kind)
        }
    for text in (WHOLE, changed("loss: bce")):
        jsonschema.validate(yaml.safe_load(text.replace("1e-3", "0.001")), schema)
    for wrong in WRONG:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(yaml.safe_load(changed(wrong)), schema)
