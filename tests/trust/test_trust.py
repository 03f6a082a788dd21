"""The table of promises: what it names exists, and what a run finds is what it says."""

from __future__ import annotations

import ast
import json
from functools import cache
from pathlib import Path

import pytest

from . import __main__ as table
from . import measure
from .promises import PROMISES, Promise

ROOT = Path(__file__).resolve().parents[2]
TRIED = Promise(3, "says", "tried", ("tests/a.py",), ("kills", "at most MiB"))
REPORT = """<testsuites><testsuite>
<testcase classname="a" name="one"><properties>
    <property name="kills" value="3"/><property name="at most MiB" value="7.5"/></properties></testcase>
<testcase classname="a" name="two"><properties>
    <property name="kills" value="1200"/><property name="at most MiB" value="2"/></properties></testcase>
<testcase classname="a" name="three"><skipped message="no compiler"/></testcase>{more}
</testsuite></testsuites>"""


@cache
def functions(path: str) -> frozenset[str]:
    return frozenset(n.name for n in ast.parse((ROOT / path).read_text()).body if isinstance(n, ast.FunctionDef))


def test_promises_are_in_order() -> None:
    numbers = [p.number for p in PROMISES]
    assert numbers == sorted(numbers) and numbers[0] == 1
    assert len({p.says for p in PROMISES}) == len(PROMISES)


@pytest.mark.parametrize("promise", PROMISES, ids=lambda p: p.says)
def test_its_tests_exist(promise: Promise) -> None:
    assert len(set(promise.tests)) == len(promise.tests)
    for test in promise.tests:
        path, _, function = test.partition("::")
        assert (ROOT / path).exists(), test
        assert not function or function.partition("[")[0] in functions(path), test


def test_figures_are_summed_or_the_largest() -> None:
    found = measure.read(TRIED, REPORT.format(more=""), 4.2)
    assert (found.verdict, found.passed, found.skipped) == ("yes", 2, ("1 tests: no compiler",))
    assert found.figure == "1,203 kills, at most 7.5 MiB, 2 tests, 4 s"


@pytest.mark.parametrize(
    ("report", "says"),
    [
        (REPORT.format(more='<testcase classname="b" name="x"><failure>boom</failure></testcase>'), "b::x\nboom"),
        (REPORT.format(more='<testcase classname="b" name="x"><error>boom</error></testcase>'), "b::x\nboom"),
        (REPORT.replace('"kills"', '"other"').format(more=""), "no test told the kills"),
        ("<testsuites/>", "no test told the kills"),
    ],
)
def test_what_does_not_hold(report: str, says: str) -> None:
    found = measure.read(TRIED, report, 0)
    assert found.verdict == "no" and found.failures[0] == says


def test_a_promise_without_a_test_that_ran_does_not_hold() -> None:
    report = '<testsuites><testcase name="x"><skipped message="no compiler"/></testcase></testsuites>'
    assert measure.read(Promise(1, "", "", ()), report, 0).failures == ("no test could be run",)


def test_the_exit_code_and_the_lines(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    given = []

    def tried(promise: Promise, jobs: int, more: list[str]) -> measure.Finding:
        given.append((promise.number, jobs, more))
        return measure.Finding(promise, 1, {}, ("broken",) if promise.number == 2 else (), (), 0)

    monkeypatch.setattr(table, "measure", tried)
    assert table.main(["--only", "1", "--count", "7"]) == 0 and given == [(1, 2, ["--mutants=7"])]
    capsys.readouterr()
    assert table.main([]) == 1 and len(given) == 1 + len(PROMISES)
    out = capsys.readouterr().out
    assert len(out.partition("\n\n")[0].splitlines()) == 1 + len(PROMISES) and "2: does not hold: broken" in out
    assert table.main(["--json", "--only", "2"]) == 1
    (body,) = json.loads(capsys.readouterr().out)
    assert body["number"] == 2 and body["verdict"] == "no" and body["failures"] == ["broken"]
