"""The README tells the truth: its options, commands and exit codes exist, and its JSON graph compiles."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from tests.support import compilers
from torshc import errors
from torshc.cli import cli

from .conftest import Torshc

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "samples"
README = (ROOT / "README.md").read_text()


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


def test_its_c_compiles(torshc: Torshc, tmp_path: Path) -> None:
    """The call by the model's own names, inside a function."""
    block = re.search(r"^    #include <digits\.h>\n(.*?digits_close\(model\);)$", README, re.MULTILINE | re.DOTALL)
    assert block
    assert torshc("compile", SAMPLES / "digits.onnx", "--emit", "source", "-o", "digits.tsc").exit_code == 0
    (tmp_path / "main.c").write_text(
        "#include <digits.h>\n#include <stdio.h>\n"
        f"int main(void)\n{{\n    static float pixels[640], scores[100];\n{block[1]}\n    return 0;\n}}\n"
    )
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", f"-I{Path('digits.tsc').absolute()}"]
    compilers.build([compilers.needed().cc, *flags, tmp_path / "main.c"])
