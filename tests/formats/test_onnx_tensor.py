"""Tensors of elements of 8 bits and fewer: packed raw data, and numbers in int32_data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, numpy_helper

from torshc.expr import NARROW, DType
from torshc.formats.external import Folder
from torshc.formats.model import Misfit
from torshc.formats.onnx_tensor import Tensors

TENSORS = Tensors([], Folder(Path()))


@pytest.mark.parametrize("shape", [(3, 37), (1,), (), (0, 2)])
@pytest.mark.parametrize("dtype", NARROW, ids=repr)
def test_contents(dtype: DType, shape: tuple[int, ...]) -> None:
    codes = np.arange(2**dtype.bits, dtype=np.uint8)
    wanted = np.resize(codes, shape).view(dtype.numpy)
    typed = numpy_helper.from_array(wanted)
    raw = TensorProto(data_type=dtype.onnx, dims=shape, raw_data=_packed(wanted.view(np.uint8), dtype.bits))
    for tensor in (typed, raw):
        found = TENSORS.array(tensor)
        assert isinstance(found, np.ndarray)
        assert (found.dtype, found.shape, found.tobytes()) == (wanted.dtype, wanted.shape, wanted.tobytes())


def _packed(codes: np.ndarray[tuple[int, ...], np.dtype[np.uint8]], bits: int) -> bytes:
    """The first element in the lowest bits of a byte; the last byte is filled up with zeros."""
    each = 8 // bits
    flat = [int(c) for c in codes.reshape(-1)]
    parts = (flat[k : k + each] for k in range(0, len(flat), each))
    return bytes(sum(c << (bits * k) for k, c in enumerate(part)) for part in parts)


def test_a_wrong_length() -> None:
    tensor = TensorProto(data_type=TensorProto.INT4, dims=[5], raw_data=b"\0\0")
    with pytest.raises(Misfit, match=r"i4\[5\] takes 3 bytes, and 2 are given"):
        TENSORS.array(tensor)
