"""The cases of `make card` at small sizes: they are models that mean what they should, and tables have their width."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest

import torshc
from tests.emulation.emulated import emulated_tools, missing
from torshc.workbench.verify import verify_bundle

from ..support.slow import some
from .attention import attention_cases
from .calls import in_c_of, small
from .case import NUMPY, Case
from .cases import convolution_cases, product_cases
from .llama import decoder_cases
from .measure import Built, pool
from .memory import memory_cases
from .report import WIDTH, Report
from .timing import busy
from .training import Profile

SLICES: dict[str, Callable[[int | None], list[Case]]] = {
    "attention": attention_cases,
    "memory": memory_cases,
    "llama": decoder_cases,
    "products": lambda most: product_cases(most, "f16"),
    "convolutions": lambda most: convolution_cases(most, "f32"),
}
SMALL = {f"{name} {k}": case for name, make in SLICES.items() if name != "llama" for k, case in enumerate(make(12))}


@pytest.mark.parametrize("target", ["c", "cuda"])
@pytest.mark.parametrize("name", some(list(SMALL), 6))
def test_cases_are_what_the_reference_computes(name: str, target: str, tmp_path: Path) -> None:
    case = SMALL[name]
    model = case.make()
    onnx.checker.check_model(model, full_check=True)
    assert [i.name for i in model.graph.input] == list(case.feeds)
    onnx.save(model, tmp_path / "m.onnx")
    with emulated_tools() if target == "cuda" else nullcontext():
        torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc", target=target)
        # Halves: the reference rounds each step of theirs, of 11 bits, where kernels keep f32.
        found = verify_bundle(tmp_path / "m.onnx", tmp_path / "m.tsc", rtol=4e-3 if _has_halves(case) else 2e-5)
    assert all(o.ok for o in found.outputs), found.outputs


def test_kernels_that_overlap_are_counted_once() -> None:
    assert busy([(0.0, 3.0), (1.0, 2.0), (2.5, 4.0), (6.0, 7.0)]) == 5.0 and busy([]) == 0.0


def test_a_kernel_that_waits_takes_time_from_the_end_of_those_before_it(capsys: pytest.CaptureFixture[str]) -> None:
    events = [_event("ka_kernel", 0, 10), _event("kb_kernel", 2, 13), _event("Memset (Device)", 20, 1)]
    made = {"symbol": "ka", "template": "map.j2", "ops": ["Relu"], "flops": 0, "bytes": 8_600_000}
    profile = Profile.of(_Recorded(events), lambda: None, {"kernels": [made]}, runs=1)
    assert profile.times == {"ka": 10, "kb": 5, "Memset ": 1} and profile.whole == 16
    profile.show("tf32", 15)
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "0.02 ms of kernels in 3 launches" and shown[2].split()[:5] == ["ka", "map.j2", "1", "10", "2"]


def _event(name: str, start: int, taken: int) -> SimpleNamespace:
    return SimpleNamespace(name=name, device_type="card", device_time=taken, time_range=SimpleNamespace(start=start))


class _Recorded:
    """PyTorch with a profiler that has seen these events."""

    def __init__(self, events: list[SimpleNamespace]) -> None:
        self.autograd = SimpleNamespace(DeviceType=SimpleNamespace(CUDA="card"))
        self.cuda = SimpleNamespace(synchronize=lambda: None)
        self.profiler = SimpleNamespace(
            ProfilerActivity=SimpleNamespace(CUDA="card"), profile=lambda **_: nullcontext(self)
        )
        self.events = lambda: events


@pytest.mark.parametrize("number", some([0, 1], 2))
def test_decoders_are_the_same_without_passes_and_on_devices(number: int, tmp_path: Path) -> None:
    """onnx has no reference for their operators; a dry run compares with PyTorch."""
    if reason := missing():
        pytest.skip(reason)
    case = decoder_cases(12)[number]
    onnx.save(case.make(), tmp_path / "m.onnx")
    rng = np.random.default_rng(0)
    feeds = {n: rng.standard_normal(f.shape).astype(NUMPY[f.dtype]) for n, f in case.feeds.items()}
    found = []
    for target, level in (("c", 0), ("c", 3), ("cuda", 3)):
        with emulated_tools() if target == "cuda" else nullcontext():
            torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc", target=target, opt_level=level)
            with torshc.load(tmp_path / "m.tsc") as model:
                found.append(model.run(feeds))
    for one in found[1:]:
        for name, wanted in found[0].items():
            # Halves are rounded to 11 bits, in other places with other passes, through two layers.
            error = np.linalg.norm(one[name].astype("f8") - wanted) / np.linalg.norm(wanted.astype("f8"))
            assert error <= 3e-3, name


def _has_halves(case: Case) -> bool:
    return any(f.dtype == "f16" for f in case.feeds.values())


@pytest.mark.parametrize("slice", SLICES)
def test_names_fit_the_table_and_differ(slice: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """At their own sizes, which no test computes."""
    cases = SLICES[slice](None)
    report = Report(slice, "a card", tmp_path / "figures")
    report.head(4e6)
    for case in cases:
        theirs = dict.fromkeys(case.peers, 20000.0)
        report.line(case, theirs, 10000.0, 4e6, dict.fromkeys(theirs, 1e-7), 1e-7, 1, {})
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= WIDTH
    names = [c.name for c in cases]
    assert len(set(names)) == len(names) and all(line.startswith(n) for n, line in zip(names, lines[2:], strict=True))
    assert len((tmp_path / "figures").read_text().splitlines()) == len(cases) + 1


def test_what_is_too_slow_or_wrong_is_marked(capsys: pytest.CaptureFixture[str]) -> None:
    case = memory_cases(None)[0]
    report = Report("memory", "a card")
    right, us = {"eager": 1e-7}, case.moved / 4e6  # as long as a copy takes
    for ours, error in ((us, 2e-7), (2 * us, 2e-7), (us, 1e-3), (us, float("nan"))):
        report.line(case, {"eager": us}, ours, 4e6, right, error, 1, {})
    fast, slow, wrong, unwritten = capsys.readouterr().out.splitlines()
    assert "100% bw " in fast and not fast.endswith("!")
    assert "50% bw<" in slow and not slow.endswith("!")
    assert wrong.endswith("1e-03!") and unwritten.endswith("nan!")
    assert (report.low, report.faults) == (3, 0)


def test_what_cannot_be_compiled_is_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = memory_cases(12)[0]
    with pool(1, tmp_path, "nowhere", "") as compilers:
        built: Built = compilers.begin(case, "a").result()
    assert "nowhere" in built.fault
    report = Report("memory", "a card")
    report.fault(case, built.fault * 20)
    assert report.faults == 1 and max(map(len, capsys.readouterr().out.splitlines())) <= WIDTH


@pytest.mark.parametrize("target", ["c", "cuda"])
def test_a_program_of_c_times_calls(target: str, tmp_path: Path) -> None:
    onnx.save(small(), tmp_path / "m.onnx")
    with emulated_tools() if target == "cuda" else nullcontext():
        torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc", target=target)
        assert in_c_of(tmp_path / "m.tsc", tmp_path, 3) > 0


def test_figures_by_themselves(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report("calls", "a card")
    report.figure("a call", 12.0, "us", 10)
    report.figure("another", 9.0, "us", 10)
    report.figure("a third", 90000.0, "us")
    report.told("a fourth", "no " * 99)
    lines = capsys.readouterr().out.splitlines()
    assert [("<" in line) for line in lines[:3]] == [True, False, False]
    assert max(map(len, lines)) <= WIDTH and (report.low, report.faults) == (1, 1)
