"""Rewrites that apply to what they make."""

from __future__ import annotations

from pathlib import Path

import pytest

from torshc.base.errors import ConfigError
from torshc.base.options import CompileOptions
from torshc.passes.manager import PASSES

from ..support.pass_graphs import Model, names


def rewritten(tmp_path: Path, match: str, replace: str, times: int) -> list[str]:
    file = tmp_path / "mine.yaml"
    file.write_text(f"- name: mine\n  match: {match}\n  replace: {replace}\n")
    m = Model()
    graph = m.done(m("Add", m("Tanh", m.input(2, 3)), m.input(2, 3)))
    for _ in range(times):
        PASSES["rewrite"](graph, CompileOptions(rules=(file,)))
    return names(graph)


def test_a_rewrite_that_grows_its_own_match(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"mine\.yaml:1: the rewrite 'mine' has made \d{4} nodes: it applies to what"):
        rewritten(tmp_path, "Tanh(x)", "Tanh(Tanh(Tanh(Tanh(Tanh(Tanh(Tanh(Tanh(x))))))))", 10)


def test_one_that_does_not_grow_is_let_be(tmp_path: Path) -> None:
    assert rewritten(tmp_path, "Add(x, y)", "Add(y, x)", 50) == ["Tanh", "Add"]
