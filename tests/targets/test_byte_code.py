"""Byte code of templates in the cache."""

from __future__ import annotations

import sys
from pathlib import Path

import jinja2
import pytest

from torshc.targets.byte_code import ByteCode

TEXT = "{% for k in range(n) %}{{ k }} {% endfor %}"


def render(folder: Path, trim: bool = False) -> str:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder / "text"), bytecode_cache=ByteCode(), trim_blocks=trim
    )
    return environment.get_template("t.j2").render(n=3)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setenv("TORSHC_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "text").mkdir()
    (tmp_path / "text/t.j2").write_text(TEXT)
    return tmp_path


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The templates that Jinja compiles."""
    found: list[str] = []
    whole = jinja2.Environment._compile

    def compile_(self: jinja2.Environment, source: str, filename: str) -> object:
        found.append(Path(filename).name)
        return whole(self, source, filename)

    monkeypatch.setattr(jinja2.Environment, "_compile", compile_)
    return found


def test_a_template_is_compiled_once(folder: Path, compiled: list[str]) -> None:
    assert [render(folder) for _ in range(3)] == ["0 1 2 "] * 3 and compiled == ["t.j2"]
    (folder / "text/t.j2").write_text(TEXT.replace("{{ k }}", "{{ k + 1 }}"))
    assert [render(folder) for _ in range(2)] == ["1 2 3 "] * 2 and len(compiled) == 2
    render(folder, trim=True)
    assert len(compiled) == 3


def test_damaged_byte_code_is_made_anew(folder: Path, compiled: list[str]) -> None:
    render(folder)
    (entry,) = (folder / "cache").rglob("*.o")
    entry.write_bytes(entry.read_bytes()[:-1] + b"?")
    assert render(folder) == "0 1 2 " and len(compiled) == 2


def test_nothing_is_kept_where_python_keeps_none(
    folder: Path, compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    render(folder)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert render(folder) == "0 1 2 " and len(compiled) == 2
    assert len([*(folder / "cache").rglob("*.o")]) == 1
