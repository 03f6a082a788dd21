"""Arrays of .npy and .npz files, which nobody has to trust: sizes are checked before anything is read or unpacked.

Files are read, not mapped: a mapped file that somebody shortens ends the process by a signal.
"""

from __future__ import annotations

import math
import os
import stat
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
from numpy.lib import format as npy

Array = np.ndarray[Any, Any]
UNPACKED = 1 << 30  # bytes that an entry may unpack to where nobody knows how large it should be
SLACK = 1 << 20  # bytes that any array may have, so that what is wrong with it is said where it is used
_HEADER = 1 << 16  # bytes, in which NumPy's own headers fit
_AT_ONCE = 16 << 20


class Stream(Protocol):
    """What arrays are read from."""

    def read(self, count: int, /) -> bytes: ...

    def readinto(self, buffer: memoryview, /) -> int | None: ...


class TooLarge(ValueError):
    """An array has more bytes than are allowed."""


class Cut(ValueError):
    """A file has another length than it should have."""


def load_array(path: Path, most: int | None = None) -> Array:
    """The array of a .npy file, which has exactly the length that its header says.

    Args:
        most: bytes that it may have; None for as many as the file.

    Raises:
        TooLarge: it has more.
        ValueError: the file is no such file, or damaged.
        OSError: it cannot be read.
    """
    with path.open("rb") as file, _damage("it is no .npy file"):
        status = os.fstat(file.fileno())
        return _array(file, status.st_size if stat.S_ISREG(status.st_mode) else None, "it", most)


class Archive:
    """A .npz file, open.

    Attributes:
        names: names of its entries, without ``.npy``.
    """

    def __init__(self, path: Path) -> None:
        """
        Raises:
            ValueError: the file is no such file, or damaged.
            OSError: it cannot be read.
        """
        with _damage("it is no .npz file"):
            self._zip = zipfile.ZipFile(path)
        self._entries = {entry.filename.removesuffix(".npy"): entry for entry in self._zip.infolist()}
        self._bytes = path.stat().st_size
        self.names = tuple(self._entries)

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()

    def array(self, name: str, most: int | None = None) -> Array:
        """An entry's array.

        Args:
            most: bytes that it may have. None for as many as the file where it lies there as it is, and for
                ``UNPACKED`` where it is packed.

        Raises:
            TooLarge: it has more.
            ValueError: it is no array, or damaged.
            OSError: it cannot be read.
        """
        entry = self._entries[name]
        packed = entry.compress_type != zipfile.ZIP_STORED
        if packed and entry.compress_type != zipfile.ZIP_DEFLATED:  # the others unpack without bounds
            raise ValueError(f"{name!r} in it is packed otherwise than NumPy does it")
        if not packed and entry.file_size > self._bytes:
            raise ValueError(f"{name!r} in it is longer than the file")
        most = UNPACKED if packed and most is None else most
        with _damage(f"{name!r} in it is no array"), self._zip.open(entry) as file:
            return _array(cast("Stream", file), entry.file_size, repr(name), most)


@contextmanager
def _damage(what: str) -> Iterator[None]:
    """Whatever is raised of damage as one kind of error: NumPy reads headers as Python's words."""
    try:
        yield
    except (OSError, TooLarge):
        raise
    except MemoryError as error:
        raise ValueError("there is no memory for it") from error
    except Exception as error:
        text = f": {error}" if isinstance(error, Cut) else f" ({type(error).__name__})"
        raise ValueError(f"{what}, or damaged{text}") from error


def _array(file: Stream, length: int | None, what: str, most: int | None) -> Array:
    """The array in a stream of this length, as far as it is known, after its size was checked."""
    head = _Head(file)
    version = npy.read_magic(head)
    read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, by_columns, dtype = read_header(head)
    if dtype.hasobject:
        raise ValueError
    size = math.prod(shape) * dtype.itemsize
    if length is not None and length != head.taken + size:
        raise Cut(f"it has {length} bytes, and its header says {head.taken + size}")
    if most is None and length is None:
        most = UNPACKED
    if most is not None and size > most:
        kind = f"{dtype.name}{list(shape)}"
        raise TooLarge(f"{what} is {kind} of {size} bytes, and at most {most} are allowed")
    return np.ndarray(shape, dtype, read_bytes(file, size), order="F" if by_columns else "C")


class _Head:
    """The first bytes of a stream: a header that claims to be longer is none."""

    def __init__(self, file: Stream) -> None:
        self.file = file
        self.taken = 0

    def read(self, count: int = -1, /) -> bytes:
        found = self.file.read(min(count, _HEADER - self.taken))
        self.taken += len(found)
        return found


def read_bytes(file: Stream, count: int) -> Array:
    """So many bytes of a stream.

    Many bytes of a plain file are read by two threads: what takes longest is the memory, which is new to the process.

    Raises:
        Cut: it ends before.
        MemoryError: there is none for so many.
    """
    found = np.empty(count, np.uint8)
    if count < 4 * _AT_ONCE or not isinstance(file, FileIO):
        at = _fill(found, lambda part, _: file.readinto(part))
    else:
        handle, start, middle = file.fileno(), file.tell(), count // 2 // _AT_ONCE * _AT_ONCE
        with ThreadPoolExecutor(1) as other:
            rest = other.submit(_fill, found[middle:], lambda part, at: os.preadv(handle, [part], start + middle + at))
            at = _fill(found[:middle], lambda part, at: os.preadv(handle, [part], start + at))
            at += rest.result() if at == middle else 0
        file.seek(start + at)
    if at < count:
        raise Cut(f"it ends after {at} of {count} bytes")
    return found


def _fill(array: Array, read: Callable[[memoryview, int], int | None]) -> int:
    """Reads into an array; how many bytes there were.

    Args:
        read: reads into a part, which begins at a byte of the array.
    """
    at = 0
    while at < array.size and (got := read(array[at : at + _AT_ONCE].data, at)):
        at += got
    return at


__all__ = ["SLACK", "UNPACKED", "Archive", "Cut", "TooLarge", "load_array", "read_bytes"]
