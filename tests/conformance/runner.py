"""Runs cases through the whole path and says how each ended."""

from __future__ import annotations

import faulthandler
import os
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import torshc
from torshc.errors import TorshcError, UnsupportedError

from .cases import Array, Case, with_constants

PASSED, CONSTANTS, FAILED, UNSUPPORTED = "passed", "constants", "failed", "unsupported"
# The package's tolerance is for f32; narrower types hold fewer digits (11 and 8 bits).
ROUGH = {"float16": 2e-3, "bfloat16": 2e-2}
_GUARD = 256
_LIMIT_S = 240.0  # a case that takes longer hangs


@dataclass(frozen=True)
class Outcome:
    """How a case ended.

    Attributes:
        verdict: "passed"; "constants" (passed, with operands that must be known at compile time made constants);
            "failed" (a wrong answer, an error other than a refusal, a signal, or no end); "unsupported" (refused).
        detail: why, unless it passed.
    """

    name: str
    operator: str
    level: int
    verdict: str
    detail: str = ""
    seconds: float = 0.0


def run_case(case: Case, level: int, folder: Path, target: str = "c") -> Outcome:
    """Compiles a case at an optimisation level, runs it, and compares its outputs bit for bit or within tolerance."""
    began = time.perf_counter()
    verdict, detail = PASSED, ""
    try:
        _check(case, case.model, level, folder, target)
    except UnsupportedError as refusal:
        verdict, detail = _again(case, level, folder, "; ".join(refusal.problems), target)
    except (TorshcError, AssertionError, Exception) as error:  # all that ends a case is an outcome
        verdict, detail = FAILED, _line(error)
    return Outcome(case.name, case.operator, level, verdict, detail, time.perf_counter() - began)


def _again(case: Case, level: int, folder: Path, refusal: str, target: str) -> tuple[str, str]:
    model = with_constants(case)
    if model is None:
        return UNSUPPORTED, refusal
    try:
        _check(case, model, level, folder, target)
    except UnsupportedError:
        return UNSUPPORTED, refusal
    except (TorshcError, AssertionError, Exception) as error:
        return FAILED, f"with constants: {_line(error)}"
    return CONSTANTS, refusal


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:600]


def _check(case: Case, model: onnx.ModelProto, level: int, folder: Path, target: str) -> None:
    path, bundle = folder / "case.onnx", folder / "case.tsc"
    onnx.save(model, path)
    torshc.compile(path, bundle, target=target, opt_level=level, threads=1, jobs=1)
    with torshc.load(bundle, threads=1) as compiled:
        free = {spec.name for spec in compiled.inputs}
        for k, (_, outputs) in enumerate(case.data_sets):
            assert case.has_arrays_only, "a value that is no tensor was compiled"
            feeds = {n: a for n, a in case.feeds(k).items() if n in free}
            got = compiled.run(feeds)
            for (name, a), wanted in zip(got.items(), outputs, strict=True):
                _compare(name, a, wanted, case)
            _run_guarded(compiled, feeds, got)


def _compare(name: str, got: Array, wanted: Array, case: Case) -> None:
    assert got.shape == wanted.shape, f"{name}: shape {got.shape} is not {wanted.shape}"
    assert got.dtype == wanted.dtype, f"{name}: {got.dtype} is not {wanted.dtype}"
    if got.dtype.kind in "iub":
        np.testing.assert_array_equal(got, wanted, err_msg=name)
        return
    rtol = max(case.rtol, ROUGH.get(got.dtype.name, 0.0))
    np.testing.assert_allclose(
        got.astype(np.float64), wanted.astype(np.float64), rtol=rtol, atol=max(case.atol, 1e-6), err_msg=name
    )


def _run_guarded(compiled: torshc.Model, feeds: dict[str, Any], first: dict[str, Array]) -> None:
    """A second run into memory between guards: equal bytes, and nothing written beside an output."""
    raw = {name: np.full(a.nbytes + 2 * _GUARD, 0xAB, np.uint8) for name, a in first.items()}
    out = {n: raw[n][_GUARD : _GUARD + a.nbytes].view(a.dtype).reshape(a.shape) for n, a in first.items()}
    compiled.run(feeds, out=out)
    for name, a in first.items():
        assert out[name].tobytes() == a.tobytes(), f"{name}: a second run gives other bytes"
        beside = np.concatenate([raw[name][:_GUARD], raw[name][_GUARD + a.nbytes :]])
        assert (beside == 0xAB).all(), f"{name}: written beside the output"


# -- many cases ------------------------------------------------------------------------------------------------------


class _Worker:
    """A process that runs a case after another; a case that kills it is a failed one."""

    def __init__(self, cases: Sequence[Case]) -> None:
        context = get_context("fork")  # so that all share the cases, which take long to make
        self.cases = cases
        self.pipe, far = context.Pipe()
        self.process = context.Process(target=_work, args=(far, cases), daemon=True)
        self.process.start()
        far.close()
        self.task: tuple[int, int] | None = None
        self.began = 0.0

    def give(self, task: tuple[int, int]) -> None:
        self.task, self.began = task, time.monotonic()
        self.pipe.send(task)

    def take(self) -> Outcome:
        """The outcome of the task that ended, by an answer or by the process's end."""
        assert self.task is not None
        index, level = self.task
        case = self.cases[index]
        try:
            outcome: Outcome = self.pipe.recv()
        except EOFError:
            self.process.join()
            code = self.process.exitcode or 0
            why = f"killed by {signal.Signals(-code).name}" if code < 0 else f"the process ended with {code}"
            outcome = Outcome(case.name, case.operator, level, FAILED, why, time.monotonic() - self.began)
        self.task = None
        return outcome

    @property
    def overdue(self) -> bool:
        return self.task is not None and time.monotonic() - self.began > _LIMIT_S


def _work(pipe: Connection, cases: Sequence[Case]) -> None:
    faulthandler.disable()
    with tempfile.TemporaryDirectory(prefix="torshc-conformance-") as folder:
        os.chdir(folder)
        while (task := pipe.recv()) is not None:
            index, level = task
            pipe.send(run_case(cases[index], level, Path(folder)))


def run_cases(cases: Sequence[Case], levels: Sequence[int], jobs: int) -> Iterator[Outcome]:
    """Outcomes of all cases at all levels, as they come, from `jobs` processes."""
    tasks = [(k, level) for k in range(len(cases)) for level in levels][::-1]
    workers = [_Worker(cases) for _ in range(min(jobs, len(tasks)))]
    for worker in workers:
        worker.give(tasks.pop())
    while any(w.task for w in workers):
        ready = wait([w.pipe for w in workers if w.task], timeout=5.0)
        for k, worker in enumerate(workers):
            if worker.overdue:
                worker.process.kill()
                ready.append(worker.pipe)
            if worker.pipe not in ready or worker.task is None:
                continue
            yield worker.take()
            if not worker.process.is_alive():
                worker = workers[k] = _Worker(cases)
            if tasks:
                worker.give(tasks.pop())
    for worker in workers:
        worker.pipe.send(None)
        worker.process.join(10)
