"""Tensors of other libraries by DLPack, without copies and without those libraries.

Protocol: https://dmlc.github.io/dlpack/latest/python_spec.html. A capsule "dltensor" holds a DLManagedTensor, a capsule
"dltensor_versioned" a DLManagedTensorVersioned; who drops a capsule unused has its owner free the tensor.
"""

from __future__ import annotations

import ctypes
import math
import struct
from ctypes import CFUNCTYPE, POINTER, PYFUNCTYPE, c_char_p, c_int, c_int64, c_uint32, c_uint64, c_void_p, py_object
from typing import Any

import numpy as np

from torshc.base.errors import RunError

from .native import CPU, Tensor

DEVICE_NAMES = {CPU: "cpu", 2: "cuda", 3: "pinned memory", 8: "metal", 10: "rocm", 13: "managed memory", 15: "webgpu"}
_CODES = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex", 6: "bool"}
_FLOATS = {
    10: "float8_e4m3fn", 11: "float8_e4m3fnuz", 12: "float8_e5m2", 13: "float8_e5m2fnuz", 14: "float8_e8m0fnu",
    17: "float4_e2m1fn",
}  # fmt: skip
_READ_ONLY, _PADDED = 1, 4
# DLTensor: data, device type and number, rank, type code, bits and lanes, shape, strides, offset.
LAYOUT = struct.Struct("=QiiiBBHQQQ")
MAJOR = 1  # of DLPack


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", Tensor), ("context", c_void_p), ("deleter", c_void_p))


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", c_uint32),
        ("minor", c_uint32),
        ("context", c_void_p),
        ("deleter", c_void_p),
        ("flags", c_uint64),
        ("tensor", Tensor),
    )


is_valid = PYFUNCTYPE(c_int, py_object, c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))
get_pointer = PYFUNCTYPE(c_void_p, py_object, c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))
# In the destructor of a capsule there is no reference to it any more, so it goes by address.
_dead_is_valid = PYFUNCTYPE(c_int, c_void_p, c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))
_dead_pointer = PYFUNCTYPE(c_void_p, c_void_p, c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))
_new = PYFUNCTYPE(py_object, c_void_p, c_char_p, c_void_p)(("PyCapsule_New", ctypes.pythonapi))


def device_name(kind: int, ordinal: int) -> str:
    """ "cuda:0", or "cpu"."""
    name = DEVICE_NAMES.get(kind, f"device type {kind}")
    return name if kind == CPU else f"{name}:{ordinal}"


def dtype_name(code: int, bits: int) -> str:
    """A NumPy-like name of a DLPack type."""
    return _FLOATS.get(code) or ("bool" if code == 6 else f"{_CODES.get(code, f'type{code}_')}{bits}")


def _unreadable(what: str, value: object, error: Exception) -> RunError:
    """Another library does not give its tensor; one of PyTorch that has a gradient becomes no NumPy array either."""
    remedy = "pass its .detach()" if getattr(value, "requires_grad", False) else "pass it as a NumPy array"
    return RunError(f"{what} cannot be read through DLPack: {error}", remedy)


class View:
    """A tensor on a device, borrowed for as long as this object lives.

    Args:
        value: an object with ``__dlpack__`` and ``__dlpack_device__``.
        what: what it is in the messages of errors ("input 'x'").
        stream: what ``__dlpack__`` is told about the stream that will read or write the tensor.
        writable: whether it will be written.

    Raises:
        RunError: it cannot be had, is read-only, is not contiguous in row-major order, or holds elements of fewer than
            8 bits that do not take a byte each.

    Attributes:
        device: its type and number.
        shape: its dimensions.
        code: DLPack's type code and bits.
        data, offset: address, and bytes to add to it.
    """

    def __init__(self, value: Any, what: str, stream: int | None, writable: bool = False) -> None:
        try:
            self._capsule = give_capsule(value, stream)
        except Exception as error:  # whatever another library raises, it is this tensor that cannot be used
            raise _unreadable(what, value, error) from error
        address, flags = _find(self._capsule, what)
        self._take(ctypes.string_at(address, LAYOUT.size), flags, what, writable)

    def _take(self, tensor: bytes, flags: int, what: str, writable: bool) -> None:
        """The fields of a DLTensor, all at once, as ctypes takes its time for each."""
        self.data, kind, ordinal, rank, code, bits, lanes, shape, steps, self.offset = LAYOUT.unpack(tensor)
        self.device, self.code, self.shape = (kind, ordinal), (code, bits if lanes == 1 else 0), _integers(shape, rank)
        if writable and flags & _READ_ONLY:
            raise RunError(f"{what} is read-only")
        if bits < 8 and not flags & _PADDED:
            raise RunError(f"{what} has several elements in a byte", "pass it as a NumPy array of ml_dtypes")
        compact = 1
        for size, step in zip(reversed(self.shape), reversed(_integers(steps, rank)), strict=False):
            if size != 1 and step != compact and 0 not in self.shape:
                raise RunError(f"{what} is not contiguous in row-major order", "pass it as .contiguous()")
            compact *= size

    def point(self, tensor: Tensor) -> None:
        """Let a tensor of a call be this one."""
        tensor.data, tensor.byte_offset = self.data, self.offset
        tensor.device.type, tensor.device.id = self.device


def host_array(value: Any, what: str, dtype: np.dtype[Any], code: tuple[int, int], writable: bool = False) -> Any:
    """The memory of another library's tensor on the processor as a NumPy array, without a copy; None for what is none.

    Args:
        value: any object.
        what: what it is in the messages of errors ("input 'x'").
        dtype, code: the NumPy dtype and DLPack's type code and bits that it must have.
        writable: whether it will be written.

    Raises:
        RunError: it cannot be had, has another type, is read-only, or has elements that do not take a byte each.
    """
    if not hasattr(value, "__dlpack__") or value.__dlpack_device__()[0] != CPU:
        return None
    try:
        capsule = give_capsule(value, None)
    except Exception as error:  # whatever another library raises, it is this tensor that cannot be used
        raise _unreadable(what, value, error) from error
    address, flags = _find(capsule, what)
    data, _, _, rank, kind, bits, lanes, shape, steps, offset = LAYOUT.unpack(ctypes.string_at(address, LAYOUT.size))
    if (kind, bits, lanes) != (*code, 1):
        raise RunError(f"{what} has type {dtype_name(kind, bits)}; expected {dtype_name(*code)}")
    if writable and flags & _READ_ONLY:
        raise RunError(f"{what} is read-only")
    if bits < 8 and not flags & _PADDED:
        raise RunError(f"{what} has several elements in a byte", "pass it as a NumPy array of ml_dtypes")
    sizes = _integers(shape, rank)
    if 0 in sizes:
        return np.empty(sizes, dtype)
    strides = _integers(steps, rank) or tuple(math.prod(sizes[i + 1 :]) for i in range(rank))
    if any(step < 0 for step in strides):
        raise RunError(f"{what} runs backwards through memory", "pass a contiguous copy")
    last = sum((n - 1) * step for n, step in zip(sizes, strides, strict=True))
    memory = (ctypes.c_char * ((last + 1) * dtype.itemsize)).from_address(data + offset)
    memory.owner = capsule  # type: ignore[attr-defined]  # an array keeps its memory, and that its owner
    buffer: Any = memory
    return np.ndarray(sizes, dtype, buffer, strides=tuple(step * dtype.itemsize for step in strides))


def _integers(address: int, count: int) -> tuple[int, ...]:
    """64-bit integers in memory; none where there is no address."""
    return struct.unpack(f"{count}q", ctypes.string_at(address, 8 * count)) if address else ()


def give_capsule(value: Any, stream: int | None) -> Any:
    """A tensor's capsule, which its library gives once the stream waits for its own."""
    try:
        return value.__dlpack__(stream=stream, max_version=(MAJOR, 0))
    except TypeError:  # a library from before versions
        return value.__dlpack__(stream=stream)


def _find(capsule: Any, what: str) -> tuple[int, int]:
    """Address of the DLTensor in a capsule, and its flags; the capsule keeps both."""
    if is_valid(capsule, b"dltensor"):
        return get_pointer(capsule, b"dltensor"), 0
    if not is_valid(capsule, b"dltensor_versioned"):
        raise RunError(f"{what} gives no DLPack capsule")
    address: int = get_pointer(capsule, b"dltensor_versioned")
    head = _Versioned.from_address(address)
    if head.major != MAJOR:
        raise RunError(f"{what} uses DLPack {head.major}.{head.minor}; expected {MAJOR}")
    return address + _Versioned.tensor.offset, head.flags


# Everything that an exported tensor needs, by the address of its DLManagedTensor, until its user is done with it.
_exported: dict[int, tuple[Any, ...]] = {}


def _forget(address: int) -> None:
    _exported.pop(address, None)


def _destroy_capsule(capsule: int) -> None:
    if _dead_is_valid(capsule, b"dltensor"):  # otherwise a consumer has taken the tensor, and calls its deleter
        _forget(_dead_pointer(capsule, b"dltensor"))


_delete = CFUNCTYPE(None, c_void_p)(_forget)
_destroy = PYFUNCTYPE(None, c_void_p)(_destroy_capsule)


def export(owner: Any, data: int, device: tuple[int, int], dtype: tuple[int, int], shape: tuple[int, ...]) -> Any:
    """A capsule "dltensor" of compact memory at ``data``; ``owner`` lives until its user is done with it.

    Raises:
        RunError: its elements have fewer than 8 bits; such a capsule cannot say that they take a byte each.
    """
    if dtype[1] < 8:
        raise RunError(f"{dtype_name(*dtype)} cannot be exported through DLPack", "take a copy with .numpy()")
    dims = (c_int64 * len(shape))(*shape)
    steps = (c_int64 * len(shape))(*(math.prod(shape[i + 1 :]) for i in range(len(shape))))
    managed = _Managed()
    tensor = managed.tensor
    tensor.data, tensor.ndim = data or None, len(shape)
    tensor.device.type, tensor.device.id = device
    tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes = *dtype, 1
    tensor.shape, tensor.strides = ctypes.cast(dims, POINTER(c_int64)), ctypes.cast(steps, POINTER(c_int64))
    managed.deleter = ctypes.cast(_delete, c_void_p)
    address = ctypes.addressof(managed)
    _exported[address] = (managed, dims, steps, owner)
    return _new(address, b"dltensor", ctypes.cast(_destroy, c_void_p))
