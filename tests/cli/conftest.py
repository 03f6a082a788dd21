"""Fixtures of the command line's tests: a runner in a folder of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from torshc.cli import cli

from ..support.cli_models import CHAIN, STATIC
from ..support.models import save

Torshc = Callable[..., Result]


@pytest.fixture(autouse=True)
def _apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TORSHC_DEBUG", raising=False)


@pytest.fixture
def torshc() -> Torshc:
    """Runs the command; ``code`` is the exit code that is expected."""

    def run(*arguments: object, code: int = 0) -> Result:
        result = CliRunner().invoke(cli, [str(a) for a in arguments], prog_name="torshc")
        assert result.exit_code == code, f"{arguments}: {result.exit_code}\n{result.output}"
        assert "Traceback" not in result.output
        return result

    return run


@pytest.fixture
def chain(tmp_path: Path) -> Path:
    return save(CHAIN, tmp_path / "chain.onnx")


@pytest.fixture
def static(tmp_path: Path) -> Path:
    return save(STATIC, tmp_path / "static.onnx")


@pytest.fixture
def bundle(torshc: Torshc, chain: Path) -> Path:
    torshc("compile", chain, "-o", "chain.tsc")
    return chain.with_suffix(".tsc")
