"""The JSON Schemas beside the rules: what editors check files by is what torshc reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from torshc.base import resources
from torshc.passes.fusion_rules import KEYS as FUSION_KEYS
from torshc.passes.manager import PASSES
from torshc.passes.rewrite_rules import KEYS as REWRITE_KEYS

KINDS = ("rewrites", "fusion", "pipelines")
FILES = [file for kind in KINDS for file in resources.rule_files(kind)]


def schema(kind: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((resources.rules() / f"{kind}.schema.json").read_text())
    return found


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.name)
def test_a_file_names_its_schema_and_satisfies_it(file: Path) -> None:
    text = file.read_text()
    named = text.splitlines()[0].removeprefix("# yaml-language-server: $schema=")
    assert (file.parent / named).resolve() == (resources.rules() / f"{file.parent.name}.schema.json").resolve()
    jsonschema.validate(yaml.safe_load(text), schema(file.parent.name))


def test_schemas_know_what_the_readers_know() -> None:
    assert schema("rewrites")["items"]["properties"].keys() == set(REWRITE_KEYS)
    assert schema("fusion")["items"]["properties"].keys() == set(FUSION_KEYS)


def test_the_schema_of_pipelines_lists_the_passes(request: pytest.FixtureRequest) -> None:
    """For editors; after a pass was added, `make golden` writes the list."""
    found = schema("pipelines")
    if request.config.getoption("--renew-golden"):
        found["$defs"]["pass"]["enum"] = sorted(PASSES)
        (resources.rules() / "pipelines.schema.json").write_text(json.dumps(found, indent=2) + "\n")
    assert found["$defs"]["pass"]["enum"] == sorted(PASSES)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("rewrites", '[{name: a, match: "Neg(x)", replase: "x"}]'),
        ("rewrites", '[{name: a, match: "Neg(x)", replace: "x", error: roughly}]'),
        ("fusion", '[{name: a, match: "Neg(x)"}]'),
        ("fusion", "[{name: a, fuse: allow}]"),
        ("fusion", "[{name: a, limit: {nodes: 0}}]"),
        ("pipelines", "{passes: [fold]}"),
        ("pipelines", "{passes: [{repeat: {passes: [rewrite]}}]}"),
    ],
)
def test_what_torshc_refuses_a_schema_refuses(kind: str, text: str) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(yaml.safe_load(text), schema(kind))
