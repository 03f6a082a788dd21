"""The conformance run: ``python -m tests.conformance [--level N]... [--filter RE] [--jobs N] [--record]``.

Prints failures as they come, tables by operator, element type and reason, and ``N passed, N failed, N skipped`` at the
end, where skipped are refused cases; the exit code is 1 when one failed or a recorded one passes no more. The record is
of the C target. Another target runs on its device, or through the emulator of tests/emulation where there is none.

Of random operators (Bernoulli, Dropout in training, and what is expanded into drawing) only the shape, the element type
and that the values are legal ones are compared.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import NoReturn

from tests.emulation.emulated import emulated_tools, missing
from torshc import backend
from torshc.base.options import FUSION_MODES
from torshc.runtime.native import CPU
from torshc.targets import TARGETS

from . import record, sanitized
from .cases import Case, all_cases
from .compare import is_random
from .runner import CONSTANTS, FAILED, ONES, PASSED, SHARED, STATIC, UNSUPPORTED, Mode, Outcome, run_cases

_STATIC_COLUMNS = (PASSED, CONSTANTS, FAILED, UNSUPPORTED)
_DYNAMIC_COLUMNS = (PASSED, ONES, SHARED, FAILED, UNSUPPORTED, STATIC)
_WORST_LAST = (STATIC, PASSED, CONSTANTS, ONES, SHARED, UNSUPPORTED, FAILED)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parse(arguments)
    cases = sanitized.handed(options.cases) if options.cases else _chosen(options)
    if options.sanitize and not sanitized.restarted():
        _restart(sys.argv[1:] if arguments is None else arguments, cases)
    modes = _modes(options)
    with _emulated(options, modes[0].device):
        outcomes = _run(cases, modes, options.jobs)
    _report(outcomes, _DYNAMIC_COLUMNS if options.dynamic else _STATIC_COLUMNS)
    if options.refused:
        _list_refused(outcomes)
    drawn = sum(map(is_random, cases))
    if drawn:
        print(f"{drawn} cases draw random numbers: only shapes, element types and legal values of theirs were compared")
    lost = _against_the_record(outcomes, options)
    failed = _dynamic_line(outcomes) if options.dynamic else _closing_line(outcomes)
    return 1 if failed or lost else 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("--level", type=int, action="append", choices=range(4), help="optimisation level; 0 and 3")
    parser.add_argument("--filter", default="", help="only cases whose name or operator this expression finds")
    parser.add_argument("--jobs", type=int, default=2, help="processes; 2")
    parser.add_argument("--target", choices=sorted(TARGETS), default="c", help="what to compile for; c")
    parser.add_argument("--emulated", action="store_true", help="through the tests' emulator, though a device is here")
    parser.add_argument(
        "--fusion", choices=FUSION_MODES, default="", help="how far nodes are joined; left out, as the level says"
    )
    parser.add_argument("--dynamic", action="store_true", help="symbolic dimensions, run-time shape operands; -O3")
    parser.add_argument("--sanitize", action="store_true", help="core cases with address and UB sanitizers; -O3")
    parser.add_argument("--refused", action="store_true", help="list the refused cases")
    parser.add_argument("--cases", type=Path, help=argparse.SUPPRESS)  # those of the process that started this one
    parser.add_argument("--recorded", action="store_true", help="only cases that are on record")
    parser.add_argument("--record", action="store_true", help="add to the record what passes at -O0 and at -O3")
    return parser.parse_args(arguments)


def _restart(arguments: Sequence[str], cases: Sequence[Case]) -> NoReturn:
    handle, file = tempfile.mkstemp(prefix="torshc-conformance-")
    os.close(handle)
    command, env = sanitized.command(arguments, cases, Path(file))
    os.execve(command[0], command, env)


def _modes(options: argparse.Namespace) -> list[Mode]:
    cc = sanitized.compiler() if options.sanitize else ""
    usual = (3,) if options.dynamic or options.sanitize else record.LEVELS
    levels = options.level or usual
    return [Mode(level, options.target, options.fusion, cc, options.dynamic) for level in levels]


def _emulated(options: argparse.Namespace, device: str) -> AbstractContextManager[None]:
    on_processor = TARGETS[options.target].device == CPU
    if on_processor or (not options.emulated and backend.supports_device(device)):
        return nullcontext()
    if reason := missing(metal=options.target == "metal"):
        raise SystemExit(f"no device for {options.target} is here, and {reason}")
    print(f"{options.target} through the emulator", file=sys.stderr)
    return emulated_tools()


def _chosen(options: argparse.Namespace) -> list[Case]:
    wanted = re.compile(options.filter)
    known = record.read(_file(options)) if options.recorded else None
    return [
        c
        for c in all_cases()
        if (wanted.search(c.name) or wanted.fullmatch(c.operator))
        and (known is None or c.name in known)
        and (c.is_core or not options.sanitize)
    ]


def _file(options: argparse.Namespace) -> Path:
    return record.DYNAMIC if options.dynamic else record.FILE


def _run(cases: Sequence[Case], modes: Sequence[Mode], jobs: int) -> list[Outcome]:
    outcomes: list[Outcome] = []
    try:
        for outcome in run_cases(cases, modes, jobs):
            outcomes.append(outcome)
            if outcome.verdict == FAILED:
                print(f"FAIL {outcome.name} -O{outcome.level}: {outcome.detail}", flush=True)
            if len(outcomes) % 100 == 0:
                print(f"{len(outcomes)} of {len(cases) * len(modes)} runs", file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        print(f"interrupted after {len(outcomes)} of {len(cases) * len(modes)} runs")
    return outcomes


def _against_the_record(outcomes: Sequence[Outcome], options: argparse.Namespace) -> list[Outcome]:
    """Prints what is lost; adds what is new when asked to."""
    if options.target != "c":
        return []
    file = _file(options)
    recorded = record.read(file)
    lost = record.lost(outcomes, recorded)
    for o in lost:
        print(f"LOST {o.name} -O{o.level}: {o.verdict}: {o.detail}")
    if options.record:
        levels = (3,) if options.dynamic else record.LEVELS
        record.write(record.grown(outcomes, recorded, levels), file)
        if not options.dynamic:
            record.write_refused(outcomes)
    return lost


# -- tables ----------------------------------------------------------------------------------------------------------


def _report(outcomes: Sequence[Outcome], columns: Sequence[str]) -> None:
    for level in sorted({o.level for o in outcomes}):
        some = [o for o in outcomes if o.level == level]
        print(f"\n-O{level}")
        _table("operator", some, columns, lambda o: (o.operator,))
        print()
        _table("element type", some, columns, lambda o: o.dtypes)
    _reasons(outcomes)


def _list_refused(outcomes: Sequence[Outcome]) -> None:
    for o in outcomes:
        if o.verdict == UNSUPPORTED:
            print(f"REFUSED {o.name} -O{o.level}: {o.detail}")


def _table(
    title: str, outcomes: Sequence[Outcome], columns: Sequence[str], rows_of: Callable[[Outcome], Iterable[str]]
) -> None:
    rows: dict[str, Counter[str]] = {}
    for o in outcomes:
        for row in rows_of(o):
            rows.setdefault(row, Counter())[o.verdict] += 1
    print(f"{title:36}" + "".join(f"{c:>12}" for c in columns))
    for row in sorted(rows):
        print(f"{row:36}" + "".join(f"{rows[row][c] or '-':>12}" for c in columns))
    total = Counter(o.verdict for o in outcomes)
    print(f"{'all':36}" + "".join(f"{total[c]:>12}" for c in columns))


def _reasons(outcomes: Sequence[Outcome]) -> None:
    """The most frequent refusals, of whole cases and of their more general forms."""
    found = Counter((o.verdict, _short(o.detail)) for o in outcomes if o.detail and o.verdict not in (FAILED, STATIC))
    if found:
        print("\nrefused because")
    for (verdict, reason), count in found.most_common(60):
        print(f"{count:5} {verdict:12} {reason}")


def _short(detail: str) -> str:
    """A refusal without the place and the sizes that differ from case to case."""
    first = detail.partition("; ")[0]
    text = first.rpartition("): ")[2] if "): " in first else first.rpartition(": ")[2]
    for what, mark in ((r"\[[^]]*\]", "[...]"), (r"'[^']*'", "'...'"), (r"%\w+", "%.."), (r"^node \d+", "node")):
        text = re.sub(what, mark, text)
    return text[:110]


def _worst(outcomes: Sequence[Outcome]) -> Counter[str]:
    worst: dict[str, str] = {}
    for o in outcomes:
        worst[o.name] = max(worst.get(o.name, STATIC), o.verdict, key=_WORST_LAST.index)
    return Counter(worst.values())


def _closing_line(outcomes: Sequence[Outcome]) -> int:
    """Prints the counts of cases, each by its worst verdict; returns how many failed."""
    count = _worst(outcomes)
    if count[CONSTANTS]:
        print(f"{count[CONSTANTS]} of the skipped pass when operands that must be known at compile time are constants")
    print(f"{count[PASSED]} passed, {count[FAILED]} failed, {count[UNSUPPORTED] + count[CONSTANTS]} skipped")
    return count[FAILED]


def _dynamic_line(outcomes: Sequence[Outcome]) -> int:
    """Prints how many of the cases that can be made dynamic pass; returns how many failed."""
    count = _worst(outcomes)
    passed = {c: count[c] for c in (PASSED, ONES, SHARED)}
    able = sum(count.values()) - count[STATIC]
    share = 100.0 * sum(passed.values()) / max(able, 1)
    print(f"{count[STATIC]} cases have nothing that can be made dynamic")
    print(
        f"of {able} that can, {sum(passed.values())} pass ({share:.1f} %): {count[PASSED]} with a symbol for each "
        f"dimension, {count[ONES]} when sizes of 1 stay, {count[SHARED]} when besides equal sizes are one symbol"
    )
    print(f"{sum(passed.values())} passed, {count[FAILED]} failed, {count[UNSUPPORTED]} skipped")
    return count[FAILED]


if __name__ == "__main__":
    sys.exit(main())
