"""Measures cases: compiled side by side, then checked against f64 and timed beside PyTorch, a line of a table each."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import onnx
from onnx import numpy_helper

import torshc

from .case import Case, Feed, Tensors
from .report import Report
from .timing import Card

_SETS = 4  # of tensors that take turns, where the second cache would hold one
_DTYPES = {"f16": "float16", "f32": "float32", "i64": "int64", "u8": "uint8"}


@dataclass(frozen=True)
class Built:
    """What became of a compilation: why there is no bundle, or nothing, and the seconds that it took."""

    fault: str
    seconds: float


@dataclass(frozen=True)
class Pool:
    """Compiles bundles in processes of its own.

    Attributes:
        folder: where they land.
        arch: the card's, or nothing for a processor.
    """

    executor: ProcessPoolExecutor
    folder: Path
    target: str
    arch: str

    def begin(self, case: Case, place: str) -> Future[Built]:
        """Compiles a case as ``place``.tsc."""
        path = str(self.folder / place)
        return self.executor.submit(_build, case.make, path, self.target, self.arch, case.precision)


@contextmanager
def pool(jobs: int, folder: Path, target: str, arch: str) -> Iterator[Pool]:
    """Processes that compile; what waits when the block is left is not begun."""
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as executor:
        try:
            yield Pool(executor, folder, target, arch if target == "cuda" else "")
        finally:
            executor.shutdown(cancel_futures=True)


def _build(make: Callable[[], onnx.ModelProto], path: str, target: str, arch: str, precision: str) -> Built:
    began = time.monotonic()
    fault = ""
    try:
        onnx.save(make(), f"{path}.onnx")
        chosen: dict[str, Any] = {"arch": arch} if arch else {}
        torshc.compile(f"{path}.onnx", f"{path}.tsc", target=target, precision=precision, **chosen)
    except Exception as error:  # a case that fails is a line of the table
        fault = f"{type(error).__name__}: {error}"
    return Built(fault, time.monotonic() - began)


def kernels_of(cases: Sequence[Case], card: Card, pool: Pool, report: Report, until: float) -> None:
    """A table of cases, whose times are those of kernels alone; after ``until`` what is left is left out.

    All are compiled before the first is measured, as compilers would take processors from the calls.
    """
    began = time.monotonic()
    waiting = [pool.begin(case, f"{report.slice}{k}") for k, case in enumerate(cases)]
    built = [_result(w) for w in waiting]
    report.compiled(len(cases), time.monotonic() - began, max((b.seconds for b in built), default=0.0))
    rate = card.copy_rate()
    report.head(rate)
    for k, (case, result) in enumerate(zip(cases, built, strict=True)):
        fault = result.fault or ("left out: the time is spent" if time.monotonic() > until else "")
        if fault:
            report.fault(case, fault)
            continue
        try:
            _measure(case, card, pool.folder / f"{report.slice}{k}.tsc", report, rate)
        except Exception as error:  # the others go on
            report.fault(case, f"{type(error).__name__}: {error}")
        if card.device == "cuda":
            card.torch.cuda.empty_cache()


def _result(work: Future[Built]) -> Built:
    try:
        return work.result()
    except Exception as error:  # a process that was killed
        return Built(f"{type(error).__name__}: {error}", 0.0)


def _measure(case: Case, card: Card, place: Path, report: Report, rate: float) -> None:
    torch = card.torch
    size = sum(f.bytes for f in case.feeds.values())
    sets = _SETS if case.moved and size < _SETS * card.cache else 1
    torch.manual_seed(0)
    fed = [{n: _draw(torch, f, card.device) for n, f in case.feeds.items()} for _ in range(sets)]
    fixed = case.prepare(torch, _constants(torch, case, card.device)) if case.constants else {}
    right = case.seen(torch, fed[0], case.exact(torch, _doubles(fed[0] | fixed)))
    model = torshc.load(place, **card.options())
    outputs = {s.name: _nothing(torch, s.shape, s.dtype, card.device) for s in model.outputs}

    def ours(k: int) -> None:
        model.run(fed[k], out=outputs)

    ours(0)
    card.wait()
    error = _error(case.seen(torch, fed[0], list(outputs.values())), right)
    theirs, worst, faults = dict[str, float](), dict[str, float](), dict[str, str]()
    for name, peer in case.peers.items():
        try:
            wanted = peer(torch, fed[0] | fixed)
            worst[name] = _error(case.seen(torch, fed[0], wanted), right)
            del wanted
            theirs[name] = card.kernels(lambda k, peer=peer: peer(torch, fed[k] | fixed), sets)  # type: ignore[misc]
        except Exception as fault:  # a way that PyTorch lacks here
            faults[name] = f"{type(fault).__name__}: {fault}"
    report.line(case, theirs, card.kernels(ours, sets), rate, worst, error, sets, faults)
    if case.called:
        theirs = {n: card.calls(lambda k, n=n: case.peers[n](torch, fed[k] | fixed), sets) for n in theirs}  # type: ignore[misc]
        named = replace(case, name=f"{case.name}: call")
        report.line(named, theirs, card.calls(ours, sets), rate, worst, error, sets, {})


def _draw(torch: Any, feed: Feed, device: str) -> Any:
    dtype = getattr(torch, _DTYPES[feed.dtype])
    if not dtype.is_floating_point:
        return torch.zeros(feed.shape, dtype=dtype, device=device)
    return torch.randn(feed.shape, device=device).to(dtype)


def _constants(torch: Any, case: Case, device: str) -> dict[str, Any]:
    graph = case.make().graph
    return {i.name: torch.tensor(numpy_helper.to_array(i).copy(), device=device) for i in graph.initializer}


def _doubles(tensors: Tensors) -> Tensors:
    return {n: t.double() if t.is_floating_point() else t for n, t in tensors.items()}


def _nothing(torch: Any, shape: Any, dtype: str, device: str) -> Any:
    """A tensor to write to, of values that no model gives."""
    kind = getattr(torch, _DTYPES[dtype])
    return torch.full(shape, float("nan") if kind.is_floating_point else -1, dtype=kind, device=device)


def _error(got: Sequence[Any], right: Sequence[Any]) -> float:
    """The largest of the outputs' errors, as norms."""
    return max(float((g.double() - r).norm() / r.norm()) for g, r in zip(got, right, strict=True))
