"""What a shared library asks of the system's C library, read from the file."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path

_NEEDED = 0x6FFFFFFE  # SHT_GNU_verneed: sections of the versions of symbols that other libraries must have
_VERSION = re.compile(rb"GLIBC_(\d+(?:\.\d+)+)\Z")
_RELATIVE = b"GLIBC_ABI_DT_RELR"  # packed relocations, which glibc knows since 2.36


def glibc_floor(library: Path) -> str:
    """The oldest glibc that a library can be loaded with, as "2.17"; "" where it asks for none.

    Only 64-bit little-endian ELF is read, which is all that torshc compiles for where there is glibc.
    """
    data = library.read_bytes()
    if data[:6] != b"\x7fELF\x02\x01":
        return ""
    found = [(2, 36) if name == _RELATIVE else _numbers(name) for name in _read_needed_versions(data)]
    return ".".join(map(str, max(found, default=())))


def _numbers(name: bytes) -> tuple[int, ...]:
    match = _VERSION.match(name)
    return tuple(map(int, match[1].split(b"."))) if match else ()


def _read_needed_versions(data: bytes) -> Iterator[bytes]:
    """Names of the versions that the library needs."""
    start, size, count = struct.unpack_from("<Q", data, 40)[0], *struct.unpack_from("<HH", data, 58)
    heads = [struct.unpack_from("<IIQQQQIIQQ", data, start + k * size) for k in range(count)]
    for head in heads:
        if head[1] != _NEEDED:
            continue
        names, at = heads[head[6]][4], head[4]
        for _ in range(head[7]):  # as many libraries
            _, versions, _, first, following = struct.unpack_from("<HHIII", data, at)
            entry = at + first
            for _ in range(versions):
                _, _, _, name, after = struct.unpack_from("<IHHII", data, entry)
                yield data[names + name : data.index(b"\0", names + name)]
                entry += after
            at += following
