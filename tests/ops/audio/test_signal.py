"""Fourier transforms against the reference evaluator."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support import contrib
from tests.support.evaluate import run
from tests.support.nodes import I64, check, given, numbers, refused
from torshc.formats import import_model


@pytest.mark.parametrize("length", [None, 5, 12])
@pytest.mark.parametrize("onesided", [0, 1])
@pytest.mark.parametrize("inverse", [0, 1])
def test_dft(inverse: int, onesided: int, length: int | None) -> None:
    x = numbers(2, 7, 3, 2 if inverse else 1)
    operands = (None if length is None else np.asarray(length, I64), np.asarray(1, I64))
    check("DFT", x, *operands, fixed=(1, 2), inverse=inverse, onesided=onesided)


def test_stft_refuses_what_contradicts() -> None:
    x, step = numbers(1, 32, 1), np.asarray(4, I64)
    check("STFT", x, step, numbers(8), fixed=(1,), onesided=0)
    refused("STFT", numbers(32), step, numbers(8), fixed=(1,), match="STFT of f32.32. in steps")
    refused("STFT", x, step, numbers(8), np.asarray(9, I64), fixed=(1, 3), match="window of 8")


@pytest.mark.parametrize("shape", [(2, 32), (1, 8), (3, 11)])
def test_stft_of_signals_without_a_dimension_of_parts(shape: tuple[int, ...]) -> None:
    """As some exporters write them; their last dimension may look like one of parts."""
    x, others = numbers(*shape), (np.asarray(4, I64), numbers(2), np.asarray(2, I64))
    for signal in (x, x[:, :2]):
        (wanted,) = given("STFT", signal[..., None], *others)
        (got,) = given("STFT", signal, *others)
        np.testing.assert_array_equal(got, wanted)
    made = contrib.model_of("STFT", (x, *others), (1, 3), domain="")
    (wanted,) = contrib.onnx_runtime(made, {"x0": x, "x2": others[1]})
    (got,) = run(import_model(made.SerializeToString()), {"x0": x, "x2": others[1]})
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("op", ["HannWindow", "HammingWindow", "BlackmanWindow"])
def test_windows_of_few_elements(op: str) -> None:
    """A symmetric one of one element is 0 / 0, whether its size is known or not."""
    for size in (0, 1, 2, 5):
        for periodic in (0, 1)[size == 0 :]:
            check(op, np.asarray(size, I64), fixed=(0,), periodic=periodic)
            check(op, np.asarray(size, I64), periodic=periodic)
    for fixed in ((0,), ()):
        refused(op, np.array([3, 4], I64), fixed=fixed, match=f"{op} of size")


@pytest.mark.parametrize(("filters", "length"), [(4, 1024), (8, 16), (20, 64)])
def test_filters_whose_edges_are_one_bin(filters: int, length: int) -> None:
    """Many filters for few bins, known and of the run."""
    given = (np.asarray(n, I64) for n in (filters, length, 8192))
    operands = [*given, np.float32(0), np.float32(4096)]
    for fixed in ((0, 1, 2, 3, 4), ()):
        check("MelWeightMatrix", *map(np.asarray, operands), fixed=fixed)
