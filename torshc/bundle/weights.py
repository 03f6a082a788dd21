"""The weights file: arrays one after the other, each at a multiple of 256 bytes, and a footer.

    payload   the arrays, zeros between them; its length is a multiple of 64
    footer    64 bytes: "TORSHC WEIGHTS 1", payload length, identity (both unsigned 64-bit little-endian), zeros

The identity is the first eight bytes of the SHA-256 of the payload that the library was built with; other weights of
the same layout (``torshc weights``) keep it. The library knows the length and the identity of its
weights and compares both when it is opened, which costs no reading of the payload; ``torshc.load`` compares the
SHA-256 of the whole file.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from torshc.base.errors import BundleError, OutputError

from ..base.digest import PIECE

ALIGN = 256  # what devices want of addresses, WebGPU the most
FOOTER = 64  # bytes, of which a payload is a multiple
MAGIC = b"TORSHC WEIGHTS 1"


@dataclass(frozen=True)
class WeightsInfo:
    """What the host program and the manifest say about a weights file.

    Attributes:
        bytes: length of the payload, 0 when there are no weights (and no file).
        id: its 64-bit identity.
        sha256: of the whole file, hexadecimal; "" when there is none.
        offsets: where each array starts.
    """

    bytes: int
    id: int
    sha256: str
    offsets: tuple[int, ...]


def align(size: int, to: int = ALIGN) -> int:
    """``size`` rounded up to a multiple of 256, or of ``to``."""
    return -(-size // to) * to


def weight_offsets(sizes: Sequence[int]) -> tuple[int, ...]:
    """Where :func:`write_weights` puts arrays of these sizes in bytes.

    >>> weight_offsets([4, 65, 0, 8])
    (0, 256, 512, 512)
    """
    offsets, at = [], 0
    for size in sizes:
        offsets.append(at)
        at += align(size)
    return tuple(offsets)


def read_identity(path: Path) -> int:
    """The identity in a weights file.

    Raises:
        BundleError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            file.seek(-FOOTER, 2)
            return int(struct.unpack("<16sQQ32x", file.read(FOOTER))[2])
    except (OSError, struct.error) as error:
        raise BundleError(f"cannot read {path}: {error}", "compile the model again") from error


def write_weights(path: Path, arrays: Iterable[Iterable[npt.NDArray[Any]]], identity: int | None = None) -> WeightsInfo:
    """Writes a weights file, a part of an array at a time, so that an iterator may make each when it is needed.

    Args:
        path: the file, which must not exist.
        arrays: the parts of each array, of any shapes and types; they are written in C order.
        identity: identity of the library that will read the file; None for that of what is written.

    Raises:
        OutputError: it cannot be written.
    """
    digest, offsets, at = hashlib.sha256(), [], 0
    try:
        with path.open("xb", buffering=0) as raw, _Chunks(raw, digest) as file:
            for parts in arrays:
                file.write(memoryview(bytes(align(at) - at)))
                at = align(at)
                offsets.append(at)
                for part in parts:
                    data = np.ascontiguousarray(part).reshape(-1).view(np.uint8)
                    file.write(data.data)
                    at += data.size
            file.write(memoryview(bytes(align(at, FOOTER) - at)))
            at = align(at, FOOTER)
            if identity is None:
                identity = int.from_bytes(file.digest()[:8], "little")
            file.write(memoryview(struct.pack("<16sQQ32x", MAGIC, at, identity)))
        if at == 0:
            path.unlink()
    except OSError as error:
        raise OutputError(
            f"cannot write {path}: {error.strerror or error}", "free some space, or write elsewhere"
        ) from error
    return (
        WeightsInfo(at, identity, digest.hexdigest(), tuple(offsets)) if at else WeightsInfo(0, 0, "", tuple(offsets))
    )


class _Chunks:
    """An unbuffered file that is written in chunks, each at a multiple of their size, and the hash of all of it.

    One thread hashes a chunk and another writes it while the next one is filled.
    """

    def __init__(self, file: Any, digest: Any) -> None:
        self._file, self._digest = file, digest
        self._full, self._chunk = (np.empty(PIECE, np.uint8).data for _ in range(2))  # pages not reached are none
        self._used, self._hashed = 0, 0
        self._threads = ThreadPoolExecutor(2)
        self._storing: list[Future[None]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._threads:
            if kind is None:
                self._hand_over()
                self._wait()

    def write(self, data: memoryview) -> None:
        while data:
            room = self._chunk[self._used : self._used + len(data)]
            room[:] = data[: len(room)]
            data, self._used = data[len(room) :], self._used + len(room)
            if self._used == len(self._chunk):
                self._hand_over()

    def digest(self) -> bytes:
        """The hash of what was written so far."""
        self._wait()
        self._digest.update(self._chunk[self._hashed : self._used])
        self._hashed = self._used
        return bytes(self._digest.digest())

    def _hand_over(self) -> None:
        self._wait()
        self._storing = [
            self._threads.submit(self._digest.update, self._chunk[self._hashed : self._used]),
            self._threads.submit(self._store, self._chunk[: self._used]),
        ]
        self._full, self._chunk, self._used, self._hashed = self._chunk, self._full, 0, 0

    def _wait(self) -> None:
        for each in self._storing:
            each.result()

    def _store(self, data: memoryview) -> None:
        while data:  # an unbuffered file may take less than it is given
            data = data[self._file.write(data) :]
