"""Files that cut models into ranks, and what is wrong with them, by line."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from torshc.base import resources
from torshc.base.errors import ConfigError
from torshc.sharding import read_sharding
from torshc.sharding.config import KEYS

TENSORS = """\
tensors:
  ranks: 4
  split:
    - {names: "*.c_attn.weight", axis: 1, parts: 3}
    - {names: up, axis: -1, parts: [8, 4, 4]}
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "shard.yaml"
    file.write_text(text)
    return file


def test_stages_are_a_number_or_names(tmp_path: Path) -> None:
    found = read_sharding(written(tmp_path, "stages: 3\n")).stages
    assert found is not None and (found.count, found.names) == (3, ())
    found = read_sharding(written(tmp_path, "stages:\n  - embed*\n  - [a, b]\n")).stages
    assert found is not None and [[c.text for c in names] for names in found.names] == [["embed*"], ["a", "b"]]
    assert found.names[1][1].where == f"{tmp_path / 'shard.yaml'}:3"


def test_tensors_have_an_axis_and_sections(tmp_path: Path) -> None:
    found = read_sharding(written(tmp_path, TENSORS)).tensors
    assert found is not None and found.ranks == 4
    assert [(r.names.text, r.axis, r.sections(12)) for r in found.rules] == [
        ("*.c_attn.weight", 1, (4, 4, 4)),
        ("up", -1, (8, 4, 4)),
    ]


WRONG = {
    "stage: 2": (1, "unknown key 'stage'; did you mean 'stages'?"),
    "stages: 1": (1, "expected a whole number from 2 to 1024, found 1"),
    "stages: [a]": (1, "1 stages"),
    "stages:\n  - a\n  - []": (3, "no names"),
    "stages:\n  - a\n  - 3": (3, "expected text, found 3"),
    "stages: 2\n" + TENSORS: (1, "stages and tensors at once"),
    "stages: 2\nmicro_batches: 1": (2, "expected a whole number from 2 to 64, found 1"),
    TENSORS + "micro_batches: 2": (6, "micro_batches without stages"),
    "{}": (1, "nothing says how the model is cut"),
    "tensors: {ranks: 2}": (1, "the key 'split' is missing"),
    "tensors: {ranks: 2, split: []}": (1, "nothing is split"),
    TENSORS.replace("axis: -1", "axes: -1"): (5, "unknown key 'axes'; did you mean 'axis'?"),
    TENSORS.replace("4\n", "0\n", 1): (2, "expected a whole number from 1 to 1024, found 0"),
}


@pytest.mark.parametrize("text", WRONG)
def test_a_mistake_is_told_with_its_line(text: str, tmp_path: Path) -> None:
    line, message = WRONG[text]
    with pytest.raises(ConfigError) as caught:
        read_sharding(written(tmp_path, text))
    assert f"shard.yaml:{line}: {message}" in caught.value.message


def test_the_schema_says_what_the_reader_takes(tmp_path: Path) -> None:
    schema = json.loads((resources.rules() / "shard.schema.json").read_text())
    assert schema["properties"].keys() == set(KEYS)
    for text in ("stages: 3", "stages: 2\nmicro_batches: 4", "replicas: 2", "stages: [a, [b, c]]", TENSORS):
        jsonschema.validate(yaml.safe_load(text), schema)
        read_sharding(written(tmp_path, text))
    for text in WRONG:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(yaml.safe_load(text), schema)
