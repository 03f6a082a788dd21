"""Element types: one row a type, with its size, its kind and its NumPy and ONNX names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class DType:
    """An element type.

    Attributes:
        name: short name, used in generated code and in JSON graphs ("f32").
        size: bytes an element takes in memory.
        kind: "f" float, "i" signed, "u" unsigned, "b" bool.
        onnx: value of ``onnx.TensorProto.DataType``.
        compute: name of the type that arithmetic happens in (f16 and bf16 are storage types).
    """

    name: str
    size: int
    kind: str
    onnx: int
    compute: str

    def __repr__(self) -> str:
        return self.name

    @property
    def is_float(self) -> bool:
        return self.kind == "f"

    @property
    def is_int(self) -> bool:
        return self.kind in "iu"

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype; bf16 comes from ml_dtypes, which the onnx package installs."""
        if self is BF16:
            import ml_dtypes

            bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
            return bfloat16
        dtype: np.dtype[Any] = np.dtype(_NUMPY[self.name])
        return dtype

    @property
    def range(self) -> tuple[int, int]:
        """Smallest and largest value of an integer type."""
        bits = 8 * self.size
        return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if self.kind == "i" else (0, 2**bits - 1)


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

DTYPES: dict[str, DType] = {t.name: t for t in (F64, F32, F16, BF16, I64, I32, I16, I8, U64, U32, U16, U8, BOOL)}
_BY_ONNX = {t.onnx: t for t in DTYPES.values()}
_NUMPY = {
    "f64": np.float64, "f32": np.float32, "f16": np.float16, "i64": np.int64, "i32": np.int32, "i16": np.int16,
    "i8": np.int8, "u64": np.uint64, "u32": np.uint32, "u16": np.uint16, "u8": np.uint8, "bool": np.bool_,
}  # fmt: skip
_BY_NUMPY = {np.dtype(v): DTYPES[k] for k, v in _NUMPY.items()}


def from_onnx(code: int) -> DType | None:
    """The type of an ONNX data-type code, or None when torshc has none."""
    return _BY_ONNX.get(code)


def from_numpy(dtype: np.dtype[Any]) -> DType | None:
    """The type of a NumPy dtype, or None when torshc has none."""
    if dtype.name == "bfloat16":
        return BF16
    return _BY_NUMPY.get(np.dtype(dtype.type)) if dtype.kind in "fiub" else None
