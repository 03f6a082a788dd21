"""The promises tried: ``python -m tests.trust [--only N]... [--count N] [--whole] [--json]``.

Prints a line for each promise as it is done, what did not hold, and the tests that this machine cannot run. The exit
code is 1 when a promise does not hold or was not tried.
"""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import asdict

from .measure import Finding, measure
from .promises import PROMISES

_WIDTHS = (3, 8, 60, 68)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parse(arguments)
    chosen = [p for p in PROMISES if not options.only or p.number in options.only]
    more = [f"--mutants={options.count}", *(["--whole"] if options.whole else [])]
    found = []
    if not options.json:
        print(_line("", "holds", "promise", "tried by", "figure"), flush=True)
    for promise in chosen:
        finding = measure(promise, options.jobs, more)
        found.append(finding)
        if not options.json:
            print(_line(promise.number, finding.verdict, promise.says, promise.tried, finding.figure), flush=True)
    if options.json:
        print(json.dumps([{**asdict(f.promise), **f.to_dict()} for f in found], indent=2))
    else:
        _notes(found)
    return any(f.verdict != "yes" for f in found)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.trust", description=__doc__)
    numbers = sorted({p.number for p in PROMISES})
    parser.add_argument("--only", type=int, action="append", choices=numbers, metavar="N", help="only this promise")
    parser.add_argument("--count", type=int, default=10_000, help="mutants; 10000")
    parser.add_argument("--whole", action="store_true", help="all conformance cases with sanitizers; takes hours")
    parser.add_argument("--jobs", type=int, default=2, help="test processes; 2")
    parser.add_argument("--json", action="store_true", help="for machines")
    return parser.parse_args(arguments)


def _line(*cells: object) -> str:
    *first, last = map(str, cells)
    return " ".join(c.ljust(w) for c, w in zip(first, _WIDTHS, strict=True)) + f" {last}"


def _notes(found: Sequence[Finding]) -> None:
    for finding in found:
        for text in finding.skipped:
            print(f"\n{finding.promise.number}: not run here: {text}")
    for finding in found:
        for text in finding.failures:
            print(f"\n{finding.promise.number}: does not hold: {textwrap.indent(text, '    ').strip()}")


if __name__ == "__main__":
    sys.exit(main())
