"""Hashes of files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from torshc.base.digest import tree_sha256


def test_a_tree_is_read_again_when_a_file_differs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = list[str]()
    original = Path.read_bytes

    def counted(path: Path) -> bytes:
        read.append(path.name)
        return original(path)

    monkeypatch.setattr(Path, "read_bytes", counted)
    (tmp_path / "inside").mkdir()
    file, other = tmp_path / "a.py", tmp_path / "inside" / "b.py"
    for each in (file, other):
        each.write_text("1")
    first = tree_sha256([tmp_path])
    assert tree_sha256([tmp_path]) == first and read == ["a.py", "b.py"]
    (tmp_path / "a.pyc").write_text("code")
    assert tree_sha256([tmp_path]) == first and len(read) == 2
    replaced = tmp_path / "new"
    replaced.write_text("2")
    os.utime(replaced, ns=(file.stat().st_atime_ns, file.stat().st_mtime_ns))  # as old and as large as the one before
    replaced.replace(file)
    second = tree_sha256([tmp_path])
    assert second != first and len(read) == 4
    other.rename(tmp_path / "inside" / "c.py")
    assert tree_sha256([tmp_path]) not in (first, second)
