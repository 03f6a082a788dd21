"""Sizes that satisfy a model's equations."""

from __future__ import annotations

import pytest

from torshc.base.errors import ConfigError
from torshc.pipeline.fitting import fit_sizes
from torshc.runtime import ConditionSpec


def equation(left: str, right: str, *symbols: str) -> ConditionSpec:
    return ConditionSpec(left, right, symbols)


CACHE = equation("past + seq", "total", "past", "seq", "total")


def test_what_stands_alone_takes_the_other_side() -> None:
    assert fit_sizes({"past": 2, "seq": 3, "total": 5, "b": 7}, [], [CACHE]) == {
        "past": 2, "seq": 3, "total": 5, "b": 7,
    }  # fmt: skip
    assert fit_sizes({"past": 2, "seq": 3, "total": 7}, [], [CACHE]) == {"past": 2, "seq": 3, "total": 5}


def test_given_sizes_stay() -> None:
    found = fit_sizes({"past": 2, "seq": 3, "total": 9}, ["total", "seq"], [CACHE])
    assert found == {"past": 6, "seq": 3, "total": 9}


def test_chains_and_products() -> None:
    chain = [equation("a", "b", "a", "b"), equation("b", "c", "b", "c"), equation("2*c", "d*3", "c", "d")]
    found = fit_sizes({"a": 1, "b": 2, "c": 6, "d": 1}, ["c"], chain)
    assert found == {"a": 6, "b": 6, "c": 6, "d": 4}


def test_what_sizes_cannot_decide_is_left_to_the_run() -> None:
    sizes = {"a": 1, "b": 2}
    assert fit_sizes(sizes, [], [equation("a", "n", "a", "n"), equation("f(a)", "b", "a", "b")]) == sizes
    assert fit_sizes(sizes, ["a", "b"], [equation("a", "b", "a", "b")]) == sizes


def test_conditions_that_are_no_equations() -> None:
    """A Squeeze of whatever is 1 needs the rest to be something else."""
    conditions = [equation("n != 1", "", "n"), equation("(n == m) or (m < 3)", "", "n", "m")]
    assert fit_sizes({"n": 1, "m": 1}, [], conditions) == {"n": 64, "m": 1}
    assert fit_sizes({"n": 1, "m": 7}, ["m"], conditions) == {"n": 7, "m": 7}
    with pytest.raises(ConfigError, match="no sizes were found that satisfy n != 1"):
        fit_sizes({"n": 1}, [], [*conditions[:1], equation("n < 2", "", "n")])


def test_the_largest_of_the_small_sizes_is_taken_and_not_twice() -> None:
    """A picture that is halved three times and doubled again: 64 x 56 shows more than 8 x 8."""
    halves = [equation(f"{n} // {k}", f"2*({n} // {2 * k})", n) for n in ("height", "width") for k in (1, 2, 4)]
    assert fit_sizes({"batch": 2, "height": 3, "width": 5}, [], halves) == {"batch": 2, "height": 64, "width": 56}


def test_larger_sizes_where_no_small_one_will_do() -> None:
    """An encoder and a decoder whose lengths the export fixed."""
    conditions = [
        equation("16*batch + 16*batch*((frames - 1) // 2)", "1600*batch", "batch", "frames"),
        equation("16*batch*tokens", "192*batch", "batch", "tokens"),
    ]
    found = fit_sizes({"batch": 2, "frames": 3, "tokens": 5}, [], conditions)
    assert found == {"batch": 2, "frames": 199, "tokens": 12}


def test_two_sizes_that_have_to_change_together() -> None:
    found = fit_sizes({"a": 1, "b": 1}, [], [equation("3*(a // 2)", "5*b + 1", "a", "b")])
    assert 3 * (found["a"] // 2) == 5 * found["b"] + 1


def test_preferences_are_met_where_they_can_be() -> None:
    """Nobody wants a picture of one pixel, of which a pooling leaves none."""
    pooled = equation("n // 8 >= 1", "", "n")
    assert fit_sizes({"n": 1}, [], [], [pooled]) == {"n": 64}
    assert fit_sizes({"n": 1}, ["n"], [], [pooled]) == {"n": 1}
    assert fit_sizes({"n": 1}, [], [equation("n < 4", "", "n")], [pooled]) == {"n": 1}


def test_elements_that_are_sizes_are_chosen_too() -> None:
    found = fit_sizes({"n": 3, "k[0]": 5}, ["n"], [equation("(0 <= k[0]) and (k[0] <= n)", "", "k[0]", "n")])
    assert found == {"n": 3, "k[0]": 2}


def test_without_a_solution_the_equations_are_named() -> None:
    with pytest.raises(ConfigError, match=r"satisfy past \+ seq == total") as caught:
        fit_sizes({"past": 1, "seq": 1, "total": 1}, ["total"], [CACHE])
    assert "--dims past=...,seq=...,total=..." in caught.value.remedy
