"""The README tells the truth: its options, commands and exit codes exist, and its JSON graph compiles."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from torshc import errors
from torshc.cli import cli

from .conftest import Torshc

README = (Path(__file__).resolve().parents[2] / "README.md").read_text()


def options_of(command: click.Command) -> set[str]:
    own = {word for parameter in command.params for word in parameter.opts}
    inner = command.commands.values() if isinstance(command, click.Group) else ()
    return own.union(*(options_of(c) for c in inner))


def test_every_option_in_it_exists() -> None:
    mentioned = set(re.findall(r"(?<![\w-])--[A-Za-z][A-Za-z-]*", README))
    assert mentioned <= options_of(cli) | {"--version", "--help"}


def test_every_option_is_in_it() -> None:
    assert {o for o in options_of(cli) if o.startswith("--")} - {"--version", "--help", "--seed", "--seconds"} <= set(
        re.findall(r"--[A-Za-z][A-Za-z-]*", README)
    )


def test_every_command_is_in_it() -> None:
    assert [name for name in cli.commands if not re.search(rf"^\| `{name}\b", README, re.MULTILINE)] == []


@pytest.mark.parametrize("error", errors.TorshcError.__subclasses__(), ids=lambda e: e.__name__)
def test_every_exit_code_is_in_it(error: type[errors.TorshcError]) -> None:
    assert re.search(rf"^\| {error.exit_code} \|", README, re.MULTILINE)


def test_its_graph_compiles(torshc: Torshc, tmp_path: Path) -> None:
    block = re.search(r'^    \{\n      "torshc": 1.*?^    \}\n', README, re.MULTILINE | re.DOTALL)
    assert block
    (tmp_path / "g.json").write_text(block.group())
    assert "agrees" in torshc("verify", "g.json").output
