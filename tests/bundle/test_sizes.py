"""Sizes as C of the host program."""

from __future__ import annotations

import pytest

from torshc.bundle.sizes import ATOM, LONG, Sizes, names_of_given
from torshc.expr import Expr, call, const, dim, length, select

SYMBOLS = ("a", "b", "c")


def winding(steps: int) -> Expr:
    """A size of which every step holds the one before three times."""
    e = dim("a")
    for k in range(steps):
        e = select(call("eq", e, k), call("max", dim("b"), e), call("min", dim("c") * 2, e + k)) // 3
    return e


@pytest.mark.parametrize("steps", [1, 4, 60])
def test_long_sizes_are_written_in_parts(steps: int) -> None:
    sizes = Sizes(SYMBOLS)
    text = sizes.text(winding(steps))
    assert bool(sizes.parts) == (length(winding(steps)) > ATOM)
    assert max(len(t) for t in (text, *(p.text for p in sizes.parts))) < 20 * LONG
    for k, part in enumerate(sizes.parts):
        assert sizes.needs([part.expr])[1] == sizes.parts[: k + 1]  # each stands on those before it
    assert sizes.needs([winding(steps)]) == ([0, 1, 2], sizes.parts)


def test_a_part_is_named_once() -> None:
    sizes = Sizes(SYMBOLS)
    one = sizes.text(winding(9))
    many = len(sizes.parts)
    assert sizes.text(winding(9)) == one
    assert sizes.text(winding(9) + 1) == f"({one} + 1)"
    assert len(sizes.parts) == many


def test_short_sizes_stand_where_they_are_used() -> None:
    sizes = Sizes(SYMBOLS)
    assert sizes.text(const(7)) == "7" and sizes.text(None) == "-1"
    assert sizes.text(dim("a") * 4 + dim("b")) == "(4 * s0 + s1)"
    assert not sizes.parts


def test_given_sizes_keep_their_names() -> None:
    given = names_of_given([dim("a"), dim("a") * 4, const(2), dim("b") // 3])
    assert given == {dim("a") * 4: "z0", dim("b") // 3: "z1"}
    sizes = Sizes(SYMBOLS, given=given)
    assert sizes.text(dim("b") // 3 + 1) == "(z1 + 1)" and sizes.text(dim("a") * 4) == "z0"
    assert sizes.text(winding(4)) not in given.values()
    assert len({p.name for p in sizes.parts}) == len(sizes.parts) > 2
