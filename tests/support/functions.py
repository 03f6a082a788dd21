"""The functions that kernels hold, as a header for programs of tests."""

from __future__ import annotations

from pathlib import Path

from torshc.expr.formulas import ELEMENTARY
from torshc.expr.formulas_narrow import CONVERSIONS
from torshc.targets.cpu.vector_functions import library
from torshc.targets.gpu.base import Words
from torshc.targets.gpu.cuda.target import CudaTarget
from torshc.targets.gpu.functions import function_texts, halves_header

DOUBLES = frozenset(n for n in ELEMENTARY if n.endswith("_f64"))


def functions_header(folder: Path, words: Words | None = None, doubles: bool = True, lanes: int = 1) -> Path:
    """A folder with t_functions.h, to be included behind the prelude of vectors, or that of a device's language.

    For a device with t_halves.h too, which its prelude includes.
    """
    text = library(lanes)
    if words is not None:
        names = sorted(n for n in ELEMENTARY - {"exp_low_f32"} if n.endswith("_f32")) + ["sigmoid_f64"] * doubles
        own = words.library | CudaTarget.words.library & DOUBLES
        text = "\n\n".join(function_texts([*names, *CONVERSIONS], own, words.language))
        (folder / "t_halves.h").write_text(halves_header(words.library, words.language))
    (folder / "t_functions.h").write_text(f"#pragma once\n{text}\n")
    return folder
