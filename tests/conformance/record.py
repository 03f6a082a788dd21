"""The committed list of what passes; it may only grow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from .runner import CONSTANTS, FAILED, PASSED, Outcome

FILE = Path(__file__).with_name("passing.txt")
LEVELS = (0, 3)
_HEAD = """\
# Cases of the onnx package that pass at -O0 and at -O3, as `python -m tests.conformance --record` wrote them.
# "constants" after a name: it passes when operands that must be known at compile time are constants.
"""


def read(file: Path = FILE) -> dict[str, str]:
    """Verdict by name of each recorded case."""
    found = {}
    for line in file.read_text().splitlines():
        if line and not line.startswith("#"):
            name, _, mark = line.partition(" ")
            found[name] = mark or PASSED
    return found


def write(verdicts: Mapping[str, str], file: Path = FILE) -> None:
    """Writes the record, ordered by name."""
    lines = [name if verdicts[name] == PASSED else f"{name} {CONSTANTS}" for name in sorted(verdicts)]
    file.write_text(_HEAD + "\n".join(lines) + "\n")


def good(verdict: str) -> bool:
    return verdict in (PASSED, CONSTANTS)


def lost(outcomes: Iterable[Outcome], recorded: Mapping[str, str]) -> list[Outcome]:
    """Outcomes of recorded cases that pass no more, or no more as they are."""
    return [o for o in outcomes if o.name in recorded and o.verdict not in (PASSED, recorded[o.name])]


def grown(outcomes: Iterable[Outcome], recorded: Mapping[str, str]) -> dict[str, str]:
    """The record with all cases added that passed at every level of `LEVELS`; nothing is taken away."""
    seen: dict[str, dict[int, str]] = {}
    for o in outcomes:
        seen.setdefault(o.name, {})[o.level] = o.verdict
    out = dict(recorded)
    for name, verdicts in seen.items():
        if set(verdicts) >= set(LEVELS) and all(good(v) for v in verdicts.values()) and out.get(name) != PASSED:
            out[name] = CONSTANTS if CONSTANTS in verdicts.values() else PASSED
    return out


__all__ = ["FAILED", "FILE", "LEVELS", "good", "grown", "lost", "read", "write"]
