"""Strides of index expressions along axes: what is split is the same number, and what is not affine is said so."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torshc.expr import F32, Expr, as_int, axis, const, dim, load, substitute
from torshc.expr.affine import aligned, can_join, contains, index_roots, join, split_axis, strides_along

ROW, COL, OTHER = axis("i", 6), axis("j", 5), axis("k", dim("n"))
N = dim("n")
WHOLE = st.integers(-9, 9)


def value(e: Expr, **numbers: int) -> int:
    """An expression with numbers for its axes and dimensions."""
    leaves = {"i": ROW, "j": COL, "k": OTHER, "n": N}
    found = as_int(substitute(e, {leaves[name]: const(x) for name, x in numbers.items()}))
    assert found is not None
    return found


@given(WHOLE, WHOLE, WHOLE, st.integers(0, 5), st.integers(0, 4), st.integers(1, 7))
def test_an_index_is_its_strides_and_a_rest(a: int, b: int, c: int, i: int, j: int, n: int) -> None:
    e = ROW * (N * a + b) + COL * c + N - 3
    parts = strides_along(e, (ROW, COL))
    assert parts is not None
    (along_i, along_j), rest = parts
    assert not any(contains(part, leaf) for part in (along_i, along_j, rest) for leaf in (ROW, COL))
    assert value(along_i, n=n) * i + value(along_j, n=n) * j + value(rest, n=n) == value(e, i=i, j=j, n=n)


def test_an_axis_that_is_not_there_has_stride_0() -> None:
    assert split_axis(COL * 7 + N, ROW) == (const(0), COL * 7 + N)
    assert split_axis(const(4), ROW) == (const(0), const(4))


@pytest.mark.parametrize("e", [ROW * ROW, ROW // 4, (ROW + COL) % 3, COL + ROW * (ROW // 2)], ids=str)
def test_what_is_not_affine_is_not_split(e: Expr) -> None:
    assert split_axis(e, ROW) is None


def test_a_product_of_two_axes_has_no_strides_along_both() -> None:
    assert split_axis(ROW * COL, ROW) == (COL, const(0))
    assert strides_along(ROW * COL, (ROW, COL)) is None


def test_a_quotient_of_another_axis_stays_in_the_rest() -> None:
    assert split_axis(ROW * 5 + COL // 2, ROW) == (const(5), COL // 2)


def test_lanes_are_aligned_where_all_else_is_a_multiple() -> None:
    assert aligned(ROW * 16 + COL, COL, 16) and aligned(COL, COL, 8) and aligned(N * 24 + COL + 8, COL, 8)
    assert not aligned(ROW * 12 + COL, COL, 16)
    assert aligned(COL * 2, ROW, 2) and not aligned(COL * 3, ROW, 2)
    assert not aligned(COL + 3, COL, 8)


def test_axes_join_where_every_index_runs_on() -> None:
    row_major = ROW * 5 + COL  # j has 5 steps
    assert can_join(ROW, COL, [row_major, row_major * 4 + 1, const(3)])
    assert not can_join(ROW, COL, [row_major, COL])  # this one begins anew
    assert not can_join(ROW, COL, [ROW * 6 + COL]) and not can_join(ROW, COL, [ROW + COL * 6])
    assert not can_join(ROW, COL, [row_major // 2])
    assert can_join(ROW, OTHER, [ROW * N + OTHER]) and not can_join(ROW, OTHER, [ROW * 7 + OTHER])


@given(st.integers(0, 29), WHOLE, WHOLE)
def test_the_joined_axis_gives_the_same_index(at: int, scale: int, start: int) -> None:
    e = (ROW * 5 + COL) * scale + start
    both = axis("both", 30)
    made = join(ROW, COL, both, e)
    assert not contains(made, ROW) and not contains(made, COL)
    assert as_int(substitute(made, {both: const(at)})) == value(e, i=at // 5, j=at % 5)


def test_the_roots_of_an_expression_are_its_largest_indices() -> None:
    table = object()
    at = ROW * 5 + COL
    read = load(table, (at,), F32)
    assert list(index_roots(read + read)) == [at]
    assert list(index_roots(at + 1)) == [at + 1]
    assert set(index_roots(load(table, (ROW, COL + N), F32))) == {ROW, COL + N}
