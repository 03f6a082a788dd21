"""Measuring a model beside ONNX Runtime and a copy of as many bytes as it reads and writes.

Times are the least of many calls, the systems in turns, since others use the machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import torshc
from torshc.workbench.bench import paired
from torshc.workbench.onnx_runtime import ort_session, run_ort

from ..support.models import model, node

ROUNDS, SECONDS = 7, 0.04
Array = np.ndarray[Any, Any]
Call = Callable[[], Any]


@dataclass(frozen=True)
class Times:
    """Seconds of a call: ours, ONNX Runtime's, and of a copy of the bytes."""

    ours: float
    theirs: float
    copy: float

    @property
    def ratio(self) -> float:
        """How many times as long ONNX Runtime takes."""
        return self.theirs / self.ours

    def least(self, other: Times) -> Times:
        """The lesser of two measurements of one thing."""
        return Times(min(self.ours, other.ours), min(self.theirs, other.theirs), min(self.copy, other.copy))


@dataclass(frozen=True)
class Tolerance:
    """How far results may differ; `compared` is false of what is drawn at random."""

    rtol: float = 1e-3
    atol: float = 1e-3
    compared: bool = True

    def check(self, got: list[Array], wanted: list[Array]) -> None:
        """Compare results, as far as there are values in them.

        Raises:
            AssertionError: they differ.
        """
        for g, w in zip(got, wanted, strict=True):
            assert g.shape == w.shape, f"{g.shape} and not {w.shape}"
            if self.compared and g.dtype.kind in "fiub":
                np.testing.assert_allclose(g.astype(np.float64), w.astype(np.float64), self.rtol, self.atol)


def measured(
    made: onnx.ModelProto,
    feeds: Mapping[str, Array],
    folder: Path,
    *,
    threads: int = 1,
    rounds: int = ROUNDS,
    seconds: float = SECONDS,
    tolerance: Tolerance | None = None,
    again: Callable[[Times], bool] = lambda times: False,
    most: int = 3,
) -> Times:
    """The least times of a model, measured again, `most` times at the most, while `again` says so.

    Args:
        folder: gets the bundle, or has the one to measure.

    Raises:
        TorshcError: torshc or ONNX Runtime cannot compile or run the model.
        AssertionError: the results differ.
    """
    given = dict(feeds)
    path, bundle = compiled(made, folder)
    session = ort_session(path, threads)
    with torshc.load(bundle, threads=threads) as loaded:
        results = list(loaded.run(given).values())
        (tolerance or Tolerance()).check(results, run_ort(session, given))
        half = np.ones(max(1, sum(a.nbytes for a in (*given.values(), *results)) // 2), np.uint8)
        copy = np.empty_like(half)
        calls: dict[str, Call] = {
            "ours": lambda: loaded.run(given),
            "theirs": lambda: session.run(None, given),
            "copy": lambda: np.copyto(copy, half),
        }
        times = Times(**least(calls, rounds, seconds))
        for _ in range(most):
            if not again(times):
                break
            times = times.least(Times(**least(calls, rounds, seconds)))
    return times


def compiled(made: onnx.ModelProto, folder: Path) -> tuple[Path, Path]:
    """A model's file and bundle in a folder; a bundle that lies there of an equal model stays as it is."""
    path, bundle, data = folder / "m.onnx", folder / "m.tsc", made.SerializeToString()
    if not bundle.exists() or path.read_bytes() != data:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        torshc.compile(path, bundle, target="c")
    return path, bundle


def least(calls: dict[str, Call], rounds: int = ROUNDS, seconds: float = SECONDS) -> dict[str, float]:
    """The least seconds of each call."""
    times = paired(calls, rounds, seconds, lambda stage, seconds: None)
    return {name: min(t for round_ in rounds for t in round_) for name, rounds in times.items()}


def empty_call(threads: int = 1) -> float:
    """Seconds of a call of a model that does next to nothing."""
    loaded = torshc.compile(model([node("Relu", "x", "y")], {"x": [1]}, ["y"]), threads=threads)
    feeds = {"x": np.zeros(1, np.float32)}
    return least({"call": lambda: loaded.run(feeds)})["call"]


def processor() -> str:
    """The processor's name, as the system has it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "this processor")
