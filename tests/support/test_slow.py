"""Which cases of a test with many run by default."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace
from typing import Any

from .slow import _left_out


def _case(left: str, right: str) -> Any:
    return SimpleNamespace(callspec=SimpleNamespace(params={"left": left, "right": right}))


def test_values_of_two_parameters_run_side_by_side() -> None:
    """A third of the pairs, each value once."""
    cases = [_case(a, b) for a, b in product("abc", "xyz")]
    left = _left_out(cases, 3)
    kept = ["".join(case.callspec.params.values()) for case in cases if case not in left]
    assert kept == ["ax", "bz", "cy"]
    assert _left_out(cases, 1) == []
