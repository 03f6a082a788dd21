"""Formulas of conversions, computed by NumPy: every element of each type, and every place where one rounds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from onnx.numpy_helper import to_float8e8m0

from tests.support.narrow import assert_same, codes, numbers
from torshc.expr import DTYPES, F8E8M0, DType
from torshc.expr.formulas import Language, find_formula, operands_of
from torshc.expr.formulas_narrow import FORMATS, conversions_of

from .test_formulas import LANGUAGES, SHADERS, Array, computed

STORED = [t for t in DTYPES.values() if t.is_storage]


def converted(name: str, x: Array, language: Language) -> Array:
    formula = find_formula(name, language)
    assert formula is not None
    (kind,) = operands_of(formula).values()
    return computed(formula, language, x=x.astype(kind.numpy))


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("dtype", STORED, ids=str)
def test_every_element(dtype: DType, language: str) -> None:
    """Bits above those of a type do not count when one is read, and are 0 where it is written."""
    every = codes(dtype)
    clean = every & np.array(2**dtype.bits - 1).astype(every.dtype)
    numbers = converted(f"decode_{dtype.name}", every, LANGUAGES[language])
    assert_same(numbers, clean.view(dtype.numpy))
    back = converted(f"encode_{dtype.name}", numbers, LANGUAGES[language]).astype(every.dtype)
    real = ~np.isnan(numbers.astype(np.float32))
    np.testing.assert_array_equal(back[real], clean[real])
    assert np.isnan(back[~real].view(dtype.numpy).astype(np.float32)).all()


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("dtype", FORMATS, ids=str)
def test_the_nearest_element(dtype: DType, language: str) -> None:
    """As ml_dtypes and NumPy round, to the bit; but NaN of 16 bits may be any."""
    x = numbers(dtype)
    with np.errstate(all="ignore"):
        wanted = x.astype(dtype.numpy)
    found = converted(f"encode_{dtype.name}", x, LANGUAGES[language]).astype(codes(dtype).dtype)
    if dtype.size == 2:
        assert_same(found.view(dtype.numpy), wanted)
    else:
        np.testing.assert_array_equal(found, wanted.view(np.uint8))


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("mode", ["down", "up", "nearest"])
def test_powers_of_two_of_f8e8m0(mode: str, language: str) -> None:
    x = numbers(F8E8M0)
    wanted = to_float8e8m0(x, False, mode)
    if mode == "down":
        found = converted("encode_f8e8m0", x, LANGUAGES[language]).astype(np.uint8)
        np.testing.assert_array_equal(found, wanted.view(np.uint8))
    else:
        assert_same(converted(f"as_f8e8m0_{mode}", x, LANGUAGES[language]), wanted)


def test_nan_of_16_bits_keeps_the_upper_bits_of_its_fraction() -> None:
    x = np.array([0x7F80_0001, 0x7FAB_CDEF, 0xFFAB_CDEF], np.uint32).view(np.float32)
    found = converted("encode_f16", x, LANGUAGES["exact"]), converted("encode_bf16", x, LANGUAGES["exact"])
    assert [hex(v) for v in found[0]] == ["0x7e00", "0x7f5e", "0xff5e"]
    assert [hex(v) for v in found[1]] == ["0x7fc0", "0x7feb", "0xffeb"]


def test_what_is_beyond_the_largest_number() -> None:
    ends = {t.name: f.first_beyond for t, f in FORMATS.items()}
    assert ends == {
        "f16": 65536.0, "bf16": math.ldexp(1.0, 128), "f8e4m3fn": 480.0, "f8e4m3fnuz": 256.0, "f8e5m2": 65536.0,
        "f8e5m2fnuz": 65536.0, "f4e2m1": 6.0,
    }  # fmt: skip
    found = converted("encode_f4e2m1", np.array([np.inf, -1e9, np.nan, -np.nan], np.float32), SHADERS)
    assert found.tolist() == [7, 15, 8, 0]


def test_functions_named_after_types_are_conversions() -> None:
    assert conversions_of("as_f16") == ("encode_f16", "decode_f16")
    assert conversions_of("bits_i4") == ("encode_i4",) and conversions_of("from_bits_i4") == ("decode_i4",)
    assert conversions_of("as_f8e8m0_up") == ("as_f8e8m0_up",)
    assert conversions_of("as_f32") == conversions_of("asin") == ()
