"""What tests build once: headers that only their content tells apart."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from . import compilers
from .compilers import Host, library, needed, sanitizing


def test_a_precompiled_header_is_of_a_content_not_of_a_time(tmp_path: Path) -> None:
    """A checkout made anew has the same headers, with other times."""
    (tmp_path / "h.h").write_text("#ifndef H\n#define H\nstatic inline int one(void) { return 1; }\n#endif\n")
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        source = tmp_path / name / f"{name}.c"
        source.write_text(f'#include "h.h"\nint {name}(void) {{ return one(); }}\n')
        os.utime(tmp_path / "h.h", (1e9 + ord(name), 1e9 + ord(name)))
        assert library([needed("clang").cc, "-O1"], source, tmp_path, "h.h").exists()


def test_what_asks_for_sanitizers_runs_with_them_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Zig's count as missing: a test that ran without them would count as run for the compilers that have them."""
    monkeypatch.setattr(compilers, "hosts", lambda: (Host("zig", "zig", "0.16", "/zig/clang", None),))
    with pytest.raises(pytest.skip.Exception, match="/zig/clang has no sanitizers"):
        sanitizing("/zig/clang", "address", "undefined")
    monkeypatch.setattr(compilers, "links", lambda _, flag, *more: flag == "-fsanitize=undefined")
    assert sanitizing("cc", "address", "undefined") == ["-fsanitize=undefined", "-fno-sanitize-recover=all"]
