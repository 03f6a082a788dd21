"""Expressions whose parts are shared: how long they are, as text, and what a kernel alone knows of them."""

from __future__ import annotations

import math
import warnings

from torshc.expr import (
    F32,
    F64,
    Expr,
    axis,
    call,
    cast,
    const,
    dim,
    is_long,
    length,
    load,
    locals_of,
    select,
    substitute,
    to_text,
    walk_new,
)


def shared(steps: int) -> Expr:
    """An expression whose steps hold the one before twice."""
    e = dim("a")
    for k in range(steps):
        e = call("max", call("min", e, dim("b") + k), e // 2 + 1)
    return e


def test_length_counts_shared_parts_each_time_and_steps_once() -> None:
    assert length(dim("a") + 1) == 3
    assert length(shared(60)) > 1 << 60
    assert not is_long(shared(60))
    assert is_long(shared(1000))


def test_long_text_is_shortened() -> None:
    assert len(to_text(shared(60))) < 1 << 14
    assert to_text(shared(60), 8).count("...") > 1
    assert to_text(dim("a") * 2 + dim("b"), names={"a": "s0"}) == "2*s0 + b"


def test_locals() -> None:
    i, size = axis("i", 4), shared(60)
    place = load("x", (i * size + 1,), F32)
    assert locals_of(size) == frozenset()
    assert locals_of(i * size) == {i}
    assert locals_of(place) == {i, place}
    assert locals_of(axis("j", i)) == {axis("j", i)}  # an extent is no part
    assert substitute(i * size, {i: const(2)}) is size * 2
    assert substitute(place, {i: const(0)}) is load("x", (const(1),), F32)


def test_a_walk_leaves_out_what_is_known() -> None:
    known = {shared(59): 0}
    new = []
    for e in walk_new(shared(60), known):
        known[e] = 1
        new.append(e)
    assert new[-1] is shared(60)
    assert len(new) < 12
    assert not list(walk_new(shared(60), known))


def test_a_choice_inside_the_same_choice() -> None:
    """Sizes that broadcast with what broadcast before are the same expression."""
    n, m = dim("n"), dim("m")
    c = call("eq", n, 1)
    assert select(c, select(c, m, n), n) is select(c, m, n) is select(c, m, select(c, n, n))
    assert select(c, m, select(c, m, n)) is select(c, m, n)
    assert select(call("eq", m, 1), select(c, m, n), n) is not select(c, m, n)


def test_a_constant_beyond_its_type_is_infinite() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cast(const(-1e39, F64), F32) is const(-math.inf, F32)
