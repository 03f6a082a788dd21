"""Runs the tests of a promise and reads what they found from pytest's report."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .promises import MOST, Promise

_ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Finding:
    """What became of a promise.

    Attributes:
        passed: how many tests passed.
        figures: what they recorded, by name.
        failures: a text for each test that failed, and for each figure that is missing.
        skipped: why tests were left out, each reason once, with how many.
        seconds: elapsed time.
    """

    promise: Promise
    passed: int
    figures: dict[str, float]
    failures: tuple[str, ...]
    skipped: tuple[str, ...]
    seconds: float

    @property
    def verdict(self) -> str:
        return "no" if self.failures else "yes"

    @property
    def figure(self) -> str:
        """The figures in the promise's order, then the tests."""
        shown = [_shown(name, self.figures[name]) for name in self.promise.figures if name in self.figures]
        return ", ".join([*shown, f"{self.passed} tests", f"{self.seconds:.0f} s"])

    def to_dict(self) -> dict[str, object]:
        """What ``--json`` adds to the promise."""
        return {
            "verdict": self.verdict,
            "passed": self.passed,
            "figures": self.figures,
            "failures": self.failures,
            "skipped": self.skipped,
            "seconds": round(self.seconds, 1),
        }


def measure(promise: Promise, jobs: int, more: Sequence[str] = ()) -> Finding:
    """Runs the tests of a promise, the slow ones too; ``more`` are options of pytest."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-m",
            "",
            "-q",
            "-p",
            "no:cacheprovider",
            "-o",
            "junit_family=xunit1",
        ]
        command += ["-n", str(jobs), "--dist", "worksteal", f"--junitxml={report}", *more, *promise.tests]
        done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
        text = report.read_text() if report.exists() else "<testsuites/>"
    finding = read(promise, text, time.monotonic() - began)
    if done.returncode == 0 or finding.failures:
        return finding
    broken = f"pytest ended with {done.returncode}:\n{(done.stdout + done.stderr)[-2000:]}"
    return Finding(promise, finding.passed, finding.figures, (broken,), finding.skipped, finding.seconds)


def read(promise: Promise, report: str, seconds: float) -> Finding:
    """What a report of pytest (JUnit's XML) says of a promise."""
    figures: dict[str, float] = {}
    failures: list[str] = []
    skipped: Counter[str] = Counter()
    passed = 0
    for case in ET.fromstring(report).iter("testcase"):
        bad = [*case.iter("failure"), *case.iter("error")]
        left_out = case.find("skipped")
        if bad:
            failures.append(f"{case.get('classname')}::{case.get('name')}\n{(bad[0].text or '')[-2000:]}")
        elif left_out is not None:
            skipped[left_out.get("message", "")] += 1
        else:
            passed += 1
        for found in case.iter("property"):
            name, value = found.get("name", ""), float(found.get("value", ""))
            figures[name] = max(figures.get(name, 0), value) if name.startswith(MOST) else figures.get(name, 0) + value
    failures += [f"no test told the {name}" for name in promise.figures if name not in figures and not failures]
    if not passed and not failures:
        failures.append("no test could be run")
    reasons = tuple(f"{n} tests: {reason}" for reason, n in sorted(skipped.items()))
    return Finding(promise, passed, figures, tuple(failures), reasons, seconds)


def _shown(name: str, value: float) -> str:
    number = f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"
    return f"{MOST} {number}{name.removeprefix(MOST)}" if name.startswith(MOST) else f"{number} {name}"
