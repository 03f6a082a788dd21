"""Narrow storage types of the vector prelude against ml_dtypes: every code, every f16, and random floats.

test_scalar runs the same tests with the scalar prelude.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from onnx.numpy_helper import to_float8e8m0

from .test_vec_math import Array, Harness, floats, harness, quiet

__all__ = ["harness", "quiet"]  # fixtures

FLOATS = {
    "f8e4m3fn": ml_dtypes.float8_e4m3fn,
    "f8e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "f8e5m2": ml_dtypes.float8_e5m2,
    "f8e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    "f4e2m1": ml_dtypes.float4_e2m1fn,
}
INTEGERS = {"i4": ml_dtypes.int4, "u4": ml_dtypes.uint4, "i2": ml_dtypes.int2, "u2": ml_dtypes.uint2}
EVERY = np.arange(256, dtype=np.uint8)


def numbers(dtype: type) -> Array:
    """All f16, random bits, the numbers of a type, those half between them and beyond the largest, and neighbours."""
    held = np.unique(EVERY.view(dtype).astype(np.float32))
    held = held[np.isfinite(held)]
    beyond = held[-1] * np.array([1.0625, 1.125, 1.25, 1.5, 2.0], np.float32)
    middle = np.concatenate([(held[1:] + held[:-1]) / 2, beyond, -beyond])
    near = [np.nextafter(middle, np.float32(s * np.inf)) for s in (-1, 1)]
    halves = np.arange(65536, dtype=np.uint16).view(np.float16).astype(np.float32)
    return np.concatenate([halves, floats(np.dtype("f4"), 20000), held, middle, *near])


def same_numbers(got: Array, want: Array) -> None:
    """Equal with the signs of zeros; NaN of any bits is NaN."""
    np.testing.assert_array_equal(got, want)
    known = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got[known]), np.signbit(want[known]))


@pytest.mark.parametrize("name", FLOATS)
def test_narrow_floats(harness: Harness, name: str) -> None:
    dtype = FLOATS[name]
    codes = EVERY & np.uint8(15 if name == "f4e2m1" else 255)  # bits above those of a type do not count
    held = codes.view(dtype).astype(np.float32)
    same_numbers(harness.one(f"load_{name}", [EVERY], "f4"), held)
    same_numbers(harness.one(f"memory_{name}", [EVERY], "u1").view(dtype).astype(np.float32), held)
    x = numbers(dtype)
    want = x.astype(dtype)
    np.testing.assert_array_equal(harness.one(f"store_{name}", [x], "u1"), want.view(np.uint8))
    same_numbers(harness.one(f"as_{name}", [x], "f4"), want.astype(np.float32))


def test_exponents(harness: Harness) -> None:
    dtype = ml_dtypes.float8_e8m0fnu
    held = EVERY.view(dtype).astype(np.float32)
    f32 = np.dtype("f4")
    np.testing.assert_array_equal(harness.one("load_f8e8m0", [EVERY], f32), held)
    np.testing.assert_array_equal(harness.one("memory_f8e8m0", [EVERY], "u1"), EVERY)
    x = np.concatenate([numbers(dtype), np.nextafter(held, np.float32(np.inf)), held * np.float32(1.5)])
    np.testing.assert_array_equal(
        harness.one("store_f8e8m0", [x], "u1"), to_float8e8m0(x, False, "down").view(np.uint8)
    )
    for mode in ("down", "up", "nearest"):
        function = "as_f8e8m0" + ("" if mode == "down" else f"_{mode}")
        want = to_float8e8m0(x, False, mode).astype(np.float32)
        np.testing.assert_array_equal(harness.one(function, [x], f32), want, err_msg=mode)


@pytest.mark.parametrize("name", INTEGERS)
def test_short_integers(harness: Harness, name: str) -> None:
    wide = np.dtype("i1" if name.startswith("i") else "u1")
    want = EVERY.view(INTEGERS[name]).astype(wide)
    np.testing.assert_array_equal(harness.one(f"load_{name}", [EVERY], wide), want)
    np.testing.assert_array_equal(harness.one(f"as_{name}", [EVERY.view(wide)], wide), want)
    clean = EVERY & ((1 << int(name[1:])) - 1)
    for call in (f"store_{name}", f"memory_{name}"):
        np.testing.assert_array_equal(harness.one(call, [EVERY], "u1"), clean)
