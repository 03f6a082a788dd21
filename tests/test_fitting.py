"""Sizes that satisfy a model's equations."""

from __future__ import annotations

import pytest

from torshc.errors import ConfigError
from torshc.fitting import fit_sizes
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
    assert fit_sizes({"n": 1, "m": 1}, [], conditions) == {"n": 2, "m": 1}
    assert fit_sizes({"n": 1, "m": 7}, ["m"], conditions) == {"n": 7, "m": 7}
    with pytest.raises(ConfigError, match="no sizes were found that satisfy n != 1"):
        fit_sizes({"n": 1}, [], [*conditions[:1], equation("n < 2", "", "n")])


def test_without_a_solution_the_equations_are_named() -> None:
    with pytest.raises(ConfigError, match=r"satisfy past \+ seq == total") as caught:
        fit_sizes({"past": 1, "seq": 1, "total": 1}, ["total"], [CACHE])
    assert "--dims past=...,seq=...,total=..." in caught.value.remedy
