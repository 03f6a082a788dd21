"""Sizes and indices as text."""

from __future__ import annotations

import itertools

import pytest

from torshc.expr import BOOL, F32, I64, Expr, axis, call, cast, const, dim, length, select
from torshc.targets.index import LONG, given_sizes, in_brackets, scalar


def winding(steps: int) -> Expr:
    """A size that takes many steps to compute."""
    e = dim("a")
    for k in range(steps):
        e = select(call("eq", e, k), call("max", dim("b"), e), call("min", dim("c"), e + k))
    return e


def test_long_sizes_are_given() -> None:
    size, short = winding(4), winding(1)
    i = axis("i", size)
    assert given_sizes([i * size + short, size]) == [size]
    assert given_sizes([short, axis("j", short) * short]) == []
    assert given_sizes([i]) == [size]  # the extent of an axis
    names = {"a": "s0", "b": "s1", "c": "s2", size: "s3"}
    assert scalar(i * size, {i: "i0"}, names) == "(i0 * s3)"
    assert length(size) > LONG


def test_sums_of_long_sizes_are_not_given() -> None:
    """Their parts are, since a number of rows multiplies such sums out."""
    size = winding(4)
    assert given_sizes([size * 3 + dim("b")]) == [size]


def test_a_product_that_is_given_keeps_its_name_in_a_sum() -> None:
    product = dim("a") * dim("b")
    assert scalar(product + 1, {}, {product: "s0"}) == "(s0 + 1)"
    assert scalar(product + 1, {}, {"a": "s0", "b": "s1"}) == "(s0 * s1 + 1)"


A, B = axis("i0", dim("a")), axis("i1", 5)
FORMS = [
    A + B * 2, A * dim("a"), A - 7, -A, const(-3), const(3), A, A % 5, A // 5, (A - 9) % 5, (A - 9) // 5,
    A % dim("a"), call("lt", A, B), call("and", call("lt", A, B), call("eq", A, 2)), call("not", call("lt", A, B)),
    call("min", A, B), call("abs", A - 3), call("sign", A - 3), select(call("lt", A, B), A, A + B),
    cast(A, BOOL), cast(call("lt", A, B), I64), cast(cast(A, F32), I64),
]  # fmt: skip


@pytest.mark.parametrize(
    ("e", "text"),
    [
        (B - A, "(i1 - i0)"),
        (31 - A * 3 - B * 2, "(31 - 3 * i0 - 2 * i1)"),
        (A * -3, "(-3 * i0)"),
        (-A - 1, "(-i0 - 1)"),
        (A * dim("a") * -1 + B, "(i1 - i0 * s0)"),
        ((B - A) % 3, "t_imod((i1 - i0), 3)"),
        (A * -(2**63) + B, None),
    ],
    ids=str,
)
def test_what_is_negative_is_subtracted(e: Expr, text: str | None) -> None:
    found = scalar(e, {A: "i0", B: "i1"}, {"a": "s0"})
    assert found == text if text is not None else "INT64_MIN" in found


def test_a_product_with_a_name_is_added() -> None:
    product = dim("a") * -4
    assert scalar(product + 1, {}, {product: "z0"}) == "(z0 + 1)"


@pytest.mark.parametrize("e", FORMS, ids=str)
def test_what_stands_in_brackets_is_known_before_it_is_written(e: Expr) -> None:
    text = scalar(e, {A: "i0", B: "i1"}, {"a": "s0"})
    depth = list(itertools.accumulate((c == "(") - (c == ")") for c in text))
    assert in_brackets(e) == (text.startswith("(") and depth.index(0) == len(text) - 1)
