"""What is in the files of a model: read, not mapped, as a mapped file that is shortened ends the process by a signal.

What several readers hold at once, such as versions of one model for several processors, is in memory once: what is
held already is compared with the file, and read anew where it differs.
"""

from __future__ import annotations

import os
import stat
from io import FileIO
from pathlib import Path
from weakref import WeakValueDictionary

import numpy as np

from ..base.arrays import Array, Cut, read_bytes
from ..base.errors import ModelError, resource_error
from .model import COMPLETE, Misfit

_REMEDY = "compile again when nothing writes to it any more"
_AT_ONCE = 1 << 20  # bytes that are compared with a file: they stay in the cache
Stamp = tuple[int, ...]  # tells files and their versions apart
_HELD: WeakValueDictionary[tuple[int, ...], Array] = WeakValueDictionary()


class Contents:
    """Reads files in parts, all of one version.

    Args:
        follow: whether a path may be a link.
    """

    def __init__(self, follow: bool = True) -> None:
        self._stamps: dict[Path, Stamp] = {}
        # A pipe in place of a file does not block.
        self._flags = os.O_RDONLY | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW)

    def read(self, path: Path, what: str, offset: int = 0, length: int | None = None) -> memoryview:
        """Bytes of a file.

        Args:
            what: the file, in messages.
            length: how many; None for all.

        Raises:
            Misfit: it cannot be read, is too short, or changes while it is read.
            ResourceError: the system refuses memory or to open a file.
        """
        try:
            with self._open(path, what) as file:
                stamp = _stamp(file)
                size = os.fstat(file.fileno()).st_size
                count = size if length is None else length
                if offset < 0 or offset + count > size:
                    raise Misfit(f"{what} has {size} bytes; {count} from {offset} are needed", COMPLETE)
                found = _read_shared(file, offset, count)
                if not stamp == _stamp(file) == self._stamps.setdefault(path, stamp):
                    raise Misfit(f"{what} changed while it was read", _REMEDY)
                return found.data
        except Cut as e:
            raise Misfit(f"{what} was shortened while it was read: {e}", _REMEDY) from e
        except (OSError, MemoryError) as e:
            if refused := resource_error(e, f"{path} cannot be read"):
                raise refused from e
            raise Misfit(f"{what} cannot be read: {getattr(e, 'strerror', None) or e}") from e

    def _open(self, path: Path, what: str) -> FileIO:
        descriptor = os.open(path, self._flags)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return FileIO(descriptor)
        os.close(descriptor)
        raise Misfit(f"{what} is not a regular file")


def _read_shared(file: FileIO, offset: int, count: int) -> Array:
    """Bytes of a file, which somebody may hold already."""
    status = os.fstat(file.fileno())
    key = (status.st_dev, status.st_ino, offset, count)
    found = _HELD.get(key)
    if found is None or not _same(file, offset, found):
        file.seek(offset)
        found = read_bytes(file, count)
        found.flags.writeable = False
        _HELD[key] = found
    return found


def _same(file: FileIO, offset: int, held: Array) -> bool:
    """Whether a file has these bytes. Times of writing do not tell: systems count them in milliseconds or seconds."""
    file.seek(offset)
    parts = (held[at : at + _AT_ONCE] for at in range(0, held.size, _AT_ONCE))
    return all(np.array_equal(part, read_bytes(file, part.size)) for part in parts)


def _stamp(file: FileIO) -> Stamp:
    found = os.fstat(file.fileno())
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def read_file(path: Path) -> memoryview:
    """A file's bytes.

    Raises:
        ModelError: when it is missing, not a regular file, empty, or changes while it is read.
        ResourceError: the system refuses memory or to open a file.
    """
    try:
        found = Contents().read(path, str(path))
    except Misfit as e:
        raise ModelError(e.message, e.remedy) from e
    if not found:
        raise ModelError(f"{path} is empty", COMPLETE)
    return found
