"""Compilers and other tools: finding one, knowing its version, running it.

A tool gets a list of arguments and a clean environment, never a shell. What it writes depends on its arguments, its
version and the files named, not on the folder, the locale or the time.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from torshc.errors import ToolchainError

from .isa import Isa

CLANGS = tuple(f"clang-{n}" for n in range(22, 13, -1))
GCCS = tuple(f"gcc-{n}" for n in range(16, 8, -1))
REMEDY = "either install one (apt install clang), or without root: pip install 'torshc[toolchain]'"

# These change what a compiler reads or writes behind our back; LD_RUN_PATH would end up in the library.
_DROPPED = (
    "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "OBJC_INCLUDE_PATH", "LIBRARY_PATH", "LD_RUN_PATH",
    "COMPILER_PATH", "GCC_EXEC_PREFIX", "DEPENDENCIES_OUTPUT", "SUNPRO_DEPENDENCIES", "CCC_OVERRIDE_OPTIONS",
    "LD_PRELOAD", "CFLAGS", "LDFLAGS",
)  # fmt: skip

BASE_FLAGS = (
    "-std=gnu11", "-fPIC", "-fvisibility=hidden", "-fno-semantic-interposition", "-fno-strict-aliasing",
    "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-fno-ident",
)  # fmt: skip
LINK_FLAGS = (
    "-shared", "-Wl,--build-id=none", "-Wl,-z,noexecstack", "-Wl,-z,relro", "-Wl,-z,now", "-Wl,-Bsymbolic",
    "-Wl,--as-needed",
)  # fmt: skip


@dataclass(frozen=True)
class Tool:
    """A program that torshc runs.

    Attributes:
        name: what manifests and messages call it ("clang-19", "nvcc").
        command: how it is started.
        version: the first line that it says about itself; part of every cache key.
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

    def run(self, args: Sequence[str], cwd: Path, timeout: float = 600.0, what: str = "") -> str:
        """Runs the tool and returns what it wrote to stdout.

        Args:
            args: its arguments.
            cwd: the folder that relative names refer to.
            timeout: seconds until it is killed with all that it started.
            what: what this run is for, in the message of a failure ("compiling k3.c").

        Raises:
            ToolchainError: it cannot be started, fails or takes too long; with its command and last lines.
        """
        status, out, err = execute([*self.command, *args], cwd, timeout, dict(self.env))
        if status == 0:
            return out
        reason = f"took more than {timeout:.0f} s" if status is None else f"failed with status {status}"
        tail = "".join(f"\n  | {line[:400]}" for line in (err or out).splitlines()[-20:])
        command = shlex.join([*self.command, *args])
        raise ToolchainError(
            f"{what + ': ' if what else ''}{self.name} {reason}\n  command (in {cwd}): {command}{tail}",
            "the last lines above are the tool's own; --keep-intermediates keeps the sources",
        )


def clean_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of every tool: the process's own without what would leak into results."""
    env = {key: value for key, value in os.environ.items() if key not in _DROPPED and not key.startswith("LC_")}
    return {**env, "LC_ALL": "C", "LANG": "C", "SOURCE_DATE_EPOCH": "0", "ZERO_AR_DATE": "1", **(extra or {})}


def execute(
    command: Sequence[str], cwd: Path, timeout: float, env: Mapping[str, str] | None = None
) -> tuple[int | None, str, str]:
    """Runs a command in a process group of its own: (status or None when it took too long, stdout, stderr).

    Raises:
        ToolchainError: it cannot be started.
    """
    try:
        process = subprocess.Popen(
            list(command),
            cwd=cwd,
            env=clean_environment(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            process_group=0,
        )
    except (OSError, ValueError) as error:
        raise ToolchainError(f"cannot start {command[0]}: {error}", REMEDY) from error
    try:
        out, err = process.communicate(timeout=timeout)
        return process.returncode, out, err
    except subprocess.TimeoutExpired:
        _kill_group(process)
        out, err = process.communicate()
        return None, out, err
    except BaseException:  # an interrupt: the group does not get the terminal's, so end it here
        _kill_group(process)
        process.communicate()
        raise


def _kill_group(process: subprocess.Popen[str]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


@dataclass(frozen=True)
class Compiler(Tool):
    """A C compiler.

    Attributes:
        kind: "clang", "gcc" or "zig" (clang in Zig's wrapping, which spells some flags its own way).
    """

    kind: str = "clang"
    _tunes: dict[str, bool] = field(default_factory=dict, compare=False, repr=False)

    def isa_flags(self, isa: Isa) -> tuple[str, ...]:
        """Flags for the instruction set; the tuning only where this compiler knows the processor."""
        flags = isa.flags(self.kind)
        if not isa.tune or isa.arch != "x86_64" or self.kind == "zig":  # Zig takes -mtune for -march
            return flags
        tune = f"-mtune={isa.tune}"
        return (*flags, tune) if self.knows(tune) else flags

    def knows(self, flag: str) -> bool:
        """Whether the compiler takes a flag."""
        if flag not in self._tunes:
            # Not /dev/null as input: Zig's driver refuses it.
            with tempfile.TemporaryDirectory(prefix="torshc-") as folder:
                (Path(folder) / "probe.c").write_text("int probe;\n")
                args = [*self.command, flag, "-c", "probe.c", "-o", "probe.o"]
                self._tunes[flag] = execute(args, Path(folder), 60, dict(self.env))[0] == 0
        return self._tunes[flag]

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

    def link(
        self, objects: Sequence[str], target: str, cwd: Path, sanitize: Sequence[str] = (), timeout: float = 600.0
    ) -> None:
        """Links objects, in this order, to the shared library ``target``; names are relative to ``cwd``.

        Raises:
            ToolchainError: as :meth:`compile`.
        """
        flags = LINK_FLAGS + ((f"-fsanitize={','.join(sanitize)}",) if sanitize else ("-Wl,-z,defs",))
        (cwd / "objects.rsp").write_text("".join(f"{name}\n" for name in objects))
        self.run([*flags, "-o", target, "@objects.rsp", "-lm", "-lpthread"], cwd, timeout, f"linking {target}")


def find_compiler(cc: str | None = None) -> Compiler:
    """The compiler to use: ``cc``, else ``TORSHC_CC``, else the newest clang, gcc, cc, else the ziglang package's.

    Args:
        cc: a command, with arguments if need be ("ccache clang-19").

    Raises:
        ToolchainError: the one asked for does not work, or there is none.
    """
    return _find(cc or os.environ.get("TORSHC_CC") or "", os.environ.get("PATH", ""))


@lru_cache(maxsize=16)
def _find(cc: str, path: str) -> Compiler:
    if cc:
        return _named(cc)
    for name in (*CLANGS, "clang", *GCCS, "gcc", "cc"):
        program = shutil.which(name, path=path)
        if program and (found := _identify(name, (program,))):
            return found
    if found := _ziglang():
        return found
    raise ToolchainError(
        "no C compiler: found neither clang-14 to clang-22, clang, gcc nor cc, nor the ziglang package", REMEDY
    )


def _named(cc: str) -> Compiler:
    try:
        words = shlex.split(cc)
    except ValueError as error:
        raise ToolchainError(f"--cc {cc!r} is not a command: {error}", REMEDY) from error
    if words == ["zig"] or words == ["ziglang"]:
        if found := _ziglang():
            return found
        raise ToolchainError(f"--cc {cc}: the ziglang package is not installed", "pip install 'torshc[toolchain]'")
    program = shutil.which(words[0]) if words else None
    if not program:
        raise ToolchainError(f"--cc {cc!r}: no such program", REMEDY)
    found = _identify(Path(words[-1]).name, (str(Path(program).absolute()), *words[1:]))
    if not found:
        raise ToolchainError(f"--cc {cc!r} does not answer --version as clang or gcc do", REMEDY)
    return found


def _identify(name: str, command: tuple[str, ...], env: tuple[tuple[str, str], ...] = ()) -> Compiler | None:
    try:
        status, out, _ = execute([*command, "--version"], Path.cwd(), 60, dict(env))
    except ToolchainError:
        return None
    if status != 0 or not out.strip():
        return None
    kind = "zig" if env else "clang" if "clang" in out else "gcc"
    if kind == "gcc" and not re.match(r"\d", execute([*command, "-dumpversion"], Path.cwd(), 60)[1]):
        return None
    return Compiler(name, command, out.splitlines()[0].strip(), env, kind=kind) if kind else None


def _ziglang() -> Compiler | None:
    """Zig's clang, from the package; its cache must be writable whatever HOME is."""
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
    from .cache import cache_folder

    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        usable = os.access(folder, os.W_OK | os.X_OK)
    except OSError:
        usable = False
    return folder if usable else Path(tempfile.gettempdir()) / f"torshc-{os.getuid()}"
