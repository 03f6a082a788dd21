"""Bundles of models that several processes share: a bundle for each rank in one, and MPI as their libraries take it.

out.tsc/
    rank0/ rank1/ ...   a bundle each
    libtorshc_mpi.so    MPI as a table of functions, compiled by mpicc
    mpi/                its sources, with the script that compiles them
    manifest.json       what it is
"""

from __future__ import annotations

import shutil
from pathlib import Path

from ..base.errors import ToolchainError
from ..base.manifest import MPI_LIBRARY
from ..base.resources import find_template
from ..targets.processes import execute
from .package import HEADER, MPI, BundleWriter

SOURCES = {name: name for name in ("torshc_mpi.c", "torshc_mpi.h", HEADER)} | {"build.sh": "mpi.sh.j2"}
SECONDS = 120  # for mpicc
FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-fPIC", "-shared")


def rank_folder(rank: int) -> str:
    """The folder of a rank's bundle."""
    return f"rank{rank}"


def add_mpi(bundle: BundleWriter) -> str:
    """Add MPI to a bundle of several ranks; why there is no library for it, or empty."""
    (bundle.folder / MPI).mkdir()
    bundle.add_texts({f"{MPI}/{name}": find_template(["c"], file).read_text() for name, file in SOURCES.items()})
    compiler = shutil.which("mpicc")
    if compiler is None:
        return "mpicc is not installed"
    return _compile(compiler, bundle.folder)


def _compile(compiler: str, folder: Path) -> str:
    try:
        command = [compiler, *FLAGS, f"{MPI}/torshc_mpi.c", "-o", MPI_LIBRARY]
        status, _, messages = execute(command, folder, SECONDS)
    except ToolchainError as error:
        return error.message
    if status == 0:
        return ""
    said = messages.strip().splitlines()
    return f"mpicc took longer than {SECONDS} s" if status is None else f"mpicc failed: {said[-1] if said else status}"
