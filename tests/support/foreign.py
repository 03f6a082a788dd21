"""Tensors of other libraries on a device, as they show themselves through DLPack."""

from __future__ import annotations

import ctypes
from ctypes import PYFUNCTYPE, c_int, c_int32, c_void_p, py_object
from typing import Any

from torshc.runtime import DeviceArray, dlpack, exchange
from torshc.runtime.native import Tensor

_Describe = PYFUNCTYPE(c_int, py_object, c_void_p)
_CurrentStream = PYFUNCTYPE(c_int, c_int, c_int32, c_void_p)


def versioned_capsule(owner: Foreign, data: int, offset: int, shape: tuple[int, ...], read_only: bool) -> Any:
    """A capsule "dltensor_versioned", as newer libraries give."""
    dims = (ctypes.c_int64 * len(shape))(*shape)
    managed = dlpack._Versioned(major=1, minor=1, flags=int(read_only))
    tensor: Tensor = managed.tensor
    tensor.data, tensor.byte_offset, tensor.ndim = data, offset, len(shape)
    tensor.device.type, tensor.device.id = owner.place
    tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes = *owner.array.code, 1
    tensor.shape = ctypes.cast(dims, ctypes.POINTER(ctypes.c_int64))
    owner.kept = (managed, dims)  # type: ignore[attr-defined]
    return dlpack._new(ctypes.addressof(managed), b"dltensor_versioned", None)


class Foreign:
    """A tensor of another library: a part of a device array, seen through DLPack."""

    def __init__(
        self,
        array: DeviceArray,
        skip: int = 0,
        versioned: bool = False,
        place: tuple[int, int] | None = None,
        read_only: bool = False,
    ) -> None:
        self.array, self.skip, self.versioned, self.read_only = array, skip, versioned, read_only
        self.place = place or array.__dlpack_device__()
        self.streams: list[Any] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.place

    def __dlpack__(self, *, stream: Any = None, **more: Any) -> Any:
        self.streams.append(stream)
        if "max_version" in more and not self.versioned:
            raise TypeError("unexpected keyword argument 'max_version'")
        shape = (self.array.shape[0] - self.skip, *self.array.shape[1:])
        step = self.array.nbytes // self.array.shape[0]
        if not self.versioned:
            return dlpack.export(self, self.array._data + self.skip * step, self.place, self.array.code, shape)
        return versioned_capsule(self, self.array._data, self.skip * step, shape, self.read_only)


class Described(Foreign):
    """The same of a library that has DLPack's table of functions, and works in the stream ``works_in``."""

    works_in = 0

    @classmethod
    def make_table(cls) -> None:
        def describe(value: Described, to: int) -> int:
            tensor = Tensor.from_address(to)
            array = value.array
            value.dims = (ctypes.c_int64 * len(array.shape))(*array.shape)
            tensor.data, tensor.ndim, tensor.byte_offset = array._data, len(array.shape), 0
            tensor.device.type, tensor.device.id = value.place
            tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes = *array.code, 1
            tensor.shape = ctypes.cast(value.dims, ctypes.POINTER(ctypes.c_int64))
            return 0

        def current_stream(kind: int, ordinal: int, to: int) -> int:
            ctypes.c_void_p.from_address(to).value = cls.works_in
            return 0

        cls.functions = _Describe(describe), _CurrentStream(current_stream)
        described, current = (ctypes.cast(f, ctypes.c_void_p).value for f in cls.functions)
        cls.table = exchange._Table(major=1, minor=3, describe=described, current_stream=current)
        capsule = dlpack._new(ctypes.addressof(cls.table), exchange._NAME, None)
        cls.__dlpack_c_exchange_api__ = capsule

    dims: Any
    functions: Any
    table: Any
    __dlpack_c_exchange_api__: Any


Described.make_table()
