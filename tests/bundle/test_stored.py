"""Large weights that are stored in a narrower type."""

from __future__ import annotations

import json
import platform
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import torshc
from tests.support.seeded import seeded
from torshc.base.errors import ConfigError
from torshc.base.options import CompileOptions
from torshc.bundle.stored import stored_bytes, stored_parts
from torshc.expr import F32
from torshc.pipeline.compiler import prepare
from torshc.workbench.reweigh import set_weights

RNG = seeded(3)
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


def error(weights: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """What f8 promises: half a unit of 3 bits, or half of the least step of a block (2^-9 for a largest of 208)."""
    finite = np.where(np.isfinite(weights), np.abs(weights), 0).astype(np.float64)
    largest = finite.reshape(-1, 32).max(1).repeat(32).reshape(weights.shape)
    return np.maximum(finite * 2.0**-4, largest * 2.0**-17)


@pytest.mark.parametrize("embedded", [False, True], ids=["file", "embedded"])
def test_blocks_of_f8(embedded: bool, tmp_path: Path) -> None:
    torshc.compile(source(), tmp_path / "m.tsc", weights_dtype="f8", embed_weights=embedded)
    with torshc.load(tmp_path / "m.tsc") as model:
        found = model.run({"x": X, "i": ROWS})
    special = ~np.isfinite(TABLE)
    np.testing.assert_array_equal(found["z"][special], TABLE[special])
    away = np.abs(found["z"][~special].astype(np.float64) - TABLE[~special])
    assert (away <= error(TABLE)[~special]).all() and away.max() > 0
    np.testing.assert_array_equal(np.signbit(found["z"][0, :2]), [False, True])
    # Which weights share a block is the packer's choice; that of the largest of all bounds any. Sums add 1e-4 as above.
    most = np.abs(X) @ np.maximum(np.abs(W) * 2.0**-4, np.abs(W).max() * 2.0**-17) + 1e-4
    assert (np.abs(found["y"] - (X @ W + BIAS)) <= most).all()


def test_f8_takes_a_quarter_and_a_part_of_a_block(tmp_path: Path) -> None:
    """4,097 elements end inside a block, in parts that end inside blocks."""
    parts = np.split(RNG.standard_normal(4097).astype(np.float32), [5, 70, 4000])
    value = SimpleNamespace(dtype=F32, const=np.zeros((17, 241), np.float32))
    weight: Any = SimpleNamespace(operand=value, source=value, nbytes=4 * 4097, parts=lambda: iter(parts))
    stored = np.concatenate([p.reshape(-1) for p in stored_parts(weight, "f8")])
    assert stored.size == stored_bytes([weight], "f8") == 129 * 33
    rows = stored.reshape(-1, 33)
    scale = np.ldexp(1.0, rows[:, :1].astype(int) - 127)
    read = (rows[:, 1:].copy().view(ml_dtypes.float8_e4m3fn).astype(float) * scale).reshape(-1)
    flat = np.concatenate(parts)
    assert (np.abs(read[:4097] - flat) <= error(np.append(flat, np.zeros(31, np.float32)))[:4097]).all()
    assert (read[4097:] == 0).all()


def test_inside_a_library_of_several_versions(tmp_path: Path) -> None:
    isa = ("x86-64-v3", "x86-64") if platform.machine() == "x86_64" else ()
    torshc.compile(source(), tmp_path / "m.tsc", weights_dtype="f16", embed_weights=True, isa=isa)
    assert not (tmp_path / "m.tsc" / "weights.bin").exists()
    check(tmp_path / "m.tsc", "f16")


def test_what_goes_without(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the target llvm does not use --weights-dtype"):
        prepare(source(), CompileOptions(target="llvm", weights_dtype="f16"))
    with pytest.raises(ConfigError, match="weights_dtype cannot be 'f4'"):
        CompileOptions(weights_dtype="f4")
