"""Which cases of a test with many run by default."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from .slow import THINNED, _left_out

ROOT = Path(__file__).parents[2]


def _case(left: str, right: str) -> Any:
    return SimpleNamespace(callspec=SimpleNamespace(params={"left": left, "right": right}))


def test_values_of_two_parameters_run_side_by_side() -> None:
    """A third of the pairs, each value once."""
    cases = [_case(a, b) for a, b in product("abc", "xyz")]
    left = _left_out(cases, 3)
    kept = ["".join(case.callspec.params.values()) for case in cases if case not in left]
    assert kept == ["ax", "bz", "cy"]
    assert _left_out(cases, 1) == []


def test_each_start_of_a_name_fits_a_test() -> None:
    """A file that moves would run all its cases again, unnoticed."""
    for start in THINNED:
        file, _, name = start.partition("::")
        found = list(ROOT.glob(file if file.endswith(".py") else f"{file}*.py"))
        assert any(f"def {name}" in path.read_text() for path in found), start
