"""The functions that kernels hold, as a header for programs of tests."""

from __future__ import annotations

from pathlib import Path

from torshc.expr.formulas import ELEMENTARY
from torshc.targets.cpu.vector_functions import library
from torshc.targets.gpu.base import Words
from torshc.targets.gpu.functions import function_texts


def functions_header(folder: Path, words: Words | None = None, doubles: bool = True) -> Path:
    """A folder with t_functions.h, to be included behind the prelude of vectors, or that of a device's language."""
    text = library()
    if words is not None:
        names = [n for n in sorted(ELEMENTARY - {"exp_low_f32"}) if doubles or not n.endswith("_f64")]
        text = "\n\n".join(function_texts(names, words.library, words.language))
    (folder / "t_functions.h").write_text(text + "\n")
    return folder
