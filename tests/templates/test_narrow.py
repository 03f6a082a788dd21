"""Types of storage in vectors of C against ml_dtypes and NumPy: every element, and every float at which one rounds.

test_scalar runs the same tests with one element at a time.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from onnx.numpy_helper import to_float8e8m0

from tests.support.narrow import assert_same, codes, numbers
from torshc.expr import F8E8M0, DType
from torshc.expr.formulas_narrow import FORMATS

from .test_vec_math import Harness, floats, harness, quiet

__all__ = ["harness", "quiet"]  # fixtures

INTEGERS = {"i4": ml_dtypes.int4, "u4": ml_dtypes.uint4, "i2": ml_dtypes.int2, "u2": ml_dtypes.uint2}
EVERY = np.arange(256, dtype=np.uint8)


@pytest.mark.parametrize("dtype", FORMATS, ids=str)
def test_narrow_floats(harness: Harness, dtype: DType) -> None:
    name, every = dtype.name, codes(dtype)
    clean = every & np.array(2**dtype.bits - 1).astype(every.dtype)  # bits above those of a type do not count
    assert_same(harness.one(f"load_{name}", [every], "f4"), clean.view(dtype.numpy))
    assert_same(harness.one(f"memory_{name}", [every], every.dtype).view(dtype.numpy), clean.view(dtype.numpy))
    x = np.concatenate([numbers(dtype), floats(np.dtype("f4"), 20000)])
    want = x.astype(dtype.numpy)
    got = harness.one(f"store_{name}", [x], every.dtype)
    assert_same(got.view(dtype.numpy), want)
    if dtype.size == 1:  # NaN of 16 bits may be any
        np.testing.assert_array_equal(got, want.view(np.uint8))
    assert_same(harness.one(f"as_{name}", [x], "f4"), want)


def test_exponents(harness: Harness) -> None:
    held = EVERY.view(F8E8M0.numpy).astype(np.float32)
    np.testing.assert_array_equal(harness.one("load_f8e8m0", [EVERY], "f4"), held)
    np.testing.assert_array_equal(harness.one("memory_f8e8m0", [EVERY], "u1"), EVERY)
    x = numbers(F8E8M0)
    down = to_float8e8m0(x, False, "down").view(np.uint8)
    np.testing.assert_array_equal(harness.one("store_f8e8m0", [x], "u1"), down)
    for mode in ("down", "up", "nearest"):
        function = "as_f8e8m0" + ("" if mode == "down" else f"_{mode}")
        want = to_float8e8m0(x, False, mode).astype(np.float32)
        np.testing.assert_array_equal(harness.one(function, [x], "f4"), want, err_msg=mode)


@pytest.mark.parametrize("name", INTEGERS)
def test_short_integers(harness: Harness, name: str) -> None:
    wide = np.dtype("i1" if name.startswith("i") else "u1")
    want = EVERY.view(INTEGERS[name]).astype(wide)
    np.testing.assert_array_equal(harness.one(f"load_{name}", [EVERY], wide), want)
    np.testing.assert_array_equal(harness.one(f"as_{name}", [EVERY.view(wide)], wide), want)
    clean = EVERY & ((1 << int(name[1:])) - 1)
    for call in (f"store_{name}", f"memory_{name}"):
        np.testing.assert_array_equal(harness.one(call, [EVERY], "u1"), clean)
