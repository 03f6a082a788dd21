"""Sizes and indices as text."""

from __future__ import annotations

from torshc.expr import Expr, axis, call, dim, length, select
from torshc.targets.index import LONG, given_sizes, scalar


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
