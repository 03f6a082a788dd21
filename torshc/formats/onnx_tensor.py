"""ONNX tensors and types as NumPy arrays and declared types."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from ..base.budget import budget
from ..expr import MAP, OPTIONAL, SEQUENCE, STRING, DType, from_onnx
from ..graph.sizes import RANK_MAX
from .external import Folder
from .model import Array, Misfit, TypeDecl, Unusable

_MAX_BYTES = 1 << 62
_COUNT = re.compile("[0-9]{1,19}")
_KNOWN = set(TensorProto.DataType.values())


def type_name(code: int) -> str:
    """ONNX's name of an element type.

    Raises:
        Misfit: for a code that ONNX does not have.
    """
    if code not in _KNOWN:
        raise Misfit(f"unknown element type {code}")
    return str(TensorProto.DataType.Name(code))


class Tensors:
    """Turns tensors into arrays.

    Args:
        chunks: raw data left out of the message; see :mod:`torshc.formats.onnx_wire`.
        folder: where external data lies.
    """

    def __init__(self, chunks: Sequence[memoryview], folder: Folder) -> None:
        self.chunks = chunks
        self.folder = folder

    def array(self, t: TensorProto) -> Array | Unusable:
        """The contents of a tensor, without a copy where they are raw.

        Raises:
            Misfit: when the data do not fit the declared type and shape.
        """
        dtype = from_onnx(t.data_type)
        if dtype is None:
            return Unusable(f"element type {type_name(t.data_type)}")
        shape = tuple(int(d) for d in t.dims)
        size = checked_size(shape)
        if dtype is STRING:
            return _strings(t, shape, size)
        count = -(-size * dtype.bits // 8)
        if t.HasField("segment"):
            return Unusable("a tensor in segments")
        if t.data_location == TensorProto.EXTERNAL:
            data = self._external(t, count)
        elif t.doc_string:
            data = self.chunks[int(t.doc_string)]
        elif t.HasField("raw_data"):
            data = memoryview(t.raw_data)
        else:
            return _read_typed_field(t, shape)
        if len(data) != count:
            raise Misfit(f"{dtype.name}{list(shape)} takes {count} bytes, and {len(data)} are given")
        if dtype.bits < 8:
            return _unpack_bits(np.frombuffer(data, np.uint8), dtype, size).reshape(shape)
        by_numpy = dtype.numpy.isbuiltin == 1  # types of ml_dtypes have no order of bytes
        array = np.frombuffer(data, dtype.numpy.newbyteorder("<") if by_numpy else dtype.numpy).reshape(shape)
        return array if array.dtype.isnative else array.astype(dtype.numpy)

    def embed(self, t: TensorProto) -> None:
        """Put a tensor's external data into it.

        Raises:
            Misfit: when they do not fit the declared type and shape.
        """
        dtype = from_onnx(t.data_type)
        if dtype is None or dtype is STRING:
            raise Misfit(f"external data of element type {type_name(t.data_type)}")
        size = checked_size(t.dims)
        t.raw_data = bytes(self._external(t, -(-size * dtype.bits // 8)))
        t.ClearField("external_data")
        t.ClearField("data_location")

    def _external(self, t: TensorProto, count: int) -> memoryview:
        entries = {e.key: e.value for e in t.external_data}
        if "location" not in entries:
            raise Misfit("external data without a location")
        offset, length = (_bytes(entries, *given) for given in (("offset", 0), ("length", count)))
        if length != count:
            raise Misfit(f"external data of {length} bytes for a tensor of {count}")
        return self.folder.bytes(entries["location"], offset, length)

    def sparse(self, t: onnx.SparseTensorProto) -> Array | Unusable:
        """A sparse tensor with its zeros, within the budget of constant folding.

        Raises:
            Misfit: when values, places and shape do not fit each other.
        """
        values, places = self.array(t.values), self.array(t.indices)
        if isinstance(values, Unusable) or isinstance(places, Unusable):
            return values if isinstance(values, Unusable) else places
        shape = tuple(int(d) for d in t.dims)
        size = checked_size(shape)
        if size * values.itemsize > budget().folding:
            return Unusable(
                f"a sparse tensor of shape {list(shape)}, which would take more than {budget().folding >> 20} MiB"
            )
        array = np.full(size, "" if values.dtype == object else 0, values.dtype)
        array[_flat(places, values, shape)] = values
        return array.reshape(shape)


def _flat(places: Array, values: Array, shape: tuple[int, ...]) -> Array:
    """The places of a sparse tensor's elements, counted through; given so [n], or by dimension [n, rank]."""
    if values.ndim != 1 or places.shape not in (values.shape, (len(values), len(shape))):
        raise Misfit(
            f"a sparse tensor of rank {len(shape)} with values {list(values.shape)} and indices {list(places.shape)}"
        )
    sizes = np.asarray(shape if places.ndim == 2 else [math.prod(shape)])
    columns = places.reshape(len(values), -1) if places.size else np.zeros((0, len(sizes)), np.int64)
    if ((columns < 0) | (columns >= sizes)).any():
        raise Misfit(f"a sparse tensor of shape {list(shape)} with an index out of range")
    return np.ravel_multi_index(tuple(columns.T), tuple(sizes)) if len(sizes) else np.zeros(len(values), np.int64)


def _unpack_bits(packed: Array, dtype: DType, size: int) -> Array:
    """Elements of fewer than 8 bits, of which a byte holds some, the first in its lowest bits."""
    shifts = np.arange(0, 8, dtype.bits, dtype=np.uint8)
    codes = (packed[:, None] >> shifts) & np.uint8(2**dtype.bits - 1)
    return np.ascontiguousarray(codes.reshape(-1)[:size]).view(dtype.numpy)


def _strings(t: TensorProto, shape: tuple[int, ...], size: int) -> Array:
    """A tensor of strings, as ``str``."""
    if len(t.string_data) != size:
        raise Misfit(f"{size} strings are needed, and {len(t.string_data)} are given")
    array = np.empty(size, object)
    try:
        array[:] = [text.decode() for text in t.string_data]
    except UnicodeDecodeError as e:
        raise Misfit(f"a string that is not UTF-8: {e}") from e
    return array.reshape(shape)


def _read_typed_field(t: TensorProto, shape: tuple[int, ...]) -> Array:
    """A tensor whose elements stand in a typed field, such as float_data."""
    try:
        array: Array = numpy_helper.to_array(t)
    except (ValueError, TypeError, OverflowError, AttributeError) as e:
        raise Misfit(f"its data do not fit its type and shape: {e}") from e
    return array.reshape(shape)


def _bytes(entries: dict[str, str], key: str, default: int) -> int:
    """A count of bytes, in ASCII digits only: int() takes those of every script, signs, spaces and underscores."""
    text = entries.get(key, str(default))
    if not _COUNT.fullmatch(text):
        raise Misfit(f"external data with {key} {text[:40]!r}, which is not a number of bytes")
    return int(text)


def checked_size(shape: Sequence[int]) -> int:
    """Number of elements of a static shape.

    Raises:
        Misfit: for a negative dimension, too many of them, or more elements than any machine can address.
    """
    if len(shape) > RANK_MAX:
        raise Misfit(f"it has {len(shape)} dimensions, and at most {RANK_MAX} are possible")
    total = 1
    for d in shape:
        if d < 0:
            raise Misfit(f"shape {list(shape)} has a negative dimension")
        total *= max(d, 1)
    if total * 8 > _MAX_BYTES:
        raise Misfit(f"shape {list(shape)} has too many elements")
    return 0 if 0 in shape else total


def declared(t: onnx.TypeProto) -> TypeDecl:
    """A declared type."""
    kind = t.WhichOneof("value")
    if kind is None:
        return TypeDecl()
    if kind in ("sequence_type", "optional_type"):
        inner = declared(getattr(t, kind).elem_type)
        return TypeDecl(SEQUENCE if kind == "sequence_type" else OPTIONAL, (None,), inner.problem, inner)
    if kind == "map_type":
        key = TypeDecl(from_onnx(t.map_type.key_type), (None,), "", declared(t.map_type.value_type))
        return TypeDecl(MAP, (2,), "", key)
    if kind != "tensor_type":
        return TypeDecl(problem=f"a value of kind {kind.removesuffix('_type')}")
    code = t.tensor_type.elem_type
    dtype = from_onnx(code)
    problem = f"element type {type_name(code)}" if dtype is None and code else ""
    if not t.tensor_type.HasField("shape"):
        return TypeDecl(dtype, None, problem)
    return TypeDecl(dtype, tuple(_dim(d) for d in t.tensor_type.shape.dim), problem)


def _dim(d: Any) -> int | str | None:
    kind = d.WhichOneof("value")
    if kind == "dim_param":
        return str(d.dim_param) or None
    if kind != "dim_value":
        return None
    return int(d.dim_value) if d.dim_value >= 0 else None
