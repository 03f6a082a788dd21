"""Elementwise work on quantised numbers: sums of bytes with factors, and bytes of four vectors stored together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from torshc.expr import F32, I8, I32, U8, DType, Expr, axis, call, cast, const, load
from torshc.kernels.machine import Machine
from torshc.targets.cpu.quantised import scaled

from ...support.kernels import Maker
from ...support.run_kernel import Program, compilers, kind_of, native_lanes

POINTS = 109  # three blocks of four vectors of 8, a vector, and a part of one
MACHINES = [(lanes, compiler) for lanes in sorted({native_lanes(), 1}) for compiler in compilers()]
SPECIAL = [np.nan, np.inf, -np.inf, 3e9, -3e9, 1e30, -1e30, 0.5, 1.5, 2.5, -0.5, 254.5, 255.5, -128.5, 127.5]


def byte_of(x: Any, zero: int, dtype: DType) -> Any:
    """Numbers rounded to bytes, and NaN to the least that the zero point allows: to 0 where an i8 has none."""
    limits = np.iinfo(dtype.numpy)
    rounded = np.clip(np.rint(x) + zero, limits.min, limits.max)
    nan = 0 if dtype is I8 else limits.min
    return np.where(np.isnan(x), nan, rounded).astype(dtype.numpy)


@pytest.mark.parametrize(("lanes", "compiler"), MACHINES)
@pytest.mark.parametrize(("dtype", "zero"), [(U8, 0), (U8, 3), (U8, 255), (I8, 0)], ids=str)
def test_quantised_numbers(dtype: DType, zero: int, lanes: int, compiler: str) -> None:
    x = np.resize(np.array(SPECIAL, np.float32), POINTS)
    m = Maker()
    y = m.add("Round", m.input(POINTS))
    total = m.add("Add", y, m.constant(np.float32(zero))) if zero else y
    program = Program(
        m.output(m.add("Cast", total, to=dtype)),
        machine=Machine(lanes=lanes, compiler=kind_of(compiler)),
        compiler=compiler,
    )
    assert ("t_store4_whole" in program.launches[0].source) == (lanes == 8)
    (got,) = program.run(x)
    np.testing.assert_array_equal(got, byte_of(x, zero, dtype))


A, B = (load(k, (axis("i", 64),), U8) for k in range(2))


def level(byte: Expr, zero: int, factor: float) -> Expr:
    return cast(call("sub", cast(byte, I32), const(zero, I32)), F32) * factor


def as_text(e: Expr | None) -> str:
    return str(e).replace(str(A), "a").replace(str(B), "b")


def test_sums_have_a_factor_for_each_byte() -> None:
    total = scaled((level(A, 4, 0.5) + level(B, 8, 0.25)) * 2.0, 2.0)
    assert as_text(total) == "f32(i32(b))*1.0 + f32(i32(a))*2.0 - 16.0"


def test_a_byte_is_chosen_where_factors_are_equal() -> None:
    test = call("gt", A, B)
    same = scaled(call("select", test, level(A, 4, 0.5), level(B, 4, 0.5)), 4.0)
    other = scaled(call("select", test, level(A, 4, 0.5), level(B, 5, 0.5)), 4.0)
    assert same is not None and same.op != "select"
    assert other is not None and other.op == "select"


@pytest.mark.parametrize(
    "number",
    [
        level(A, 4, 0.5) * level(B, 4, 0.5),  # a product
        level(A, 4, 32.0),  # whose zero would be 0 but for rounding
        level(A, 4, 1e-30),
        load(2, (axis("i", 64),), F32) - 4.0,  # whose difference may cancel
    ],
)
def test_other_numbers_stay(number: Expr) -> None:
    assert scaled(number, 1.0) is None


@pytest.mark.parametrize(("slack", "steps"), [(None, True), (0, False)])
def test_the_models_own_roundings_stay_where_nothing_else_is_allowed(slack: int | None, steps: bool) -> None:
    m = Maker()
    levels = [m.add("Cast", m.input(POINTS, dtype=U8), to=F32) for _ in range(2)]
    weighted = [m.add("Mul", x, m.constant(np.float32(s))) for x, s in zip(levels, (0.3, 0.7), strict=True)]
    total = m.add("Mul", m.add("Add", *weighted), m.constant(np.float32(1.7)))
    program = Program(m.output(m.add("Cast", m.add("Round", total), to=U8)), machine=Machine(slack=slack))
    assert ("1.7f" in program.launches[0].source) == steps
