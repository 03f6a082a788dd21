"""Says which of the changes that source_mutants.py writes into a copy of torshc is in force, and notes who meets them.

The copy holds this file as ``sitecustomize``, so that every Python process of a test has it, and pytest takes it for a
plugin too. It imports little, since that is added to the start of each.
"""

from __future__ import annotations

import builtins
import json
import os
from typing import Any

_IN_FORCE = int(os.environ.get("TORSHC_MUTANT", "-1"))
_NOTES = os.environ.get("TORSHC_MUTANT_NOTES")  # a file: a line for each test, if that is asked for
_met: set[int] = set()
_seconds: dict[str, float] = {}
_unfit: set[str] = set()


def in_force(number: int) -> bool:
    """Whether to compute the changed expression."""
    _met.add(number)
    return number == _IN_FORCE


setattr(builtins, "torshc_mutant", in_force)  # noqa: B010 (mypy knows what builtins have)


def pytest_runtest_logstart(nodeid: str) -> None:
    """Note what imports met, which is what was met by now."""
    if _met:
        _note("", 0.0)


def pytest_runtest_logreport(report: Any) -> None:
    """Add up the time of a test's phases."""
    _seconds[report.nodeid] = _seconds.get(report.nodeid, 0.0) + report.duration
    if report.outcome != "passed":
        _unfit.add(report.nodeid)


def pytest_runtest_logfinish(nodeid: str) -> None:
    """Note what the test met, unless it fails as it is or is skipped."""
    if nodeid not in _unfit:
        _note(nodeid, _seconds.get(nodeid, 0.0))
    _met.clear()


def _note(test: str, seconds: float) -> None:
    if _NOTES:
        with open(_NOTES, "a") as file:  # noqa: PTH123 (pathlib takes long to import)
            file.write(json.dumps({"test": test, "seconds": seconds, "met": sorted(_met)}) + "\n")
    _met.clear()
