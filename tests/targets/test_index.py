"""Sizes as text."""

from __future__ import annotations

from torshc.expr import Expr, axis, call, dim, select
from torshc.targets.index import LONG, long_sizes, scalar


def winding(steps: int) -> Expr:
    """A size that takes many steps to compute."""
    e = dim("a")
    for k in range(steps):
        e = select(call("eq", e, k), call("max", dim("b"), e), call("min", dim("c"), e + k))
    return e


def test_long_sizes_are_given() -> None:
    size, short = winding(4), winding(1)
    i = axis("i", size)
    place = i * size + short
    assert long_sizes([place, size]) == [size]
    assert long_sizes([short, axis("j", short) * short]) == []
    assert long_sizes([i]) == [size]  # the extent of an axis
    names = {"a": "s0", "b": "s1", "c": "s2", size: "s3"}
    assert scalar(i * size, {i: "i0"}, names) == "(i0 * s3)"
    assert len(scalar(size, {}, {"a": "s0", "b": "s1", "c": "s2"})) > LONG
