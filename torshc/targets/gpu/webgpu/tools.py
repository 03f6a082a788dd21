"""What builds libraries for WebGPU: a C compiler alone, as adapters compile kernels when a model is opened."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ....base.errors import ToolchainError
from ....base.options import CompileOptions
from ....base.webgpu import NAMED, find_library
from ...base import SUBGROUPS
from ...cc import CCompiler, find_compiler
from ...isa import Isa
from ...toolchain import BASE_FLAGS, LINK_FLAGS, Survey, Toolchain, Tools, found, profile_flags, soname

KERNEL = "t_kernel.c"  # holds the text of a kernel, and launches it


class TextCompiler(CCompiler):
    """A C compiler that takes the text of a kernel into an object."""

    def compile(self, source: str, target: str, flags: Sequence[str], cwd: Path, timeout: float = 600.0) -> None:
        if not source.endswith(".wgsl"):
            return super().compile(source, target, flags, cwd, timeout)
        return super().compile(f"src/{KERNEL}", target, [*flags, *kernel_flags(source)], cwd, timeout)


def kernel_flags(source: str) -> tuple[str, ...]:
    """What says which kernel an object is of, and for which devices."""
    name, _, form = Path(source).stem.partition(".")
    return f'-DT_KERNEL="{name}"', f'-DT_FILE="{source}"', f"-DT_SUBGROUPS={int(form == SUBGROUPS)}"


class WebGpuToolchain(Toolchain):
    """The C compiler that is here."""

    command = "cc"

    def find(self, options: CompileOptions, isa: Isa) -> Tools:
        cc = find_compiler(options.cc or None)
        compiler = TextCompiler(cc.name, cc.command, cc.version, cc.env, cc.kind)
        return Tools(
            compiler, (*compiler.base_flags(), *compiler.isa_flags(isa), "-Wno-psabi", *profile_flags(options))
        )

    def script(self, options: CompileOptions, versions: Mapping[str, Isa]) -> dict[str, Any]:
        isa = next(iter(versions.values()))
        flags = ["-O3", *BASE_FLAGS, *isa.flags("clang"), "-Wno-psabi", *profile_flags(options)]
        name = soname(options.prefix)
        link = [*LINK_FLAGS, *([f"-Wl,-soname,{name}"] if name else [])]
        return {"flags": shlex.join(flags), "link": shlex.join(link), "kernel": KERNEL}

    def survey(self, cc: str = "") -> Survey:
        library = find_library()
        missing = () if library else (f"no library of webgpu.h: pip install wgpu, or name one in {NAMED}",)
        devices = (library,) if library else ()
        try:
            return Survey((found(find_compiler(cc or None)),), devices, missing)
        except ToolchainError as error:
            return Survey((), devices, (f"{error.message}; {error.remedy}", *missing))
