"""How expressions move along lanes: against their values lane by lane, deep and shared ones included."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from torshc.expr import F32, I32, I64, Expr, axis, call, cast, const, load, select, walk
from torshc.expr.lanes import LaneSteps

from .test_index import evaluate

LANES = 4
LANE, ROW = axis("i", 16), axis("j", 5)


def grow(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    sums = st.tuples(st.sampled_from(["add", "sub", "mul", "min", "max"]), inner, inner).map(lambda t: call(*t))
    divisors = st.sampled_from([1, 2, 3, 4, 8, 12])
    divided = st.tuples(st.sampled_from(["floordiv", "mod"]), inner, divisors).map(lambda t: call(*t))
    kinds = st.sampled_from(["lt", "le", "gt", "ge", "eq", "ne"])
    chosen = st.tuples(kinds, inner, inner, inner, inner).map(lambda t: select(call(*t[:3]), *t[3:]))
    return st.one_of(sums, divided, divided, chosen)


exprs = st.recursive(st.one_of(st.sampled_from([LANE, LANE, ROW]), st.integers(-8, 16).map(const)), grow, max_leaves=9)


@settings(max_examples=150, deadline=None)
@given(exprs)
def test_steps_are_those_of_the_values(e: Expr) -> None:
    """A step that is given holds within every block, at every row."""
    step = LaneSteps(LANE, LANES).of(e)
    if step is None:
        return
    for row in range(5):
        for start in range(0, 16, LANES):
            first = evaluate(e, {"i": start, "j": row})
            for k in range(LANES):
                assert evaluate(e, {"i": start + k, "j": row}) == first + step * k


@settings(max_examples=150, deadline=None)
@given(exprs, exprs)
def test_halves_are_those_of_the_values(x: Expr, rest: Expr) -> None:
    e = x // 2 + rest
    if not LaneSteps(LANE, LANES).halved(e):
        return
    for row in range(5):
        for start in range(0, 16, LANES):
            first = evaluate(e, {"i": start, "j": row})
            assert [evaluate(e, {"i": start + k, "j": row}) - first for k in range(LANES)] == [0, 0, 1, 1]


def test_known_halves() -> None:
    steps = LaneSteps(LANE, LANES)
    assert steps.halved(LANE // 2 + 7 * ROW) and steps.halved((LANE + 4 * ROW) // 2)
    assert not any(steps.halved(e) for e in ((LANE + ROW) // 2, LANE // 2 * 2, LANE // 3, LANE, LANE // 2 * ROW))


def test_known_steps() -> None:
    steps = LaneSteps(LANE, LANES)
    assert steps.of(LANE * 3 + ROW) == 3
    assert steps.of((LANE + 8 * ROW) // 8) == 0
    assert steps.of((LANE + 8 * ROW) % 8) == 1
    assert steps.of((LANE + ROW) // 8) is None
    assert steps.of(call("lt", LANE, 4 * ROW)) == 0  # only from block to block
    assert steps.of(call("lt", LANE, ROW)) is None


def test_comparisons_of_what_is_no_index() -> None:
    """Floats and narrow integers have no differences here: they are the same in all lanes or not."""
    steps = LaneSteps(LANE, LANES)
    for dtype in (F32, I32):
        here, everywhere = load(0, (LANE,), dtype), load(1, (ROW,), dtype)
        for op in ("lt", "le", "gt", "ge", "eq"):
            assert steps.of(call(op, here, everywhere)) is None
            assert steps.of(call(op, everywhere, load(2, (ROW,), dtype))) == 0
        assert steps.of(load(3, (cast(call("lt", here, everywhere), I64),), I64)) is None
        assert steps.of(cast(here, I64)) is None


def test_deep_and_shared() -> None:
    """A chain of loads, each of which is read twice: 2**1500 paths, 1500 of them deep."""
    place = ROW
    for _ in range(1500):
        place = load(0, (place * 2 + cast(call("lt", load(1, (place,), F32), 0.5), I64),), I64)
    assert len(list(walk(place))) > 4500
    steps = LaneSteps(LANE, LANES)
    assert steps.of(place) == 0
    assert steps.of(place + LANE) == 1
