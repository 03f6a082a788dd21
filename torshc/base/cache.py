"""The cache of compiled objects and of whole bundles: content in, content out.

A key is the hash of all that an entry depends on (source, headers, flags, compiler), so nothing in the cache is ever
out of date. An entry carries the hash of its key and content, so that neither a damaged entry nor one under another's
name is used: it is deleted and counts as absent. Entries are written beside their place and renamed, so that any
number of processes may share a folder. What others could write to is not used, as objects are linked into libraries.
A cache that cannot be used only costs time: the first reason is kept in ``problem``, never raised. Of more than
``MOST`` bytes, what was used last stays.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from io import BufferedReader
from pathlib import Path

from .digest import PartsDigest, read_parts
from .folders import SharedError, private_folder, remove, shared_with

_MAGIC = b"TORSHC OBJECT 3\n"
_HEAD = len(_MAGIC) + 32
# A temporary file older than this was left by a process that was killed.
_STALE_SECONDS = 3600.0
MOST = 4 << 30  # bytes of all entries
# To count them takes longer than to keep a small entry: that is done after one of this size, and after each 64th other.
_LARGE = 16 << 20


def content_key(parts: Iterable[str | bytes]) -> str:
    """A hash over a sequence of parts, each with its length, so that no two sequences run together.

    >>> content_key(["ab", "c"]) == content_key(["a", "bc"])
    False
    """
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(f"{len(data)}:".encode())
        digest.update(data)
    return digest.hexdigest()


def _head(key: str, data: bytes) -> bytes:
    """What an entry in one part begins with."""
    return _MAGIC + hashlib.sha256(key.encode() + b"\n" + hashlib.sha256(data).digest()).digest()


@dataclass(frozen=True)
class Entry:
    """An entry: its key, its bytes on disk, and when it was last used (seconds since the epoch)."""

    key: str
    size: int
    used: float


class Kept:
    """An entry that is read a part at a time; nothing of it counts before :meth:`is_intact` says so."""

    def __init__(self, key: str, file: BufferedReader) -> None:
        self._file = file
        self._head = file.read(_HEAD)
        self._digest = PartsDigest(key)
        self.damaged = False

    def parts(self, size: int) -> Iterator[memoryview]:
        """The next ``size`` bytes, in parts of ``PIECE`` and a last one; a part holds until the next is asked for.

        Threads hash a part while the caller has it.
        """
        with contextlib.suppress(OSError):
            for part in read_parts(self._file, size):
                self._digest.add(part)
                yield part
                size -= len(part)
        self.damaged |= size > 0

    def is_intact(self) -> bool:
        """Whether all of it was read, and is what was kept under this key."""
        self.damaged |= bool(self._file.read(1)) or self._head != _MAGIC + self._digest.digest()
        return not self.damaged


class Cache:
    """A folder of objects; ``Cache(None)`` is one that keeps nothing.

    Args:
        folder: where; made when first written. The default is :func:`torshc.base.resources.cache_folder`.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = None if folder is None else Path(folder).absolute() / "objects-1"
        self.problem = ""
        self.hits = 0

    @cached_property
    def _private(self) -> bool:
        """Whether there is a folder that nobody else could write to; it is made if need be."""
        if self.folder is None:
            return False
        try:
            private_folder(self.folder.parent)
            private_folder(self.folder)
        except OSError as error:
            self._note(error)
            return False
        return True

    def headers(self, key: str) -> Path | None:
        """A folder beside the entries that nobody else could write to, made if need be; None where none can be."""
        try:
            return private_folder(self._headers / key) if self._headers is not None and self._private else None
        except OSError as error:
            self._note(error)
            return None

    def _path(self, key: str) -> Path | None:
        return self.folder / key[:2] / f"{key[2:]}.o" if self.folder else None

    def get(self, key: str) -> bytes | None:
        """The content under ``key``, or None; a damaged entry is deleted."""
        path = self._path(key)
        data = self._read(key, path) if path and self._private else None
        self.hits += data is not None
        return data

    def _read(self, key: str, path: Path) -> bytes | None:
        try:
            with path.open("rb") as file:
                foreign = shared_with(os.fstat(file.fileno()))
                raw = file.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            self._note(error)
            return None
        data = raw[_HEAD:]
        if foreign or raw[:_HEAD] != _head(key, data):
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # when it was last used, for trim()
        return data

    @contextlib.contextmanager
    def reading(self, key: str) -> Iterator[Kept | None]:
        """As :meth:`get` of an entry that :meth:`put_parts` kept."""
        path = self._path(key)
        kept = None
        with contextlib.ExitStack() as stack:
            try:
                if path is not None and self._private:
                    file = stack.enter_context(path.open("rb"))
                    kept = Kept(key, file) if not shared_with(os.fstat(file.fileno())) else None
            except FileNotFoundError:
                pass
            except OSError as error:
                self._note(error)
            yield kept
        if kept is not None and path is not None:
            with contextlib.suppress(OSError):
                path.unlink() if kept.damaged else os.utime(path)

    def has_room(self, size: int) -> bool:
        """Whether the disk has several times as much free."""
        try:
            return bool(self.folder and self._private and shutil.disk_usage(self.folder).free > 4 * size)
        except OSError:
            return False

    def put(self, key: str, data: bytes) -> None:
        """Keeps ``data`` under ``key``; a failure leaves nothing behind and is noted in ``problem``."""
        self.put_parts(key, [data])

    def put_parts(self, key: str, parts: Iterable[bytes | memoryview]) -> None:
        """The same of data that :meth:`reading` gives in the same parts; each is asked for when the one before is
        written, and must not change later."""
        path = self._path(key)
        if path is None or not self._private:
            return
        temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")
        try:
            private_folder(path.parent)
            with temporary.open("xb") as file:
                os.fchmod(file.fileno(), 0o600)  # whatever the umask
                digest = PartsDigest(key)
                file.write(bytes(_HEAD))
                for part in parts:
                    digest.add(part)
                    file.write(part)
                size = file.tell()
                file.seek(0)
                file.write(_MAGIC + digest.digest())
            temporary.replace(path)
            if size >= _LARGE or int(key[-2:], 16) % 64 == 0:
                self.trim(MOST)
        except OSError as error:
            self._note(error)
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)

    def _note(self, error: OSError) -> None:
        if not self.problem:
            what = f"{error}" if isinstance(error, SharedError) else f"{self.folder}: {error.strerror or error}"
            self.problem = f"kernel cache {what}"

    def _files(self, pattern: str) -> Iterator[tuple[Path, os.stat_result]]:
        if self.folder is None:
            return
        for path in sorted(self.folder.glob(f"??/{pattern}")):
            with contextlib.suppress(OSError):  # another process may have deleted it
                yield path, path.lstat()

    def entries(self) -> list[Entry]:
        """All entries, the least recently used first."""
        found = [Entry(p.parent.name + p.stem, s.st_size, s.st_mtime) for p, s in self._files("*.o")]
        return sorted(found, key=lambda e: (e.used, e.key))

    def size(self) -> int:
        """Bytes of all entries."""
        return sum(entry.size for entry in self.entries())

    @property
    def _headers(self) -> Path | None:
        return self.folder.parent / "headers" if self.folder is not None else None

    def clear(self) -> int:
        """Deletes all entries, and precompiled headers beside them; returns how many entries."""
        if self._headers is not None:
            remove(self._headers)
        return self.trim(0)

    def trim(self, limit: int) -> int:
        """Deletes the least recently used entries until at most ``limit`` bytes remain; returns how many.

        What killed processes left behind goes too.
        """
        for path, status in self._files(".*.tmp"):
            if limit == 0 or time.time() - status.st_mtime > _STALE_SECONDS:
                self._delete(path)
        entries, deleted = self.entries(), 0
        total = sum(entry.size for entry in entries)
        for entry in entries:
            place = self._path(entry.key)
            if total <= limit or place is None:
                break
            deleted += self._delete(place)
            total -= entry.size
        return deleted

    def _delete(self, path: Path) -> bool:
        try:
            path.unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            self._note(error)
            return False
        return True
