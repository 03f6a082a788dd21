"""Generated C compiles without a warning with clang and gcc, at every vector width."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from torshc.base.options import CompileOptions
from torshc.pipeline.compilation import commented_sources, kernel_headers
from torshc.pipeline.compiler import prepare
from torshc.targets.cc import find_compiler
from torshc.targets.isa import resolve
from torshc.targets.processes import execute

from ..support.compilers import needed
from ..support.zoo import zoo

ZOO = zoo()
MCPUS = ["native", "x86-64", "x86-64-v4"] if platform.machine() == "x86_64" else ["native"]
STRICT = ["-Wall", "-Wextra", "-Werror", "-Wno-psabi", "-fsyntax-only"]


@pytest.mark.parametrize("mcpu", MCPUS)
@pytest.mark.parametrize("cc", ["clang", "gcc"])
def test_no_warning(cc: str, mcpu: str, tmp_path: Path) -> None:
    """All kernels of all specimens in one run of the compiler, as its start costs most."""
    compiler = find_compiler(needed(cc).name)
    if compiler.kind == "zig":
        pytest.skip("needs a compiler that can check without compiling")
    sources: dict[str, str] = {}
    for k, specimen in enumerate(ZOO.values()):
        path = tmp_path / "m.onnx"
        path.write_bytes(specimen.model.SerializeToString())
        for level in (0, 3) if mcpu == "native" and k % 4 == 0 else (3,):
            made = prepare(path, CompileOptions(opt_level=level, mcpu=mcpu))
            sources.update(commented_sources(made))
    for name, text in (sources | kernel_headers(made)).items():
        (tmp_path / name).write_text(text)
    flags = [*compiler.base_flags(), *compiler.isa_flags(resolve(mcpu)), *STRICT]
    status, _, messages = execute([*compiler.command, *flags, *sorted(sources)], tmp_path, 600)
    assert status == 0, messages[-4000:]
