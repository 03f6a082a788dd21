"""Toolchains: running tools, and the interface of a target's toolchain.

A tool gets a list of arguments and a clean environment, never a shell. What it writes depends on its arguments, its
version and the files named, not on the folder, the locale or the time.
"""

from __future__ import annotations

import hashlib
import shlex
import shutil
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from ..base.errors import ConfigError, ToolchainError
from ..base.options import CompileOptions
from .isa import Isa
from .processes import execute

_LLVM_NUMBERS = range(22, 13, -1)  # of LLVM's tools as Debian names them
_WHOLE = "whole.o"
_HASHED_BYTES = 1 << 20  # a program up to this size is stamped by its content

LIBRARY = "libmodel.so"
# Of all C that goes into a library, whichever tools build it.
BASE_FLAGS = (
    "-std=gnu11", "-fPIC", "-fvisibility=hidden", "-fno-semantic-interposition", "-fno-strict-aliasing",
    "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-fno-ident",
)  # fmt: skip
LINK_FLAGS = (
    "-shared", "-Wl,--build-id=none", "-Wl,-z,noexecstack", "-Wl,-z,relro", "-Wl,-z,now", "-Wl,-Bsymbolic",
    "-Wl,--as-needed",
)  # fmt: skip


def soname(prefix: str) -> str:
    """The name by which programs that are linked with a bundle's library look for it; no other bundle has it."""
    return f"lib{prefix}.so" if prefix else ""


def archive_name(prefix: str) -> str:
    """The name of a bundle's static library."""
    return f"lib{prefix}.a"


def link_flags(name: str = "") -> tuple[str, ...]:
    """Flags of a link of a shared library, for compilers that hand them to the linker."""
    return (*LINK_FLAGS, f"-Wl,-soname,{name}") if name else LINK_FLAGS


class TooSlow(ToolchainError):
    """A tool took more time than it had."""


@dataclass(frozen=True)
class Tool:
    """A program that torshc runs.

    Attributes:
        name: what manifests and messages call it ("clang-19", "nvcc").
        command: how it is started.
        version: the first line that it says about itself.
        env: environment variables that it needs beyond those of the process.
    """

    name: str
    command: tuple[str, ...]
    version: str
    env: tuple[tuple[str, str], ...] = ()

    @property
    def path(self) -> str:
        """The program file."""
        return self.command[0]

    @property
    def programs(self) -> tuple[str, ...]:
        """The words of the command that may be programs."""
        return self.command

    def identity(self) -> tuple[str, ...]:
        """The parts of the tool that objects depend on: its command, what it says, and which files its programs are.

        A wrapper of a compiler answers ``--version`` as the compiler does, so its file counts as well.
        """
        return (*self.command, self.version, *(program_stamp(word) for word in self.command))

    def fingerprint(self) -> tuple[str, ...]:
        """A mark of the tool that is the same on all machines: what it says, and its programs, wherever they lie.

        Of `ccache clang` both.
        """
        return (self.version, *filter(None, (program_stamp(word, dated=False) for word in self.programs)))

    def run(self, args: Sequence[str], cwd: Path, timeout: float = 600.0, what: str = "") -> str:
        """Runs the tool and returns what it wrote to stdout.

        Args:
            args: its arguments.
            cwd: the folder that relative names refer to.
            timeout: seconds until it is killed with all that it started.
            what: what this run is for, in the message of a failure ("compiling k3.c").

        Raises:
            TooSlow: it takes longer.
            ToolchainError: it cannot be started, or fails; with its command and last lines.
        """
        status, out, err = execute([*self.command, *args], cwd, timeout, dict(self.env))
        if status == 0:
            return out
        who = f"{what}: {self.name}" if what else self.name
        if status is None:
            raise TooSlow(f"{who} took more than {timeout:.0f} s")
        tail = "".join(f"\n  | {line[:400]}" for line in (err or out).splitlines()[-20:])
        command = shlex.join([*self.command, *args])
        raise ToolchainError(
            f"{who} failed with status {status}\n  command (in {cwd}): {command}{tail}",
            "the last lines above are the tool's own; --keep-intermediates keeps the sources",
        )


@dataclass(frozen=True)
class Compiler(Tool, ABC):
    """A tool that makes objects from sources, and a library from objects.

    Attributes:
        kind: what it is called as one of several ("clang", "nvcc").
    """

    kind: str = ""

    @abstractmethod
    def compile(self, source: str, target: str, flags: Sequence[str], cwd: Path, timeout: float = 600.0) -> None:
        """Compiles ``source``, whose suffix says its kind, to the object ``target``; both relative to ``cwd``.

        Raises:
            ToolchainError: with the command and the last lines of its messages.
        """

    def including(self, precompiled: Path) -> list[str]:
        """Flags to read what :meth:`precompile` made before a source; [] of a compiler that makes nothing."""
        return []

    def precompile(self, header: str, target: str, flags: Sequence[str], cwd: Path, timeout: float = 600.0) -> None:
        """Reads a header of C for sources that begin with it and have the same flags; both names as in :meth:`compile`.

        Raises:
            ToolchainError: as :meth:`compile`.
        """
        raise ToolchainError(f"{self.name} makes no precompiled headers")

    @abstractmethod
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

        Args:
            name: what programs that are linked with the library will look for.

        Raises:
            ConfigError: sanitizers, where there are none.
            ToolchainError: as :meth:`compile`.
        """


@dataclass(frozen=True)
class Tools:
    """A compiler with its flags.

    Attributes:
        flags: of the kernels, and of all other sources unless `host` says otherwise.
        host: of what runs before it is known whether this processor is one that the library is for.
    """

    compiler: Compiler
    flags: tuple[str, ...]
    host: tuple[str, ...] = ()


@dataclass(frozen=True)
class ToolFound:
    """A tool: its name, kind, command, and what it says about its version."""

    name: str
    kind: str
    command: tuple[str, ...]
    version: str


@dataclass(frozen=True)
class Survey:
    """The tools and devices that are here for a target.

    Attributes:
        tools: what builds its libraries; the first is what compile uses.
        devices: devices that run them, a line each; empty where none is asked for.
        missing: what is not here and how to get it, a line each.
    """

    tools: tuple[ToolFound, ...]
    devices: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class Archiver:
    """Tools that make a static library: one object that shows only the model's own functions, so that several can meet.

    Attributes:
        compiler: joins objects.
        objcopy: makes symbols local.
        ar: makes the library.
    """

    compiler: Tool
    objcopy: Tool
    ar: Tool

    def make(self, objects: Sequence[str], prefix: str, target: str, cwd: Path) -> None:
        """Makes the static library ``target`` of objects; names are relative to ``cwd``.

        Only functions that begin with ``prefix_`` can be called: all others would meet those of other bundles.

        Raises:
            ToolchainError: a tool failed.
        """
        (cwd / "objects.rsp").write_text("".join(f"{name}\n" for name in objects))
        self.compiler.run(["-r", "-nostdlib", "-o", _WHOLE, "@objects.rsp"], cwd, what=f"joining for {target}")
        self.objcopy.run(["--wildcard", f"--keep-global-symbol={prefix}_*", _WHOLE], cwd, what=f"making {target}")
        (cwd / target).unlink(missing_ok=True)
        self.ar.run(["rcsD", target, _WHOLE], cwd, what=f"making {target}")


def find_archiver(compiler: Tool) -> Archiver:
    """The tools beside a compiler: binutils' or LLVM's.

    Raises:
        ToolchainError: they are not here.
    """
    return Archiver(compiler, _tool("objcopy"), _tool("ar"))


def _tool(name: str) -> Tool:
    for found in (name, f"llvm-{name}", *(f"llvm-{name}-{n}" for n in _LLVM_NUMBERS)):
        if program := shutil.which(found):
            return Tool(found, (program,), "")
    raise ToolchainError(
        f"--emit archive needs {name}, which is not here", "install binutils (apt install binutils), or LLVM's tools"
    )


class Toolchain(ABC):
    """The tools that build the libraries of a target.

    Class attributes:
        command: what starts its compiler where nothing else is known; empty where it builds no programs.
    """

    command: ClassVar[str] = ""

    @abstractmethod
    def find(self, options: CompileOptions, isa: Isa) -> Tools:
        """The tools that are here, with their flags for a processor.

        Raises:
            ToolchainError: they are not here.
            ConfigError: an architecture that they do not know.
        """

    @abstractmethod
    def script(self, options: CompileOptions, versions: Mapping[str, Isa]) -> dict[str, Any]:
        """What the target's ``build.sh.j2`` asks for: the commands that :meth:`find`'s tools would run.

        Args:
            versions: the processors to compile for by the marks of their versions, the best first.
        """

    @abstractmethod
    def survey(self, cc: str = "") -> Survey:
        """The tools and devices of this toolchain that are here.

        Args:
            cc: a C compiler to list, besides those that are found.

        Raises:
            ToolchainError: the C compiler that is named does not work.
        """

    def archs(self, options: CompileOptions) -> tuple[str, ...]:
        """Architectures of the devices to compile for; empty where there is no choice. Asks no compiler.

        Raises:
            ConfigError: the device of this machine is asked for, and there is none.
        """
        return ()

    def card(self, archs: Sequence[str]) -> str:
        """The device of this machine with these architectures, by its name, in a word; empty where there is none."""
        return ""

    def require_here(self, options: CompileOptions, isa: Isa) -> None:
        """Whether kernels can be run and measured here.

        Raises:
            ConfigError: they cannot, as the device is not here, or is another one.
        """
        raise ConfigError(f"kernels for {options.target} cannot be measured")

    def archiver(self, options: CompileOptions) -> Archiver:
        """The archiver of static libraries.

        Raises:
            ConfigError: there are none of this target.
            ToolchainError: its tools are not here.
        """
        raise ConfigError(
            f"there are no static libraries for target {options.target!r}",
            "link the shared one: leave out --emit archive",
        )

    def c_compiler(self, options: CompileOptions) -> str:
        """The kind of compiler of C kernels, "clang" or "gcc": they allocate registers differently, so tiles differ.

        Clang where it is not known, as when only sources are written, so that they do not depend on this machine.
        """
        return "clang"


def program_stamp(word: str, dated: bool = True) -> str:
    """A stamp of the program that a word of a command names: it changes when the file does; "" where there is none.

    A small file, as scripts are, is stamped by its content; of others that would take as long as a compilation.

    Args:
        dated: whether the date of a large file counts, which differs between machines.
    """
    program = shutil.which(word)
    if program is None:
        return ""
    try:
        status = Path(program).stat()
        if status.st_size <= _HASHED_BYTES:
            return hashlib.sha256(Path(program).read_bytes()).hexdigest()
    except OSError:  # a program that can be run but not read
        return ""
    return f"{status.st_size} {status.st_mtime_ns}" if dated else f"{status.st_size} bytes"


def found(tool: Compiler) -> ToolFound:
    """A compiler as a survey shows it."""
    return ToolFound(tool.name, tool.kind, tuple(tool.command), tool.version)


def profile_flags(options: CompileOptions) -> tuple[str, ...]:
    """Flags of what calls kernels, for a library that times them."""
    return ("-DTORSHC_PROFILE",) if options.profile else ()
