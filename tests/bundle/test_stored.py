"""Large weights that are stored in a narrower type."""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import torshc
from torshc.compiler import prepare
from torshc.errors import ConfigError
from torshc.options import CompileOptions
from torshc.reweigh import set_weights

RNG = np.random.default_rng(3)
TYPES = {"f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}
LARGEST = {"f16": 65504.0, "bf16": 3.3895313892515355e38}
TABLE = (RNG.standard_normal((64, 80)) * 10.0 ** RNG.integers(-9, 3, (64, 80))).astype(np.float32)
TABLE[0, :10] = [0, -0.0, np.inf, -np.inf, np.nan, 3.4e38, -3.4e38, 65520, 6e-8, -1e-30]
W = RNG.standard_normal((80, 64)).astype(np.float32)
BIAS = RNG.standard_normal((64,)).astype(np.float32)
X = RNG.standard_normal((3, 80)).astype(np.float32)
ROWS = np.arange(64)


def source(weights: np.ndarray[Any, Any] = W) -> bytes:
    text = """<ir_version: 8, opset_import: ["" : 18]>
        narrow (float[n,80] x, int64[m] i) => (float[n,64] y, float[m,80] z)
        { p = MatMul(x, w) y = Add(p, b) z = Gather(t, i) }"""
    model = onnx.parser.parse_model(text)
    named = {"w": weights, "b": BIAS, "t": TABLE}
    model.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in named.items())
    return bytes(model.SerializeToString())


def rounded(array: np.ndarray[Any, Any], dtype: str) -> np.ndarray[Any, Any]:
    """What is left of weights: the nearest of the type, and its largest number for larger finite ones."""
    most = LARGEST[dtype]
    finite = np.where(np.isinf(array), array, np.clip(array, -most, most))
    return finite.astype(TYPES[dtype]).astype(np.float32)


def check(bundle: Path, dtype: str, weights: np.ndarray[Any, Any] = W) -> None:
    with torshc.load(bundle) as model:
        found = model.run({"x": X, "i": ROWS})
    np.testing.assert_array_equal(found["z"], rounded(TABLE, dtype))
    np.testing.assert_array_equal(np.signbit(found["z"][0, :2]), [False, True])
    # Sums of 80 products of these in another order: some units in the last place of their largest part.
    np.testing.assert_allclose(found["y"], X @ rounded(weights, dtype) + BIAS, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_weights_are_rounded_and_nothing_else(dtype: str, tmp_path: Path) -> None:
    torshc.compile(source(), tmp_path / "m.tsc", weights_dtype=dtype)
    torshc.compile(source(), tmp_path / "whole.tsc")
    check(tmp_path / "m.tsc", dtype)
    known = json.loads((tmp_path / "m.tsc" / "manifest.json").read_bytes())
    whole = json.loads((tmp_path / "whole.tsc" / "manifest.json").read_bytes())
    assert known["weights"]["dtype"] == dtype and f"2 weights stored as {dtype}" in known["approximations"]
    assert known["weights"]["bytes"] == whole["weights"]["bytes"] - (W.nbytes + TABLE.nbytes) // 2
    set_weights(tmp_path / "m.tsc", _saved(tmp_path, 2 * W), CompileOptions())
    check(tmp_path / "m.tsc", dtype, 2 * W)


def _saved(folder: Path, weights: np.ndarray[Any, Any]) -> Path:
    (folder / "new.onnx").write_bytes(source(weights))
    return folder / "new.onnx"


def test_inside_a_library_of_several_versions(tmp_path: Path) -> None:
    isa = ("x86-64-v3", "x86-64") if platform.machine() == "x86_64" else ()
    torshc.compile(source(), tmp_path / "m.tsc", weights_dtype="f16", embed_weights=True, isa=isa)
    assert not (tmp_path / "m.tsc" / "weights.bin").exists()
    check(tmp_path / "m.tsc", "f16")


def test_what_goes_without(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the target llvm does not use --weights-dtype"):
        prepare(source(), CompileOptions(target="llvm", weights_dtype="f16"))
    with pytest.raises(ConfigError, match="weights_dtype cannot be 'f8'"):
        CompileOptions(weights_dtype="f8")
