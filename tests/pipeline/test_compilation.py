"""What a compilation says of its kernels."""

from __future__ import annotations

from pathlib import Path

from torshc.base.options import CompileOptions
from torshc.pipeline.compilation import commented_sources
from torshc.pipeline.compiler import prepare

SAMPLES = Path(__file__).resolve().parents[2] / "samples"


def test_comments_call_symbols_as_no_kernel_does() -> None:
    """A kernel numbers the sizes that it gets as s0, s1, ...; those of the comment are the host program's."""
    done = prepare(SAMPLES / "digits.onnx", CompileOptions())
    for file, text in commented_sources(done).items():
        comment = text[: text.index("*/")]
        assert "n0" in comment and "s0, s1, ... of the host program" in comment and comment.count("s0") == 1, file
