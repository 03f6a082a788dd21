"""NVIDIA's compiler: finding it, what cards it can compile for, and the same object for the same source.

Where nvcc's objects would differ from run to run: it names temporary files by its process number, and one of these
names gets into the object's symbol table. With ``--keep`` they are named after the source, so every source is compiled
with a folder of its own for them, which is removed afterwards. What remains is that kernels, device variables and
device functions with internal linkage get names with a hash of the working folder; generated kernels are ``extern
"C"`` and their functions inline, which leaves none of these names. ``--frandom-seed`` changes neither.
"""

from __future__ import annotations

import csv
import os
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from ....base.errors import ConfigError, ToolchainError, did_you_mean
from ....base.options import CompileOptions
from ...isa import Isa
from ...processes import execute
from ...toolchain import (
    BASE_FLAGS,
    Compiler,
    Survey,
    Toolchain,
    Tools,
    found,
    link_flags,
    profile_flags,
    program_stamp,
    soname,
)

REMEDY = (
    "install the CUDA toolkit (apt install nvidia-cuda-toolkit, or NVIDIA's own) and set TORSHC_NVCC if nvcc is not "
    "found then; or write the sources alone with --emit source, which needs no compiler"
)
# Without a card to ask: Ampere and Hopper, and PTX that newer cards compile for themselves.
DEFAULT_ARCHS = ("sm_80", "sm_90a", "compute_80")
USUAL_PLACE = "/usr/local/cuda/bin"
_ARCH = re.compile(r"(sm|compute)_\d{2,3}[af]?\Z")
# Both add to every command line behind our back.
_ENV = (("NVCC_PREPEND_FLAGS", ""), ("NVCC_APPEND_FLAGS", ""))


@dataclass(frozen=True)
class Card:
    """A CUDA card of this machine: its name, architecture ("sm_90"), and the version of its driver."""

    name: str
    arch: str
    driver: str


@dataclass(frozen=True)
class Nvcc(Compiler):
    """nvcc with the host compiler that it calls; compiles CUDA (.cu), C and assembler.

    Attributes:
        kind: "nvcc".
        archs: the architectures that it knows, real and virtual; empty when it does not say.
    """

    kind: str = "nvcc"
    archs: tuple[str, ...] = ()

    def identity(self) -> tuple[str, ...]:
        """With the host compiler's."""
        host = _host_compiler()
        return (*super().identity(), host, program_stamp(host))

    def fingerprint(self) -> tuple[str, ...]:
        """With the host compiler's."""
        return (*super().fingerprint(), program_stamp(_host_compiler(), dated=False))

    def base_flags(self, isa: Isa, opt_level: int = 3, debug: bool = False) -> tuple[str, ...]:
        """Flags of every source, kernels, host program and C kernels alike."""
        host = [flag for flag in BASE_FLAGS if not flag.startswith("-std=")]
        host += [*(f for f in isa.flags("gcc") if not f.startswith("-D")), "-Wno-psabi", *(["-g"] if debug else [])]
        defines = tuple(f for f in isa.flags("gcc") if f.startswith("-D"))
        lines = ("-lineinfo",) if debug else ()
        return ("-std=c++17", f"-O{opt_level}", "-cudart", "static", *lines, *defines, *_to_host(host))

    def gencode_flags(self, arch: str = "") -> tuple[str, ...]:
        """Flags for the cards to compile for.

        Args:
            arch: names separated by commas, "sm_90a" for a card's code and "compute_80" for PTX; "" or "native" for the
                cards of this machine, or :data:`DEFAULT_ARCHS` where none is found.

        Raises:
            ConfigError: one that nvcc does not know.
        """
        flags = []
        for name in choose_archs(arch, self.archs):
            if not _ARCH.match(name) or (self.archs and name not in self.archs):
                known = self.archs or DEFAULT_ARCHS
                raise ConfigError(
                    f"--arch: {self.name} knows no {name[:40]!r}{did_you_mean(name[:40], known)}",
                    f"one or several of {', '.join(known)}, or none for the card of this machine",
                )
            flags += ["-gencode", f"arch={name.replace('sm_', 'compute_')},code={name}"]
        return tuple(flags)

    def compile(self, source: str, target: str, flags: Sequence[str], cwd: Path, timeout: float = 1800.0) -> None:
        """Compiles ``source`` (.cu, .c or .S) to the object ``target``, both relative to ``cwd``.

        Raises:
            ToolchainError: with the command and the last lines of its messages.
        """
        what, kept = f"compiling {Path(source).name}", Path("keep") / Path(source).name
        args = [*flags]
        if "-lineinfo" in flags:
            args += _to_host([f"-ffile-prefix-map={cwd}=."])
        if source.endswith(".cu"):
            (cwd / kept).mkdir(parents=True, exist_ok=True)
            args += ["--keep", f"--keep-dir={kept}"]
        if source.endswith(".S"):
            args = [f for f in flags if not f.startswith("-Wa,")]  # the assembler gets -I from the host compiler
            args += ["-x", "c", *_to_host(["-x", "assembler-with-cpp"])]
        try:
            self.run([*args, "-c", source, "-o", target], cwd, timeout, what)
        finally:
            shutil.rmtree(cwd / kept, ignore_errors=True)
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

        The CUDA runtime and the C++ library are linked in and hidden, so that the library needs neither and shares
        nothing with others of the process.

        Raises:
            ConfigError: sanitizers, which are for C.
            ToolchainError: as :meth:`compile`.
        """
        if sanitize:
            raise ConfigError(
                "sanitizers do not work on CUDA libraries", "use compute-sanitizer on the program instead"
            )
        self.run([*linker_flags(name), "-o", target, *objects], cwd, timeout, f"linking {target}")


def choose_archs(arch: str, known: Sequence[str] = ()) -> tuple[str, ...]:
    """The architectures to compile for, each once.

    Args:
        arch: as of :meth:`Nvcc.gencode_flags`.
        known: what nvcc knows; empty when that is not known.

    Raises:
        ConfigError: "native" where no card is found.
    """
    names = [name.strip() for name in arch.split(",") if name.strip()] if arch != "native" else []
    if names:
        return tuple(dict.fromkeys(names))
    cards = tuple(dict.fromkeys(card.arch for card in find_cards()))
    if arch == "native" and not cards:
        raise ConfigError("--arch native: no CUDA card was found", "name it, for example --arch sm_90a")
    if cards:  # the variant with all of a card's instructions, where there is one
        return tuple(f"{name}a" if f"{name}a" in known else name for name in cards)
    return tuple(name for name in DEFAULT_ARCHS if not known or name in known) or DEFAULT_ARCHS


def linker_flags(name: str = "") -> tuple[str, ...]:
    """Flags of the link, for nvcc and, through it, for the linker."""
    linker = [flag.removeprefix("-Wl,") for flag in link_flags(name) if flag.startswith("-Wl,")]
    flags = ["-shared", "-cudart", "static", "--no-device-link"]
    flags += _to_host(["-static-libstdc++", "-static-libgcc"])
    for option in (*linker, "-z,defs", "--exclude-libs,ALL"):
        flags += ["-Xlinker", option]
    return tuple(flags)


def _to_host(flags: Sequence[str]) -> tuple[str, ...]:
    """Flags for the host compiler: one argument, as nvcc splits it at commas.

    >>> _to_host(["-fPIC", "-Wa,-Isrc"])
    ('-Xcompiler', '-fPIC,-Wa\\\\,-Isrc')
    """
    return ("-Xcompiler", ",".join(flag.replace(",", "\\,") for flag in flags)) if flags else ()


def find_nvcc() -> Nvcc:
    """nvcc by ``TORSHC_NVCC``, ``PATH``, ``CUDA_HOME``, ``CUDA_PATH`` or in /usr/local/cuda.

    Raises:
        ToolchainError: the one named does not work, or there is none.
    """
    homes = [os.environ.get(name, "") for name in ("CUDA_HOME", "CUDA_PATH")]
    return _find(os.environ.get("TORSHC_NVCC", ""), os.environ.get("PATH", ""), tuple(h for h in homes if h))


@lru_cache(maxsize=16)
def _find(named: str, path: str, homes: tuple[str, ...]) -> Nvcc:
    if named:
        program = shutil.which(named, path=path)
        if not program:
            raise ToolchainError(f"TORSHC_NVCC={named!r}: no such program", REMEDY)
        return _identify(program)
    folders = [path, *(f"{home}/bin" for home in homes), USUAL_PLACE]
    for folder in folders:
        if program := shutil.which("nvcc", path=folder):
            return _identify(program)
    raise ToolchainError("no nvcc: it is neither on PATH nor in CUDA_HOME, CUDA_PATH or /usr/local/cuda", REMEDY)


def _identify(program: str) -> Nvcc:
    program = str(Path(program).absolute())
    status, out, err = execute([program, "--version"], Path.cwd(), 60, dict(_ENV))
    release = next((line.strip() for line in out.splitlines() if "release" in line), "")
    if status != 0 or not release:
        raise ToolchainError(f"{program} does not answer --version as nvcc does: {(err or out)[-200:]}", REMEDY)
    return Nvcc("nvcc", (program,), f"{release}; {_host_version(program)}", _ENV, archs=_list_archs(program))


def _host_compiler() -> str:
    """The program that nvcc calls for the host's code; "" where there is none."""
    host = os.environ.get("NVCC_CCBIN", "")
    programs = (shutil.which(name) for name in ((host, f"{host}/g++") if host else ("gcc",)))
    return next((p for p in programs if p and not Path(p).is_dir()), "")


def _host_version(program: str) -> str:
    """The first line of what nvcc's host compiler says about itself; objects depend on it as much as on nvcc."""
    host = _host_compiler()
    if not host:
        return f"no host compiler for {Path(program).name}"
    status, out, _ = execute([host, "--version"], Path.cwd(), 60)
    return out.splitlines()[0].strip() if status == 0 and out.strip() else "unknown host compiler"


def _list_archs(program: str) -> tuple[str, ...]:
    """From oldest to newest. The lists leave out variants such as sm_90a, which only the help names."""
    texts = [execute([program, option], Path.cwd(), 60, dict(_ENV)) for option in ("--list-gpu-code", "--help")]
    names = {
        name for status, out, _ in texts if status == 0 for name in re.findall(r"\b(?:sm|compute)_\d+[af]?\b", out)
    }
    if texts[0][0] != 0:
        return ()
    oldest = min((_number(name) for name in re.findall(r"sm_\d+", texts[0][1])), default=0)
    return tuple(sorted((n for n in names if _number(n) >= oldest), key=lambda n: (n[0] == "c", _number(n), n)))


def _number(arch: str) -> int:
    return int(re.sub(r"\D", "", arch))


def find_cards() -> tuple[Card, ...]:
    """The CUDA cards of this machine, asked of nvidia-smi: the driver itself must not be started in this process, which
    could not fork then. Empty where there is no driver."""
    return _cards(shutil.which("nvidia-smi") or "", os.environ.get("CUDA_VISIBLE_DEVICES"))


@lru_cache(maxsize=4)
def _cards(program: str, visible: str | None) -> tuple[Card, ...]:
    if not program:
        return ()
    query = "--query-gpu=name,compute_cap,driver_version"
    try:
        status, out, _ = execute([program, query, "--format=csv,noheader"], Path.cwd(), 60)
    except ToolchainError:
        return ()
    rows = [[cell.strip() for cell in row] for row in csv.reader(out.splitlines())] if status == 0 else []
    cards = [Card(r[0], f"sm_{r[1].replace('.', '')}", r[2]) for r in rows if len(r) == 3 and re.match(r"\d", r[1])]
    if visible is None or not re.fullmatch(r"\d+(,\d+)*", visible):
        return tuple(cards)
    return tuple(cards[int(i)] for i in visible.split(",") if int(i) < len(cards))


class CudaToolchain(Toolchain):
    """nvcc, with the host compiler that it calls."""

    command = "nvcc"

    def find(self, options: CompileOptions, isa: Isa) -> Tools:
        nvcc = find_nvcc()
        archs = nvcc.gencode_flags(options.arch)
        return Tools(nvcc, (*nvcc.base_flags(isa), *archs, *profile_flags(options)))

    def archs(self, options: CompileOptions) -> tuple[str, ...]:
        """Where only sources are written, :meth:`script` decides what they are compiled for."""
        if options.emit == "source":
            return choose_archs(options.arch or ",".join(DEFAULT_ARCHS))
        try:
            known = find_nvcc().archs
        except ToolchainError:  # whoever compiles is told; a plan can be looked at without nvcc
            known = ()
        return choose_archs(options.arch, known)

    def card(self, archs: Sequence[str]) -> str:
        """As the driver calls it: "NVIDIA-H200"."""
        cards = find_cards()
        here = bool(cards) and all(_number(name) == _number(cards[0].arch) for name in archs)
        return re.sub(r"[^\w.+-]+", "-", cards[0].name) if here else ""

    def require_here(self, options: CompileOptions, isa: Isa) -> None:
        cards = find_cards()
        if not cards:
            raise ConfigError("kernels for CUDA cannot be measured here: there is no NVIDIA card, or no driver",
                              "run the command on a machine with the card")  # fmt: skip
        if any(_number(name) != _number(cards[0].arch) for name in self.archs(options)):
            raise ConfigError(f"--arch {options.arch} cannot be measured here: this is {cards[0].arch}",
                              "leave out --arch, or run the command on such a machine")  # fmt: skip

    def c_compiler(self, options: CompileOptions) -> str:
        return "gcc"  # what nvcc calls on Linux

    def script(self, options: CompileOptions, versions: Mapping[str, Isa]) -> dict[str, Any]:
        isa = next(iter(versions.values()))
        nvcc = Nvcc("nvcc", ("nvcc",), "")
        archs = nvcc.gencode_flags(options.arch or ",".join(DEFAULT_ARCHS))
        flags = (*nvcc.base_flags(isa), *archs, *profile_flags(options))
        return {"flags": shlex.join(flags), "link": shlex.join(linker_flags(soname(options.prefix)))}

    def survey(self, cc: str = "") -> Survey:
        cards = tuple(f"{card.name}, {card.arch}, driver {card.driver}" for card in find_cards())
        missing = () if cards else ("no NVIDIA card or driver: libraries are built for --arch, and run elsewhere",)
        try:
            return Survey((found(find_nvcc()),), cards, missing)
        except ToolchainError as error:
            return Survey((), cards, (f"{error.message}; {error.remedy}", *missing))
