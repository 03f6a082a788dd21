"""BitCast against NumPy's views, interpreted and compiled, for each pair of types."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto

from tests.support.compare import compiled, evaluated
from tests.support.evaluate import Array
from tests.support.models import model, node
from tests.support.nodes import refused

TYPES: dict[int, Any] = {
    TensorProto.DOUBLE: np.float64, TensorProto.FLOAT: np.float32, TensorProto.FLOAT16: np.float16,
    TensorProto.BFLOAT16: ml_dtypes.bfloat16, TensorProto.INT64: np.int64, TensorProto.INT32: np.int32,
    TensorProto.INT16: np.int16, TensorProto.INT8: np.int8, TensorProto.UINT64: np.uint64,
    TensorProto.UINT32: np.uint32, TensorProto.UINT16: np.uint16, TensorProto.UINT8: np.uint8,
}  # fmt: skip


def size(code: int) -> int:
    return int(np.dtype(TYPES[code]).itemsize)


def patterns(code: int) -> Array:
    """Every pattern of 16 bits but the signalling NaNs, or random ones with the special values."""
    width = size(code)
    if width == 2:
        words = np.arange(1 << 16, dtype=np.uint32)
        for top, bit in ((0x7C00, 0x200), (0x7F80, 0x40)):  # f16 and bf16
            words = np.where((words & 0x7FFF > top) & (words & bit == 0), words | bit, words)
        return words.astype(np.uint16).view(TYPES[code])
    raw = np.random.default_rng(0).integers(0, 256, (1001, width), dtype=np.uint8)
    special: Any = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45], np.float64 if width == 8 else np.float32)
    raw = np.concatenate([raw.reshape(-1), special.view(np.uint8)])
    return raw[: raw.size // width * width].view(TYPES[code])


@pytest.mark.parametrize("code", TYPES)
def test_bits(code: int, tmp_path: Path) -> None:
    x = patterns(code)
    targets = [t for t in TYPES if size(t) == size(code)]
    made = model([node("BitCast", "x", f"y{t}", to=t) for t in targets], {"x": (code, x.shape)}, opset=26)
    kernels = compiled(made, {"x": x}, tmp_path, jobs=1).values()
    wide = np.uint16 if size(code) == 2 else np.dtype(f"u{size(code)}")
    for t, a, b in zip(targets, evaluated(made, {"x": x}), kernels, strict=True):
        assert a.dtype == b.dtype == np.dtype(TYPES[t])
        np.testing.assert_array_equal(np.asarray(b).view(wide), x.view(wide), err_msg=f"{code} to {t}")
        if size(code) != 2:  # NumPy's own conversions of NaN lose bits
            np.testing.assert_array_equal(np.asarray(a).view(wide), x.view(wide), err_msg=f"{code} to {t}")


def test_another_width() -> None:
    refused("BitCast", np.zeros(2, np.int8), to=TensorProto.INT16, opset=26, match="another width")
