"""Sizes that are computed in several types: what simplifies, what is kept, and bounds that hold."""

from __future__ import annotations

import random

import numpy as np
import pytest

from torshc.expr import (
    BOOL,
    F32,
    FUNCTIONS,
    I32,
    I64,
    U8,
    Expr,
    axis,
    call,
    cast,
    const,
    dim,
    element,
    load,
    lower_bound,
    on_host,
    select,
    substitute,
    upper_bound,
    without_wraps,
)
from torshc.expr.bounds import range_of

N, M = dim("n"), dim("m")
VALUES = ((0, 0), (1, 7), (48, 3), (2**31 - 1, 2), (65536, 65536))


def narrow(e: Expr) -> Expr:
    return cast(e, I32)


def test_a_dimension_is_an_int32() -> None:
    assert cast(narrow(N), I64) is N
    assert cast(narrow(N // 2 + 1), I64) is N // 2 + 1
    assert cast(narrow(N) - narrow(M), I64) is N - M
    assert narrow(N) - 1 is call("sub", narrow(N), 1)
    assert -narrow(N) is call("neg", narrow(N))


def test_what_may_wrap_stays() -> None:
    product = narrow(N) * narrow(M)
    assert product is narrow(N * M) and cast(product, I64) is not N * M
    assert int(substitute(cast(product, I64), {N: const(65536), M: const(65537)}).data) == 65536  # type: ignore[call-overload]
    assert cast(cast(N, U8), I64) is not N


def test_the_largest_int32_is_no_limit() -> None:
    assert call("min", N, 2**31 - 1) is N
    assert call("max", element("e"), -(2**31)) is element("e")


def test_a_size_is_taken_without_its_wraps_and_a_run_checks() -> None:
    wrapped = cast(narrow(N * M), I64)
    size, pairs = without_wraps(wrapped // 2 + 1)
    assert size is N * M // 2 + 1 and pairs == [(N * M, wrapped)]
    guarded = select(call("lt", N, 5), wrapped, const(1))
    assert without_wraps(guarded) == (guarded, [])


def test_divisors_that_leave_64_bits_are_not_multiplied() -> None:
    far = N * N * N // (2**63 - 1)
    assert (far // 3).args == (far, const(3))


def test_types_simplify() -> None:
    assert cast(cast(call("lt", N, M), F32), BOOL) is call("lt", N, M)
    assert call("floor", cast(N, F32)) is cast(N, F32)
    assert cast(N + 1, BOOL) is const(True)
    assert call("ge", cast(N, F32) * 0.5, const(-1.0)) is const(True)
    assert call("abs", N) is N and call("sign", N + 1) is const(1)


def test_kernels_keep_their_narrow_arithmetic() -> None:
    """Vectors of i32 are not computed in i64."""
    x = load(0, (axis("i", 4),), I32)
    assert call("mul", x, x).op == "mul" and call("mul", x, x).dtype is I32


def test_operators_of_any_type() -> None:
    x = load(0, (axis("i", 4),), F32)
    assert (x - 1).dtype is F32 and (-x).op == "sub" and (x * x).dtype is F32 and (2 - x).args[0].dtype is F32


def test_what_the_host_can_compute() -> None:
    half = call("ceil", cast(N, F32) * 0.5)
    assert on_host(cast(half, I64)) and on_host(narrow(N * M))
    assert not on_host(call("exp", half)) and not on_host(call("pow", N, M))


UNARY = {
    "f32": ("neg", "abs", "sign", "floor", "ceil", "round", "trunc"),
    "i32": ("neg", "abs", "sign"),
    "i64": ("neg", "abs", "sign"),
}
BINARY = ("add", "sub", "mul", "min", "max", "div")
COMPARE = ("lt", "le", "gt", "ge", "eq", "ne")
TYPES = {t.name: t for t in (I64, I32, F32)}
Pair = tuple[Expr, list[np.generic]]


class Draw:
    """Expressions beside the numbers that NumPy has for them, one for each pair of sizes."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        columns = list(zip(*VALUES, strict=True))
        self.pool: list[Pair] = [(s, [np.int64(v) for v in c]) for s, c in zip((N, M), columns, strict=True)]
        self.conditions: list[Pair] = []

    def one(self) -> Pair:
        return self.rng.choice(self.pool)

    def two(self) -> tuple[Pair, Pair]:
        e, a = self.one()
        if self.rng.random() < 0.4:
            value = self.rng.choice((-3, 0, 1, 2, 7, 64))
            other = const(float(value) if e.dtype is F32 else value, e.dtype)
            return (e, a), (other, [e.dtype.numpy.type(value)] * len(a))
        return (e, a), self.rng.choice([p for p in self.pool if p[0].dtype is e.dtype])

    def step(self) -> None:
        how = self.rng.randrange(5)
        (e, a), (f, b) = self.two()
        if how == 0:
            to = self.rng.choice(list(TYPES.values()))
            self.keep(cast(e, to), [self.converted(x, to.name) for x in a])
        elif how == 1:
            op = self.rng.choice(UNARY[e.dtype.name])
            self.keep(call(op, e), [FUNCTIONS[op].numpy(x) for x in a])
        elif how == 2:
            op = self.rng.choice(BINARY)
            if op == "div" and e.dtype is not F32 and any(y == 0 for y in b):
                return  # x / x is 1, whatever x may be
            if e.dtype is I64 and any(
                abs(FUNCTIONS[op].numpy(float(x), float(y))) > 2.0**62 for x, y in zip(a, b, strict=True)
            ):  # type: ignore[arg-type]
                return  # a run refuses what does not fit
            self.keep(call(op, e, f), [FUNCTIONS[op].numpy(x, y) for x, y in zip(a, b, strict=True)])
        elif how == 3:
            op = self.rng.choice(COMPARE)
            self.conditions.append((call(op, e, f), [FUNCTIONS[op].numpy(x, y) for x, y in zip(a, b, strict=True)]))
        elif self.conditions:
            c, holds = self.rng.choice(self.conditions)
            self.keep(select(c, e, f), [x if h else y for h, x, y in zip(holds, a, b, strict=True)])

    def converted(self, x: np.generic, to: str) -> np.generic:
        if not np.isfinite(float(x)):  # type: ignore[arg-type]
            raise OverflowError
        if to != "f32" and isinstance(x, np.floating):
            low, high = TYPES[to].range
            return TYPES[to].numpy.type(min(max(int(x), low), high))
        return np.asarray(x).astype(TYPES[to].numpy)[()]

    def keep(self, e: Expr, values: list[np.generic]) -> None:
        self.pool.append((e, [e.dtype.numpy.type(v) for v in values]))


@pytest.mark.parametrize("seed", range(40))
def test_simplified_expressions_have_numpys_values_and_lie_in_their_bounds(seed: int) -> None:
    draw = Draw(seed)
    with np.errstate(all="ignore"):
        for _ in range(60):
            try:
                draw.step()
            except OverflowError:  # infinite or NaN as an integer
                continue
    for e, values in draw.pool:
        low, high = range_of(e)
        for (n, m), value in zip(VALUES, values, strict=True):
            got = substitute(e, {N: const(n), M: const(m)})
            assert (got.op == "const" and got.data == value) or np.isnan(float(value)), f"{e!r} at {n}, {m}"  # type: ignore[arg-type]
            assert np.isnan(float(value)) or low <= value <= high, f"{e!r} at {n}, {m}"  # type: ignore[arg-type, operator]
            if e.dtype is I64:
                least, most = lower_bound(e), upper_bound(e)
                assert (least is None or least <= value) and (most is None or value <= most)  # type: ignore[operator]
