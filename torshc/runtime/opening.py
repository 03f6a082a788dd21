"""Opening a bundle: what is checked before its library is loaded."""

from __future__ import annotations

import hashlib
import os
import platform
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from torshc.base.errors import BundleError, RunError
from torshc.base.manifest import FILE, SERVE
from torshc.base.webgpu import name_library

from .device import Opened, stream_number
from .manifest import REMEDY, RunInfo, read_manifest, require_plain
from .model import Model, check_threads
from .native import CPU, Library
from .ranks import Place, has_ranks, nccl_path, place_of
from .training import TrainingModel


def _check_file(path: Path, sha256: str) -> None:
    try:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise BundleError(f"cannot read {path}: {error.strerror or error}", REMEDY) from error
    if found != sha256:
        raise BundleError(f"{path} was altered: its sha256 is not the manifest's", REMEDY)


_TRIES = 50  # to open a bundle that is replaced meanwhile
_GAP = 0.01  # seconds to wait where there is none at the moment: not every system can exchange two folders in one step
_LOOKS = 5  # for a bundle where none has been so far
_TICK = 0.02  # seconds in which two times of change may be equal: a tick of the system's clock, and to spare


def _identity(folder: Path) -> tuple[int, ...] | None:
    """Which bundle lies there, since when; None where none does."""
    try:
        status, place = (folder / FILE).stat(), folder.stat()
    except OSError:
        return None
    # A folder that is renamed has another time of change, so that one that went and came back is seen.
    return status.st_dev, status.st_ino, status.st_mtime_ns, place.st_ino, place.st_ctime_ns


def _is_new(identity: tuple[int, ...]) -> bool:
    """Whether a bundle came so lately that it may have gone and come back between two looks at it."""
    return abs(time.time_ns() - identity[-1]) < _TICK * 1e9


def load(
    path: str | os.PathLike[str],
    threads: int | None = None,
    verify: bool = True,
    *,
    device: int | None = None,
    stream: Any = None,
    profile: str | os.PathLike[str] | None = None,
    ranks: int | None = None,
    nccl: str | os.PathLike[str] | None = None,
    communicator: int | None = None,
) -> Model:
    """Opens a bundle; of one for several processes, the part of this process.

    A bundle that is replaced meanwhile, by renaming as ``torshc compile`` and ``torshc weights`` do, is opened as it
    was or as it is then.

    Args:
        path: the folder that compile wrote.
        threads: threads of a run, the caller's included; what the bundle was compiled for when None (as many as the
            process may use, unless --threads said otherwise).
        verify: compare the SHA-256 of library and weights with the manifest (about half a second a gigabyte). The
            library compares size and identity of the weights in any case.
        device: which card, for a bundle that runs on one; the first when None, and of processes that share a model each
            one's own: the process's number on its machine, modulo how many cards there are.
        stream: the CUDA stream for all its work, a handle or a stream of torch or CuPy; its own when None.
        profile: the model writes the sizes of its runs to a file for ``compile --observed``, whose name begins so, when
            it is closed and now and then; when None, if the environment has ``TORSHC_PROFILE``. "" is none.
        ranks: address of a ``torshc_ranks`` of ``model.h``, for a bundle that several processes share; when None, that
            of MPI, which is started unless it has been (``mpirun -n 2 python program.py``), or, where the environment
            has ``TORSHC_RANK``, ``TORSHC_WORLD`` and ``TORSHC_MEET``, that of processes of one machine.
        nccl: absolute path of libnccl.so.2, for such a bundle on cards; when None, what ``TORSHC_NCCL`` of the
            environment names.
        communicator: the caller's communicator (``ncclComm_t``) of that library over all ranks, as a number; one of its
            own when None.

    Raises:
        BundleError: it is no bundle, was altered, or is for another machine; there is no driver, no card, or none that
            the bundle has code for.
        RunError: ``threads`` is not 1 to 1024, there is no such device, or no folder for a profile.
    """
    folder = Path(path).absolute()
    check_threads(threads)
    if profile and not Path(profile).absolute().parent.is_dir():
        raise RunError(f"there is no folder for the profile {os.fspath(profile)!r}", "make it, or name another")
    path_of_profile = None if profile is None else os.fsencode(profile)
    place = place_of(folder, ranks) if has_ranks(folder) else None
    folder = folder if place is None else place.folder
    failure = BundleError(f"{folder} keeps being replaced while it is opened")
    known = False  # whether there has been a bundle
    for tries in range(1, _TRIES + 1):
        seen = _identity(folder)
        known = known or seen is not None
        try:
            model = _load(folder, threads, verify, device, stream, path_of_profile, place, nccl, communicator)
            if _identity(folder) == seen:
                return model
            model.close()
        except BundleError as error:
            again = _is_new(seen) if seen else known or tries < _LOOKS
            if _identity(folder) == seen and not again:
                raise
            failure = error
            time.sleep(0 if seen else _GAP)
    raise failure


def _load(
    folder: Path,
    threads: int | None,
    verify: bool,
    device: int | None,
    stream: Any,
    profile: bytes | None,
    rank: Place | None,
    nccl: str | os.PathLike[str] | None,
    communicator: int | None,
) -> Model:
    manifest = read_manifest(folder)
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine().lower(), platform.machine().lower())
    if manifest.arch != machine:
        raise BundleError(
            f"{folder} is for target {manifest.target!r} on {manifest.arch}; this is {machine}",
            "compile the model for this machine",
        )
    place, handle = manifest.device, stream_number(stream)
    if place == CPU and (device or handle):
        raise RunError(
            f"{folder} is for the processor, which has no devices and streams", "leave out device and stream"
        )
    if not manifest.library_sha256:
        raise BundleError(f"{folder} holds sources that are not built yet", f"sh {folder / 'src' / 'build.sh'}")
    library, weights = folder / "libmodel.so", folder / "weights.bin" if manifest.weights_sha256 else None
    for file_of in (library, weights) if weights else (library,):
        require_plain(file_of)
    if verify:
        _check_file(library, manifest.library_sha256)
        if weights:
            _check_file(weights, manifest.weights_sha256)
    name_library(place)
    opened = Library(library, place != CPU, manifest.dynamic, bool(manifest.states))
    try:
        manifest = _version(opened, manifest)
        _check_library(opened, manifest)
        file = os.fsencode(weights) if weights else None
        count = manifest.threads if threads is None else threads
        shared = rank is not None and place != CPU
        card = (-1 if shared else 0) if device is None else device
        table = 0 if rank is None else rank.join(opened, library)
        found = Opened(
            opened, manifest.model, file, count, (place, card), handle, profile, None, table,
            nccl_path(nccl) if shared else "", communicator or 0,
        )  # fmt: skip
    except BaseException:
        opened.unload()
        raise
    kind = TrainingModel if manifest.states else Model
    model = kind(manifest, found) if rank is None else kind(manifest, found, rank.rank, rank.count)
    if isinstance(model, TrainingModel) and (folder / SERVE).is_dir():
        model.open_served = lambda threads: load(folder / SERVE, threads, verify)
    return model


def _version(library: Library, manifest: RunInfo) -> RunInfo:
    """The manifest with the version that the library runs; the last where it can run none."""
    if not manifest.other_versions:
        return manifest
    isa = library.isa or [*manifest.other_versions][-1]
    version = {manifest.isa: manifest.version, **manifest.other_versions}.get(isa)
    if version is None:
        raise BundleError(f"the library has a version {isa!r} that the manifest does not name", REMEDY)
    return replace(manifest, isa=isa, version=version)


def _check_library(library: Library, manifest: RunInfo) -> None:
    known = library.torshc_interface_id(), library.torshc_step_count()
    if manifest.states and library.torshc_state_count() != len(manifest.states):
        raise BundleError("the library has other states than the manifest says", REMEDY)
    if known != (manifest.interface_id, len(manifest.version.steps)):
        raise BundleError("the library has other inputs, outputs or steps than the manifest says", REMEDY)
    if manifest.device != CPU and library.torshc_device_type() != manifest.device:
        raise BundleError(f"the library is not for the manifest's target {manifest.target!r}", REMEDY)
