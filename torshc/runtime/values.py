"""Values of models with run-time sizes: arrays, strings, lists and None as the library's tensors, and back.

np.array(["a", "b"], object)   a string tensor
[array, array]                 a sequence
None, or the value itself      an optional
{key: number}                  a map, among outputs only
"""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable, Sequence
from ctypes import POINTER, addressof, byref, c_char, c_int64, c_void_p, cast, memmove
from typing import Any

import numpy as np

from torshc.base.errors import RunError
from torshc.base.manifest import DLPACK, NUMPY, TensorSpec

from .dlpack import host_array
from .native import CPU, Dtype, Tensor
from .pool import address_of, buffer_of

_WORDS = struct.Struct(f"{ctypes.sizeof(Tensor) // 8}q")  # a Tensor, and which of them are addresses
_PLACES = struct.Struct("=Q8xi4xQ16x")  # of a Tensor where its elements are, its rank, and where its sizes are
LARGE = 64 << 10  # bytes from which on a copy takes longer than the 2 us of an array in the library's memory
_free = ctypes.CDLL(None).free
_free.argtypes, _free.restype = [ctypes.c_void_p], None
_DATA, _SHAPE = Tensor.data.offset // 8, Tensor.shape.offset // 8


def are_arrays(specs: Sequence[TensorSpec]) -> bool:
    """Whether all are arrays of known ranks, of types that NumPy has."""
    return all(spec.dtype in NUMPY and "..." not in spec.shape for spec in specs)


class GivenArrays:
    """Inputs that are arrays, in structures that stay from one run to the next; used under the model's lock only."""

    def __init__(self, specs: Sequence[TensorSpec]) -> None:
        self.tensors = (Tensor * max(len(specs), 1))()
        self._rows: list[tuple[Tensor, Any, np.dtype[Any]]] = []
        self._shapes: list[tuple[int, ...]] = []  # what `dims` of each holds
        for tensor, spec in zip(self.tensors, specs, strict=False):
            dims = (c_int64 * len(spec.shape))()
            tensor.device.type, tensor.dtype = CPU, Dtype(*code_of(spec.dtype), 1)
            tensor.ndim, tensor.shape = len(dims), dims
            self._rows.append((tensor, dims, spec.numpy))
            self._shapes.append((0,) * len(dims))

    def set(self, values: Sequence[Any]) -> bool:
        """Takes arrays as they are; false where a value is none, or not of the type and rank that the model takes."""
        for k, (tensor, dims, dtype) in enumerate(self._rows):
            value = values[k]
            if type(value) is not np.ndarray or (value.dtype is not dtype and value.dtype != dtype):
                return False
            shape = value.shape
            if shape != self._shapes[k]:
                if len(shape) != len(dims):
                    return False
                self._shapes[k], dims[:] = shape, shape
            try:
                at = addressof(buffer_of(value))
            except (BufferError, TypeError, ValueError):
                if not value.flags.c_contiguous:
                    return False
                at = address_of(value)
            if at & 15 and not value.flags.aligned:
                return False
            tensor.data = at
        return True


class TakenArrays:
    """Outputs that are arrays, in structures that stay from one run to the next; used under the model's lock only.

    Args:
        keep: what :meth:`Library.plain` has for ``torshc_keep``; None for libraries that give no memory away.
        handle: the model.
    """

    def __init__(self, specs: Sequence[TensorSpec], keep: Callable[..., int] | None, handle: int) -> None:
        self.tensors = (Tensor * max(len(specs), 1))()
        self._rows = [
            (k * ctypes.sizeof(Tensor), spec.numpy, spec.numpy.itemsize, (c_int64 * len(spec.shape)).from_address)
            for k, spec in enumerate(specs)
        ]
        self._keep, self._memory = keep, c_void_p()
        self._asked = [(c_void_p(handle), k, byref(self._memory)) for k in range(len(specs))]

    def take(self) -> list[np.ndarray[Any, Any]]:
        """What the library gave: small arrays copied, large ones in its memory, which goes with the last one on it."""
        results = []
        for (at, dtype, each, dims_at), asked in zip(self._rows, self._asked, strict=True):
            data, _, dims = _PLACES.unpack_from(self.tensors, at)
            shape = dims_at(dims)[:]
            size = math.prod(shape) * each
            if size >= LARGE and self._keep and not self._keep(*asked) and (memory := self._memory.value):
                results.append(_on_kept(memory, data, size, shape, dtype))
                continue
            array = np.empty(shape, dtype)
            if size:
                memmove(address_of(array), data, size)
            results.append(array)
        return results


def _on_kept(memory: int, data: int, size: int, shape: Sequence[int], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    block = (c_char * size).from_address(data)
    block.memory = _Kept(memory)  # type: ignore[attr-defined]  # an array on the block keeps it
    return np.ndarray(shape, dtype, block)  # type: ignore[arg-type]  # an array of ctypes is a buffer


class _Kept(int):
    """An address in the C library's memory, which is freed when this goes."""

    def __del__(self, free: Any = _free) -> None:
        free(self)


class Given:
    """A value as the library takes it; keeps the memory behind it alive."""

    def __init__(self) -> None:
        self.held: list[Any] = []

    def put(self, tensor: Tensor, value: Any, spec: TensorSpec) -> None:
        """Fills in a tensor.

        Raises:
            RunError: the value is not what the model takes.
        """
        code, bits = code_of(spec.dtype)
        tensor.device.type, tensor.dtype = CPU, Dtype(code, bits, 1)
        if spec.dtype in ("sequence", "optional"):
            self._fill_nested(tensor, value, spec)
            return
        array = as_array(value, spec)
        if spec.dtype == "string":
            data = self._strings(array, spec)
        else:
            array = np.require(array, requirements=("C", "A"))
            self.held.append(array)
            data = array.__array_interface__["data"][0]
        self._shape(tensor, array.shape)
        tensor.data = data

    def point(self, tensor: Tensor, there: Any) -> None:
        """Fills in a tensor that is on the model's device."""
        code, bits = there.code
        tensor.dtype = Dtype(code, bits, 1)
        self.held.append(there)
        self._shape(tensor, there.shape)
        there.point(tensor)

    def _fill_nested(self, tensor: Tensor, value: Any, spec: TensorSpec) -> None:
        if spec.dtype == "sequence" and not isinstance(value, (list, tuple)):
            raise RunError(f"input {spec.name!r} is a sequence", "pass a list of arrays")
        items = value if spec.dtype == "sequence" else [] if value is None else [value]
        inner = spec.inner
        if items and inner is None:
            raise RunError(f"input {spec.name!r} is always empty", "pass an empty list, or None")
        tensors = (Tensor * max(len(items), 1))()
        for item, t in zip(items, tensors, strict=False):
            assert inner is not None
            self.put(t, item, TensorSpec(spec.name, inner.dtype, inner.shape, inner.inner))
        self.held.append(tensors)
        self._shape(tensor, (len(items),))
        tensor.data = ctypes.addressof(tensors)

    def _strings(self, array: np.ndarray[Any, Any], spec: TensorSpec) -> int:
        try:
            texts = [x if isinstance(x, bytes) else str(x).encode() for x in array.reshape(-1).tolist()]
        except UnicodeEncodeError as error:
            raise RunError(f"input {spec.name!r} has a string that UTF-8 cannot hold: {error.reason}") from error
        # All in one piece and their places by NumPy: a structure for each costs ten times as much.
        together = np.frombuffer(b"".join([*texts, b"\0"]), np.uint8)
        strings = np.empty((len(texts) + 1, 2), np.int64)  # torshc_string: where it begins, bytes
        strings[:-1, 1] = [len(text) for text in texts]
        strings[0, 0] = together.__array_interface__["data"][0]
        np.cumsum(strings[:-1, 1], out=strings[1:, 0])
        strings[1:, 0] += strings[0, 0]
        self.held += [together, strings]
        return int(strings.__array_interface__["data"][0])

    def _shape(self, tensor: Tensor, shape: Sequence[int]) -> None:
        dims = (c_int64 * max(len(shape), 1))(*shape)
        self.held.append(dims)
        tensor.ndim, tensor.shape = len(shape), dims  # cast() would leave cycles of objects to be collected


def as_array(value: Any, spec: TensorSpec) -> np.ndarray[Any, Any]:
    """An array of the type and rank that the model takes.

    Raises:
        RunError: it is not one.
    """
    plain = spec.numpy if spec.dtype != "string" else None
    if isinstance(value, np.ndarray) and value.dtype is plain and value.ndim == len(spec.shape):
        return value
    try:
        found = None if isinstance(value, np.ndarray) or spec.dtype == "string" else _view_shared(value, spec)
        array = value if isinstance(value, np.ndarray) else np.asarray(value) if found is None else found
    except (TypeError, ValueError) as error:
        raise RunError(f"input {spec.name!r} is not an array: {error}") from error
    if spec.dtype == "string":
        fits = array.dtype.kind in "UST" or (
            array.dtype == object and all(issubclass(kind, (str, bytes)) for kind in set(map(type, array.flat)))
        )
        want = "strings"
    else:
        fits = array.dtype == spec.numpy
        want = str(spec.numpy)
    if not fits:
        raise RunError(f"input {spec.name!r} has type {array.dtype}; expected {want}")
    if "..." not in spec.shape and array.ndim != len(spec.shape):
        raise RunError(f"input {spec.name!r} has shape {list(array.shape)}; expected {spec.shape_text}")
    return array


def code_of(dtype: str) -> tuple[int, int]:
    """The library's type code and bits of an element type."""
    return DLPACK[dtype]


def _view_shared(value: Any, spec: TensorSpec, writable: bool = False) -> Any:
    """A tensor of another library on the processor, in its place; None for what is none."""
    what = f"out[{spec.name!r}]" if writable else f"input {spec.name!r}"
    return host_array(value, what, spec.numpy, code_of(spec.dtype), writable)


def taken(tensor: Tensor, spec: TensorSpec) -> Any:
    """What the library gave, copied out of its memory."""
    if spec.dtype == "optional" and tensor.dtype.code != DLPACK["optional"][0]:
        assert spec.inner is not None
        return taken(tensor, spec.inner)  # one that is there
    shape = tuple(tensor.shape[d] for d in range(tensor.ndim))
    count = math.prod(shape)
    if spec.dtype in ("sequence", "optional"):
        if spec.inner is not None and spec.inner.dtype == "map":
            items: list[Any] = _maps(tensor.data, count, spec.inner)
        else:
            items = [_inner(t, spec) for t in _elements(tensor, Tensor, count)]
        return items if spec.dtype == "sequence" else (items[0] if items else None)
    if spec.dtype == "map":
        return _maps(ctypes.addressof(tensor), 1, spec)[0]
    if spec.dtype == "string":
        out = np.empty(count, np.object_)
        places = np.frombuffer(ctypes.string_at(tensor.data, 16 * count), np.int64).reshape(count, 2).tolist()
        out[:] = [ctypes.string_at(at, size).decode(errors="replace") if size else "" for at, size in places]
        return out.reshape(shape)
    array = np.empty(shape, spec.numpy)
    if count:
        memmove(array.__array_interface__["data"][0], tensor.data, array.nbytes)
    return array


def _inner(tensor: Tensor, spec: TensorSpec) -> Any:
    assert spec.inner is not None
    return taken(tensor, spec.inner)


def _maps(at: int, count: int, spec: TensorSpec) -> list[dict[Any, Any]]:
    """Maps that lie in a row, as dictionaries.

    A batch may have thousands, for which structures of ctypes are slow: words are read, and shared keys once.
    """
    assert spec.inner is not None and spec.inner.inner is not None
    kind: Any = np.ctypeslib.as_ctypes_type(spec.inner.inner.numpy)
    known: dict[tuple[int, int], tuple[list[Any], Any]] = {}
    out = []
    for pair, *_ in _WORDS.iter_unpack(ctypes.string_at(at, count * _WORDS.size)):
        keys, values = _WORDS.iter_unpack(ctypes.string_at(pair, 2 * _WORDS.size))
        place = keys[_DATA], c_int64.from_address(keys[_SHAPE]).value
        if place not in known:
            known[place] = taken(Tensor.from_address(pair), spec.inner).tolist(), kind * place[1]
        names, row = known[place]
        out.append(dict(zip(names, row.from_address(values[_DATA])[:], strict=False)))
    return out


def _elements(tensor: Tensor, kind: Any, count: int) -> Any:
    return cast(tensor.data, POINTER(kind))[:count] if count else []


def put_into(array: Any, result: Any, spec: TensorSpec) -> None:
    """Copies a result to an array of the caller's.

    Raises:
        RunError: it does not have the type and shape of the result.
    """
    if not isinstance(array, np.ndarray):
        array = _view_shared(array, spec, writable=True)
    fits = isinstance(array, np.ndarray) and isinstance(result, np.ndarray)
    if not fits or array.dtype != result.dtype or array.shape != result.shape or not array.flags.writeable:
        raise unlike(spec)
    np.copyto(array, result)


def unlike(spec: TensorSpec) -> RunError:
    """An array of the caller's does not have the type and shape of a result."""
    return RunError(
        f"out[{spec.name!r}] is not an array of the type and shape that this run gives",
        f"leave it out: the shape {spec.shape_text} is known only after a run",
    )
