"""Folders that torshc makes: private ones, which nobody else can write to, and scratch ones, which go after use.

Whoever makes a scratch folder holds a lock on it, which the system gives back when the process ends, however it ends.
So one that can be locked was left by a process that was killed: the next that makes one like it removes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

_SCRATCH, _KEPT = "torshc-scratch-", "torshc-kept-"


class SharedError(PermissionError):
    """A folder that somebody else could write to."""


def private_folder(folder: Path) -> Path:
    """Make a folder and those around it that only this user can enter, whatever the umask; one that is there stays.

    Raises:
        SharedError: somebody else could write to the one that is there.
        OSError: it cannot be made.
    """
    try:
        _make_private(folder)
    except FileNotFoundError:
        private_folder(folder.parent)
        _make_private(folder)  # below /proc there is none even then
    if reason := shared_with(folder.stat()):
        raise SharedError(
            f"{folder} is not used: {reason}; own it with mode 0700, or set TORSHC_CACHE_DIR to another folder"
        )
    return folder


def _make_private(folder: Path) -> None:
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
        folder.chmod(0o700)


def shared_with(status: os.stat_result) -> str:
    """Who, besides this user and root, could write to a file or folder; "" when nobody could."""
    if status.st_uid not in (0, os.geteuid()):
        return f"it belongs to user {status.st_uid}"
    if status.st_mode & 0o022:
        return f"its mode is {status.st_mode & 0o7777:04o}, so others can write to it"
    return ""


def claim(make: Callable[[], Path]) -> tuple[Path, int]:
    """A new folder with its lock, a handle that the caller closes in the end. ``make`` makes one under a new name.

    Raises:
        OSError: it cannot be made.
    """
    while True:
        folder = make()
        with contextlib.suppress(FileNotFoundError):  # removed by another process before it was locked: make another
            handle = _open_folder(folder)
            with contextlib.suppress(OSError):  # a file system without locks; nobody can take it there either
                fcntl.flock(handle, fcntl.LOCK_EX)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(folder.stat(), os.fstat(handle)):
                    return folder, handle
            os.close(handle)


def _open_folder(folder: Path) -> int:
    """A handle of a new folder, which is removed where there can be none."""
    try:
        return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        with contextlib.suppress(OSError):
            folder.rmdir()
        raise


def remove(folder: Path) -> None:
    """Removes a folder as far as that can be done. It tries twice: too many open files, say, may pass."""
    for _ in range(2):
        shutil.rmtree(folder, ignore_errors=True)


def sweep(folders: Iterable[Path]) -> None:
    """Removes those of this user's folders whose makers are gone."""
    for folder in folders:
        with contextlib.suppress(OSError):
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                if os.fstat(handle).st_uid == os.geteuid():
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    remove(folder)
            finally:
                os.close(handle)


def sweep_scratch() -> None:
    """Removes the scratch folders that killed processes left."""
    sweep(Path(tempfile.gettempdir()).glob(f"{_SCRATCH}*"))


@contextlib.contextmanager
def scratch_folder(keep: bool = False) -> Iterator[Path]:
    """A temporary folder, removed at the end; those that killed processes left are removed first.

    Args:
        keep: leave it there when the work in it fails.

    Raises:
        OSError: it cannot be made.
    """
    sweep_scratch()
    folder, lock = claim(lambda: Path(tempfile.mkdtemp(prefix=_KEPT if keep else _SCRATCH)))
    done = False
    try:
        yield folder
        done = True
    finally:
        if done or not keep:
            remove(folder)
        os.close(lock)
