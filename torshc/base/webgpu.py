"""The library of ``webgpu.h`` that bundles for WebGPU load when they are opened."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

NAMED = "TORSHC_WEBGPU"  # an environment variable: the file of the library
WEBGPU = 15  # DLPack's device type
_NAMES = ("libwgpu_native-release.so", "libwgpu_native-release.dylib", "wgpu_native-release.dll")


def find_library() -> str:
    """The file that ``TORSHC_WEBGPU`` names, else that of the installed ``wgpu`` package; empty where there is none."""
    if named := os.environ.get(NAMED):
        return named
    spec = importlib.util.find_spec("wgpu")  # it is not imported, which would load the library
    folder = Path(spec.origin).parent / "resources" if spec is not None and spec.origin else None
    files = [folder / name for name in _NAMES] if folder is not None else []
    return next((str(file) for file in files if file.is_file()), "")


def name_library(device: int) -> None:
    """Tell bundles for WebGPU, which ask the environment, where the library is."""
    if device == WEBGPU and (found := find_library()):
        os.environ[NAMED] = found
