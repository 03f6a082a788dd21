"""Which tools build the libraries of a target, and with which flags."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..options import CompileOptions
from .isa import Isa
from .toolchain import find_compiler


@dataclass(frozen=True)
class Tools:
    """A compiler with its flags.

    Attributes:
        compiler: what compiles and links; :class:`.toolchain.Compiler` or alike.
        flags: flags of every source, for the instruction set of the processor.
    """

    compiler: Any
    flags: Callable[[Isa], Sequence[str]]


def find_tools(kind: str, options: CompileOptions) -> Tools:
    """The tools of a kind: "cc", "nvcc" or "xcrun".

    Raises:
        ToolchainError: they are not here.
        ConfigError: an architecture that they do not know.
    """
    return _FINDERS[kind](options)


def _cc(options: CompileOptions) -> Tools:
    compiler = find_compiler(options.cc or None)
    more = ("-Wno-psabi", *_profile(options))
    return Tools(compiler, lambda isa: [*compiler.base_flags(), *compiler.isa_flags(isa), *more])


def _nvcc(options: CompileOptions) -> Tools:
    from .nvcc import find_nvcc

    compiler = find_nvcc()
    more = (*compiler.gencode_flags(options.arch), *_profile(options))
    return Tools(compiler, lambda isa: [*compiler.base_flags(isa), *more])


def _profile(options: CompileOptions) -> tuple[str, ...]:
    return ("-DTORSHC_PROFILE",) if options.profile else ()


_FINDERS: dict[str, Callable[[CompileOptions], Tools]] = {"cc": _cc, "nvcc": _nvcc}


def build_script(kind: str) -> dict[str, str]:
    """What goes with the sources of a bundle so that they can be built elsewhere, by file name."""
    return {}


__all__ = ["Tools", "build_script", "find_tools"]
