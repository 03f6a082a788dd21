"""The CUDA prelude beyond scalars: reductions over a warp, tensor cores and asynchronous copies, on the emulator."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.emulation.emulated import missing
from tests.support.functions import functions_header
from torshc.targets.gpu.cuda.target import CudaTarget

from .test_vec_math import FLOATS, INTS, Array, tag

HERE = Path(__file__).parent
TEMPLATES = HERE.parents[1] / "templates"
NVCC = HERE.parent / "emulation" / "bin" / "nvcc"
# The order of the prelude's T_EACH.
DTYPES = [*FLOATS, *INTS]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """warp.cu for the emulator, where device memory is the host's."""
    if reason := missing():
        pytest.skip(reason)
    target = tmp_path_factory.mktemp("warp") / "warp.so"
    paths = [f"-I{TEMPLATES / folder / 'prelude'}" for folder in ("cuda", "gpu")]
    paths.append(f"-I{functions_header(tmp_path_factory.mktemp('functions'), CudaTarget.words)}")
    command = [
        str(NVCC),
        "-std=c++17",
        "-arch=sm_80",
        "-shared",
        *paths,
        str(HERE / "scalar" / "warp.cu"),
        "-o",
        str(target),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return ctypes.CDLL(str(target))


def pointers(arrays: list[Array]) -> Any:
    """The arrays' addresses as a C array."""
    return (ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays))


def folded(function: np.ufunc, x: Array) -> Array:
    """What the butterfly gives to thread 0: neighbours first."""
    while x.size > 1:
        x = function(x[0::2], x[1::2])
    return x


def warp_values(dtype: np.dtype[Any], case: int) -> Array:
    """32 values: ordinary ones, and for floats once a NaN and an infinity among them."""
    rng = np.random.default_rng(case)
    if dtype.kind != "f":
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, 32, dtype, endpoint=True)
    x = rng.uniform(-2, 2, 32).astype(dtype)
    if case == 1:
        x[[5, 20]] = np.nan, np.inf
    return x


@pytest.mark.parametrize("case", [0, 1, 2])
def test_reductions_over_a_warp(library: ctypes.CDLL, case: int) -> None:
    values: list[Array] = [warp_values(dtype, case) for dtype in DTYPES]
    flags = (np.arange(32) == 17).astype(np.int32) if case == 0 else np.full(32, case == 1, np.int32)
    results: list[Array] = [np.zeros(128, dtype) for dtype in DTYPES]
    truths = np.zeros(64, np.int32)
    assert library.reduce(pointers([*values, flags]), pointers([*results, truths])) == 0
    for x, got in zip(values, results, strict=True):
        with np.errstate(all="ignore"):
            want = [folded(f, x) for f in (np.add, np.multiply, np.maximum, np.minimum)]
        np.testing.assert_array_equal(got, np.repeat(want, 32), err_msg=tag(x.dtype))
    np.testing.assert_array_equal(truths, np.repeat([flags.any(), flags.all()], 32))


@pytest.mark.parametrize("bf16", [False, True])
def test_products_of_halves(library: ctypes.CDLL, bf16: bool) -> None:
    rng = np.random.default_rng(3)
    a, b, c = rng.integers(-9, 9, (3, 16, 16)).astype(np.float32)
    bits = [(x.view(np.uint32) >> 16).astype(np.uint16) if bf16 else x.astype(np.float16) for x in (a, b)]
    want = c + a @ b
    arguments = [ctypes.c_void_p(x.ctypes.data) for x in (*bits, c)]
    assert library.product(*arguments, int(bf16)) == 0
    np.testing.assert_array_equal(c, want)


def test_products_of_tf32(library: ctypes.CDLL) -> None:
    rng = np.random.default_rng(4)
    a, b = rng.uniform(-1, 1, (16, 8)).astype(np.float32), rng.uniform(-1, 1, (8, 8)).astype(np.float32)
    c = np.zeros((16, 8), np.float32)
    assert library.product_tf32(*(ctypes.c_void_p(x.ctypes.data) for x in (a, b, c))) == 0
    short = [((x.view(np.uint32) + 0x1000) & 0xFFFFE000).view(np.float32).astype(np.float64) for x in (a, b)]
    np.testing.assert_allclose(c, short[0] @ short[1], rtol=1e-6, atol=1e-6)
