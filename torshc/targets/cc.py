"""C compilers: finding one, and its flags."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import platform
import re
import shlex
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import takewhile
from pathlib import Path
from typing import Any, ClassVar

from ..base.cache import Cache, content_key
from ..base.errors import ConfigError, ToolchainError
from ..base.folders import private_folder, scratch_folder
from ..base.options import CompileOptions
from ..base.resources import cache_folder
from .isa import Isa, kernel_prefix, resolve
from .processes import execute
from .toolchain import (
    BASE_FLAGS,
    Archiver,
    Compiler,
    Survey,
    Toolchain,
    Tools,
    find_archiver,
    found,
    link_flags,
    profile_flags,
    soname,
)

CLANGS = tuple(f"clang-{n}" for n in range(22, 13, -1))
GCCS = tuple(f"gcc-{n}" for n in range(16, 8, -1))
_GLIBC = ".2.17"  # of 2012: the oldest with clock_gettime in libc, and the first for AArch64; Zig can link for any
_ZIG = re.compile(
    r"^Target: \S*-linux\d", re.MULTILINE
)  # it alone names the kernel's version, whatever its wrapper's name
_BY_CONTENT = "-fpch-validate-input-files-content"  # of precompiled headers; their times may differ
_NAMED = "name a clang or gcc that is here (--cc, TORSHC_CC), or name none: the newest one is then taken"
REMEDY = "either install one (apt install clang), or without root: pip install ziglang"


@dataclass(frozen=True)
class CCompiler(Compiler):
    """A C compiler.

    Attributes:
        kind: "clang", "gcc" or "zig" (clang in Zig's wrapping, which spells some flags its own way).
    """

    kind: str = "clang"
    _tunes: dict[str, bool] = field(default_factory=dict, compare=False, repr=False)

    @property
    def programs(self) -> tuple[str, ...]:
        """The words of the command that may be programs; Zig's `cc` is none, though others are called so."""
        return tuple(word for word in self.command if self.kind != "zig" or word != "cc")

    def isa_flags(self, isa: Isa) -> tuple[str, ...]:
        """Flags for the instruction set; the tuning only where this compiler knows the processor."""
        flags = isa.flags(self.kind)
        if not isa.tune or isa.arch != "x86_64" or self.kind == "zig":  # Zig takes -mtune for -march
            return flags
        tune = f"-mtune={isa.tune}"
        return (*flags, tune) if self.knows(tune) else flags

    def knows(self, flag: str) -> bool:
        """Whether the compiler takes a flag. That it does is kept in the cache, as to ask takes 50 ms."""
        if flag not in self._tunes:
            cache, key = Cache(cache_folder()), content_key(["flag", flag, *self.identity()])
            known = cache.get(key) is not None
            if not known and (known := self._takes(flag)):
                cache.put(key, b"")
            self._tunes[flag] = known
        return self._tunes[flag]

    def _takes(self, flag: str) -> bool:
        # Not /dev/null as input: Zig's driver refuses it.
        with scratch_folder() as folder:
            (folder / "probe.c").write_text("int probe;\n")
            args = [*self.command, flag, "-c", "probe.c", "-o", "probe.o"]
            return execute(args, folder, 60, dict(self.env))[0] == 0

    def base_flags(self, opt_level: int = 3, sanitize: Sequence[str] = (), debug: bool = False) -> tuple[str, ...]:
        """Flags of every source, kernels and host program alike."""
        flags: tuple[str, ...] = (f"-O{opt_level}", *BASE_FLAGS)
        if self.kind == "zig":
            flags += ("-fno-sanitize=undefined", "-g0")  # Zig switches both on by itself
        if sanitize:
            flags += (f"-fsanitize={','.join(sanitize)}", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")
        return (*flags, "-g") if debug or sanitize else flags

    def compile(self, source: str, target: str, flags: Sequence[str], cwd: Path, timeout: float = 600.0) -> None:
        """Compiles ``source`` (C, or assembler by its ending .S) to the object ``target``, both relative to ``cwd``.

        Raises:
            ToolchainError: with the command and the last lines of its messages.
        """
        place = (f"-ffile-prefix-map={cwd}=.",) if "-g" in flags else ()
        self.run([*flags, *place, "-c", source, "-o", target], cwd, timeout, f"compiling {Path(source).name}")
        if not (cwd / target).is_file():
            raise ToolchainError(
                f"compiling {Path(source).name}: {self.name} says it succeeded, but wrote nothing", REMEDY
            )

    def including(self, precompiled: Path) -> list[str]:
        """Flags to read what :meth:`precompile` made before a source; [] for gcc, which looks for one by name."""
        return [] if self.kind == "gcc" else ["-include-pch", str(precompiled), _BY_CONTENT]

    def precompile(self, header: str, target: str, flags: Sequence[str], cwd: Path, timeout: float = 600.0) -> None:
        """Reads a header of C for sources that begin with it and have the same flags.

        Raises:
            ToolchainError: as :meth:`compile`.
        """
        args = [*flags, _BY_CONTENT, "-x", "c-header", header, "-o", target]
        self.run(args, cwd, timeout, f"precompiling {header}")

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

        Raises:
            ToolchainError: as :meth:`compile`.
        """
        flags = link_flags(name) + ((f"-fsanitize={','.join(sanitize)}",) if sanitize else ("-Wl,-z,defs",))
        (cwd / "objects.rsp").write_text("".join(f"{name}\n" for name in objects))
        if self.kind == "zig" and "-g" not in self.command:
            flags += ("-Wl,--strip-debug",)  # of the parts of libc that Zig compiled in some folder, which they name
        rest = ("-o", target, "@objects.rsp", "-lm", "-lpthread")
        if self.kind == "zig" and not sanitize:
            # Zig compiles its runtime libraries for the first link, 17 s of it. Generated code calls none of them, or
            # only where a processor lacks an instruction; then a symbol is missing here.
            with contextlib.suppress(ToolchainError):
                self.run([*flags, "-nostdlib", *rest, "-lc"], cwd, timeout)
                return
            flags += ("-fno-sanitize=undefined",)  # whose runtime is the larger part
        self.run([*flags, *rest], cwd, timeout, f"linking {target}")


def find_compiler(cc: str | None = None) -> CCompiler:
    """The compiler to use: ``cc``, else ``TORSHC_CC``, else the newest clang, gcc, cc, else the ziglang package's.

    Args:
        cc: a command, with arguments if need be ("ccache clang-19").

    Raises:
        ToolchainError: the one asked for does not work, or there is none.
    """
    return _find(cc or os.environ.get("TORSHC_CC") or "", os.environ.get("PATH", ""))


@lru_cache(maxsize=16)
def _find(cc: str, path: str) -> CCompiler:
    if cc:
        return _identify_command(cc)
    broken = []
    for name in (*CLANGS, "clang", *GCCS, "gcc", "cc"):
        try:
            if program := shutil.which(name, path=path):
                return _identify(name, (program,))
        except ToolchainError as error:
            broken.append(error.message)
    if compiler := _ziglang():
        return compiler
    looked = f"{CLANGS[-1]} to {CLANGS[0]}, clang, {GCCS[-1]} to {GCCS[0]}, gcc nor cc, nor the ziglang package"
    raise ToolchainError(f"no C compiler: {'; '.join(broken) or f'found neither {looked}'}", REMEDY)


def _identify_command(cc: str) -> CCompiler:
    try:
        words = shlex.split(cc)
    except ValueError as error:
        raise ToolchainError(f"--cc {cc!r} is not a command: {error}", _NAMED) from error
    if words == ["zig"] or words == ["ziglang"]:
        if compiler := _ziglang():
            return compiler
        raise ToolchainError(f"--cc {cc}: the ziglang package is not installed", "pip install ziglang")
    program = shutil.which(words[0]) if words else None
    if not program:
        raise ToolchainError(f"--cc {cc!r}: no such program", _NAMED)
    programs = list(takewhile(lambda word: not word.startswith("-"), words))  # such as `ccache clang`; then flags
    return _identify(Path(programs[-1]).name, (str(Path(program).absolute()), *words[1:]))


def _identify(name: str, command: tuple[str, ...], env: tuple[tuple[str, str], ...] = ()) -> CCompiler:
    """The compiler that a command is.

    Raises:
        ToolchainError: it does not answer as a compiler does; with what it says instead.
    """
    status, out, err = execute([*command, "--version"], Path.cwd(), 60, dict(env))
    kind = "zig" if _ZIG.search(out) else "clang" if "clang" in out else "gcc"
    if status == 0 and kind == "gcc" and out.strip():
        status, number, err = execute([*command, "-dumpversion"], Path.cwd(), 60)
        out = out if re.match(r"\d", number) else ""
    if status != 0 or not out.strip():
        said = "".join(f" ({line.strip()[:200]})" for line in err.splitlines()[:1])
        raise ToolchainError(f"{shlex.join(command)} does not answer --version as clang or gcc do{said}", _NAMED)
    return CCompiler(name, command, out.splitlines()[0].strip(), env, kind=kind)


def _require_machine(gcc: CCompiler, triple: str) -> None:
    """Raises ToolchainError unless a gcc, which compiles for one machine only, does so for this one."""
    _, machine, _ = execute([*gcc.command, "-dumpmachine"], Path.cwd(), 60)
    own, wanted = machine.strip().split("-"), triple.split("-")
    if (own[0], own[-1]) != (wanted[0], wanted[-1]):
        raise ToolchainError(
            f"{gcc.name} compiles for {machine.strip() or 'another machine'}, not for --triple {triple}",
            f"pip install ziglang, or name a clang or {triple}-gcc with --cc",
        )


@lru_cache(maxsize=16)
def _has_headers(command: tuple[str, ...]) -> bool:
    with scratch_folder() as folder:
        (folder / "probe.c").write_text("#include <pthread.h>\n#include <stdint.h>\n#include <string.h>\n")
        return execute([*command, "-fsyntax-only", "probe.c"], folder, 60)[0] == 0


def _require_headers(clang: CCompiler, triple: str) -> None:
    """Raises ToolchainError unless a clang finds a C library for another machine."""
    if not _has_headers(clang.command):
        raise ToolchainError(
            f"{clang.name} finds no headers of a C library for --triple {triple}",
            "pip install ziglang, which brings one; or install one (Debian: libc6-dev-arm64-cross), "
            "or name its folder: --cc 'clang --sysroot=FOLDER'",
        )


def _ziglang() -> CCompiler | None:
    """Zig's clang, from the package; its cache must be writable whatever HOME is, and by nobody else."""
    spec = importlib.util.find_spec("ziglang")
    if spec is None or spec.origin is None:
        return None
    program = Path(spec.origin).parent / "zig"
    if not os.access(program, os.X_OK):
        return None
    cache = str(_writable_cache() / "zig")
    env = (("ZIG_GLOBAL_CACHE_DIR", cache), ("ZIG_LOCAL_CACHE_DIR", cache))
    return _identify("zig", (str(program), "cc"), env)


def _writable_cache() -> Path:
    for folder in (cache_folder(), Path(tempfile.gettempdir()) / f"torshc-{os.getuid()}"):
        with contextlib.suppress(OSError):
            if os.access(private_folder(folder), os.W_OK | os.X_OK):
                return folder
    raise ToolchainError(
        f"Zig needs a folder for its cache: {cache_folder()} cannot be used",
        "set TORSHC_CACHE_DIR to a folder that you own",
    )


class CToolchain(Toolchain):
    """A C compiler that also links.

    Class attributes:
        compiler: the command of the compiler where options name none; empty for the first that is found.
    """

    command = "cc"
    compiler: ClassVar[str] = ""

    def find(self, options: CompileOptions, isa: Isa) -> Tools:
        compiler = self._compiler(options)
        base, quiet = compiler.base_flags(), "-Wno-psabi"
        host = (*base, *compiler.isa_flags(isa.baseline), quiet, *profile_flags(options))
        return Tools(compiler, (*base, *compiler.isa_flags(isa), quiet), host)

    def require_here(self, options: CompileOptions, isa: Isa) -> None:
        here = resolve()
        if len(options.isa) > 1:
            raise ConfigError("several versions cannot be measured at a time", "give --isa one level")
        if isa.arch != here.arch or not set(isa.cpu_features) <= set(here.cpu_features):
            raise ConfigError(
                f"code for {isa.arch} {isa.name} cannot be measured here: this is {here.arch} {here.name}",
                "leave out --mcpu, --isa and --triple, or run the command on such a machine",
            )

    def archiver(self, options: CompileOptions) -> Archiver:
        if options.triple:
            raise ConfigError(
                "a static library for another machine cannot be made", "leave out --emit archive, or --triple"
            )
        return find_archiver(self._compiler(options))

    def _preferred(self, options: CompileOptions) -> str:
        return options.cc or self.compiler

    def _compiler(self, options: CompileOptions) -> CCompiler:
        """The compiler for the machine that is asked for. Zig's comes first for another one, as it has C libraries."""
        if not options.triple:
            found = find_compiler(self._preferred(options) or None)
            here = (
                f"{platform.machine()}-linux-gnu" if found.kind == "zig" and platform.libc_ver()[0] == "glibc" else ""
            )
            return replace(found, command=(*found.command, "-target", here + _GLIBC)) if here else found
        own = self._preferred(options) or os.environ.get("TORSHC_CC") or ""
        found = (None if own else _ziglang()) or find_compiler(own or None)
        if found.kind == "gcc":
            _require_machine(found, options.triple)
            return found
        if found.kind == "zig":
            floor = _GLIBC if options.triple.endswith("-linux-gnu") else ""
            return replace(found, command=(*found.command, "-target", options.triple + floor))
        cross = replace(found, command=(*found.command, f"--target={options.triple}"))
        _require_headers(cross, options.triple)
        return cross

    def c_compiler(self, options: CompileOptions) -> str:
        try:
            here = options.emit != "source" and find_compiler(self._preferred(options) or None)
            return "gcc" if here and here.kind == "gcc" else "clang"
        except ToolchainError:  # explaining a model needs none; a compilation has asked for it before
            return "clang"

    def script(self, options: CompileOptions, versions: Mapping[str, Isa]) -> dict[str, Any]:
        cc = CCompiler("cc", ("cc",), "")
        isa = next(iter(versions.values()))

        def flags(of: Isa, *more: str) -> str:
            return shlex.join([*cc.base_flags(), *of.flags("clang"), "-Wno-psabi", *more])

        return {
            "flags": flags(isa),
            "kernels": {kernel_prefix(mark): flags(of) for mark, of in versions.items()},
            "host": flags(isa.baseline, *profile_flags(options)),
            "link": shlex.join([*link_flags(soname(options.prefix)), "-Wl,-z,defs"]),
        }

    def survey(self, cc: str = "") -> Survey:
        """All compilers that answer, the one that :meth:`find` takes first, each program once."""
        names = [n for n in (*CLANGS, "clang", *GCCS, "gcc", "cc") if shutil.which(n)]
        compilers: list[Compiler] = []
        try:
            compilers.append(self.find(CompileOptions(cc=cc), resolve()).compiler)
        except ToolchainError:
            if cc:
                raise
        for name in (*names, "zig"):
            with contextlib.suppress(ToolchainError):
                compilers.append(find_compiler(name))
        once: dict[Path, Compiler] = {}
        for compiler in compilers:
            once.setdefault(Path(compiler.path).resolve(), compiler)
        return Survey(tuple(map(found, once.values())), (), () if once else (f"no C compiler: {REMEDY}",))
