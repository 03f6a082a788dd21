"""The vector prelude of generated C against numpy: every function, dtype, width and compiler.

The harness is a C program (math_harness.c), which has the functions that are formulas as kernels hold them.
"""

from __future__ import annotations

import math
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support import compilers
from tests.support.functions import functions_header
from tests.support.slow import SLOW

HERE = Path(__file__).parent
HEADERS = HERE.parents[1] / "templates" / "c" / "prelude"
FLAGS = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-Wno-psabi", "-ffp-contract=fast", "-fno-math-errno"]

INTS: list[np.dtype[Any]] = [np.dtype(name) for name in ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8")]
FLOATS: list[np.dtype[Any]] = [np.dtype("f4"), np.dtype("f8")]
Array = np.ndarray[Any, np.dtype[Any]]


def tag(dtype: np.dtype[Any]) -> str:
    """The prelude's name of a numpy dtype: i32, f64, bool."""
    return "bool" if dtype.kind == "b" else f"{dtype.kind}{8 * dtype.itemsize}"


class Harness:
    """A compiled harness: runs functions of the prelude over arrays."""

    def __init__(self, program: Path, work: Path, lanes: int) -> None:
        self.program, self.work, self.lanes = program, work, lanes

    def run(self, calls: list[tuple[str, list[Array], np.dtype[Any]]]) -> list[Array]:
        """Results of the calls (function, equally long arguments, result dtype), in order."""
        lines = []
        for at, (name, arguments, _) in enumerate(calls):
            source, target = self.work / f"in{at}", self.work / f"out{at}"
            source.write_bytes(b"".join(np.ascontiguousarray(a).tobytes() for a in arguments))
            lines.append(f"{name} {arguments[0].size} {source} {target}\n")
        done = subprocess.run([self.program], input="".join(lines), text=True, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr[-4000:]
        return [np.frombuffer((self.work / f"out{at}").read_bytes(), call[2]) for at, call in enumerate(calls)]

    def one(self, name: str, arguments: list[Array], dtype: Any) -> Array:
        """The result of one call."""
        return self.run([(name, arguments, np.dtype(dtype))])[0]


CONFIGS = [
    pytest.param(("clang", 16, ["-O2", "-march=native"]), id="clang-16"),
    pytest.param(("clang", 8, ["-O3", "-march=native"]), id="clang-8", marks=SLOW),  # gcc has 8 lanes too
    pytest.param(("clang", 4, ["-O2"]), id="clang-4", marks=SLOW),
    pytest.param(("clang", 1, ["-O2"]), id="clang-1"),
    pytest.param(("clang", 4, ["sanitized"]), id="clang-4-sanitized"),
    pytest.param(("gcc", 8, ["-O1", "-march=native"]), id="gcc-8"),
    pytest.param(("gcc", 4, ["-O2"]), id="gcc-4", marks=SLOW),
    pytest.param(("gcc", 16, ["-O2", "-march=native"]), id="gcc-16", marks=SLOW),
    pytest.param(("gcc", 1, ["-O2"]), id="gcc-1", marks=SLOW),
]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """The arguments overflow and are NaN on purpose."""
    with np.errstate(all="ignore"):
        yield


@pytest.fixture(scope="module", params=CONFIGS)
def harness(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Harness:
    kind, lanes, flags = request.param
    compiler = compilers.needed(kind).cc
    if flags == ["sanitized"]:
        flags = ["-O0", *compilers.sanitizing(compiler, "address", "undefined")]
    command = [compiler, *FLAGS, *flags, f"-DTORSHC_LANES={lanes}"]
    include = [HEADERS, functions_header(tmp_path_factory.mktemp("functions"), lanes=lanes)]
    program = compilers.program(command, [HERE / "math_harness.c"], include)
    return Harness(program, tmp_path_factory.mktemp("harness"), lanes)


# ---- arguments -------------------------------------------------------------------------------


def special_floats(dtype: np.dtype[Any]) -> Array:
    """Zeros, infinities, NaN, the edges of the range and of the subnormals, and halves."""
    info = np.finfo(dtype)
    edges = [0.0, 1.0, 0.5, 1.5, 2.5, 2.0, 3.0, 1e-10, np.inf, info.max, info.tiny, info.smallest_subnormal]
    logs = [math.log(float(info.max)), math.log(float(info.tiny)), 87.5, 88.7, 89.3, 103.9, 104.1, 127.5, 149.5]
    one = np.array([1.0], dtype)
    near = [np.nextafter(one, dtype.type(0))[0], np.nextafter(one, dtype.type(2))[0]]
    values = np.array([*edges, *logs, *near], dtype)
    beside = np.concatenate([values, np.nextafter(values, dtype.type(0)), np.nextafter(values, dtype.type(np.inf))])
    return np.concatenate([beside, -beside, np.array([np.nan], dtype)])


def floats(dtype: np.dtype[Any], count: int, seed: int = 0) -> Array:
    """Random bit patterns (every binade alike), ordinary ranges, and the special values."""
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 256, size=count * dtype.itemsize, dtype=np.uint8).view(dtype)
    spans = [rng.uniform(-s, s, count // 4).astype(dtype) for s in (1.2, 12.0, 110.0, 2e5)]
    return np.concatenate([bits, *spans, special_floats(dtype)])


def pairs(dtype: np.dtype[Any], count: int) -> tuple[Array, Array]:
    """Two arguments: random ones and every pair of special values."""
    left, right = floats(dtype, count, 1), floats(dtype, count, 2)
    small = np.random.default_rng(3).permutation(left)
    grid = np.meshgrid(special_floats(dtype), special_floats(dtype))
    return np.concatenate([left, small, grid[0].ravel()]), np.concatenate([right, left, grid[1].ravel()])


def integers(dtype: np.dtype[Any], count: int = 5000) -> tuple[Array, Array]:
    """Two arguments: random, small, and every pair of edges, 0 and -1 among them."""
    rng = np.random.default_rng(4)
    info = np.iinfo(dtype)
    random = rng.integers(info.min, info.max, (2, count), dtype, endpoint=True)
    small = rng.integers(0, 70, (2, count)).astype(dtype)
    edges = np.array([info.min, info.min + 1, 0, 1, 2, 3, 7, info.max - 1, info.max], dtype)
    edges = np.concatenate([edges, np.array([-1, -2, -7]).astype(dtype)])
    grid = np.meshgrid(edges, edges)
    left = np.concatenate([random[0], random[0], grid[0].ravel()])
    return left, np.concatenate([random[1], small[1], grid[1].ravel()])


# ---- references ------------------------------------------------------------------------------


def ulps(got: Array, want: Array) -> Array:
    """Distance in units of the last place of got's dtype; want has more digits. NaN where one is NaN only."""
    info = np.finfo(got.dtype)
    rounded = want.astype(got.dtype)
    same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    top = want.dtype.type(info.max) * 2
    wide = np.where(np.isinf(got), np.copysign(top, got), got.astype(want.dtype))
    bound = np.where(np.isinf(want), np.copysign(top, want), want)
    space = np.spacing(np.minimum(np.abs(rounded), info.max)).astype(want.dtype)
    return np.asarray(np.where(same, 0, np.abs(wide - bound) / space), np.float64)


def sigmoid(x: Array) -> Array:
    e = np.exp(-np.abs(x))
    return np.asarray(np.where(x < 0, e, 1) / (1 + e))


UNARY: dict[str, Callable[[Array], Array]] = {
    **{name: getattr(np, name) for name in ("floor", "ceil", "trunc", "sqrt", "sign", "abs")},
    **{name: getattr(np, name) for name in ("exp", "expm1", "log", "log1p")},
    **{name: getattr(np, name) for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    **{f"a{name}": getattr(np, f"arc{name}") for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    "neg": np.negative,
    "round": np.rint,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "erf": lambda x: np.array([math.erf(v) for v in x.tolist()]).astype(x.dtype),
    "sigmoid": sigmoid,
}
EXACT = {"floor", "ceil", "trunc", "round", "sign", "abs", "neg"}
KEEPS_ZERO = EXACT - {"sign", "abs"} | {"sqrt", "sin", "tan", "asin", "atan", "sinh", "tanh", "asinh", "atanh", "erf"}
KEEPS_ZERO |= {"expm1", "log1p"}
LIMITS = {**dict.fromkeys(EXACT, 0.0), "sqrt": 0.51, "rsqrt": 2.0}


@pytest.mark.parametrize("dtype", FLOATS, ids=tag)
def test_unary_functions_stay_within_4_ulp(harness: Harness, dtype: np.dtype[Any]) -> None:
    x = floats(dtype, 40000 if dtype.itemsize == 4 else 4000)
    wide = x.astype(np.float64 if dtype.itemsize == 4 else np.longdouble)
    results = harness.run([(f"{name}_{tag(dtype)}", [x], dtype) for name in UNARY])
    bad = []
    for (name, reference), got in zip(UNARY.items(), results, strict=True):
        want = reference(wide)
        error = ulps(got, want)
        worst = int(np.argmax(np.where(np.isnan(error), np.inf, error)))
        if not error[worst] <= LIMITS.get(name, 4.0):
            bad.append(f"{name}({x[worst]!r}) = {got[worst]!r}, not {want[worst]!r}: {error[worst]:.2f} ULP")
        zeros = x == 0
        if name in KEEPS_ZERO and not np.array_equal(np.signbit(got[zeros]), np.signbit(want[zeros])):
            bad.append(f"{name} loses the sign of zero")
    assert not bad, "\n".join(bad)


def test_exp_of_what_is_not_positive(harness: Harness) -> None:
    x = -np.abs(floats(np.dtype("f4"), 40000))
    error = ulps(harness.one("exp_low_f32", [x], "f4"), np.exp(x.astype(np.float64)))
    assert error.max() <= 4.0


BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "max": np.maximum,
    "min": np.minimum,
    "fmod": np.fmod,
    "mod": np.mod,
    "floordiv": np.floor_divide,
    "copysign": np.copysign,
}


@pytest.mark.parametrize("dtype", FLOATS, ids=tag)
def test_binary_functions_equal_numpy(harness: Harness, dtype: np.dtype[Any]) -> None:
    x, y = pairs(dtype, 4000)
    results = harness.run([(f"{name}_{tag(dtype)}", [x, y], dtype) for name in BINARY])
    for (name, reference), got in zip(BINARY.items(), results, strict=True):
        want = reference(x, y)
        np.testing.assert_array_equal(got, want, err_msg=name)


@pytest.mark.parametrize("dtype", FLOATS, ids=tag)
def test_pow(harness: Harness, dtype: np.dtype[Any]) -> None:
    x, y = pairs(dtype, 20000)
    x = np.concatenate([x, np.abs(x), x])
    y = np.concatenate([y, np.log2(np.abs(y) + 1), np.rint(np.fmod(y, 8))], dtype=dtype)
    y[np.isnan(x)] = dtype.type(0.5)
    got = harness.one(f"pow_{tag(dtype)}", [x, y], dtype)
    want = np.power(x.astype(np.float64), y) if dtype.itemsize == 4 else np.power(x, y)
    error = ulps(got, want)
    worst = int(np.argmax(np.where(np.isnan(error), np.inf, error)))
    assert error[worst] <= 1.0, f"{x[worst]!r} ** {y[worst]!r} = {got[worst]!r}, not {want[worst]!r}"
    zero = want == 0
    assert np.array_equal(np.signbit(got[zero]), np.signbit(want[zero]))


def test_pow_of_nan(harness: Harness) -> None:
    x = np.array([np.nan, np.nan, 1.0, 2.0, -1.0], np.float32)
    y = np.array([0.0, 1.0, np.nan, np.nan, np.nan], np.float32)
    np.testing.assert_array_equal(harness.one("pow_f32", [x, y], "f4"), np.power(x, y))


# ---- comparisons, selection, casts --------------------------------------------------------------


COMPARE = {"lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal}
COMPARE |= {"eq": np.equal, "ne": np.not_equal}


def arguments(dtype: np.dtype[Any]) -> tuple[Array, Array]:
    """Two arguments of any dtype."""
    if dtype.kind == "b":
        flags = np.random.default_rng(6).integers(0, 2, (2, 1003)).astype(bool)
        return flags[0], flags[1]
    return pairs(dtype, 1000) if dtype.kind == "f" else integers(dtype)


@pytest.mark.parametrize("dtype", FLOATS + INTS, ids=tag)
def test_comparisons_and_select(harness: Harness, dtype: np.dtype[Any]) -> None:
    x, y = arguments(dtype)
    y[::7] = x[::7]
    results = harness.run([(f"{name}_{tag(dtype)}", [x, y], np.dtype(bool)) for name in COMPARE])
    for (name, reference), got in zip(COMPARE.items(), results, strict=True):
        np.testing.assert_array_equal(got, reference(x, y), err_msg=name)
    x[::3] = 0
    chosen = harness.one(f"select_{tag(dtype)}", [x, y], dtype)
    np.testing.assert_array_equal(chosen, np.where(x != 0, x, y))


def test_logic(harness: Harness) -> None:
    x, y = np.random.default_rng(5).integers(0, 2, (2, 1003)).astype(bool)
    names = {"and": x & y, "or": x | y, "xor": x ^ y, "eq": x == y, "ne": x != y}
    for name, want in names.items():
        np.testing.assert_array_equal(harness.one(f"{name}_bool", [x, y], bool), want, err_msg=name)
    np.testing.assert_array_equal(harness.one("not_bool", [x], bool), ~x)
    np.testing.assert_array_equal(harness.one("select_bool", [x, y], bool), x | y)


@pytest.mark.parametrize("dtype", FLOATS, ids=tag)
def test_isnan_isinf(harness: Harness, dtype: np.dtype[Any]) -> None:
    x = floats(dtype, 1000)
    np.testing.assert_array_equal(harness.one(f"isnan_{tag(dtype)}", [x], bool), np.isnan(x))
    np.testing.assert_array_equal(harness.one(f"isinf_{tag(dtype)}", [x], bool), np.isinf(x))


def cast(x: Array, to: np.dtype[Any]) -> Array:
    """numpy's cast, but floats saturate to integers and NaN gives 0."""
    if x.dtype.kind != "f" or to.kind not in "iu":
        return x.astype(to)
    info = np.iinfo(to)
    whole = [0 if math.isnan(v) else v if math.isinf(v) else int(v) for v in x.tolist()]
    return np.array([int(min(max(v, info.min), info.max)) for v in whole], to)


@pytest.mark.parametrize("source", [*FLOATS, *INTS, np.dtype(bool)], ids=tag)
def test_casts(harness: Harness, source: np.dtype[Any]) -> None:
    x = arguments(source)[0]
    if source.kind == "f":
        edges = np.array([s * 2.0**k for k in (7, 8, 15, 16, 31, 32, 63, 64) for s in (1, -1)], source)
        beside = [np.nextafter(edges, source.type(0)), np.nextafter(edges, source.type(2) * edges)]
        x = np.concatenate([x, edges, *beside, edges - source.type(0.5), np.trunc(x) % 300])
    targets: list[np.dtype[Any]] = [*FLOATS, *INTS, np.dtype(bool)]
    results = harness.run([(f"cast_{tag(source)}_{tag(to)}", [x], to) for to in targets])
    for to, got in zip(targets, results, strict=True):
        want = cast(x, to)
        np.testing.assert_array_equal(got, want, err_msg=tag(to))


# ---- integers ------------------------------------------------------------------------------------


def truncated(x: Array, y: Array) -> Array:
    q, r = np.floor_divide(x, y), np.mod(x, y)
    return np.where((r != 0) & ((x < 0) != (y < 0)), q + 1, q).astype(x.dtype)


def shift(function: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    def reference(x: Array, y: Array) -> Array:
        width = 8 * x.dtype.itemsize
        inside = (y >= 0) & (y < width)
        shifted = function(x, np.where(inside, y, 0).astype(x.dtype))
        # By the width or more, a shift to the right leaves only the sign.
        past = np.where(x < 0, -1, 0) if function is np.right_shift and x.dtype.kind == "i" else 0
        return np.where(inside, shifted, past).astype(x.dtype)

    return reference


INTEGER: dict[str, Callable[[Array, Array], Array]] = {
    **{name: BINARY[name] for name in ("add", "sub", "mul", "max", "min", "mod", "fmod", "floordiv")},
    "div": truncated,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "shl": shift(np.left_shift),
    "shr": shift(np.right_shift),
}


@pytest.mark.parametrize("dtype", INTS, ids=tag)
def test_integer_functions_wrap_and_never_trap(harness: Harness, dtype: np.dtype[Any]) -> None:
    x, y = integers(dtype)
    for name, reference in INTEGER.items():
        got = harness.one(f"{name}_{tag(dtype)}", [x, y], dtype)
        np.testing.assert_array_equal(got, reference(x, y), err_msg=name)
    for name, unary in {"neg": np.negative, "abs": np.abs, "sign": np.sign, "not": np.invert}.items():
        got = harness.one(f"{name}_{tag(dtype)}", [x], dtype)
        np.testing.assert_array_equal(got, unary(x), err_msg=name)


def test_division_of_i64_where_doubles_round(harness: Harness) -> None:
    rng = np.random.default_rng(8)
    y = rng.integers(1, 2 ** rng.integers(1, 51, 5000))
    most = np.where(np.arange(5000) % 2, 2**51, 2**60)
    # Whole multiples and their neighbours; up to 2^51, far beyond it, and both within a vector.
    x = y * (rng.integers(1, 2**60, 5000) % (most // y) + 1) + rng.integers(-1, 2, 5000)
    x, y = np.concatenate([x, -x, x[1::2]]), np.concatenate([y, y, -y[1::2]])
    for name in ("div", "fmod", "mod", "floordiv"):
        got = harness.one(f"{name}_i64", [x, y], "i8")
        np.testing.assert_array_equal(got, INTEGER[name](x, y), err_msg=name)


@pytest.mark.parametrize("dtype", [d for d in INTS if d.itemsize < 8], ids=tag)
def test_division_beside_whole_quotients(harness: Harness, dtype: np.dtype[Any]) -> None:
    """Integers that floats divide: multiples, their neighbours, and both ends of the range."""
    rng, (low, high) = np.random.default_rng(9), (np.iinfo(dtype).min, np.iinfo(dtype).max)
    y = rng.integers(1, 2 ** rng.integers(1, 8 * dtype.itemsize - 1, 5000))
    x = np.concatenate([y * rng.integers(0, high // y + 1) + rng.integers(-1, 2, 5000), high - y % 3, low + y % 3])
    x, y = np.clip(x, low, high).astype(dtype), np.tile(y, 3).astype(dtype)
    if dtype.kind == "i":
        x, y = np.concatenate([x, x]), np.concatenate([y, -y])
    for name in ("div", "fmod", "mod", "floordiv"):
        got = harness.one(f"{name}_{tag(dtype)}", [x, y], dtype)
        np.testing.assert_array_equal(got, INTEGER[name](x, y), err_msg=name)


@pytest.mark.parametrize("far", [28, 29, 40, 100])
def test_remainders_beside_multiples(harness: Harness, far: int) -> None:
    """Of f32: quotients of up to 2^far, whole ones and their neighbours."""
    rng = np.random.default_rng(10)
    y = (rng.normal(size=3000) * np.exp2(rng.integers(-140, 20, 3000))).astype(np.float32)
    with np.errstate(over="ignore"):
        x = (y.astype(np.float64) * np.rint(np.exp2(rng.uniform(0, far, 3000)))).astype(np.float32)
    x = np.concatenate([x, np.nextafter(x, np.float32(np.inf)), np.nextafter(x, np.float32(0)), -x])
    with np.errstate(invalid="ignore"):
        want = np.fmod(x, np.tile(y, 4))
    got = harness.one("fmod_f32", [x, np.tile(y, 4)], "f4")
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(np.signbit(got), np.signbit(want))


@pytest.mark.parametrize("dtype", INTS, ids=tag)
def test_integer_pow(harness: Harness, dtype: np.dtype[Any]) -> None:
    x, y = integers(dtype)
    y &= dtype.type(np.iinfo(dtype).max)
    got = harness.one(f"pow_{tag(dtype)}", [x, y], dtype)
    np.testing.assert_array_equal(got, np.power(x, y))
    if dtype.kind == "i":
        base, minus = np.array([0, 1, -1, -1, 2], dtype), np.array([-1, -2, -3, -4, -1], dtype)
        got = harness.one(f"pow_{tag(dtype)}", [base, minus], dtype)
        np.testing.assert_array_equal(got, [0, 1, -1, 1, 0])


# ---- memory, storage types, reductions -------------------------------------------------------------


@pytest.mark.parametrize("dtype", [*FLOATS, *INTS, np.dtype(bool)], ids=tag)
@pytest.mark.parametrize("count", [1, 3, 7, 16, 61])
def test_load_store_gather_scatter(harness: Harness, dtype: np.dtype[Any], count: int) -> None:
    x = np.arange(count).astype(dtype)
    np.testing.assert_array_equal(harness.one(f"memory_{tag(dtype)}", [x], dtype), x)


FOLDS: dict[str, Callable[[Array, Array], Array]] = {
    "hsum": np.add,
    "hprod": np.multiply,
    "hmax": np.maximum,
    "hmin": np.minimum,
}


@pytest.mark.parametrize("dtype", FLOATS + INTS, ids=tag)
def test_reductions_fold_by_halves(harness: Harness, dtype: np.dtype[Any]) -> None:
    x = arguments(dtype)[0]
    x = x[: x.size // harness.lanes * harness.lanes]
    for name, function in FOLDS.items():
        want = x.reshape(-1, harness.lanes)
        while want.shape[1] > 1:
            half = want.shape[1] // 2
            want = function(want[:, :half], want[:, half:])
        got = harness.one(f"{name}_{tag(dtype)}", [x], dtype)[: want.size]
        np.testing.assert_array_equal(got, want[:, 0], err_msg=name)


def test_fma(harness: Harness) -> None:
    x, y = np.random.default_rng(7).uniform(-1, 1, (2, 1003)).astype(np.float32)
    got = harness.one("fma_f32", [x, y, x + 1], "f4")
    np.testing.assert_allclose(got, x.astype(np.float64) * y + (x + 1), rtol=1e-5, atol=1e-7)
