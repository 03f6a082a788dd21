"""Formulas of scalar functions, computed by NumPy in f32: their error, and what they do in the corners."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from torshc.expr import FUNCTIONS, I8, I16, I32, I64, U8, U16, U32, U64, DType, Expr, walk
from torshc.expr.formulas import ELEMENTARY, Language, find_formula, formulas
from torshc.expr.formulas_halves import NEAR as OF_HALVES_ONLY
from torshc.expr.formulas_narrow import CONVERSIONS
from torshc.expr.formulas_wide import wide_formulas

Array = npt.NDArray[Any]
SHADERS = Language(exact=False, wide=False, bytes=False)
LANGUAGES = {
    "exact": Language(),
    "scales": Language(scales=True),
    "without f64": Language(wide=False, fused=True),
    "shaders": SHADERS,
}
FORMULAS = formulas(SHADERS)
OF_HALVES = {f"{name}_f32" for name in OF_HALVES_ONLY}
ONE = [n.removesuffix("_f32") for n in sorted(ELEMENTARY - {"pow_f32"} - OF_HALVES) if n.endswith("_f32")]
ULP = 4.0  # the bound of the C prelude too
ODD = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-45, -1e-40, 1e-30, 3.4e38, -3.4e38, 88.7, -103.9, 0.5, 2.0]
# Where each is tried, beside the corners; arguments of sin, cos and tan are reduced up to 2^13 pi/2.
LIMITS = {"exp": 100, "expm1": 88, "sinh": 89, "cosh": 89, "sin": 10000, "cos": 10000, "tan": 10000, "log": 1e6}


def computed(e: Expr, language: Language = SHADERS, rounded: bool = True, **given: Array) -> Array:
    """An expression over arrays, each step rounded to its type, or none but those whose bits are taken."""
    known: dict[Expr, Any] = {}
    with np.errstate(all="ignore"):
        for x in walk(e):
            args = [known[a] for a in x.args]
            if not rounded:
                args = [
                    a.astype(np.float32 if x.op == "raw32" else np.float64) if a.dtype.kind == "f" else a for a in args
                ]
            if x.op == "const":
                known[x] = np.asarray(x.data, x.dtype.numpy)
            elif x.op == "acc":
                known[x] = given[str(x.data)]
            elif x.op == "select":
                known[x] = np.where(*args)
            elif x.op == "cast":
                known[x] = cast(args[0], x.dtype)
            elif x.op in ONE:
                inner = find_formula(f"{x.op}_{x.dtype.name}", language)
                assert inner is not None
                known[x] = computed(inner, language, rounded, x=args[0])
            else:
                found = np.asarray(FUNCTIONS[x.op].numpy(*args))
                known[x] = found if found.dtype == np.float64 and not rounded else found.astype(x.dtype.numpy)
    return np.asarray(known[e])


def formula(name: str, language: Language) -> Expr:
    found = find_formula(f"{name}_f32", language)
    assert found is not None
    return found


def cast(x: Array, dtype: DType) -> Array:
    if x.dtype.kind != "f" or dtype.is_float:
        return x.astype(dtype.numpy)
    return np.clip(np.nan_to_num(x.astype(np.float64)), *dtype.range).astype(dtype.numpy)  # truncates and saturates


def off_by(found: Array, wanted: Array) -> Array:
    """Errors in units of the last place of what is wanted; corners have to be right."""
    with np.errstate(all="ignore"):
        exact = wanted.astype(np.float32)
        plain = np.isfinite(exact) & np.isfinite(found)
        np.testing.assert_array_equal(np.where(plain, 0, found), np.where(plain, 0, exact))
        unit = np.spacing(np.maximum(np.abs(exact[plain]), np.float32(2.0**-126))).astype(np.float64)
        errors = np.zeros(found.shape)
        errors[plain] = np.abs(found[plain] - wanted[plain]) / unit
        return errors


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", ONE)
def test_functions_of_a_number(name: str, language: str) -> None:
    rng = np.random.default_rng(0)
    limit = LIMITS.get(name, 20)
    drawn = [rng.uniform(-limit, limit, 20000), rng.normal(size=20000) * np.exp2(rng.integers(-30, 4, 20000))]
    x = np.concatenate([ODD, *drawn]).astype(np.float32)
    if name in ("sin", "cos", "tan"):
        x = x[~(np.abs(x) > limit) | np.isinf(x)]
    if name == "exp_low":
        x = -np.abs(x)
    with np.errstate(all="ignore"):
        wanted = np.asarray(FUNCTIONS[name].numpy(x.astype(np.float64)))
    found = computed(formula(name, LANGUAGES[language]), LANGUAGES[language], x=x)
    assert off_by(found, wanted).max() <= ULP


@pytest.mark.parametrize("name", [n for n in ONE if n not in ("sin", "cos", "tan")])  # whose limits differ
def test_functions_of_a_number_need_no_rounding(name: str) -> None:
    """Compilers of shaders may take (x + 1) - 1 for x, which it is where no sum is rounded."""
    rng = np.random.default_rng(0)
    x = (rng.normal(size=20000) * np.exp2(rng.integers(-30, 4, 20000))).astype(np.float32)
    x = -np.abs(x) if name == "exp_low" else x[np.abs(x) < 20]
    with np.errstate(all="ignore"):
        wanted = np.asarray(FUNCTIONS[name].numpy(x.astype(np.float64)))
    assert off_by(computed(formula(name, SHADERS), SHADERS, rounded=False, x=x), wanted).max() <= ULP


# Relative errors down to an argument, and what is added below it: the share of the normal distribution there.
NEAR = {"near_normal_f16": (-16.4, -6.5, 2.0**-34), "near_normal_bf16": (-12.7, -9, 2.0**-62),
        "near_sigmoid": (-17, -math.inf, 0.0)}  # fmt: skip


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", NEAR)
def test_functions_of_a_half_s_accuracy(name: str, language: str) -> None:
    """As near as they say at every number of bf16 and many others; nothing falls between 0 and 2^-127."""
    bits, down_to, share = NEAR[name]
    x = np.arange(1 << 16, dtype=np.uint32) << 16
    x = np.concatenate([x.view(np.float32), np.linspace(-14, 14, 100001, dtype=np.float32)])
    with np.errstate(invalid="ignore"):
        found = computed(formula(name, LANGUAGES[language]), LANGUAGES[language], x=x).astype(np.float64)
    wanted = np.array([exactly(name, v) for v in x.tolist()])
    np.testing.assert_array_equal(np.isnan(found), np.isnan(x))
    error = abs(found - wanted)[~np.isnan(x)]
    x, wanted, found = x[~np.isnan(x)], wanted[~np.isnan(x)], found[~np.isnan(x)]
    assert (error <= wanted * 2.0**bits + np.where(x < down_to, share, 2.0**-126)).all()
    assert not ((found > 0) & (found < 2.0**-127)).any()
    assert found[x == -np.inf].tolist() == [0.0] and found[x == np.inf].tolist() == [1.0]


def exactly(name: str, x: float) -> float:
    """The share of the normal distribution below x, or sigmoid(x)."""
    if name.startswith("near_normal"):
        return 0.5 * math.erfc(-x * math.sqrt(0.5))
    return (math.exp(x) if x < 0 else 1.0) / (1.0 + math.exp(-abs(x)))


@pytest.mark.parametrize("name", ["exp", "tanh", "sigmoid"])
def test_functions_of_a_double(name: str) -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate(
        [ODD, 750 * rng.uniform(-1, 1, 20000), rng.normal(size=20000) * np.exp2(rng.integers(-60, 4, 20000))]
    )
    formula = find_formula(f"{name}_f64", Language())
    assert formula is not None
    with np.errstate(all="ignore"):
        wanted = np.asarray(FUNCTIONS[name].numpy(x.astype(np.longdouble)))
        found = computed(formula, Language(), x=x)
        plain = np.isfinite(wanted.astype(np.float64))
        np.testing.assert_array_equal(found[~plain], wanted.astype(np.float64)[~plain])
        unit = np.spacing(np.maximum(np.abs(wanted[plain]).astype(np.float64), 2.0**-1022))
        assert (np.abs(found[plain] - wanted[plain]) <= ULP * unit).all()


@pytest.mark.parametrize("language", LANGUAGES)
def test_powers(language: str) -> None:
    """By f64 or two floats a power is near; else y log2(x) is a float, whose last place counts that many times."""
    rng = np.random.default_rng(0)
    odd = np.array([*ODD, 3.0, -2.0, -3.0, 0.5, -0.5, 65.0], np.float32)
    x = np.concatenate([np.repeat(odd, len(odd)), np.exp(rng.uniform(-5, 5, 20000)).astype(np.float32)])
    y = np.concatenate([np.tile(odd, len(odd)), rng.uniform(-10, 10, 20000).astype(np.float32)])
    with np.errstate(all="ignore"):
        wanted = np.power(x.astype(np.float64), y.astype(np.float64))
        exponent = np.nan_to_num(np.abs(y * np.log2(np.abs(x))), posinf=0)
    found = computed(formula("pow", LANGUAGES[language]), LANGUAGES[language], x=x, y=y)
    near = LANGUAGES[language].wide or LANGUAGES[language].fused
    assert (off_by(found, wanted) <= (2 if near else ULP + exponent)).all()


@pytest.mark.parametrize("name", ["max", "min", "sign", "mod", "floordiv", "copysign"])
def test_corners_of_floats(name: str) -> None:
    """The same float as NumPy's, and of zeros the same sign."""
    values = np.array([*ODD, 3.5, -3.5, 7.25, -0.1, 0.3, 1e8, 16777217.0], np.float32)
    x, y = (m.ravel() for m in np.meshgrid(values, values))
    with np.errstate(all="ignore"):
        wanted = (
            np.copysign(x, y) if name == "copysign" else FUNCTIONS[name].numpy(*((x,) if name == "sign" else (x, y)))
        )
    found = computed(FORMULAS[f"{name}_f32"], x=x, y=y)
    np.testing.assert_array_equal(found, wanted)
    real = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(found[real]), np.signbit(wanted[real]))


INTEGERS = [(n, t) for t in (I32, U32) for n in ("div", "fmod", "mod", "floordiv", "shl", "shr")]


@pytest.mark.parametrize("name, dtype", [(n, t) for n, t in INTEGERS if f"{n}_{t.name}" in FORMULAS])
def test_corners_of_integers(name: str, dtype: DType) -> None:
    """In whole numbers without limits, which then wrap; by 0 nothing is divided."""
    low, high = dtype.range
    some = [low, low + 1, -33, -32, -7, -2, -1, 0, 1, 2, 3, 5, 31, 32, 33, 1000, high - 1, high]
    values = np.array([v for v in some if v >= low], dtype.numpy)
    x, y = (m.ravel() for m in np.meshgrid(values, values))
    found = computed(FORMULAS[f"{name}_{dtype.name}"], x=x, y=y)
    wanted = [(exact(name, a, b) - low) % 2**32 + low for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    np.testing.assert_array_equal(found, np.array(wanted, dtype.numpy))


WORDS = [0, 1, 2, 3, 5, 31, 32, 33, 63, 64, 2**16 - 1, 2**16, 2**31 - 1, 2**31, 2**32 - 1]
WIDE = np.array(
    [h << 32 | w for h in WORDS for w in WORDS] + [2**64 - n for n in (1, 2, 7, 33, 2**40, 2**52 + 1)], np.uint64
)
WIDE_NAMES = [n for n in wide_formulas() if n.rpartition("_")[2] in ("64", "i64", "u64") and "cast" not in n]


@pytest.mark.parametrize("name", WIDE_NAMES)
def test_corners_of_wide_integers(name: str) -> None:
    """In whole numbers without limits, whose low 64 bits are what is left."""
    op, _, kind = name.rpartition("_")
    x, y = (m.ravel() for m in np.meshgrid(WIDE, WIDE))
    found = computed(FORMULAS[name], x=x, y=y)
    signed = x.view(np.int64), y.view(np.int64)
    for a, b, got in zip(*(v.tolist() for v in (signed if kind == "i64" else (x, y))), found.tolist(), strict=True):
        assert got == exact(op, a, b, 64) % 2**64, (name, a, b)


def test_powers_of_32_bits() -> None:
    x, y = (m.ravel() for m in np.meshgrid(np.arange(-5, 6, dtype=np.int32), np.arange(-4, 35, dtype=np.int32)))
    powers = [exact("pow", a, b) for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    wanted = [(n + 2**31) % 2**32 - 2**31 for n in powers]
    np.testing.assert_array_equal(computed(FORMULAS["pow_i32"], x=x, y=y), wanted)
    real = y >= 0
    found = computed(FORMULAS["pow_u32"], x=x[real].view(np.uint32), y=y[real].view(np.uint32))
    np.testing.assert_array_equal(found.view(np.int32), np.array(wanted, np.int32)[real])


def test_wide_integers_as_floats_and_back() -> None:
    """Rounded once, to even in the middle; floats out of range saturate."""
    rng = np.random.default_rng(0)
    drawn = rng.integers(0, 2**64, 20000, dtype=np.uint64) >> rng.integers(0, 64, 20000, dtype=np.uint64)
    middle = [(2**24 + n) << s | (1 << s >> 1) | (s > 1 and n & 1) for n in range(4) for s in range(1, 40)]
    x = np.concatenate([WIDE, drawn, np.array(middle, np.uint64)])
    np.testing.assert_array_equal(computed(FORMULAS["cast_u64_f32"], x=x), x.astype(np.float32))
    np.testing.assert_array_equal(computed(FORMULAS["cast_i64_f32"], x=x), x.view(np.int64).astype(np.float32))
    floats = np.concatenate([ODD, x.astype(np.float32), -x.astype(np.float32), [2.0**63, 2.0**64, -(2.0**63), 0.99]])
    floats = floats.astype(np.float32)
    for dtype in (I64, U64):
        low, high = dtype.range
        wanted = [0 if math.isnan(v) else int(max(low, min(high, v))) for v in floats.tolist()]
        found = computed(FORMULAS[f"cast_f32_{dtype.name}"], x=floats).view(dtype.numpy)
        np.testing.assert_array_equal(found, np.array(wanted, dtype.numpy))


def test_floats_that_are_no_numbers() -> None:
    x = np.array(ODD, np.float32)
    np.testing.assert_array_equal(computed(FORMULAS["isnan_f32"], x=x), np.isnan(x))
    np.testing.assert_array_equal(computed(FORMULAS["isinf_f32"], x=x), np.isinf(x))


def test_keys_in_the_order_of_floats() -> None:
    x = np.array(sorted(set(ODD) - {0.0}, key=lambda v: (math.isnan(v), v)), np.float32)[:-1]
    for how, nan in (("max", 2**32 - 1), ("min", 0)):
        keys = computed(FORMULAS[f"order_{how}_f32"], x=x).astype(np.int64)
        assert (np.diff(keys) > 0).all() and keys.min() > 0 and keys.max() < 2**32 - 1
        np.testing.assert_array_equal(computed(FORMULAS["ordered_f32"], x=keys.astype(np.uint32)), x)
        zeros = np.array([-1e-45, -0.0, 0.0, 1e-45], np.float32)
        keys = computed(FORMULAS[f"order_{how}_f32"], x=zeros)
        assert (np.diff(keys.astype(np.int64)) == 1).all()
        assert computed(FORMULAS["ordered_f32"], x=keys).tobytes() == zeros.tobytes()
        key = computed(FORMULAS[f"order_{how}_f32"], x=np.array([np.nan, -np.nan], np.float32))
        assert (key == nan).all() and np.isnan(computed(FORMULAS["ordered_f32"], x=key)).all()


def exact(name: str, a: int, b: int, bits: int = 32) -> int:
    if name == "shl":
        return a << b if 0 <= b < bits else 0
    if name == "shr":
        return a >> (b if 0 <= b < bits else bits)
    if name in ("add", "sub", "mul", "neg", "lt", "min", "max", "abs", "sign"):
        return int({"neg": -a, "abs": abs(a), "sign": (a > 0) - (a < 0), "lt": a < b, "add": a + b, "sub": a - b,
                    "mul": a * b, "min": min(a, b), "max": max(a, b)}[name])  # fmt: skip
    if name == "pow":
        return pow(a, b, 2**bits) if b >= 0 else 1 if a == 1 else 0 if a != -1 else -1 if b % 2 else 1
    if b == 0:
        return 0
    toward_zero = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return {"div": toward_zero, "fmod": a - toward_zero * b, "mod": a % b, "floordiv": a // b}[name]


@pytest.mark.parametrize("dtype", [I32, I16, I8, U32, U16, U8], ids=str)
def test_floats_as_integers(dtype: DType) -> None:
    low, high = dtype.range
    ends = [low - 1.5, low - 1, low, low + 0.5, high, high + 0.5, high + 1, high * 2.0, 2.5, -2.5, 0.99, -0.99]
    x = np.array([*ODD, *ends], np.float32)
    wanted = [0 if math.isnan(v) else max(low, min(high, math.trunc(max(-1e30, min(1e30, v))))) for v in x.tolist()]
    np.testing.assert_array_equal(computed(FORMULAS[f"cast_f32_{dtype.name}"], x=x), wanted)


def test_a_formula_stands_nowhere_else() -> None:
    """A prelude that had a function of its own would clash with the one that a kernel holds.

    Those of a half's accuracy are in CUDA's prelude, which the target counts as its library.
    """
    names = "|".join(sorted(name.rpartition("_")[0] for name in ELEMENTARY - OF_HALVES))
    stored = "|".join(CONVERSIONS)
    defined = re.compile(
        rf"T_FN \w+ t_(({names})_f32|{stored})\(|define .*@t_(({names})_f32|{stored})|T_LANEWISE\d\(t_({names})_f"
    )
    folder = Path(__file__).parents[2] / "templates"
    assert not [p.name for p in folder.rglob("*") if p.suffix in (".h", ".ll", ".j2") and defined.search(p.read_text())]
