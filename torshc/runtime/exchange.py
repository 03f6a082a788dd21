"""Tensors of libraries that have DLPack's table of C functions, without a capsule.

``__dlpack__`` of PyTorch takes ten microseconds and more for a tensor on a card, a function of the table one. The table
hangs on the type (``DLPackExchangeAPI`` in dlpack.h, from DLPack 1.2 on) and lives as long as the process.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from ctypes import PYFUNCTYPE, byref, c_char, c_int, c_int32, c_uint32, c_void_p, py_object
from functools import lru_cache
from typing import Any

from .device import LEGACY_STREAM
from .dlpack import LAYOUT, MAJOR, View, get_pointer, is_valid

_NAME = b"dlpack_exchange_api"
_Describe = PYFUNCTYPE(c_int, py_object, c_void_p)
_CurrentStream = PYFUNCTYPE(c_int, c_int, c_int32, c_void_p)


class _Table(ctypes.Structure):
    _fields_ = (
        ("major", c_uint32),
        ("minor", c_uint32),
        ("older", c_void_p),
        ("allocate", c_void_p),
        ("export", c_void_p),
        ("adopt", c_void_p),
        ("describe", c_void_p),
        ("current_stream", c_void_p),
    )


class Exchange:
    """The functions of a type's table that a run needs."""

    def __init__(self, describe: int, current_stream: int) -> None:
        self._describe, self._current_stream = _Describe(describe), _CurrentStream(current_stream)

    def look(self, value: Any, what: str, place: tuple[int, int], stream: int | None, writable: bool) -> View | None:
        """A tensor on a device, in whose stream the model runs; None where ``__dlpack__`` has to be asked.

        That is for tensors elsewhere, whose library works in another stream, or that are part of a computation of
        gradients.

        Raises:
            RunError: as :class:`View`.
        """
        tensor = (c_char * LAYOUT.size)()
        filled = self.fill([value], [ctypes.addressof(tensor)], place, stream)
        there = filled and LAYOUT.unpack(tensor.raw)[1:3] == place
        return Glance(value, tensor.raw, what, writable) if there else None

    def fill(self, values: Iterable[Any], to: Iterable[int], place: tuple[int, int], stream: int | None) -> bool:
        """Has the library write DLTensors of its tensors to some addresses.

        They hold what belongs to the tensors, and are of use for as long as these live and are not changed.

        Returns:
            Whether it has done so for all, and works in `stream` on the device at `place`.
        """
        describe, current = self._describe, c_void_p()
        try:
            for value, at in zip(values, to, strict=True):
                if getattr(value, "requires_grad", False) or describe(value, at):
                    return False
            if self._current_stream(*place, byref(current)):
                return False
        except Exception:  # of any kind; what the other library has to say comes again, as its answer to __dlpack__
            return False
        return (current.value or LEGACY_STREAM) == stream


class Glance(View):
    """A tensor on a device, described by its library; it is kept for as long as this object lives."""

    def __init__(self, value: Any, tensor: bytes, what: str, writable: bool) -> None:
        self._owner = value
        self._take(tensor, 0, what, writable)


def exchange_of(value: Any) -> Exchange | None:
    """The table of a tensor's type, of a version that is known; None where there is none."""
    kind: Any = type(value)
    return _table(kind)


@lru_cache(maxsize=64)
def _table(kind: Any) -> Exchange | None:
    capsule = getattr(kind, "__dlpack_c_exchange_api__", None)
    if capsule is None or not is_valid(capsule, _NAME):
        return None
    address = get_pointer(capsule, _NAME)
    while address:
        table = _Table.from_address(address)
        if table.major == MAJOR:
            return Exchange(table.describe, table.current_stream) if table.describe and table.current_stream else None
        address = table.older
    return None
