"""Options: what is refused, and what was meant."""

from __future__ import annotations

from pathlib import Path

import pytest

import torshc
from torshc.base.errors import ConfigError
from torshc.base.options import CompileOptions, parse_shape, parse_switch


def test_defaults_are_valid() -> None:
    assert CompileOptions().opt_level == 3


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"opt_levl": 1}, "did you mean 'opt_level'"),
        ({"opt_level": 4}, "from 0 to 3"),
        ({"opt_level": True}, "from 0 to 3"),
        ({"winograd": True}, "there is no option 'winograd' any more\n  remedy: -O3 takes .* accuracy"),
        ({"accuracy": "1e-4"}, "accuracy cannot be '1e-4'"),
        ({"fusion": "agressive"}, "did you mean 'aggressive'"),
        ({"emit": "exe"}, "source, objects, bundle"),
        ({"mcpu": "native; rm"}, "characters"),
        ({"target": "--version"}, "characters"),
        ({"max_fusion_size": 0}, "from 1 to"),
        ({"budget": {"node": 1}}, "no budget 'node'; did you mean 'nodes'"),
        ({"budget": {"nodes": 0}}, "from 1 to 2"),
        ({"jobs": -1}, "from 0 to"),
        ({"shapes": {"x": (1, -2)}}, "out of range"),
        ({"shapes": {"x": (1.5,)}}, "not a dimension"),
        ({"shapes": {"x": ("a b",)}}, "neither a size nor a name"),
        ({"shapes": "x:1x3"}, "shapes is 'x:1x3'"),
        ({"shapes": {"x": 3}}, "shapes is {'x': 3}"),
    ],
)
def test_wrong_options_are_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        CompileOptions.create(**fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"shapes": {5: (1,)}}, {"budget": 5}, {"passes": 5}, {"rules": 5}, {"rules": [5]}, {"pipeline": 5}, {"cc": 5},
        {"isa": 5}, {"isa": [5]}, {"prefix": 5}, {"workdir": 5}, {"cache": "no"}, {"named_weights": 1}, {"mcpu": None},
    ],
)  # fmt: skip
def test_values_of_other_types(fields: dict[str, object]) -> None:
    (name,) = fields
    with pytest.raises(ConfigError, match=name):
        CompileOptions.create(**fields)


def test_compile_says_what_a_misspelt_option_meant() -> None:
    with pytest.raises(ConfigError, match="no option 'targt'; did you mean 'target'"):
        torshc.compile("samples/mlp.json", "out.tsc", targt="cuda")


def test_create_takes_strings_for_paths() -> None:
    options = CompileOptions.create(rules="mine.yaml", dump="d", shapes={"x": [1, 2]})
    assert options.rules == (Path("mine.yaml"),)
    assert options.dump == Path("d")
    assert options.shapes == {"x": (1, 2)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x:1x3x224x224", ("x", (1, 3, 224, 224))),
        ("a:b:2", ("a:b", (2,))),
        ("x:", ("x", ())),
        ("x:?xseq", ("x", (None, "seq"))),
    ],
)
def test_parse_shape(text: str, expected: object) -> None:
    assert parse_shape(text) == expected


@pytest.mark.parametrize("text", ["x", ":1", "x:1xx2", "x:1x-2"])
def test_parse_shape_refuses(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_shape(text)


@pytest.mark.parametrize("text", ["x", "x=yes", "=on"])
def test_parse_switch_refuses(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_switch(text)
