"""Tensors of libraries that have DLPack's table of C functions, without a capsule.

``__dlpack__`` of PyTorch takes ten microseconds and more for a tensor on a card, a function of the table one. The table
hangs on the type (``DLPackExchangeAPI`` in dlpack.h, from DLPack 1.2 on) and lives as long as the process.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import PYFUNCTYPE, byref, c_int, c_uint32, c_void_p
from functools import lru_cache
from typing import Any

from .device import LEGACY_STREAM
from .dlpack import MAJOR, View, get_pointer, give_capsule, is_valid
from .native import Tensor

_NAME = b"dlpack_exchange_api"
# Arguments are not declared, as converting them takes longer than the calls: what is passed is of ctypes, made once.
_Function = PYFUNCTYPE(c_int)


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
    """The functions of a type's table that a run needs: of an object and a DLTensor, of a device and a stream."""

    def __init__(self, describe: int, current_stream: int) -> None:
        self.describe, self.current_stream = _Function(describe), _Function(current_stream)

    def look(self, value: Any, what: str, place: tuple[int, int], stream: int | None, writable: bool) -> View | None:
        """A tensor on a device, in whose stream the model runs; None where ``__dlpack__`` has to be asked.

        That is for tensors elsewhere, or that are part of a computation of gradients.

        Raises:
            RunError: as :class:`View`.
        """
        tensor = Tensor()
        there = Places([tensor], place, stream).fill([value]) and (tensor.device.type, tensor.device.id) == place
        return Glance(value, bytes(tensor), what, writable) if there else None


class Places:
    """Structures that a library fills with its tensors, anew for each call; used under a lock only.

    Args:
        tensors: the structures.
        place: the device that the model runs on.
        stream: the stream that it runs in.
    """

    def __init__(self, tensors: Sequence[Tensor], place: tuple[int, int], stream: int | None) -> None:
        # An object goes by its address, which in CPython is its id(), so that nothing here keeps a tensor alive.
        self._places = [(c_void_p(), byref(tensor)) for tensor in tensors]
        self._current, self._stream = c_void_p(), stream
        self._asked = (*place, byref(self._current))
        self._kind: type | None = None
        self._table: Exchange | None = None

    def fill(self, values: Sequence[Any]) -> bool:
        """Has the library of these tensors, which are of one type, write the first structures.

        They hold what belongs to the tensors, and are of use for as long as these live and are not changed. Where the
        library works in another stream than the model, the model's waits for it, for which one tensor is asked: a
        library of a table has one stream for all of a device.

        Returns:
            Whether it has done so for all.
        """
        kind = type(values[0])
        if kind is not self._kind:
            self._kind, self._table = kind, exchange_of(values[0])
        if self._table is None:
            return False
        describe = self._table.describe
        try:
            for value, (address, to) in zip(values, self._places):  # noqa: B905  # inputs alone are fewer
                if type(value) is not kind or getattr(value, "requires_grad", False):
                    return False
                address.value = id(value)
                if describe(address, to):
                    return False
            if self._table.current_stream(*self._asked):
                return False
            if (self._current.value or LEGACY_STREAM) != self._stream:
                if values[0].__dlpack_device__() != self._asked[:2]:
                    return False
                give_capsule(values[0], self._stream)
        except Exception:  # of any kind; what the other library has to say comes again, as its answer to __dlpack__
            return False
        return True


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
