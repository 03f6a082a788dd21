"""The folder that a compiler reads sources and headers from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ..base.errors import InternalError


def write_sources(folder: Path, texts: Mapping[str, str]) -> None:
    """Write sources and headers, by file name, into a folder that is made."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        if Path(name).name != name or name.startswith((".", "-", "@")):
            raise InternalError(f"{name[:200]!r} is not a plain file name for a source")
        (folder / name).write_text(text, encoding="utf-8")
