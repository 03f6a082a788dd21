"""Fixtures: the command line in a folder of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from torshc.cli import cli

Torshc = Callable[..., Result]


@pytest.fixture(autouse=True)
def _apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TORSHC_DEBUG", raising=False)


@pytest.fixture
def torshc() -> Torshc:
    """Runs the command and checks its exit code; a refusal must name a remedy or point at the place."""

    def run(*arguments: object, code: int = 0) -> Result:
        result = CliRunner().invoke(cli, [str(a) for a in arguments], prog_name="torshc")
        assert result.exit_code == code, f"{arguments}: {result.exit_code}\n{result.output}"
        assert "Traceback" not in result.output and "fault of torshc" not in result.output, result.output
        return result

    return run
