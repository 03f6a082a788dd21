"""The compilers that tests build programs with: the one that torshc finds, and clang or gcc beside it.

Where there is only the ziglang package, its clang is wrapped in two scripts, so that a test runs one program whatever
the compiler is.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import pytest

from torshc.base.cache import content_key
from torshc.base.errors import ToolchainError
from torshc.base.folders import private_folder, scratch_folder
from torshc.base.resources import cache_folder
from torshc.targets.cc import CLANGS, GCCS, CCompiler, find_compiler
from torshc.targets.processes import clean_environment
from torshc.targets.toolchain import find_archiver

_CXX = {"clang": "clang++", "gcc": "g++", "cc": "c++"}
# Zig switches sanitizers and debug information on by itself. It compiles its runtime libraries for each set of flags
# that it links with, seconds each, so C is linked without them first.
_PLAIN = "-fno-sanitize=undefined -g0"
_WRAPPERS = {
    "cc": """#!/bin/sh
{environment}
'{program}' cc {plain} -nostdlib "$@" -Wl,-z,defs -lc 2>/dev/null || exec '{program}' cc {plain} "$@"
""",
    "c++": """#!/bin/sh
{environment}
exec '{program}' c++ {plain} "$@"
""",
}


@dataclass(frozen=True)
class Host:
    """A compiler of this machine.

    Attributes:
        name: what find_compiler() takes ("clang-19", "gcc", "zig").
        kind: "clang", "gcc" or "zig".
        version: what it says about itself.
        cc, cxx: the programs that compile C and C++; ``cxx`` is None where C++ is not installed.
    """

    name: str
    kind: str
    version: str
    cc: str
    cxx: str | None


@lru_cache(maxsize=1)
def hosts() -> tuple[Host, ...]:
    """The compiler that torshc finds, then the newest clang and gcc if they are others; empty if there is none."""
    found: dict[str, Host] = {}
    for names in ((None,), (*CLANGS, "clang"), (*GCCS, "gcc")):
        name = next((n for n in names if n is None or shutil.which(n)), "")
        try:
            compiler = find_compiler(name) if name != "" else None
        except ToolchainError:
            continue
        if compiler and compiler.kind not in found:
            found[compiler.kind] = _host(compiler)
    return tuple(found.values())


def _host(compiler: CCompiler) -> Host:
    if compiler.kind == "zig":
        return Host(
            "zig", "zig", compiler.version, _wrapped(compiler, "cc", "clang"), _wrapped(compiler, "c++", "clang++")
        )
    stem, _, number = Path(compiler.path).name.partition("-")
    cxx = "-".join([_CXX.get(stem, "c++"), *([number] if number else [])])
    return Host(compiler.name, compiler.kind, compiler.version, compiler.path, shutil.which(cxx))


def _wrapped(compiler: CCompiler, mode: str, name: str) -> str:
    """A script that runs Zig as a compiler: written once, and shared by all processes of a test run."""
    environment = "\n".join(f"export {key}='{value}'" for key, value in compiler.env)
    place = cache_folder() / "tests" / "zig" / name
    text = _WRAPPERS[mode].format(environment=environment, program=compiler.path, plain=_PLAIN)
    if not (place.exists() and place.read_text() == text):
        private_folder(place.parent)
        part = place.with_suffix(f".{os.getpid()}")
        part.write_text(text)
        part.chmod(0o755)
        part.replace(place)
    return str(place)


def host(kind: str = "") -> Host | None:
    """The compiler of a kind, Zig's counting as clang; without a kind the one that torshc finds."""
    return next((h for h in hosts() if not kind or h.kind == kind or (h.kind, kind) == ("zig", "clang")), None)


def needed(kind: str = "") -> Host:
    """As :func:`host`; where there is none, the test is skipped and says what there is."""
    found = host(kind)
    if found is None:
        pytest.skip(f"needs {kind or 'a C compiler'}; here is {', '.join(h.name for h in hosts()) or 'none'}")
    return found


def needed_cxx() -> str:
    """A C++ compiler: the one beside what torshc finds, else any."""
    found = next((h.cxx for h in hosts() if h.cxx), None)
    if found is None:
        pytest.skip("needs a C++ compiler")
    return found


def build(command: Sequence[str | Path], cwd: Path | None = None) -> None:
    """Runs a compiler; its messages are the test's failure."""
    done = subprocess.run(list(map(str, command)), cwd=cwd, capture_output=True, text=True, env=clean_environment())
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stderr[-4000:]}"


@lru_cache
def links(cc: str, *flags: str) -> bool:
    """Whether a compiler makes a program with these flags: a sanitizer's runtime may be missing.

    Zig's count as missing. It would compile one for each set of flags, a minute each.
    """
    if "-fsanitize=" in " ".join(flags) and next((h.kind for h in hosts() if cc == h.cc), "") == "zig":
        return False
    with scratch_folder() as folder:
        (folder / "probe.c").write_text("int main(void) { return 0; }\n")
        command = [cc, *flags, "probe.c", "-o", "probe"]
        return subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode == 0


def sanitizing(cc: str, *kinds: str) -> list[str]:
    """Flags for the sanitizers among ``kinds`` that this compiler has; where it has none of them, the test is skipped.

    So a run with other compilers, which has what this one skips (``--all-but``), has it with sanitizers.
    """
    usable = [kind for kind in kinds if links(cc, f"-fsanitize={kind}", "-fno-sanitize-recover=all")]
    if not usable:
        pytest.skip(f"{cc} has no sanitizers")
    return [f"-fsanitize={','.join(usable)}", "-fno-sanitize-recover=all"]


def program(
    command: Sequence[str],
    sources: Sequence[Path],
    include: Sequence[Path] = (),
    version: str = "",
) -> Path:
    """A program built from sources, made once for each content of them, of the headers and of the compiler.

    Args:
        command: the compiler and its flags, without sources and output.
        sources: files of C or C++.
        include: folders of headers, each of which counts.
        version: the compiler's, where it is none of :func:`hosts`.
    """

    def make(place: Path) -> None:
        folders = [f"-I{folder}" for folder in include]
        build([*command, *folders, *sources, "-o", place, "-lm", "-lpthread"])

    return _once([*command, version or _version(command)], _with_headers(sources, include), make)


def library(command: Sequence[str], source: Path, include: Path, first: str) -> Path:
    """A shared library built from a source of C, made once as in :func:`program`.

    The header that a source begins with is read precompiled by clang and Zig's. Starts of clang cost more than most
    sources do: it compiles without linking, as for both it would start itself anew, and gcc links.

    Args:
        command: the compiler and its flags, without source and output.
        source: a file of C.
        include: the folder of its headers.
        first: the name of the header that it includes first.
    """
    compiler = next((h for h in hosts() if h.cc == command[0]), None)
    command = [*command, "-fPIC", f"-I{include}"]

    if "#define T_FEW_TYPES\n" in source.read_text():
        command.append("-DT_FEW_TYPES=")  # for the precompiled header; the source defines the same again
    by_content = "-fpch-validate-input-files-content"  # where it is made and where it is read; else by their times

    def precompile(place: Path) -> None:
        build([*command, by_content, "-x", "c-header", include / first, "-o", place])

    def make(place: Path) -> None:
        if compiler is None or compiler.kind == "gcc" or "-fsanitize" in " ".join(command):
            build([*command, "-shared", source, "-o", place, "-lm", "-lpthread"])
            return
        header = _once([*command, version, first], _with_headers([], [include]), precompile)
        read = [*command, by_content, "-include-pch", header]
        if compiler.kind == "zig":
            build([*read, "-shared", source, "-o", place, "-lm", "-lpthread"])
            return
        made = place.with_suffix(".o")
        build([*read, "-c", source, "-o", made])
        build([(host("gcc") or compiler).cc, "-shared", made, "-o", place, "-lm", "-lpthread"])
        made.unlink()

    version = _version(command)
    return _once([*command, version], _with_headers([source], [include]), make)


def _version(command: Sequence[str]) -> str:
    return next((h.version for h in hosts() if command[0] in (h.cc, h.cxx)), "")


def _with_headers(sources: Sequence[Path], include: Sequence[Path]) -> list[Path]:
    return [*sources, *(path for folder in include for path in sorted(folder.glob("*.h")))]


def _once(parts: Sequence[str], files: Sequence[Path], make: Callable[[Path], None]) -> Path:
    """A file in the cache, made once for each content of some files."""
    key = content_key([*parts, *(path.name for path in files), *(path.read_bytes() for path in files)])
    place = cache_folder() / "tests" / key[:2] / key[2:]
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            part = place.with_suffix(".part")
            make(part)
            part.replace(place)
    return place


def joins() -> bool:
    """Whether static libraries can be made here."""
    try:
        archiver = find_archiver(find_compiler())
        with scratch_folder() as folder:
            (folder / "a.c").write_text("int a_b(void) { return 1; }\n")
            archiver.compiler.run(["-c", "a.c", "-o", "a.o"], folder)
            archiver.make(["a.o"], "a", "liba.a", folder)
    except ToolchainError:
        return False
    return True
