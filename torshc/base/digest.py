"""Hashes that are computed beside other work."""

from __future__ import annotations

import hashlib
import os
import stat
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache, partial
from io import BufferedReader
from itertools import cycle
from pathlib import Path

# Bytes that are hashed, copied or written at once: a huge page, as Linux keeps what is written at a multiple of one in
# such, which libraries map. Of 16 MiB little is left in the caches when the next one to read them comes: copying 895 MB
# took .6 s of a Zen 4, and .3 in these pieces.
PIECE = 2 << 20


def file_sha256(path: Path) -> str:
    """SHA-256 of a file, hexadecimal, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def tree_sha256(folders: Iterable[Path]) -> str:
    """SHA-256 of the names and contents of the files in folders, hexadecimal, without Python's byte code.

    A process reads them once, and again when one of them has another :func:`_stamp`: to read torshc's own takes 20 ms.

    Raises:
        OSError: a folder or a file cannot be read.
    """
    return _files_sha256(tuple(file for folder in folders for file in _stamped_files(str(folder))))


def _stamped_files(folder: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if entry.is_dir(follow_symlinks=False):
            yield from _stamped_files(entry.path)
        elif not entry.name.endswith(".pyc"):
            yield entry.path, _stamp(entry)


@lru_cache(maxsize=2)
def _files_sha256(files: tuple[tuple[str, tuple[int, ...]], ...]) -> str:
    digest = hashlib.sha256()
    for path, _ in files:
        data = Path(path).read_bytes()
        digest.update(f"{path} {len(data)}:".encode())
        digest.update(data)
    return digest.hexdigest()


class Digest:
    """SHA-256 of bytes, which must not change, or what a function finds. A thread computes it, as hashlib leaves
    Python's lock to others."""

    def __init__(self, data: bytes | memoryview | Callable[[], str]) -> None:
        pool = ThreadPoolExecutor(1)
        self._found = pool.submit(data if callable(data) else lambda: hashlib.sha256(data).hexdigest())
        pool.shutdown(wait=False)

    def text(self) -> str:
        """The hash, hexadecimal."""
        return self._found.result()


class PartsDigest:
    """SHA-256 of a text and of the hashes of parts, in their order. Two threads compute those of the parts.

    Args:
        text: comes first.
    """

    AHEAD = 3  # parts that may wait for a thread

    def __init__(self, text: str) -> None:
        self._whole = hashlib.sha256(text.encode() + b"\n")
        self._threads = ThreadPoolExecutor(2)
        self._waiting: deque[Future[bytes]] = deque()

    def add(self, part: bytes | memoryview) -> None:
        """Adds a part, which must not change until :attr:`AHEAD` more were added."""
        self._waiting.append(self._threads.submit(_sha256, part))
        if len(self._waiting) > self.AHEAD:
            self._whole.update(self._waiting.popleft().result())

    def digest(self) -> bytes:
        """The hash of all parts, after which none is added."""
        for hashing in self._waiting:
            self._whole.update(hashing.result())
        self._threads.shutdown()
        return self._whole.digest()


def _sha256(data: bytes | memoryview) -> bytes:
    return hashlib.sha256(data).digest()


def read_parts(file: BufferedReader, size: int) -> Iterator[memoryview]:
    """The next ``size`` bytes of a file, or as many as there are, in parts of `PIECE` and a last one.

    A part holds until :attr:`PartsDigest.AHEAD` more were asked for.

    Raises:
        OSError: it cannot be read.
    """
    buffers = cycle([memoryview(bytearray(min(size, PIECE))) for _ in range(PartsDigest.AHEAD + 1)])
    while size and (count := file.readinto(buffer := next(buffers)[:size])):
        yield buffer[:count]
        size -= count


def _parts_sha256(path: Path, size: int) -> str:
    digest = PartsDigest(f"{size}")
    with path.open("rb") as file:
        for part in read_parts(file, size):
            digest.add(part)
    return digest.digest().hex()


class FileDigest:
    """A hash of a plain file, by SHA-256 of its parts, and whether the file is still the one that was read.

    Threads compute it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = _stamp(path)
        self._digest = Digest(partial(_parts_sha256, path, self._seen[2]) if self._seen else str)

    def text(self) -> str:
        """The hash, hexadecimal; empty where there is no such file.

        Raises:
            OSError: it cannot be read.
        """
        return self._digest.text()

    def is_current(self) -> bool:
        """Whether nobody has written to the file or replaced it."""
        return _stamp(self._path) == self._seen


def _stamp(file: Path | os.DirEntry[str]) -> tuple[int, ...]:
    """What changes when a plain file is written to or replaced; () where there is none."""
    try:
        s = file.stat()
    except OSError:
        return ()
    return (s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns) if stat.S_ISREG(s.st_mode) else ()
