"""Elements with Python's operators."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from torshc.expr import BOOL, F32, F64, I32, I64, U32, DType, Expr, acc, call, cast, const, dim, select, substitute
from torshc.ops.core import scalar
from torshc.ops.core.scalar import Scalar, clip, element, equal, erf, maximum, minimum, where

X, Y = acc("x", F32), acc("y", F32)
N, M = acc("n", I32), acc("m", I32)
A, B = acc("a", BOOL), acc("b", BOOL)


def of(formula: Callable[..., Scalar], *xs: Expr) -> Expr:
    return formula(*map(Scalar, xs)).expr


@pytest.mark.parametrize(
    ("formula", "wanted"),
    [
        (lambda x, y: x + y, call("add", X, Y)), (lambda x, y: 1 + x, call("add", 1, X)),
        (lambda x, y: x - 0.5, call("sub", X, 0.5)), (lambda x, y: 1 - x, call("sub", 1, X)),
        (lambda x, y: 2 * x, call("mul", 2, X)), (lambda x, y: x / y, call("div", X, Y)),
        (lambda x, y: 1 / x, call("div", 1, X)), (lambda x, y: x % y, call("mod", X, Y)),
        (lambda x, y: -x, call("neg", X)), (lambda x, y: abs(x), call("abs", X)),
        (lambda x, y: x < y, call("lt", X, Y)), (lambda x, y: x <= 0, call("le", X, 0)),
        (lambda x, y: x > y, call("gt", X, Y)), (lambda x, y: x >= 0, call("ge", X, 0)),
        (lambda x, y: equal(x, 0), call("eq", X, 0)), (lambda x, y: erf(x), call("erf", X)),
        (lambda x, y: maximum(x, y, 0), call("max", call("max", X, Y), 0)),
        (lambda x, y: minimum(0, x), call("min", 0, X)),
        (lambda x, y: clip(x, None, 6), call("min", X, 6)),
        (lambda x, y: where(x < 0, 0, y), select(call("lt", X, 0), const(0, F32), Y)),
        (lambda x, y: x.cast(F64), cast(X, F64)),
    ],
)  # fmt: skip
def test_operators_are_functions_of_the_table(formula: Callable[..., Scalar], wanted: Expr) -> None:
    assert of(formula, X, Y) is wanted


@pytest.mark.parametrize(
    ("formula", "logical", "of_bits"),
    [
        (lambda p, q: p & q, "and", "bitand"), (lambda p, q: p | q, "or", "bitor"),
        (lambda p, q: p ^ q, "xor", "bitxor"),
    ],
)  # fmt: skip
def test_logic_of_truth_values_and_of_bits(formula: Callable[..., Scalar], logical: str, of_bits: str) -> None:
    assert of(formula, A, B) is call(logical, A, B)
    assert of(formula, N, M) is call(of_bits, N, M)


def test_shifts_and_inversion() -> None:
    assert of(lambda n: (n << 3) >> 1, N) is call("shr", call("shl", N, 3), 1)
    assert of(lambda a: ~a, A) is call("not", A)
    assert of(lambda n: ~n, N) is call("bitnot", N)


@pytest.mark.parametrize(
    ("power", "wanted"),
    [
        (2, call("mul", X, X)), (3.0, call("mul", call("mul", X, X), X)), (0.5, call("sqrt", X)),
        (0.75, call("mul", call("sqrt", X), call("sqrt", call("sqrt", X)))), (1.5, call("pow", X, 1.5)),
    ],
)  # fmt: skip
def test_constant_powers_are_products_and_roots(power: float, wanted: Expr) -> None:
    assert of(lambda x: x**power, X) is wanted
    assert of(lambda x: x ** element(power, F32), X) is wanted


def test_an_integer_has_no_roots() -> None:
    with pytest.raises(TypeError, match=r"0\.5 beside an element of i32"):
        _ = Scalar(N) ** 0.5


@pytest.mark.parametrize("dtype", [F32, F64, I32, I64, U32])
def test_a_number_has_the_elements_type(dtype: DType) -> None:
    x = Scalar(acc("x", dtype))
    assert {(x + 1).dtype, (3 * x).dtype, maximum(0, x).dtype, where(x > 0, x, 0).dtype} == {dtype}
    assert (x > 0).dtype is BOOL
    assert element(7, dtype).number == 7
    assert x.number is None


def test_elements_wrap_where_sizes_are_exact() -> None:
    n = dim("n")
    most = 2**63 - 1
    assert (element(most) + 1).number == -(2**63)
    assert substitute(n + 1, {n: element(most).expr}).data == 2**63


@pytest.mark.parametrize(
    ("formula", "wanted"),
    [
        (lambda n: n > 0.5, call("gt", N, 0)), (lambda n: n >= 0.5, call("ge", N, 1)),
        (lambda n: n < -0.5, call("lt", N, 0)), (lambda n: n <= -0.5, call("le", N, -1)),
    ],
)  # fmt: skip
def test_an_integer_is_compared_with_a_fraction(formula: Callable[..., Scalar], wanted: Expr) -> None:
    assert of(formula, N) is wanted


def mixed(formula: Callable[[Any, Any], Any]) -> None:
    formula(Scalar(acc("i", I64)), dim("n"))


@pytest.mark.parametrize(
    "formula",
    [
        lambda x, n: x + n, lambda x, n: n + x, lambda x, n: x * n, lambda x, n: n * x, lambda x, n: n - x,
        lambda x, n: n // x, lambda x, n: x % n, lambda x, n: n % x, lambda x, n: x < n, lambda x, n: maximum(x, n),
        lambda x, n: equal(x, n), lambda x, n: where(x > 0, x, n), lambda x, n: scalar.fmod(x, n),
    ],
)  # fmt: skip
def test_elements_and_sizes_do_not_mix(formula: Callable[[Any, Any], Any]) -> None:
    with pytest.raises(TypeError, match="size"):
        mixed(formula)


def test_elements_of_sizes_and_indices_of_elements() -> None:
    n = dim("n")
    assert element(n, F32).expr is cast(n, F32)
    assert element(n).expr is n
    assert Scalar(N).index() is cast(N, I64)
    assert where(call("lt", n, 3), Scalar(X), 0).dtype is F32


@pytest.mark.parametrize(
    ("formula", "words"),
    [
        (lambda x, n: x + n, "different types: x, n"),
        (lambda x, n: n * 0.5, r"0\.5 beside an element of i32, which has no fraction"),
        (lambda x, n: n < math.inf, "inf beside an element of i32"),
        (lambda x, n: where(x > 0, 1, 0), "numbers only: 1, 0"),
        (lambda x, n: x == n, r"equal\(\)"),
        (lambda x, n: 1 if x > 0 else 0, r"where\(\)"),
    ],
)  # fmt: skip
def test_what_has_no_meaning_is_refused(formula: Callable[[Any, Any], Any], words: str) -> None:
    with pytest.raises(TypeError, match=words):
        formula(Scalar(X), Scalar(N))


def test_a_name_that_no_function_has_is_told() -> None:
    with pytest.raises(AttributeError, match=r"sigmoidd\(\).*did you mean 'sigmoid'"):
        scalar.sigmoidd(Scalar(X))


def test_folded_constants_are_numbers() -> None:
    assert (element(2.0, F32) * 3).number == 6
    assert np.isclose(scalar.exp(element(1.0, F64)).number or 0, math.e)
