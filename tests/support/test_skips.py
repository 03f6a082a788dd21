"""What a second run leaves out."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from .skips import drop_ran


def test_what_ran_with_one_clang_is_not_repeated_with_another(tmp_path: Path) -> None:
    (tmp_path / "ran").write_text("a.py::t[zig]\na.py::t[4-zig-f32]\na.py::u\n")
    names = ["t[clang]", "t[gcc]", "t[4-clang-f32]", "t[8-clang-f32]", "t[clang-16]", "u", "v"]
    items: list[Any] = [SimpleNamespace(nodeid=f"a.py::{name}") for name in names]
    dropped = drop_ran(items, tmp_path / "ran")
    assert [i.nodeid[6:] for i in items] == ["t[gcc]", "t[8-clang-f32]", "t[clang-16]", "v"]
    assert [i.nodeid[6:] for i in dropped] == ["t[clang]", "t[4-clang-f32]", "u"]
