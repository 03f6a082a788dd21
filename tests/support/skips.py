"""Which tests a run had, and that another run has the rest: ``python -m tests.support.skips FILE``.

A run with ``--write-ran=FILE`` writes a line for each test that it did not skip, and one with ``--all-but=FILE`` runs
the others, so that two machines, or two sets of compilers, have all tests between them. What the second skips too
(``--write-skipped=FILE``, with reasons) is run nowhere, and the command refuses it unless its reason is one of
``ELSEWHERE``.
"""

from __future__ import annotations

import re
import sys
from itertools import compress
from pathlib import Path

import pytest

# What a machine of CI cannot have, or what a target of its own runs (`make exporters`, `make card`).
ELSEWHERE = (
    r"no (nvcc or no )?card",
    r"the emulator cannot survive it",
    r"PyTorch is not installed",
    r"could not import 'torch'",
    r"could not import 'tokenizers'",  # a sample's
    r"torch\.onnx\.export needs onnxscript",
    r"the extra `exporters` is not installed",
    r"the emulator of Metal needs a clang\+\+ with _Float16",  # Debian's newest clang by that name is 14
    r"needs the emulator, clang\+\+ and GNU's libobjc",
    r"qemu-user is not installed",
    r"only the emulator fails on demand",
    r"no sizes fit this graph",  # of random graphs, none
    r"this driver cannot be hidden",
    r"this adapter holds it",
    r"the headers of \w+ are not installed",  # of the formats of images that a sample reads
)


class RanWriter:
    """Appends the tests that a process runs to a file; several processes of a run write to one."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write a test whose body was run, or that failed before."""
        if report.failed or (report.when == "call" and not report.skipped):
            _append(self.file, report.nodeid)


class SkippedWriter:
    """Appends what a process skips to a file: a test's or a module's id, a tab and the reason."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write a test that is skipped."""
        if report.skipped and not hasattr(report, "wasxfail"):
            _append(self.file, f"{report.nodeid}\t{_reason(report.longrepr)}")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Write a module that is skipped."""
        if report.skipped:
            _append(self.file, f"{report.nodeid}\t{_reason(report.longrepr)}")


def _append(file: Path, line: str) -> None:
    with file.open("a") as f:
        f.write(f"{line}\n")


def _reason(why: object) -> str:
    return str(why[2] if isinstance(why, tuple) else why).removeprefix("Skipped: ").splitlines()[0]


def drop_ran(items: list[pytest.Item], file: Path) -> list[pytest.Item]:
    """Leave the tests that a file does not list, and that no other clang ran; returns the others."""
    ran = set(file.read_text().splitlines())
    again = [bool(ran & {item.nodeid, _of_zig(item.nodeid)}) for item in items]
    dropped = list(compress(items, again))
    items[:] = [item for item, ran_before in zip(items, again, strict=True) if not ran_before]
    return dropped


def _of_zig(name: str) -> str:
    """The id of a case of clang among those of the ziglang package, whose compiler is a clang too."""
    return re.sub(r"(?<=[\[-])clang(?=[]-])", "zig", name)


def read(file: Path) -> dict[str, str]:
    """The reasons of what was skipped, by id; none where nothing was."""
    lines = file.read_text().splitlines() if file.exists() else []
    return dict(line.split("\t", 1) for line in lines)


def main(file: str) -> int:
    """Print what no run had, with the reasons; 1 where one of these is no reason to do without."""
    skipped = read(Path(file))
    fit = re.compile("|".join(ELSEWHERE))
    bad = {name: why for name, why in skipped.items() if not fit.search(why)}
    print(f"{len(skipped)} tests were run by no part, {len(bad)} of them for no reason that counts")
    for name, why in sorted(bad.items()):
        print(f"  {name}: {why}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
