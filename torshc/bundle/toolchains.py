"""Which tools build the libraries of a target, and with which flags."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..options import CompileOptions
from ..targets import TARGETS
from ..targets.base import environment
from . import isa as isa_module
from .build import WEIGHTS_SOURCE
from .isa import Isa
from .toolchain import LINK_FLAGS, Compiler, find_compiler


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


def _xcrun(options: CompileOptions) -> Tools:
    from .xcrun import find_xcrun

    compiler = find_xcrun()
    return Tools(compiler, lambda isa: [*compiler.base_flags(isa), *_profile(options)])


def find_archs(kind: str, options: CompileOptions) -> tuple[str, ...]:
    """Architectures of the devices that the tools of a kind compile for; empty where there is no choice.

    Asks no compiler. Where only sources are written, :func:`build_script` decides what they are compiled for.

    Raises:
        ConfigError: the device of this machine is asked for, and there is none.
    """
    if kind != "nvcc":
        return ()
    from .nvcc import DEFAULT_ARCHS, choose_archs

    return choose_archs(options.arch or (",".join(DEFAULT_ARCHS) if options.emit == "source" else ""))


def _profile(options: CompileOptions) -> tuple[str, ...]:
    return ("-DTORSHC_PROFILE",) if options.profile else ()


_FINDERS: dict[str, Callable[[CompileOptions], Tools]] = {"cc": _cc, "nvcc": _nvcc, "xcrun": _xcrun}


def build_script(kind: str, isa: Isa | None = None, options: CompileOptions | None = None) -> dict[str, str]:
    """What goes with the sources of a bundle so that they can be built elsewhere, by file name.

    The script runs the commands that the tools of this kind (see :func:`find_tools`) would run.

    Args:
        kind: "cc", "nvcc" or "xcrun".
        isa: the processor to compile for; this one when None.
        options: those of the compilation.
    """
    options = options or CompileOptions()
    words = _SCRIPTS[kind](isa or isa_module.resolve(options.mcpu), options)
    search = next(target.search for target in TARGETS.values() if target.toolchain == kind)
    texts = {"build.sh": environment(search).get_template("build.sh.j2").render(words)}
    return {**texts, "t_weights.S": WEIGHTS_SOURCE} if options.embed_weights else texts


Words = dict[str, Any]


def _cc_script(isa: Isa, options: CompileOptions) -> Words:
    flags = [*Compiler("cc", ("cc",), "").base_flags(), *isa.flags("clang"), "-Wno-psabi", *_profile(options)]
    return {"flags": shlex.join(flags), "link": shlex.join([*LINK_FLAGS, "-Wl,-z,defs"])}


def _nvcc_script(isa: Isa, options: CompileOptions) -> Words:
    from .nvcc import DEFAULT_ARCHS, Nvcc, link_flags

    nvcc = Nvcc("nvcc", ("nvcc",), "")
    archs = nvcc.gencode_flags(options.arch or ",".join(DEFAULT_ARCHS))
    return {
        "flags": shlex.join([*nvcc.base_flags(isa), *archs, *_profile(options)]),
        "link": shlex.join(link_flags()),
    }


def _xcrun_script(isa: Isa, options: CompileOptions) -> Words:
    from .xcrun import EMBED, ENV, LINK_FLAGS, METALLIB, SDK, Xcrun, compile_command

    flags = [*Xcrun("xcrun", ("xcrun",), "").base_flags(isa), *_profile(options)]
    if sys.platform != "darwin":  # the script will run on another processor
        flags = [f for f in flags if not f.startswith("-m")]
    commands = {"metal": "k.metal", "objective": "t_device.mm", "c": "host.c"}
    return {
        **{name: shlex.join(compile_command(source, flags)) for name, source in commands.items()},
        "sdk": shlex.join(SDK),
        "env": ENV,
        "link": shlex.join(LINK_FLAGS),
        "embed": EMBED + METALLIB,
        "metallib": METALLIB,
    }


_SCRIPTS: dict[str, Callable[[Isa, CompileOptions], Words]] = {
    "cc": _cc_script,
    "nvcc": _nvcc_script,
    "xcrun": _xcrun_script,
}


__all__ = ["Tools", "build_script", "find_archs", "find_tools"]
