"""torshc man and torshc completion: made from the same commands as the help."""

from __future__ import annotations

import pytest

from torshc.base.errors import TorshcError
from torshc.cli import cli

from .conftest import Torshc


def test_the_manual_names_all_that_the_help_has(torshc: Torshc) -> None:
    page = torshc("man").stdout.replace("\\-", "-")
    for name, command in cli.commands.items():
        assert f'.SS "torshc {name} ' in page
        shown = [p for p in command.params if not getattr(p, "hidden", False)]
        assert all(option in page for p in shown for option in p.opts if option.startswith("-"))
    for kind in TorshcError.__subclasses__():
        assert f"\n.B {kind.exit_code}\n{(kind.__doc__ or '').splitlines()[0]}".replace("\\-", "-") in page


def test_the_manual_has_no_line_that_roff_would_take_for_a_request(torshc: Torshc) -> None:
    known = {"TH", "SH", "SS", "PP", "TP", "B", "I", "nf", "fi"}
    requests = [line for line in torshc("man").stdout.splitlines() if line.startswith((".", "'"))]
    assert {line[1:].split(" ")[0] for line in requests} <= known


@pytest.mark.parametrize(("shell", "word"), [("bash", "complete "), ("zsh", "compdef"), ("fish", "complete ")])
def test_a_script_for_each_shell(torshc: Torshc, shell: str, word: str) -> None:
    script = torshc("completion", shell).stdout
    assert word in script and "_TORSHC_COMPLETE" in script


def test_a_shell_is_answered(torshc: Torshc, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("_TORSHC_COMPLETE", "bash_complete"), ("COMP_WORDS", "torshc exp"), ("COMP_CWORD", "1")):
        monkeypatch.setenv(name, value)
    assert torshc().stdout.splitlines() == ["plain,explain"]
