"""What builds bundles of the LLVM target: LLVM for kernels, a C compiler for what a library has beside them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ....base.errors import ToolchainError
from ....base.options import CompileOptions
from ...cc import CCompiler, CToolchain
from ...isa import Isa
from ...native import Machine, llvm_version, machine_of, object_of
from ...toolchain import Survey, ToolFound, Tools


@dataclass(frozen=True)
class LlvmCompiler(CCompiler):
    """LLVM for kernels, and a C compiler for what the library has beside them."""

    machine: Machine = field(default=Machine("", "", ""))

    def compile(self, source: str, target: str, flags: Any, cwd: Path, timeout: float = 600.0) -> None:
        if not source.endswith(".ll"):
            super().compile(source, target, flags, cwd, timeout)
            return
        (cwd / target).write_bytes(object_of((cwd / source).read_text(encoding="utf-8"), self.machine))

    def identity(self) -> tuple[str, ...]:
        return (*super().identity(), llvm_version(), str(self.machine))


class LlvmToolchain(CToolchain):
    """LLVM for kernels; a bundle's host program and its link need a C compiler."""

    def find(self, options: CompileOptions, isa: Isa) -> Tools:
        try:
            found = super().find(options, isa)
        except ToolchainError as error:
            raise ToolchainError(
                f"the bundle's host program is C: {error.message}",
                "load the model in the process, torshc.load_model(path), which needs no C compiler; or install one",
            ) from error
        c = found.compiler
        assert isinstance(c, CCompiler)
        own = LlvmCompiler(c.name, c.command, c.version, c.env, c.kind, machine=machine_of(isa))
        return Tools(own, found.flags, found.host)

    def c_compiler(self, options: CompileOptions) -> str:
        return "clang"

    def survey(self, cc: str = "") -> Survey:
        found = super().survey(cc)
        own = ToolFound("llvmlite", "llvm", (), llvm_version())
        return Survey((own, *found.tools), found.devices, ())
