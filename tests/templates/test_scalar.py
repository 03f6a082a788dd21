"""The scalar prelude of the GPU targets, compiled as C: it passes the tests of the vector prelude, and equals it.

scalar/t_kernel.h gives the prelude the names that math_harness.c calls, as vectors of one lane.
"""

from __future__ import annotations

import ctypes
import shutil
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.emulation.emulated import missing
from tests.support import compilers
from tests.support.compilers import build
from tests.support.functions import functions_header
from torshc.targets.gpu.base import GridTarget
from torshc.targets.gpu.cuda.target import CudaTarget
from torshc.targets.gpu.metal import MetalTarget

from .test_narrow import test_exponents, test_narrow_floats, test_short_integers
from .test_vec_math import (
    BINARY,
    COMPARE,
    EXACT,
    FLOATS,
    INTEGER,
    INTS,
    Array,
    Harness,
    arguments,
    tag,
    test_binary_functions_equal_numpy,
    test_casts,
    test_comparisons_and_select,
    test_fma,
    test_integer_functions_wrap_and_never_trap,
    test_integer_pow,
    test_isnan_isinf,
    test_load_store_gather_scatter,
    test_logic,
    test_pow_of_nan,
    test_unary_functions_stay_within_4_ulp,
    ulps,
)
from .test_vec_math import FLAGS as VECTOR_FLAGS

# The tests of the vector prelude that run here again, with the harness below.
__all__ = [
    "test_binary_functions_equal_numpy",
    "test_casts",
    "test_comparisons_and_select",
    "test_exponents",
    "test_fma",
    "test_integer_functions_wrap_and_never_trap",
    "test_integer_pow",
    "test_isnan_isinf",
    "test_load_store_gather_scatter",
    "test_logic",
    "test_narrow_floats",
    "test_pow_of_nan",
    "test_short_integers",
    "test_unary_functions_stay_within_4_ulp",
]

HERE = Path(__file__).parent
TEMPLATES = HERE.parents[1] / "templates"
INCLUDE = [HERE / "scalar", TEMPLATES / "gpu" / "prelude"]
GPU = [f"-I{folder}" for folder in INCLUDE]
FLAGS = ["-std=c11", "-D_POSIX_C_SOURCE=199309L", "-Wall", "-Wextra", "-Werror"]
# As of Metal, whose kernels hold what is lacking, and whose multiply-add rounds once.
OWN = "-DT_LIB_LACKS=1"
FUSED = ["-DT_FMA_f32(a,b,c)=fmaf(a,b,c)", "-DT_FMA_f64(a,b,c)=fma(a,b,c)"]
CONFIGS = [
    pytest.param(("clang", ["-O1", "-ffp-contract=off"]), id="clang"),
    pytest.param(("gcc", ["-O1", OWN, *FUSED, "-ffp-contract=fast", "-march=native"]), id="gcc-own-contracted"),
    pytest.param(("clang", ["-O0", OWN, *FUSED]), id="clang-own-sanitized"),
]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """The arguments overflow and are NaN on purpose."""
    with np.errstate(all="ignore"):
        yield


@pytest.fixture(scope="module", params=CONFIGS)
def harness(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Harness:
    kind, flags = request.param
    compiler = compilers.needed(kind).cc
    sanitize = compilers.sanitizing(compiler, "undefined") if "-O0" in flags else []
    words = MetalTarget.words if OWN in flags else CudaTarget.words
    include = [*INCLUDE, functions_header(tmp_path_factory.mktemp("functions"), words)]
    program = compilers.program([compiler, *FLAGS, *flags, *sanitize], [HERE / "math_harness.c"], include)
    return Harness(program, tmp_path_factory.mktemp("scalar"), 1)


def exact_calls(dtype: np.dtype[Any]) -> list[tuple[str, list[Array], np.dtype[Any]]]:
    """Calls of the functions whose results are no matter of accuracy."""
    x, y = arguments(dtype)
    kind = {"f": (EXACT, BINARY), "b": ({"not"}, {"and", "or", "xor"})}
    unary, binary = kind.get(dtype.kind, ({"neg", "abs", "sign", "not"}, {*INTEGER, "pow"}))
    calls = [(f"{name}_{tag(dtype)}", [x], dtype) for name in sorted(unary)]
    calls += [(f"{name}_{tag(dtype)}", [x, y], dtype) for name in sorted(binary)]
    compares = ("eq", "ne") if dtype.kind == "b" else COMPARE
    calls += [(f"{name}_{tag(dtype)}", [x, y], np.dtype(bool)) for name in compares]
    return calls + [(f"cast_{tag(dtype)}_{tag(to)}", [x], to) for to in (*FLOATS, *INTS, np.dtype(bool))]


@pytest.fixture(scope="module")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> Callable[[np.dtype[Any]], list[Array]]:
    """Results of the exact calls by the vector prelude of the C target."""
    command = [compilers.needed().cc, *VECTOR_FLAGS, "-O2", "-DTORSHC_LANES=1"]  # a program of test_vec_math.py
    include = [TEMPLATES / "c" / "prelude", functions_header(tmp_path_factory.mktemp("functions"), lanes=1)]
    program = compilers.program(command, [HERE / "math_harness.c"], include)
    work = tmp_path_factory.mktemp("vectors")
    return lru_cache(lambda dtype: Harness(program, work, 1).run(exact_calls(dtype)))


# ---- one meaning on every target ---------------------------------------------------------------------


def same_bits(got: Array, want: Array) -> bool:
    """Equal, signs of zeros too; one NaN is as good as another."""
    if got.dtype.kind != "f":
        return np.array_equal(got, want)
    numbers = ~np.isnan(want)
    same = np.array_equal(np.isnan(got), ~numbers)
    return same and got[numbers].tobytes() == want[numbers].tobytes()


@pytest.mark.parametrize("dtype", [*FLOATS, *INTS, np.dtype(bool)], ids=tag)
def test_equals_the_vector_prelude(
    harness: Harness, vectors: Callable[[np.dtype[Any]], list[Array]], dtype: np.dtype[Any]
) -> None:
    calls = exact_calls(dtype)
    for call, got, want in zip(calls, harness.run(calls), vectors(dtype), strict=True):
        assert same_bits(got, want), call[0]


# ---- what is tested otherwise than in vectors ----------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS, ids=tag)
def test_pow_within_2_ulp(harness: Harness, dtype: np.dtype[Any]) -> None:
    x, y = arguments(dtype)
    rng = np.random.default_rng(8)
    bases = np.exp(rng.uniform(-80, 80, 60000)).astype(dtype)
    near = (1 + rng.uniform(-0.3, 0.3, 60000)).astype(dtype)
    x = np.concatenate([x, np.abs(x), x, bases, near])
    powers = [rng.uniform(-2, 2, 60000), rng.uniform(-500, 500, 60000)]
    y = np.concatenate([y, np.log2(np.abs(y) + 1), np.rint(np.fmod(y, 8)), *powers], dtype=dtype)
    # A signalling NaN to the power of 0 is 1 or NaN.
    x[np.isnan(x)], y[np.isnan(y)] = np.nan, np.nan
    got = harness.one(f"pow_{tag(dtype)}", [x, y], dtype)
    wide = np.float64 if dtype.itemsize == 4 else np.longdouble
    want = np.power(x.astype(wide), y.astype(wide))
    error = ulps(got, want)
    worst = int(np.argmax(np.where(np.isnan(error), np.inf, error)))
    assert error[worst] <= 2.0, f"{x[worst]!r} ** {y[worst]!r} = {got[worst]!r}, not {want[worst]!r}"
    zero = want == 0
    assert np.array_equal(np.signbit(got[zero]), np.signbit(want[zero]))


def test_sigmoid_at_the_ends(harness: Harness) -> None:
    x = np.array([np.inf, -np.inf, np.nan, 200.0, -200.0, 0.0, -0.0], np.float32)
    got = harness.one("sigmoid_f32", [x], "f4")
    np.testing.assert_array_equal(got, np.array([1, 0, np.nan, 1, 0, 0.5, 0.5], np.float32))


def index_reference(name: str) -> Callable[[int, int], int]:
    """Index arithmetic on Python's integers."""

    def quotient(a: int, b: int) -> int:
        return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)

    functions: dict[str, Callable[[int, int], int]] = {
        "idiv": lambda a, b: a // b if b else 0,
        "imod": lambda a, b: a % b if b else a,
        "iquot": lambda a, b: quotient(a, b) if b else 0,
        "imin": min,
        "imax": max,
    }
    return functions[name]


@pytest.mark.parametrize("dtype", ["i4", "i8"])
def test_index_arithmetic(dtype: str, tmp_path: Path) -> None:
    index = "int" if dtype == "i4" else "int64_t"
    command = [compilers.needed().cc, *FLAGS, f"-DT_INDEX={index}"]
    include = [*INCLUDE, functions_header(tmp_path, CudaTarget.words)]
    library = compilers.program([*command, "-shared", "-fPIC"], [HERE / "scalar" / "index.c"], include)
    functions = ctypes.CDLL(str(library))
    rng = np.random.default_rng(9)
    a = np.concatenate([rng.integers(-50, 50, 3000), rng.integers(-(2**31) + 1, 2**31, 3000)]).astype(dtype)
    b = np.concatenate([rng.integers(-9, 9, 5000), rng.integers(-(2**31) + 1, 2**31, 1000)]).astype(dtype)
    for name in ("idiv", "imod", "iquot", "imin", "imax"):
        got = np.empty_like(a)
        pointers = [ctypes.c_void_p(v.ctypes.data) for v in (a, b, got)]
        getattr(functions, name)(*pointers, ctypes.c_int64(a.size))
        want = [index_reference(name)(int(p), int(q)) for p, q in zip(a, b, strict=True)]
        assert got.tolist() == want, name


# ---- the targets' headers --------------------------------------------------------------------------------


def test_nvcc_takes_the_whole_prelude(tmp_path: Path) -> None:
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("no nvcc here")
    source = str(HERE / "scalar" / "every.cu")
    flags = ["-arch=sm_80", "-Xptxas", "-O0", "-Werror", "all-warnings", *GPU, f"-I{TEMPLATES / 'cuda' / 'prelude'}"]
    flags.append(f"-I{functions_header(tmp_path, CudaTarget.words)}")
    build([nvcc, *flags, "-c", source, "-o", str(tmp_path / "every.o")])


TARGETS: dict[str, type[GridTarget]] = {"cuda": CudaTarget, "metal": MetalTarget}
EMULATED = {
    "cuda": ("nvcc", ["-std=c++17", "-arch=sm_80"], "every.cu"),
    "metal": ("xcrun", ["-sdk", "macosx", "metal", "-fno-fast-math"], "every.metal"),
}


@pytest.mark.parametrize("target", list(EMULATED))
def test_emulator_takes_the_whole_prelude(tmp_path: Path, target: str) -> None:
    name, flags, source = EMULATED[target]
    program = HERE.parent / "emulation" / "bin" / name
    if reason := missing(metal=target == "metal"):
        pytest.skip(reason)
    functions = functions_header(tmp_path, TARGETS[target].words, doubles=target == "cuda")
    paths = [*GPU, f"-I{TEMPLATES / target / 'prelude'}", f"-I{functions}"]
    build([str(program), *flags, *paths, "-c", str(HERE / "scalar" / source), "-o", str(tmp_path / "every.o")])
