"""Compiles models and random graphs with the address and undefined-behaviour sanitizers, runs them, and compares.

    make models-sanitized MODELS="a.onnx b.onnx" COUNT=500 SEED=0 JOBS=2

Objects go to a cache that is empty at the start and removed at the end. Models run on random inputs, and their answers
are compared with ONNX Runtime's where it is here; graphs run on their own inputs and are compared with onnx's
evaluator. Libraries run in a process that has the sanitizers' runtime preloaded, and ends at the first finding; what
ran then is kept in ``build/sanitized``.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from tests.conformance import sanitized
from torshc.base.errors import ConfigError, RunError, UnsupportedError
from torshc.base.manifest import TensorSpec
from torshc.base.options import CompileOptions
from torshc.pipeline.compiler import compile_model
from torshc.pipeline.tolerance import Tolerance
from torshc.runtime.manifest import read_manifest
from torshc.workbench.feeds import make_inputs
from torshc.workbench.verify import SIZES, compare, reference_outputs

from .graph_check import LEVELS
from .typed_compare import difference
from .typed_graphs import make_graph, model_of
from .workers import Outcome, attempt

FAILURES = Path("build/sanitized")
GOOD = ("fine", "refused", "not compared")
BLOCK = 8  # graphs of one process
SECONDS = 3600  # a process with a model may take; vgg19 takes some minutes

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]
Job = tuple[Callable[[Any, str, Path], "Built"], Any]  # what builds a model, and of what
Judge = Callable[[int, Arrays], str]  # is given the number of the run and its outputs; says what is wrong with them


@dataclass(frozen=True)
class Built:
    """A bundle, and what to run it on.

    Attributes:
        folder: the bundle.
        model: its file.
        feeds: inputs of each run.
    """

    name: str
    folder: Path
    model: Path
    inputs: Sequence[TensorSpec]
    outputs: Sequence[TensorSpec]
    feeds: Sequence[Mapping[str, Array]]
    judge: Judge


def built_model(path: Path, cc: str, work: Path, level: int = 3) -> Built:
    """A model with random inputs, which ONNX Runtime has answers for."""
    options = CompileOptions.create(opt_level=level, cc=cc, jobs=1)
    bundle = work / f"{path.stem}.tsc"
    compile_model(path, bundle, options)
    found = read_manifest(bundle)
    feeds = make_inputs(found.inputs, (), None, 0, SIZES, found.needs).arrays
    names = [spec.name for spec in found.outputs]
    allowed = {name: Tolerance(**asdict(spec)) for name, spec in zip(names, found.tolerances, strict=True)}

    def judge(_: int, got: Arrays) -> str:
        wanted = reference_outputs(path, "ort", names, feeds)
        checks = [compare(name, array, wanted[name], allowed[name]) for name, array in got.items()]
        return "; ".join(f"{c.name}: {c.problem or c.error}" for c in checks if not c.ok)

    return Built(path.name, bundle, path, found.inputs, found.outputs, [feeds], judge)


def built_graph(seed: int, cc: str, work: Path) -> Built:
    """A random graph, at the level that its seed says, with its inputs of all sizes.

    Raises:
        UnsupportedError: the graph, which onnx's checker does not take.
    """
    graph = make_graph(seed)
    try:
        made = model_of(graph)
    except Exception as error:  # of several modules of onnx
        raise UnsupportedError([f"onnx's checker: {error}"]) from error
    path = work / f"{seed}.onnx"
    onnx.save(made, path)
    level = [*LEVELS.values()][seed % len(LEVELS)]
    bundle = work / f"{seed}.tsc"
    compile_model(path, bundle, CompileOptions.create(cc=cc, jobs=1, **level))
    found = read_manifest(bundle)

    def judge(binding: int, got: Arrays) -> str:
        wrong = {n: difference(a, graph.values[n].rows[binding], graph.values[n].unit) for n, a in got.items()}
        return "; ".join(f"{n}, binding {binding}: {text}" for n, text in wrong.items() if text)

    feeds = [graph.feeds(b) for b in range(graph.bindings)]
    return Built(f"seed {seed}", bundle, path, found.inputs, found.outputs, feeds, judge)


# -- runs --------------------------------------------------------------------------------------------------------------


def outcomes(bundles: Sequence[Built], work: Path) -> list[Outcome]:
    """What became of each; a process that ends early takes one with it, and another goes on behind that."""
    found: list[Outcome] = []
    while len(found) < len(bundles):
        found += _some(bundles[len(found) :], work)
    return found


def _some(bundles: Sequence[Built], work: Path) -> list[Outcome]:
    """The outcomes as far as a process came; the last is that it died of, if it did."""
    files = [
        [[str(work / f"{b.folder.stem}-{way}{k}.npz") for way in ("in", "out")] for k in range(len(b.feeds))]
        for b in bundles
    ]
    for b, pairs in zip(bundles, files, strict=True):
        for (file, _), feeds in zip(pairs, b.feeds, strict=True):
            np.savez(file, **{f"i{k}": feeds[spec.name] for k, spec in enumerate(b.inputs)})
    lines = [json.dumps([str(b.folder), pairs]) for b, pairs in zip(bundles, files, strict=True)]
    answers, why = _said(lines)
    found = [
        Outcome("run refused", refused, refused) if refused else _judged(b, [out for _, out in pairs])
        for b, pairs, refused in zip(bundles, files, answers, strict=False)
    ]
    return found if len(found) == len(bundles) else [*found, _end(why)]


def _said(lines: Sequence[str]) -> tuple[list[str], str]:
    """What a process with the runtime says to bundles, as far as it comes, and what it says when it dies."""
    command = [sys.executable, "-m", "tests.support.run_bundles"]
    env = {**os.environ, **sanitized.environment(), "PYTHONPATH": os.pathsep.join(sys.path)}
    try:
        done = subprocess.run(
            command, input="\n".join(lines), env=env, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        return os.fsdecode(error.stdout or b"").splitlines(), f"a process takes longer than {SECONDS} s"
    return done.stdout.splitlines(), f"{done.stderr}\nexit code {done.returncode}"


def _end(text: str) -> Outcome:
    """What a process died of, by what it said: the line of a sanitizer's report that says most, or the last."""
    lines = text.strip().splitlines()
    found = [line for line in lines if "runtime error:" in line or "ERROR: AddressSanitizer" in line]
    return Outcome("finding" if found else "died", (found or lines[-1:])[0][:300], text[-6000:])


def _judged(b: Built, files: Sequence[str]) -> Outcome:
    for k, file in enumerate(files):
        with np.load(file) as stored:
            got = {spec.name: stored[f"o{n}"] for n, spec in enumerate(b.outputs)}
        try:
            wrong = b.judge(k, got)
        except (ConfigError, UnsupportedError, RunError) as error:  # ONNX Runtime is not here, or cannot
            return Outcome("not compared", str(error), str(error))
        if wrong:
            return Outcome("wrong answer", wrong[:300], wrong)
    return Outcome("fine")


# -- all of them -------------------------------------------------------------------------------------------------------


@dataclass
class Tally:
    """What became of some models: kinds of outcomes, and lines to show."""

    compiled: int = 0
    runs: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    lines: list[str] = field(default_factory=list)

    def note(self, name: str, outcome: Outcome, figures: str = "") -> None:
        self.kinds[outcome.kind] += 1
        detail = " ".join((outcome.cause or outcome.detail).split())[:300] if outcome.kind != "fine" else ""
        self.lines.append(", ".join(filter(None, (f"{name}: {outcome.kind}", figures, detail))))

    def add(self, other: Tally) -> None:
        self.compiled += other.compiled
        self.runs += other.runs
        self.kinds.update(other.kinds)

    @property
    def bad(self) -> int:
        return sum(n for kind, n in self.kinds.items() if kind not in GOOD)

    def __str__(self) -> str:
        rest = [f"{n} {kind}" for kind, n in self.kinds.most_common() if kind not in ("fine", "finding")]
        first = f"{self.compiled} compiled", f"{self.kinds['fine']} right in {self.runs} runs"
        return ", ".join([*first, *rest, f"{self.kinds['finding']} findings of the sanitizers"])


def checked(jobs: Sequence[Job]) -> Tally:
    """Compile some models, run them in one process, and keep what fails."""
    tally, built, figures = Tally(), [], []
    cc = sanitized.compiler()
    with tempfile.TemporaryDirectory(prefix="torshc-sanitized-") as name:
        work = Path(name)
        for build, subject in jobs:
            made: list[Built] = []
            began = time.perf_counter()
            outcome = attempt(lambda b=build, s=subject, m=made: m.append(b(s, cc, work)), seconds=0)
            if made:
                built += made
                figures.append(f"compiled in {time.perf_counter() - began:.0f} s")
            else:
                tally.note(str(subject), outcome)
        tally.compiled = len(built)
        began = time.perf_counter()
        for b, outcome, figure in zip(built, outcomes(built, work), figures, strict=True):
            tally.runs += len(b.feeds) if outcome.kind == "fine" else 0
            alone = f"{figure}, ran in {time.perf_counter() - began:.0f} s" if len(jobs) == 1 else ""
            tally.note(b.name, outcome, alone)
            if outcome.kind not in GOOD:
                tally.lines.append(f"    {keep(b, outcome)}")
    return tally


def keep(b: Built, outcome: Outcome) -> Path:
    """Write a failing model, its inputs, and what it failed of."""
    FAILURES.mkdir(parents=True, exist_ok=True)
    path = FAILURES / b.model.name
    if b.model.resolve() != path.resolve():
        shutil.copyfile(b.model, path)
    for k, feeds in enumerate(b.feeds):
        np.savez(path.with_name(f"{path.stem}-{k}.npz"), **feeds)
    path.with_suffix(".txt").write_text(f"{outcome.cause}\n{outcome.detail}\n")
    return path


def main() -> int:
    parser = argparse.ArgumentParser(description="Models and random graphs with the sanitizers, compared.")
    parser.add_argument("models", nargs="*", type=Path, help="ONNX files")
    parser.add_argument("--count", type=int, default=0, help="random graphs")
    parser.add_argument("--seed", type=int, default=0, help="the first graph's")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--level", type=int, default=3, help="of optimisation, of models; graphs have all")
    given = parser.parse_args()
    print(f"{len(given.models)} models, graphs of seeds {given.seed} to {given.seed + given.count - 1}", flush=True)
    of_level = partial(built_model, level=given.level)
    blocks: list[list[Job]] = [[(of_level, path.resolve())] for path in given.models]
    seeds = range(given.seed, given.seed + given.count)
    blocks += [[(built_graph, seed) for seed in seeds[k : k + BLOCK]] for k in range(0, len(seeds), BLOCK)]
    tally = Tally()
    with tempfile.TemporaryDirectory(prefix="torshc-sanitized-") as name:
        os.environ["TORSHC_CACHE_DIR"] = name
        with ProcessPoolExecutor(given.jobs, get_context("fork")) as pool:
            for done in as_completed([pool.submit(checked, block) for block in blocks]):
                found = done.result()
                tally.add(found)
                print("\n".join([*found.lines, f"so far {tally}"]), flush=True)
    print(tally)
    return bool(tally.bad)


if __name__ == "__main__":
    sys.exit(main())
