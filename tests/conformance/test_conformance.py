"""A sample of the recorded cases; all of them by ``make conformance``."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

import pytest

from tests.emulation.emulated import emulated_tools

from . import record
from .__main__ import main
from .cases import Case, all_cases
from .runner import CONSTANTS, FAILED, PASSED, UNSUPPORTED, Outcome, run_case

OPERATORS = 40
PARTS = 4  # so that processes share the work
LEFT_OUT = ("LSTM", "GRU", "RNN")  # what takes a compiler long, and other tests run whole


def _hash(name: str) -> bytes:
    return sha256(name.encode()).digest()


def _recorded() -> Iterator[Case]:
    """Recorded cases of single operators, in an order that is arbitrary but always the same."""
    recorded = record.read()
    plain = (c for c in all_cases() if c.operator[:1] not in "([" and c.operator not in LEFT_OUT)
    return iter(sorted((c for c in plain if c.name in recorded), key=lambda c: _hash(c.name)))


@lru_cache(maxsize=1)
def sample() -> tuple[Case, ...]:
    """A case of each of some operators."""
    first: dict[str, Case] = {}
    for case in _recorded():
        first.setdefault(case.operator, case)
    return tuple(first[operator] for operator in sorted(first, key=_hash)[:OPERATORS])


@pytest.mark.parametrize("part", range(PARTS))
def test_sample(part: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recorded cases still pass, at both levels."""
    monkeypatch.chdir(tmp_path)
    outcomes = [run_case(c, level, tmp_path) for c in sample()[part::PARTS] for level in record.LEVELS]
    lost = record.lost(outcomes, record.read())
    assert not lost, "\n".join(f"{o.name} -O{o.level}: {o.verdict}: {o.detail}" for o in lost)


@pytest.mark.parametrize("target", ["cuda", "metal"])
@pytest.mark.parametrize("part", range(PARTS))
def test_sample_on_devices(part: int, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same cases through the emulators."""
    monkeypatch.chdir(tmp_path)
    with emulated_tools():
        outcomes = [run_case(c, 3, tmp_path, target) for c in sample()[part::PARTS]]
    lost = record.lost(outcomes, record.read())
    assert not lost, "\n".join(f"{o.name} for {target}: {o.verdict}: {o.detail}" for o in lost)


def test_the_record_is_well_formed() -> None:
    recorded = record.read()
    assert list(recorded) == sorted(recorded) and set(recorded.values()) <= {PASSED, CONSTANTS}
    assert not set(recorded) - {c.name for c in all_cases()}
    assert len(sample()) == OPERATORS


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
