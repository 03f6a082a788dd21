"""The conformance run: ``python -m tests.conformance [--level N]... [--filter RE] [--jobs N] [--record]``.

Prints failures as they come, a table by operator, and ``N passed, N failed, N skipped`` at the end, where skipped are
refused cases; the exit code is 1 when one failed or a recorded one passes no more.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Sequence

from . import record
from .cases import Case, all_cases
from .runner import CONSTANTS, FAILED, PASSED, UNSUPPORTED, Outcome, run_cases

_COLUMNS = (PASSED, CONSTANTS, FAILED, UNSUPPORTED)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parse(arguments)
    levels = tuple(options.level or record.LEVELS)
    cases = _chosen(options)
    outcomes = []
    for outcome in run_cases(cases, levels, options.jobs):
        outcomes.append(outcome)
        if outcome.verdict == FAILED:
            print(f"FAIL {outcome.name} -O{outcome.level}: {outcome.detail}", flush=True)
        elif sys.stderr.isatty():
            print(f"\r{len(outcomes)}/{len(cases) * len(levels)}", end="", file=sys.stderr)
    for level in levels:
        print(f"\n-O{level}")
        _table([o for o in outcomes if o.level == level])
    if options.reasons:
        _reasons(outcomes)
    recorded = record.read() if record.FILE.exists() else {}
    lost = record.lost(outcomes, recorded)
    for o in lost:
        print(f"LOST {o.name} -O{o.level}: {o.verdict}: {o.detail}")
    if options.record:
        record.write(record.grown(outcomes, recorded))
    failed = _closing_line(outcomes)
    return 1 if failed or lost else 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("--level", type=int, action="append", choices=range(4), help="optimisation level; 0 and 3")
    parser.add_argument("--filter", default="", help="only cases whose name or operator this expression finds")
    parser.add_argument("--jobs", type=int, default=2, help="processes; 2")
    parser.add_argument("--recorded", action="store_true", help="only cases that are on record")
    parser.add_argument("--record", action="store_true", help="add what passes at -O0 and -O3 to passing.txt")
    parser.add_argument("--reasons", action="store_true", help="list what is unsupported, the most frequent first")
    return parser.parse_args(arguments)


def _chosen(options: argparse.Namespace) -> list[Case]:
    wanted = re.compile(options.filter)
    known = record.read() if options.recorded else None
    return [
        c
        for c in all_cases()
        if (wanted.search(c.name) or wanted.fullmatch(c.operator)) and (known is None or c.name in known)
    ]


def _table(outcomes: Sequence[Outcome]) -> None:
    rows: dict[str, Counter[str]] = {}
    for o in outcomes:
        rows.setdefault(o.operator, Counter())[o.verdict] += 1
    print(f"{'operator':36}" + "".join(f"{c:>12}" for c in _COLUMNS))
    for operator in sorted(rows):
        print(f"{operator:36}" + "".join(f"{rows[operator][c] or '-':>12}" for c in _COLUMNS))
    total = Counter(o.verdict for o in outcomes)
    print(f"{'all':36}" + "".join(f"{total[c]:>12}" for c in _COLUMNS))


def _reasons(outcomes: Sequence[Outcome]) -> None:
    found = Counter(o.detail.partition(";")[0].rpartition(": ")[2][:90] for o in outcomes if o.verdict == UNSUPPORTED)
    for reason, count in found.most_common(60):
        print(f"{count:5} {reason}")


def _closing_line(outcomes: Sequence[Outcome]) -> int:
    """Prints the counts of cases, each by its worst verdict; returns how many failed."""
    worst: dict[str, str] = {}
    for o in outcomes:
        worst[o.name] = max(worst.get(o.name, PASSED), o.verdict, key=(PASSED, CONSTANTS, UNSUPPORTED, FAILED).index)
    count = Counter(worst.values())
    if count[CONSTANTS]:
        print(f"{count[CONSTANTS]} of the skipped pass when operands that must be known at compile time are constants")
    print(f"{count[PASSED]} passed, {count[FAILED]} failed, {count[UNSUPPORTED] + count[CONSTANTS]} skipped")
    return count[FAILED]


if __name__ == "__main__":
    sys.exit(main())
