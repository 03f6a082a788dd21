"""Elements of fewer than 8 bits through DLPack: only where each takes a byte."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from torshc.errors import RunError
from torshc.runtime import dlpack


class Tensor:
    """Two elements of i4 on card 0, with some flags."""

    def __init__(self, flags: int) -> None:
        self.dims = (ctypes.c_int64 * 1)(2)
        self.managed = dlpack._Versioned(major=1, minor=1, flags=flags)
        tensor = self.managed.tensor
        tensor.data, tensor.ndim, tensor.device.type = 4096, 1, 2
        tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes = 0, 4, 1
        tensor.shape = ctypes.cast(self.dims, ctypes.POINTER(ctypes.c_int64))

    def __dlpack__(self, **_: Any) -> Any:
        return dlpack._new(ctypes.addressof(self.managed), b"dltensor_versioned", None)


def test_packed_elements_are_refused() -> None:
    padded = Tensor(flags=4)
    assert dlpack.View(padded, "input 'x'", None).code == (0, 4)
    packed = Tensor(flags=0)
    with pytest.raises(RunError, match="input 'x' has several elements in a byte"):
        dlpack.View(packed, "input 'x'", None)
    with pytest.raises(RunError, match="int4 cannot be exported"):
        dlpack.export(None, 4096, (2, 0), (0, 4), (2,))


def test_names_of_types() -> None:
    names = [dlpack.dtype_name(*t) for t in ((10, 8), (14, 8), (17, 4), (1, 2), (2, 32), (6, 8))]
    assert names == ["float8_e4m3fn", "float8_e8m0fnu", "float4_e2m1fn", "uint2", "float32", "bool"]
