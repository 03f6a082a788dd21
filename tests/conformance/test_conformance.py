"""A sample of the recorded cases; all of them by ``make conformance``."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

import pytest

from . import record
from .__main__ import main
from .cases import Case, all_cases
from .runner import CONSTANTS, FAILED, PASSED, UNSUPPORTED, Outcome, run_case

PER_OPERATOR = 1
# What other tests run whole, or what takes a compiler long.
LEFT_OUT = ("LSTM", "GRU", "RNN")


@lru_cache(maxsize=1)
def sample() -> tuple[Case, ...]:
    """Of each operator the recorded cases with the smallest hashes of their names: arbitrary, but always the same."""
    recorded = record.read()
    taken: Counter[str] = Counter()
    chosen = []
    for case in sorted(all_cases(), key=lambda c: sha256(c.name.encode()).digest()):
        skip = case.operator[:1] in "([" or case.operator in LEFT_OUT
        if case.name in recorded and not skip and taken[case.operator] < PER_OPERATOR:
            taken[case.operator] += 1
            chosen.append(case)
    return tuple(chosen)


@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("level", record.LEVELS)
def test_sample(level: int, part: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recorded cases still pass; parts, so that processes share the work."""
    monkeypatch.chdir(tmp_path)
    outcomes = [run_case(c, level, tmp_path) for c in sample()[part::4]]
    lost = record.lost(outcomes, record.read())
    assert not lost, "\n".join(f"{o.name}: {o.verdict}: {o.detail}" for o in lost)


def test_the_record_is_well_formed() -> None:
    recorded = record.read()
    assert list(recorded) == sorted(recorded) and set(recorded.values()) <= {PASSED, CONSTANTS}
    assert not set(recorded) - {c.name for c in all_cases()}


def test_the_record_only_grows() -> None:
    def outcome(name: str, level: int, verdict: str) -> Outcome:
        return Outcome(name, "Op", level, verdict)

    recorded = {"a": PASSED, "b": CONSTANTS}
    ends = {"a": (FAILED, FAILED), "b": (PASSED, PASSED), "c": (PASSED, UNSUPPORTED), "d": (PASSED, CONSTANTS)}
    outcomes = [outcome(n, level, v) for n, pair in ends.items() for level, v in zip((0, 3), pair, strict=True)]
    assert record.grown(outcomes, recorded) == {"a": PASSED, "b": PASSED, "d": CONSTANTS}
    assert [o.name for o in record.lost(outcomes, recorded)] == ["a", "a"]
    assert record.lost([outcome("b", 0, CONSTANTS)], recorded) == []


def test_the_command_prints_a_table_and_a_closing_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--filter", "^relu$", "--level", "0", "--jobs", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.split() == ["Relu", "1", "-", "-", "-"] for line in lines)
    assert lines[-1] == "1 passed, 0 failed, 0 skipped"
