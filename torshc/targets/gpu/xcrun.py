"""Apple's tools through xcrun: metal and metallib for kernels, clang and clang++ for the host program.

Kernels become one Metal library, which lies inside the shared library as section ``__TEXT,__metallib``; the device
layer finds it there.
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from ...base.errors import ConfigError, OutputError, ToolchainError
from ...base.options import CompileOptions
from ..isa import Isa
from ..processes import execute
from ..toolchain import BASE_FLAGS, Compiler, Survey, Toolchain, Tools, found, profile_flags, soname

REMEDY = (
    "building for Metal needs a Mac with Xcode, as its command line tools alone lack metal (Xcode 26: also xcodebuild "
    "-downloadComponent MetalToolchain), and TORSHC_XCRUN where xcrun is not on PATH; elsewhere --emit source writes "
    "all sources with the script that builds them there"
)
SDK = ("-sdk", "macosx")
# Metal 3 is what simdgroup functions and 64-bit integers are sure to be in; macOS 13 the first system that has it.
METAL_FLAGS = ("-std=metal3.0", "-O2", "-fno-fast-math")
EMBED = "-Wl,-sectcreate,__TEXT,__metallib,"
METALLIB = "default.metallib"
ENV = (("MACOSX_DEPLOYMENT_TARGET", "13.0"),)
_TO_METAL = "-Xmetal="
_NOT_HERE = ("-std=", "-fno-semantic-interposition")  # by source; of ELF alone


@dataclass(frozen=True)
class Xcrun(Compiler):
    """Apple's tools; compiles Metal (.metal), C, Objective-C++ (.mm) and assembler.

    Flags for the Metal compiler are written ``-Xmetal=-O2``, all others are clang's.

    Attributes:
        kind: "xcrun".
    """

    kind: str = "xcrun"

    def base_flags(self, isa: Isa) -> tuple[str, ...]:
        """Flags of every source."""
        return (*host_flags(), *isa.flags("clang"), *(_TO_METAL + flag for flag in METAL_FLAGS))

    def compile(self, source: str, target: str, flags: Sequence[str], cwd: Path, timeout: float = 600.0) -> None:
        """Compiles ``source`` to the object ``target``, both relative to ``cwd``.

        Raises:
            ToolchainError: with the command and the last lines of its messages.
        """
        what = f"compiling {Path(source).name}"
        self.run([*compile_command(source, flags), "-c", source, "-o", target], cwd, timeout, what)
        if not (cwd / target).is_file():
            raise ToolchainError(f"{what}: {self.name} says it succeeded, but wrote nothing", REMEDY)

    def link(
        self,
        objects: Sequence[str],
        target: str,
        cwd: Path,
        sanitize: Sequence[str] = (),
        name: str = "",
        timeout: float = 600.0,
    ) -> None:
        """Links objects, in this order, to the shared library ``target``; names are relative to ``cwd``.

        Objects of Metal sources are those with a source ``src/<name>.metal``.

        Raises:
            ConfigError: sanitizers, which are for C.
            ToolchainError: as :meth:`compile`.
        """
        if sanitize:
            raise ConfigError(
                "sanitizers do not work on Metal libraries", "set MTL_DEBUG_LAYER=1 for the program instead"
            )
        kernels = [name for name in objects if (cwd / "src" / f"{Path(name).stem}.metal").is_file()]
        embed = []
        if kernels:
            self.run(["metallib", *_as_air(kernels, cwd), "-o", METALLIB], cwd, timeout, f"linking {METALLIB}")
            embed = [EMBED + METALLIB]
        others = [name for name in objects if name not in kernels]
        self.run(["clang++", *link_flags(name), *embed, *others, "-o", target], cwd, timeout, f"linking {target}")


def host_flags() -> tuple[str, ...]:
    """Flags of C and Objective-C++, without those for a processor."""
    return ("-O3", *(flag for flag in BASE_FLAGS if not flag.startswith(_NOT_HERE)), "-Wno-psabi")


def compile_command(source: str, flags: Sequence[str]) -> list[str]:
    """The tool for a source, with those of the flags that are for it.

    >>> compile_command("src/k1.metal", ["-O3", "-Xmetal=-O2", "-Isrc"])
    ['metal', '-O2', '-Isrc']
    >>> compile_command("src/host.c", ["-O3", "-Xmetal=-O2", "-Isrc"])
    ['clang', '-std=gnu11', '-O3', '-Isrc']
    """
    if source.endswith(".metal"):
        return ["metal", *(f.removeprefix(_TO_METAL) for f in flags if f.startswith((_TO_METAL, "-I")))]
    host = [f for f in flags if not f.startswith(_TO_METAL)]
    if source.endswith(".mm"):
        return ["clang++", "-std=c++17", "-x", "objective-c++", "-fobjc-arc", *host]
    return ["clang", *([] if source.endswith(".S") else ["-std=gnu11"]), *host]


def _as_air(objects: Sequence[str], cwd: Path) -> list[str]:
    """Copies of objects under names that metallib knows them by."""
    names = []
    try:
        (cwd / "air").mkdir(exist_ok=True)
        for name in objects:
            names.append(f"air/{Path(name).stem}.air")
            shutil.copyfile(cwd / name, cwd / names[-1])
    except OSError as error:
        raise OutputError(f"cannot build in {cwd}: {error.strerror or error}", "set TMPDIR") from error
    return names


def link_flags(name: str = "") -> tuple[str, ...]:
    """Flags of the link of a library that programs look for by this name."""
    install = f"@rpath/{name or 'libmodel.so'}"
    frameworks = "-framework", "Metal", "-framework", "Foundation"
    return ("-dynamiclib", "-fobjc-link-runtime", "-install_name", install, *frameworks)


def find_xcrun() -> Xcrun:
    """xcrun by ``TORSHC_XCRUN`` or ``PATH``, with its Metal compiler.

    Raises:
        ToolchainError: there is none, or no Metal compiler behind it.
    """
    return _find(os.environ.get("TORSHC_XCRUN", ""), os.environ.get("PATH", ""))


@lru_cache(maxsize=4)
def _find(named: str, path: str) -> Xcrun:
    program = shutil.which(named or "xcrun", path=path)
    if not program:
        raise ToolchainError(f"TORSHC_XCRUN={named!r}: no such program" if named else "no xcrun on PATH", REMEDY)
    command = (str(Path(program).absolute()), *SDK)
    versions = [_version(command, tool) for tool in ("metal", "clang++")]
    return Xcrun("xcrun", command, "; ".join(versions), ENV)


def _version(command: tuple[str, ...], tool: str) -> str:
    status, out, err = execute([*command, tool, "--version"], Path.cwd(), 120, dict(ENV))
    if status != 0 or not out.strip():
        last = ((err or out).strip().splitlines() or ["it says nothing"])[-1]
        raise ToolchainError(f"{command[0]} has no {tool}: {last[:300]}", REMEDY)
    return out.splitlines()[0].strip()


class MetalToolchain(Toolchain):
    """Apple's tools."""

    def find(self, options: CompileOptions, isa: Isa) -> Tools:
        xcrun = find_xcrun()
        return Tools(xcrun, (*xcrun.base_flags(isa), *profile_flags(options)))

    def script(self, options: CompileOptions, versions: Mapping[str, Isa]) -> dict[str, Any]:
        isa = next(iter(versions.values()))
        flags = [*Xcrun("xcrun", ("xcrun",), "").base_flags(isa), *profile_flags(options)]
        if sys.platform != "darwin":  # the script will run on another processor
            flags = [f for f in flags if not f.startswith("-m")]
        commands = {"metal": "k.metal", "objective": "t_device.mm", "c": "host.c"}
        return {
            **{name: shlex.join(compile_command(source, flags)) for name, source in commands.items()},
            "sdk": shlex.join(SDK),
            "env": ENV,
            "link": shlex.join(link_flags(soname(options.prefix))),
            "embed": EMBED + METALLIB,
            "metallib": METALLIB,
        }

    def survey(self, cc: str = "") -> Survey:
        missing = () if platform.system() == "Darwin" else ("no Apple GPU: this is not a Mac",)
        try:
            return Survey((found(find_xcrun()),), (), missing)
        except ToolchainError as error:
            return Survey((), (), (f"{error.message}; {error.remedy}", *missing))
