"""Stand-ins for nvcc and xcrun, found before the real ones."""

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
BIN = HERE / "bin"


def missing(metal: bool = False) -> str | None:
    """Why the emulator, or that of Metal, cannot work here, or None."""
    if not sys.platform.startswith("linux"):
        return "the emulator is for Linux"
    names = ["clang++", *(f"clang++-{version}" for version in range(22, 13, -1)), "g++"]
    told = os.environ.get("T_EMULATE_CXX")
    compiler = told or next((name for name in names if shutil.which(name)), None)
    if not compiler:
        return "the emulator needs clang++ or g++"
    return "the emulator of Metal needs clang++" if metal and "clang" not in compiler else None


@contextmanager
def emulated_tools() -> Iterator[None]:
    """Inside, tools of CUDA and Metal are the emulator's, on PATH and by name. Skips a test where none can work."""
    if reason := missing():
        pytest.skip(reason)
    wanted = {
        "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}",
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
