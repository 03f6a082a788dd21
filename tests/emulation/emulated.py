"""Stand-ins for nvcc and xcrun, found before the real ones."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
BIN = HERE / "bin"


def missing(metal: bool = False) -> str | None:
    """Why the emulator, or that of Metal, cannot work here, or None."""
    if not sys.platform.startswith("linux"):
        return "the emulator is for Linux"
    compiler = os.environ.get("T_EMULATE_CXX") or _cxx()
    if not compiler:
        return "the emulator needs clang++ or g++"
    able = not metal or ("clang" in compiler and _knows_half(compiler))
    return None if able else "the emulator of Metal needs a clang++ with _Float16 (on x86-64, 16 or newer)"


@lru_cache
def _cxx() -> str | None:
    """The newest clang++ (before 16 it has no _Float16 on x86-64), else g++."""
    numbered = [f"clang++-{version}" for version in range(22, 13, -1)]
    names = [*numbered[:-2], "clang++", *numbered[-2:], "g++"]
    return next((path for name in names if (path := shutil.which(name))), None)


@lru_cache
def _knows_half(compiler: str) -> bool:
    command = [*shlex.split(compiler), "-x", "c++", "-fsyntax-only", "-"]
    return subprocess.run(command, input="_Float16 x;", text=True, capture_output=True).returncode == 0


def build_nccl(folder: Path) -> Path:
    """The stand-in of NCCL's library, compiled into a folder."""
    compiler = shlex.split(os.environ.get("T_EMULATE_CXX") or _cxx() or "")
    library = folder / "libnccl.so.2"
    flags = ["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-fvisibility=hidden"]
    subprocess.run([*compiler, *flags, str(HERE / "nccl" / "nccl.cpp"), "-o", str(library)], check=True)
    return library


@contextmanager
def emulated_tools() -> Iterator[None]:
    """Inside, tools of CUDA and Metal are the emulator's, on PATH and by name. Skips a test where none can work."""
    if reason := missing():
        pytest.skip(reason)
    # They begin with python3. This one starts at once; a stand-in such as that of pyenv takes longer than its work.
    python = Path(sys.executable).parent
    wanted = {
        "PATH": os.pathsep.join([str(BIN), str(python), os.environ.get("PATH", "")]),
        "TORSHC_NVCC": str(BIN / "nvcc"),
        "TORSHC_XCRUN": str(BIN / "xcrun"),
    }
    saved = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in saved.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
