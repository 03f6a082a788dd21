"""The committed lists of what passes, which may only grow, and of what is refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from .runner import CONSTANTS, FAILED, ONES, PASSED, SHARED, UNSUPPORTED, Outcome

FILE = Path(__file__).with_name("passing.txt")
DYNAMIC = Path(__file__).with_name("dynamic.txt")
REFUSED = Path(__file__).with_name("refused.txt")
LEVELS = (0, 3)
GOOD = (SHARED, ONES, CONSTANTS, PASSED)  # the best last
_HEADS = {
    FILE: """\
# Cases of the onnx package that pass at -O0 and at -O3, as `python -m tests.conformance --record` wrote them.
# "constants" after a name: it passes when operands that must be known at compile time are constants.
""",
    DYNAMIC: """\
# Cases that pass with symbolic dimensions and run-time shape operands at -O3, as
# `python -m tests.conformance --dynamic --record` wrote them. After a name: "ones", it passes when dimensions of size 1
# stay; "shared", when besides dimensions of equal size are one symbol.
""",
}
_REFUSED_HEAD = """\
# Cases that are refused, and why, as `python -m tests.conformance --record` found them: name, tab, reason.
"""


def read(file: Path = FILE) -> dict[str, str]:
    """Verdict by name of each recorded case."""
    found = {}
    for line in _lines(file):
        name, _, mark = line.partition(" ")
        found[name] = mark or PASSED
    return found


def _lines(file: Path) -> list[str]:
    text = file.read_text() if file.exists() else ""
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def write(verdicts: Mapping[str, str], file: Path = FILE) -> None:
    """Writes a record, ordered by name."""
    lines = [name if verdicts[name] == PASSED else f"{name} {verdicts[name]}" for name in sorted(verdicts)]
    file.write_text(_HEADS.get(file, "") + "\n".join(lines) + "\n")


def good(verdict: str) -> bool:
    return verdict in GOOD


def lost(outcomes: Iterable[Outcome], recorded: Mapping[str, str]) -> list[Outcome]:
    """Outcomes of recorded cases that pass no more, or in a lesser way."""
    return [o for o in outcomes if o.name in recorded and _rank(o.verdict) < _rank(recorded[o.name])]


def _rank(verdict: str) -> int:
    return GOOD.index(verdict) if good(verdict) else -1


def grown(outcomes: Iterable[Outcome], recorded: Mapping[str, str], levels: Iterable[int] = LEVELS) -> dict[str, str]:
    """The record with all cases added that passed at every one of `levels`; nothing is taken away."""
    seen: dict[str, dict[int, str]] = {}
    for o in outcomes:
        seen.setdefault(o.name, {})[o.level] = o.verdict
    out = dict(recorded)
    for name, verdicts in seen.items():
        worst = min(verdicts.values(), key=_rank)
        if set(verdicts) >= set(levels) and _rank(worst) > _rank(out.get(name, UNSUPPORTED)):
            out[name] = worst
    return out


def read_refused(file: Path = REFUSED) -> dict[str, str]:
    """Reason by name of each case that is refused."""
    return dict(line.split("\t", 1) for line in _lines(file))


def write_refused(outcomes: Iterable[Outcome], file: Path = REFUSED) -> None:
    """Notes what ran: cases that are refused no more are taken out, others get the reason of now."""
    reasons = read_refused(file)
    outcomes = list(outcomes)
    for o in outcomes:
        reasons.pop(o.name, None)
    reasons |= {o.name: " ".join(o.detail.split())[:300] for o in outcomes if o.verdict == UNSUPPORTED}
    file.write_text(_REFUSED_HEAD + "".join(f"{name}\t{reasons[name]}\n" for name in sorted(reasons)))


__all__ = [
    "DYNAMIC", "FAILED", "FILE", "LEVELS", "REFUSED", "good", "grown", "lost", "read", "read_refused", "write",
    "write_refused",
]  # fmt: skip
