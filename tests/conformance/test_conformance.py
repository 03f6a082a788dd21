"""A sample of the recorded cases; all of them by ``make conformance``."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import NoReturn

import pytest

from tests.emulation.emulated import emulated_tools, missing
from tests.support import sanitize
from tests.support.slow import some
from torshc.ops import REGISTRY

from . import record, sanitized
from .__main__ import main
from .cases import Case, all_cases, state
from .runner import CONSTANTS, FAILED, PASSED, UNSUPPORTED, Mode, Outcome, run_case

OPERATORS = 28
PARTS = 4  # so that processes share the work
DYNAMIC = 12
SANITIZED = "^(add|gemm_all_attributes|softmax_axis_1|maxpool_2d_dilations|gather_0|cast_FLOAT_to_FLOAT16)$"
SLOW = ("LSTM", "GRU", "RNN", "[light]")  # what takes a compiler long, and other tests run whole


def _hash(name: str) -> bytes:
    return sha256(name.encode()).digest()


@lru_cache(maxsize=1)
def _recorded() -> tuple[Case, ...]:
    """Recorded cases, in an order that is arbitrary but always the same."""
    recorded = record.read()
    found = (c for c in all_cases() if c.name in recorded and c.operator.strip("()") not in SLOW)
    return tuple(sorted(found, key=lambda c: _hash(c.name)))


def _by_operator(cases: Iterable[Case]) -> list[Case]:
    """A case of each operator, in an order that is arbitrary but always the same."""
    first: dict[str, Case] = {}
    for case in cases:
        if case.operator[:1] not in "([":
            first.setdefault(case.operator, case)
    return [first[operator] for operator in sorted(first, key=_hash)]


@lru_cache(maxsize=1)
def sample() -> tuple[Case, ...]:
    """A case of each of some operators."""
    return tuple(_by_operator(_recorded())[:OPERATORS])


def dynamic_sample() -> list[Case]:
    """A case of each of some other operators, among those that are recorded as dynamic."""
    recorded = record.read(record.DYNAMIC)
    taken = {c.operator for c in sample()}
    return _by_operator(c for c in _recorded() if c.name in recorded and c.operator not in taken)[:DYNAMIC]


@lru_cache(maxsize=1)
def wide_sample() -> tuple[Case, ...]:
    """The same, and small cases until every family of operators, element type and kind of case and value is there."""
    chosen = {c.name: c for c in sample()}
    seen = {mark for c in sample() for mark in _marks(c)}
    for case in sorted(_recorded(), key=_nodes):
        if not seen.issuperset(_marks(case)):
            seen |= _marks(case)
            chosen[case.name] = case
    return tuple(chosen.values())


def _nodes(case: Case) -> int:
    return len(case.model.graph.node) + sum(len(f.node) for f in case.model.functions)


def _marks(case: Case) -> set[str]:
    ops = {REGISTRY.get((n.domain, n.op_type)) for n in case.model.graph.node}
    kind = case.operator if case.operator.startswith("[") else case.operator[:1] == "("
    values = {type(v).__name__ for v in case.values}
    return {f"kind {kind}", *case.dtypes, *values, *(f"family {op.family}" for op in ops if op)}


def _told(lost: Sequence[Outcome]) -> str:
    return "\n".join(f"{o.name} -O{o.level}: {o.verdict}: {o.detail}" for o in lost)


@pytest.mark.parametrize("turn", some(range(len(record.LEVELS)), len(record.LEVELS)))
@pytest.mark.parametrize("part", range(PARTS))
def test_sample(part: int, turn: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recorded cases still pass: at one level or the other by default, each at both in all turns."""
    monkeypatch.chdir(tmp_path)
    levels = [record.LEVELS[(k + turn) % len(record.LEVELS)] for k in range(len(wide_sample()))]
    chosen = list(zip(wide_sample(), levels, strict=True))[part::PARTS]
    outcomes = [run_case(case, Mode(level)) for case, level in chosen]
    lost = record.lost(outcomes, record.read())
    assert not lost, _told(lost)


@pytest.mark.parametrize("target", ["cuda", "metal"])
@pytest.mark.parametrize("part", range(PARTS))
def test_sample_on_devices(part: int, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cases of some operators through the emulators."""
    monkeypatch.chdir(tmp_path)
    with emulated_tools():
        outcomes = [run_case(c, Mode(3, target)) for c in sample()[part::PARTS]]
    lost = record.lost(outcomes, record.read())
    assert not lost, _told(lost)


@pytest.mark.parametrize("part", some(range(2), 2))
def test_dynamic_sample(part: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recorded cases still pass when their sizes are known only at run time."""
    monkeypatch.chdir(tmp_path)
    recorded = record.read(record.DYNAMIC)
    lost = record.lost([run_case(c, Mode(dynamic=True)) for c in dynamic_sample()[part::2]], recorded)
    assert not lost, _told(lost)


def test_sanitized_sample(tmp_path: Path) -> None:
    """The command with sanitizers."""
    if sanitize.usable() is None:
        pytest.skip("no compiler with the sanitizers' runtime is here")
    some = [c for c in all_cases() if re.search(SANITIZED, c.name)]
    command, env = sanitized.command(["--sanitize", "--jobs", "1"], some, tmp_path / "cases")
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert done.stdout.splitlines()[-1] == "6 passed, 0 failed, 0 skipped"


@pytest.mark.slow
def test_sanitized_core_cases(
    request: pytest.FixtureRequest, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """A sixteenth of the core cases, or with ``--whole`` all, as ``make conformance-sanitized`` does."""
    if sanitize.usable() is None:
        pytest.skip("no compiler with the sanitizers' runtime is here")
    core = sorted((c for c in all_cases() if c.is_core), key=lambda c: _hash(c.name))
    some = core if request.config.getoption("--whole") else core[::16]
    command, env = sanitized.command(["--sanitize", "--level", "3", "--jobs", "2"], some, tmp_path / "cases")
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    closing = re.fullmatch(r"(\d+) passed, 0 failed, (\d+) skipped", done.stdout.splitlines()[-1])
    assert closing and int(closing[1]) + int(closing[2]) == len(some) and int(closing[1]) > 0.9 * len(some)
    record_property("conformance cases", closing[1])
    record_property("core cases there are", len(core))


def test_the_command_starts_itself_again_for_sanitizers(monkeypatch: pytest.MonkeyPatch) -> None:
    if sanitize.usable() is None:
        pytest.skip("no compiler with the sanitizers' runtime is here")
    started: list[list[str]] = []

    def execve(path: str, command: list[str], env: dict[str, str]) -> NoReturn:
        started.append([*command, *(c.name for c in sanitized.handed(Path(command[-1])))])
        raise SystemExit(0)

    monkeypatch.setattr("os.execve", execve)
    with pytest.raises(SystemExit):
        main(["--sanitize", "--filter", "^(add|relu|string_concat)$"])
    assert started[0][1:4] == ["-m", "tests.conformance", "--sanitize"]
    assert started[0][-2:] == ["add", "relu"]


def test_the_record_is_well_formed() -> None:
    recorded = record.read()
    assert list(recorded) == sorted(recorded) and set(recorded.values()) <= {PASSED, CONSTANTS}
    assert not set(recorded) - {c.name for c in all_cases()}
    assert len(sample()) == OPERATORS


def test_all_cases_are_there() -> None:
    """As many as onnx 1.23 brings: 1884 node, 23 simple, 82 pytorch-converted, 35 pytorch-operator, 9 light."""
    kinds = Counter(c.operator if c.operator.startswith("[") else "node" for c in all_cases())
    stored = {"[simple]": 23, "[pytorch-converted]": 82, "[pytorch-operator]": 35, "[light]": 9}
    assert kinds == {"node": 1884, **stored}


def test_other_releases_of_what_computes_cases_compute_them_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    before = state()
    monkeypatch.setattr("ml_dtypes.__version__", "0")
    assert state() != before


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


@pytest.mark.parametrize("target", ["cuda", "metal"])
def test_the_command_runs_on_a_device_or_through_its_emulator(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What is not supported there is counted with its reason, and is no loss: the record is of the C target."""
    if reason := missing():
        pytest.skip(reason)
    run = [
        "--target",
        target,
        "--filter",
        "^(relu|image_decoder_decode_bmp_rgb|nonzero_example)$",
        "--level",
        "3",
        "--jobs",
        "1",
    ]
    assert main(run) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.split() == ["Relu", "1", "-", "-", "-"] for line in lines)
    assert any(line.endswith("ImageDecoder is not supported yet") for line in lines)
    assert not any(line.startswith("LOST") for line in lines)
    assert re.fullmatch(r"[12] passed, 0 failed, [12] skipped", lines[-1])


def test_a_device_without_an_emulator_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.conformance.__main__.missing", lambda metal: f"no emulator, metal: {metal}")
    monkeypatch.setattr("torshc.backend.supports_device", lambda device: False)
    with pytest.raises(SystemExit, match="no device for metal is here, and no emulator, metal: True"):
        main(["--target", "metal", "--filter", "^relu$"])
