"""Element types: one row a type, with its size, its kind and its NumPy and ONNX names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base.manifest import ML_DTYPES, NUMPY


@dataclass(frozen=True)
class DType:
    """An element type.

    Attributes:
        name: short name, used in generated code and in JSON graphs ("f32").
        size: bytes an element takes in memory; types below 8 bits take a whole byte, as in ml_dtypes.
        kind: "f" float, "i" signed, "u" unsigned, "b" bool; "s" string and "q" sequence, optional or map, which no
            kernel computes with.
        onnx: value of ``onnx.TensorProto.DataType``.
        compute: name of the type that arithmetic happens in; where it is another, this is a type of storage only.
        width: bits that count, where they are fewer than those of its bytes; the others are 0 when written, and are
            not looked at when read.
    """

    name: str
    size: int
    kind: str
    onnx: int
    compute: str
    width: int = 0

    def __repr__(self) -> str:
        return self.name

    @property
    def is_object(self) -> bool:
        """Whether its elements are strings, or tensors of their own."""
        return self.kind in "sq"

    @property
    def is_float(self) -> bool:
        return self.kind == "f"

    @property
    def is_int(self) -> bool:
        return self.kind in "iu"

    @property
    def is_storage(self) -> bool:
        """Whether it exists in memory only: registers hold its values in the type `compute`."""
        return self.compute != self.name

    @property
    def is_narrow(self) -> bool:
        """Whether it is a float of 8 bits or fewer, or an integer of fewer."""
        return self.is_storage and self.size == 1

    @property
    def register(self) -> DType:
        """The type that its elements have once they are loaded."""
        return DTYPES.get(self.compute, self)

    @property
    def bits(self) -> int:
        """Bits of an element that count."""
        return self.width or 8 * self.size

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype; what NumPy lacks comes from ml_dtypes, which the onnx package installs."""
        if (other := ML_DTYPES.get(self.name)) is not None:
            import ml_dtypes  # optional package of a run

            extended: np.dtype[Any] = np.dtype(getattr(ml_dtypes, other))
            return extended
        dtype: np.dtype[Any] = np.dtype(NUMPY.get(self.name, "object"))
        return dtype

    @property
    def range(self) -> tuple[int, int]:
        """Smallest and largest value of an integer type."""
        half: int = 2 ** (self.bits - 1)
        return (-half, half - 1) if self.kind == "i" else (0, 2 * half - 1)


F64 = DType("f64", 8, "f", 11, "f64")
F32 = DType("f32", 4, "f", 1, "f32")
F16 = DType("f16", 2, "f", 10, "f32")
BF16 = DType("bf16", 2, "f", 16, "f32")
I64 = DType("i64", 8, "i", 7, "i64")
I32 = DType("i32", 4, "i", 6, "i32")
I16 = DType("i16", 2, "i", 5, "i16")
I8 = DType("i8", 1, "i", 3, "i8")
U64 = DType("u64", 8, "u", 13, "u64")
U32 = DType("u32", 4, "u", 12, "u32")
U16 = DType("u16", 2, "u", 4, "u16")
U8 = DType("u8", 1, "u", 2, "u8")
BOOL = DType("bool", 1, "b", 9, "bool")
F8E4M3FN = DType("f8e4m3fn", 1, "f", 17, "f32")
F8E4M3FNUZ = DType("f8e4m3fnuz", 1, "f", 18, "f32")
F8E5M2 = DType("f8e5m2", 1, "f", 19, "f32")
F8E5M2FNUZ = DType("f8e5m2fnuz", 1, "f", 20, "f32")
F8E8M0 = DType("f8e8m0", 1, "f", 24, "f32")  # powers of two from 2^-127 to 2^127, and NaN
F4E2M1 = DType("f4e2m1", 1, "f", 23, "f32", 4)
I4 = DType("i4", 1, "i", 22, "i8", 4)
U4 = DType("u4", 1, "u", 21, "u8", 4)
I2 = DType("i2", 1, "i", 26, "i8", 2)
U2 = DType("u2", 1, "u", 25, "u8", 2)

_ALL = (F64, F32, F16, BF16, I64, I32, I16, I8, U64, U32, U16, U8, BOOL)
NARROW = (F8E4M3FN, F8E4M3FNUZ, F8E5M2, F8E5M2FNUZ, F8E8M0, F4E2M1, I4, U4, I2, U2)
DTYPES: dict[str, DType] = {t.name: t for t in (*_ALL, *NARROW)}
_BY_ONNX = {t.onnx: t for t in DTYPES.values()}
_BY_ML_DTYPE = {v: DTYPES[k] for k, v in ML_DTYPES.items()}
_BY_NUMPY = {np.dtype(v): DTYPES[k] for k, v in NUMPY.items()}


# Elements that only operators of the host touch (``templates/c/values/t_value.h``).
STRING = DType("string", 16, "s", 8, "string")
SEQUENCE = DType("sequence", 168, "q", -1, "sequence")
OPTIONAL = DType("optional", 168, "q", -2, "optional")
MAP = DType("map", 168, "q", -3, "map")
_BY_ONNX[STRING.onnx] = STRING


def from_onnx(code: int) -> DType | None:
    """The type of an ONNX data-type code, or None when torshc has none."""
    return _BY_ONNX.get(code)


def from_numpy(dtype: np.dtype[Any]) -> DType | None:
    """The type of a NumPy dtype, or None when torshc has none."""
    if (known := _BY_ML_DTYPE.get(dtype.name)) is not None:
        return known
    if dtype.kind in "OUT":
        return STRING
    return _BY_NUMPY.get(np.dtype(dtype.type)) if dtype.kind in "fiub" else None
