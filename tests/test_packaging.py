"""What a wheel holds: every package, the templates and the rules."""

from __future__ import annotations

import tomllib
from pathlib import Path

from torshc import resources

ROOT = Path(__file__).parent.parent


def test_every_package_is_listed() -> None:
    listed = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    folders = {p.parent for p in (ROOT / "torshc").rglob("*.py") if "_data" not in p.parts}
    there = {".".join(f.relative_to(ROOT).parts) for f in folders}
    assert there == {p for p in listed if not p.startswith("torshc._data")}


def test_resources_are_found_in_a_checkout() -> None:
    assert (resources.rules("pipelines") / "O3.yaml").is_file()
    assert (resources.templates("c") / "t_vec.h").is_file()
    assert resources.rule_files("rewrites")
