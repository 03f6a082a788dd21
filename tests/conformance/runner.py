"""Runs cases through ``torshc.backend``, as onnx's own runner does, and says how each ended."""

from __future__ import annotations

import faulthandler
import os
import re
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

from torshc import backend
from torshc.base.errors import InternalError, ModelError, RunError, TorshcError, UnsupportedError
from torshc.base.folders import scratch_folder
from torshc.runtime import Model

from . import dynamic
from .cases import Array, Case, free_inputs, with_constants
from .compare import compare, same
from .dynamic import ONES, SHARED

PASSED, CONSTANTS, FAILED, UNSUPPORTED, STATIC = "passed", "constants", "failed", "unsupported", "static"
_GUARD = 256
_LIMIT_S = 240.0  # a case that takes longer hangs; a whole network may take more
_SLOW = 3
_FINDING = re.compile(r"\S+: runtime error: .*|SUMMARY: \w+: \S+")
_FRAME = re.compile(r"#\d+ \S+ in (k[0-9a-f]{12}|t_\w+|torshc_\w+) ?\S*")


@dataclass(frozen=True)
class Mode:
    """How cases are compiled.

    Attributes:
        level, target, fusion, cc: as in :class:`torshc.base.options.CompileOptions`.
        dynamic: with symbolic dimensions and run-time shape operands, see :mod:`.dynamic`.
    """

    level: int = 3
    target: str = "c"
    fusion: str = ""
    cc: str = ""
    dynamic: bool = False

    @property
    def device(self) -> str:
        """The target's name in the interface."""
        return next(device for device, target in backend.DEVICES.items() if target == self.target)


@dataclass(frozen=True)
class Outcome:
    """How a case ended.

    Attributes:
        verdict: "passed"; "constants" (passed, with operands that must be known at compile time made constants);
            "ones", "shared" (passed, in a less general dynamic form); "failed" (a wrong answer, an error other than a
            refusal, a signal, or no end); "unsupported" (refused); "static" (cannot be made dynamic).
        detail: why, unless it passed; for "constants" and less general forms, why the one before was refused.
        dtypes: element types that the case uses.
    """

    name: str
    operator: str
    level: int
    verdict: str
    detail: str = ""
    seconds: float = 0.0
    dtypes: tuple[str, ...] = ()


def run_case(case: Case, mode: Mode) -> Outcome:
    """Compiles a case, runs it, and compares its outputs bit for bit or within tolerance."""
    began = time.perf_counter()
    verdict, detail = _verdict(case, mode)
    seconds = time.perf_counter() - began
    return Outcome(case.name, case.operator, mode.level, verdict, detail, seconds, case.dtypes)


def _verdict(case: Case, mode: Mode) -> tuple[str, str]:
    """That of the first form that is not refused; with the reason of the first refusal."""
    refusal, tried = "", False
    refusals = (UnsupportedError, ModelError, RunError) if mode.dynamic else (UnsupportedError,)
    for verdict, model, more in dynamic.variants(case) if mode.dynamic else _static_forms(case):
        tried = True
        try:
            _check(case, model, more, mode)
        except refusals as reason:
            refusal = refusal or _reason(reason)
        except (TorshcError, AssertionError, Exception) as error:  # all that ends a case is an outcome
            return FAILED, f"{verdict}: {_line(error)}"
        else:
            return verdict, refusal
    return (UNSUPPORTED, refusal) if tried else (STATIC, "nothing to be made dynamic")


def _static_forms(case: Case) -> Iterator[tuple[str, onnx.ModelProto, dict[str, Array]]]:
    yield PASSED, case.model, {}
    model = with_constants(case)
    if model is not None:
        yield CONSTANTS, model, {}


def _reason(error: TorshcError) -> str:
    return "; ".join(error.problems) if isinstance(error, UnsupportedError) else _line(error)


def _line(error: BaseException) -> str:
    text = str(error) if not isinstance(error, InternalError | RunError) else error.message
    return f"{type(error).__name__}: {' '.join(text.split())}"[:600]


def _check(case: Case, model: onnx.ModelProto, more: dict[str, Array], mode: Mode) -> None:
    prepared = backend.prepare(
        model, mode.device, opt_level=mode.level, fusion=mode.fusion, cc=mode.cc, threads=1, jobs=1
    )
    with prepared.model as compiled:
        for k in range(len(case.data_sets)):
            given = {**case.passed(k), **more}
            feeds = {v.name: given[v.name] for v in free_inputs(model)}
            outputs = prepared.run(list(feeds.values()))
            got = dict(zip((spec.name for spec in compiled.outputs), outputs, strict=True))
            compare(case, got, k)
            _run_guarded(compiled, feeds, got)


def _run_guarded(compiled: Model, feeds: dict[str, Any], first: dict[str, Any]) -> None:
    """A second run into memory between guards: equal bytes, and nothing written beside an output."""
    arrays = {n: a for n, a in first.items() if isinstance(a, np.ndarray) and a.dtype != object}
    raw = {name: np.full(a.nbytes + 2 * _GUARD, 0xAB, np.uint8) for name, a in arrays.items()}
    out = {n: raw[n][_GUARD : _GUARD + a.nbytes].view(a.dtype).reshape(a.shape) for n, a in arrays.items()}
    again = compiled.run(feeds, out=out)
    for name, value in first.items():
        assert same(again[name], value), f"{name}: a second run gives other bytes"
    for name, a in arrays.items():
        beside = np.concatenate([raw[name][:_GUARD], raw[name][_GUARD + a.nbytes :]])
        assert (beside == 0xAB).all(), f"{name}: written beside the output"


# -- many cases ------------------------------------------------------------------------------------------------------


class _Worker:
    """A process that runs a case after another; a case that kills it is a failed one."""

    def __init__(self, cases: Sequence[Case], folder: Path) -> None:
        context = get_context("fork")  # so that all share the cases, which take long to make
        self.cases = cases
        self.folder = Path(tempfile.mkdtemp(dir=folder))
        self.pipe, far = context.Pipe()
        self.process = context.Process(target=_work, args=(far, cases, self.folder), daemon=True)
        self.process.start()
        far.close()
        self.task: tuple[int, Mode] | None = None
        self.began = 0.0

    def give(self, task: tuple[int, Mode]) -> None:
        self.task, self.began = task, time.monotonic()
        self.pipe.send(task)

    def take(self) -> Outcome:
        """The outcome of the task that ended, by an answer or by the process's end."""
        assert self.task is not None
        index, mode = self.task
        case = self.cases[index]
        try:
            outcome: Outcome = self.pipe.recv()
        except EOFError:
            self.process.join()
            why, seconds = self._end(), time.monotonic() - self.began
            outcome = Outcome(case.name, case.operator, mode.level, FAILED, why, seconds, case.dtypes)
        self.task = None
        return outcome

    def _end(self) -> str:
        """Why the process ended: a sanitizer's words, a signal or a code."""
        code = self.process.exitcode or 0
        told = (self.folder / "stderr").read_text(errors="replace")
        if found := _FINDING.search(told):
            frame = _FRAME.search(told)
            return f"{found[0]}{f' in {frame[1]}' if frame else ''}"
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"the process ended with {code}"

    @property
    def overdue(self) -> bool:
        if self.task is None:
            return False
        slow = self.cases[self.task[0]].operator == "[light]" or self.task[1].cc
        return time.monotonic() - self.began > _LIMIT_S * (_SLOW if slow else 1)


def _work(pipe: Connection, cases: Sequence[Case], folder: Path) -> None:
    faulthandler.disable()
    os.chdir(folder)
    tempfile.tempdir = str(folder)  # so that a killed worker's bundles go with its folder
    with (folder / "stderr").open("wb") as errors:
        os.dup2(errors.fileno(), 2)
    while (task := pipe.recv()) is not None:
        index, mode = task
        pipe.send(run_case(cases[index], mode))


def run_cases(cases: Sequence[Case], modes: Sequence[Mode], jobs: int) -> Iterator[Outcome]:
    """Outcomes of all cases in all modes, as they come, from `jobs` processes."""
    # The slow ones first, so that none is left alone at the end.
    order = sorted(range(len(cases)), key=lambda k: cases[k].operator == "[light]")
    tasks = [(k, mode) for k in reversed(order) for mode in modes][::-1]
    with scratch_folder() as folder:
        workers = [_Worker(cases, folder) for _ in range(min(jobs, len(tasks)))]
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
                    worker = workers[k] = _Worker(cases, folder)
                if tasks:
                    worker.give(tasks.pop())
        for worker in workers:
            worker.pipe.send(None)
            worker.process.join(10)


__all__ = [
    "CONSTANTS", "FAILED", "ONES", "PASSED", "SHARED", "STATIC", "UNSUPPORTED", "Mode", "Outcome", "run_case",
    "run_cases",
]  # fmt: skip
