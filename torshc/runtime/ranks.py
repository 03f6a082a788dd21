"""Models that several processes share: which of them this process is, and its bundle.

Processes exchange messages by a table of functions (``torshc_ranks`` of ``model.h``): that of MPI, which the bundle's
libtorshc_mpi.so brings; that of processes of one machine, which their libraries have, where the environment says which
they are; or one of the caller's own.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
from ctypes import c_char_p, c_double, c_int32, c_uint32, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torshc.base.errors import BundleError
from torshc.base.manifest import FILE, MPI_LIBRARY, RANKS_FORMAT, RANKS_VERSION, RanksManifest, manifest_hash

from .manifest import REMEDY, reader_of, require_plain
from .native import Library

_MOST = 64 << 20  # bytes of a manifest
_FUNCTION = "torshc_mpi_ranks"
RANK, WORLD, MEET = "TORSHC_RANK", "TORSHC_WORLD", "TORSHC_MEET"
NCCL = "TORSHC_NCCL"


class _Table(ctypes.Structure):
    """The first fields of ``torshc_ranks``."""

    _fields_ = (
        ("size", c_uint32),
        ("rank", c_int32),
        ("count", c_int32),
        ("broken", c_int32),
        ("seconds", c_double),
        ("context", c_void_p),
    )


@dataclass(frozen=True)
class Place:
    """Where this process is among those that share a model.

    Attributes:
        rank, count: which of how many.
        table: address of the table of functions; None where the library of the rank is to make it.
        folder: the bundle of the rank.
        meet: the file at which processes of one machine meet.
    """

    rank: int
    count: int
    table: int | None
    folder: Path
    meet: Path | None = None

    def join(self, library: Library, path: Path) -> int:
        """The table's address.

        Args:
            library: the rank's library, at `path`.

        Raises:
            BundleError: the processes cannot meet.
        """
        if self.table is not None:
            return self.table
        function = library.plain("torshc_local_ranks")
        function.restype = c_void_p
        found = function(c_char_p(os.fsencode(self.meet or "")), c_int32(self.rank), c_int32(self.count))
        if not found:
            raise BundleError(library.last_error(), f"start every job with a new folder in {MEET}")
        _held.append(ctypes.CDLL(os.fspath(path)))  # the table is the library's, for the rest of the process
        return int(found)


_held: list[ctypes.CDLL] = []


def has_ranks(folder: Path) -> bool:
    """Whether a bundle is for several processes; what is no plain file is not opened, as reading it may never end."""
    path = folder / FILE
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            return b'"' + RANKS_FORMAT.encode() + b'"' in file.read(64)
    except OSError:
        return False


def place_of(folder: Path, table: int | None) -> Place:
    """Where this process is among the ranks of a bundle.

    Args:
        table: address of a ``torshc_ranks``; None for what the environment says, or that of MPI.

    Raises:
        BundleError: the bundle was altered, there is no MPI, or there are more or fewer processes than ranks.
    """
    manifest = _read(folder)
    meet = None
    if table is None and RANK in os.environ:
        rank, count, meet = _of_environment()
    else:
        table = _start_mpi(folder) if table is None else table
        found = _Table.from_address(table)
        rank, count = int(found.rank), int(found.count)
    wanted = len(manifest.ranks)
    if count != wanted:
        raise BundleError(
            f"{folder} is cut into {wanted} ranks; the world has {count}",
            f"start {wanted} processes: mpirun -n {wanted} COMMAND, or each with {RANK} and {WORLD}",
        )
    if not 0 <= rank < count:
        raise BundleError(f"the table of ranks says that this is rank {rank} of {count}", "count from 0")
    info = manifest.ranks[rank]
    if info.folder != f"rank{rank}":
        raise BundleError(f"{folder} has rank {rank} in {info.folder[:80]!r}", REMEDY)
    own = folder / info.folder
    require_plain(own / FILE)
    try:
        sha256 = hashlib.sha256((own / FILE).read_bytes()).hexdigest()
    except OSError as error:
        raise BundleError(f"cannot read {own / FILE}: {error.strerror or error}", REMEDY) from error
    if sha256 != info.manifest_sha256:
        raise BundleError(f"{own} belongs to another bundle: its manifest is not the one that {FILE} names", REMEDY)
    return Place(rank, count, table, own, meet / f"{_identity(folder)}.ranks" if meet else None)


def nccl_path(given: str | os.PathLike[str] | None) -> str:
    """The library of NCCL that is named, here or in the environment; nothing is searched.

    Raises:
        BundleError: there is none, or its path is not absolute.
    """
    named = Path(given if given is not None else os.environ.get(NCCL, ""))
    remedy = f"name libnccl.so.2 by its absolute path, as nccl= or {NCCL} (pip install nvidia-nccl-cu13 brings it)"
    if named == Path():
        raise BundleError("ranks on cards exchange tensors by NCCL, and nothing says where that is", remedy)
    if not named.is_absolute():
        raise BundleError(f"the path of NCCL is not absolute: {named}", remedy)
    if not named.is_file():
        raise BundleError(f"there is no file {named}, which is to be NCCL", remedy)
    return os.fspath(named)


def _identity(folder: Path) -> str:
    """What tells the bundle from others: processes meet only over the same one."""
    return hashlib.sha256((folder / FILE).read_bytes()).hexdigest()[:16]


def _of_environment() -> tuple[int, int, Path]:
    """Which process of how many this is, and the folder where they meet, as the environment says.

    Raises:
        BundleError: it says it wrongly, or not all of it.
    """
    remedy = f"give every process {RANK}=0, 1, ..., {WORLD}=how many, and {MEET}=a new folder, the same for all"
    texts = [os.environ.get(name, "") for name in (RANK, WORLD)]
    if not all(text.isdecimal() and len(text) < 6 for text in texts):
        raise BundleError(f"{RANK}={texts[0]!r} and {WORLD}={texts[1]!r} are no rank and no number of ranks", remedy)
    meet = Path(os.environ.get(MEET, ""))
    if not meet.is_absolute() or not meet.is_dir():
        raise BundleError(f"{MEET}={os.environ.get(MEET, '')!r} is no absolute path of a folder", remedy)
    return int(texts[0]), int(texts[1]), meet


def _read(folder: Path) -> RanksManifest:
    path = folder / FILE
    require_plain(path)
    try:
        if path.stat().st_size > _MOST:
            raise BundleError(f"{path} is too large to be a manifest", REMEDY)
        body: Any = json.loads(path.read_bytes())
    except OSError as error:
        raise BundleError(f"cannot read {path}: {error.strerror or error}", REMEDY) from error
    except (ValueError, RecursionError) as error:
        raise BundleError(f"{path} is not JSON: {error}", REMEDY) from error
    if not isinstance(body, dict) or body.get("format") != RANKS_FORMAT or body.get("format_version") != RANKS_VERSION:
        raise BundleError(f"{path} is not a manifest that this torshc reads", REMEDY)
    digest = body.pop("sha256", None)
    try:
        if digest != manifest_hash(body):
            raise BundleError(f"{path} was altered: its sha256 does not match", REMEDY)
        found: RanksManifest = reader_of(RanksManifest)(body)
    except (KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        raise BundleError(f"{path} lacks a field or has one of another type: {error}", REMEDY) from error
    return found


def _start_mpi(folder: Path) -> int:
    """The table of MPI, which is started unless it has been."""
    path = folder / MPI_LIBRARY
    script = folder / "mpi" / "build.sh"
    if not path.exists():
        raise BundleError(
            f"{folder} has no {MPI_LIBRARY}: mpicc was not there when it was compiled",
            f"install MPI (libopenmpi-dev), then: sh {script}",
        )
    require_plain(path)
    try:
        library = ctypes.CDLL(os.fspath(path), mode=os.RTLD_NOW | os.RTLD_GLOBAL)  # MPI's own parts look for it
        function = getattr(library, _FUNCTION)
    except (OSError, AttributeError) as error:
        raise BundleError(f"cannot load {path}: {error}", f"build it for the MPI that is here: sh {script}") from error
    function.restype = c_void_p
    table = function()
    if not table:
        raise BundleError("MPI does not start", "start the processes with mpirun")
    return int(table)
