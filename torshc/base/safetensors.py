"""Arrays of .safetensors files, which nobody has to trust: https://github.com/huggingface/safetensors.

A file is the length of a header as 8 bytes, the header, JSON that says where each array lies, and the arrays.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from .arrays import Array, Cut, TooLarge, read_bytes

_HEADER = 100 << 20  # bytes, the most that the format allows
_TYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "<i1", "U64": "<u8",
    "U32": "<u4", "U16": "<u2", "U8": "<u1", "BOOL": "?",
}  # fmt: skip
STATE = "torshc-state"  # in the metadata of state files, whose entries that begin with OWN are no weights
OWN = "torshc."


class Safetensors:
    """A .safetensors file, open; of a state file its weights.

    Attributes:
        names: names of its entries.
    """

    def __init__(self, path: Path) -> None:
        """
        Raises:
            ValueError: the file is no such file, or damaged.
            OSError: it cannot be read.
        """
        self._file = path.open("rb")
        try:
            self._length = path.stat().st_size
            self._entries = self._header()
        except BaseException:
            self._file.close()
            raise
        self.names = tuple(self._entries)

    def _header(self) -> dict[str, Any]:
        size = int.from_bytes(self._file.read(8), "little")
        self._start = 8 + size
        if not 2 <= size <= min(_HEADER, self._length - 8):
            raise ValueError("it is no .safetensors file, or damaged: its header would be longer than the file")
        try:
            found = json.loads(self._file.read(size))
            metadata = found.pop("__metadata__", {})
            hidden = OWN if metadata.get("format") == STATE else None
            return {n: e for n, e in found.items() if hidden is None or not n.startswith(hidden)}
        except (ValueError, RecursionError, AttributeError, TypeError) as error:
            raise ValueError("it is no .safetensors file, or damaged: its header is no JSON object") from error

    def __enter__(self) -> Safetensors:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def array(self, name: str, most: int | None = None) -> Array:
        """An entry's array.

        Args:
            most: bytes that it may have; None for as many as the file.

        Raises:
            TooLarge: it has more.
            ValueError: it is of a type that NumPy lacks, or damaged.
            OSError: it cannot be read.
        """
        try:
            kind, shape = str(self._entries[name]["dtype"]), [*map(int, self._entries[name]["shape"])]
            low, high = map(int, self._entries[name]["data_offsets"])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"{name!r} in it is no array, or damaged") from error
        if kind not in _TYPES:
            raise ValueError(f"{name!r} in it is {kind[:20]}, which NumPy lacks")
        dtype = np.dtype(_TYPES[kind])
        if min(shape, default=0) < 0 or not 0 <= low <= high or high - low != math.prod(shape) * dtype.itemsize:
            raise ValueError(f"{name!r} in it has {high - low} bytes, which is not what its shape says")
        if self._start + high > self._length:
            raise Cut(f"it is cut off within {name!r}")
        if most is not None and high - low > most:
            raise TooLarge(f"{name!r} is {dtype.name}{shape} of {high - low} bytes, and at most {most} are allowed")
        self._file.seek(self._start + low)
        data = read_bytes(self._file, high - low)
        try:
            return np.ndarray(shape, dtype, data)
        except (ValueError, OverflowError) as error:  # too many dimensions, or one too large beside one of 0
            raise ValueError(f"{name!r} in it has a shape that NumPy lacks") from error
