"""The functions that kernels in C hold, as a header for programs of tests."""

from __future__ import annotations

from pathlib import Path

from torshc.targets.cpu.vector_functions import library


def functions_header(folder: Path) -> Path:
    """A folder with t_functions.h, which is to be included behind t_math.h."""
    (folder / "t_functions.h").write_text(library() + "\n")
    return folder
