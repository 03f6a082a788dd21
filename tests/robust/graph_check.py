"""Compiles random typed graphs, runs them, and compares with onnx's evaluator and ONNX Runtime.

    make graph-fuzz COUNT=5000 SEED=0
    make graph-fuzz COUNT=500 ARGS=--compilers

Each graph is compiled in a forked worker at -O0, -O3 and with aggressive fusion: by LLVM in the process, and in every
second graph one of the three by the C compiler, which takes five times as long as all else. With --compilers it is
compiled at -O3 by LLVM, clang and gcc instead, whose answers are compared with each other as well. An answer is wrong
when it is farther from the reference's than rounding explains. Nodes of which ONNX Runtime and the reference have
different answers are not in a graph. A graph that fails is made smaller and written to ``build/graphs``.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import torshc
from torshc.base.errors import RunError, UnsupportedError
from torshc.base.options import CompileOptions
from torshc.entry.inprocess import InProcess, load_model
from torshc.pipeline.compiler import prepare
from torshc.workbench.bisect import bisect_model
from torshc.workbench.verify import OutputCheck

from ..support.compilers import hosts
from . import workers
from .reduce import least
from .typed_compare import difference
from .typed_graphs import TypedGraph, cut, make_graph, model_of, smaller
from .typed_values import Array
from .workers import Outcome, attempt, worked

FAILURES = Path("build/graphs")
GOOD = ("fine", "refused")
LEVELS: dict[str, dict[str, Any]] = {
    "O0": {"opt_level": 0}, "O3": {"opt_level": 3}, "aggressive": {"opt_level": 3, "fusion": "aggressive"},
}  # fmt: skip
WAYS = {**LEVELS, **{f"{name} llvm": {**options, "target": "llvm"} for name, options in LEVELS.items()}}
IN_C = ("O3", "", "aggressive", "", "O3", "", "aggressive", "", "O0", "")  # by a graph's seed: what the C compiler does
# By each compiler that is here; LLVM first, with which the others' answers are compared.
COMPILERS = {"O3 llvm": WAYS["O3 llvm"], **{f"O3 {h.kind}": {**LEVELS["O3"], "cc": h.name} for h in hosts()}}
Case = tuple[TypedGraph, tuple[str, ...]]  # and the ways to compile it


def ways_of(seed: int) -> tuple[str, ...]:
    """All levels, one of them by the C compiler in every second graph."""
    return tuple(name if name == IN_C[seed % len(IN_C)] else f"{name} llvm" for name in LEVELS)


def checked(case: Case, folder: Path) -> Outcome:
    """What becomes of a graph; the first way that fails decides.

    Answers of several compilers are compared with those of the first, too.
    """
    graph, ways = case
    outcome = Outcome("fine")
    first: dict[tuple[int, str], Array] = {}
    for how in ways:
        known = first if how in COMPILERS else {}
        found = attempt(lambda how=how, known=known: _check(graph, how, folder, known), seconds=30)
        if found.kind not in GOOD:
            return replace(found, cause=f"{how}: {found.cause}")
        outcome = found if outcome.kind == "fine" else outcome
    return outcome


def _check(graph: TypedGraph, how: str, folder: Path, first: dict[tuple[int, str], Array]) -> Outcome | None:
    onnx.save(model_of(graph), folder / "m.onnx")
    with _loaded(folder, (WAYS | COMPILERS)[how]) as compiled:
        for b in range(graph.bindings):
            feeds = graph.feeds(b)
            try:
                got = compiled.run(feeds)
            except RunError as e:
                return Outcome("run refused", _line(e), str(e))
            for name in graph.outputs:
                answer, row, unit = np.asarray(got[name]), graph.values[name].rows[b], graph.values[name].unit
                other = first.setdefault((b, name), answer.copy())
                wrong = difference(answer, row, unit) or difference(answer, row, unit, other)
                if wrong:
                    return Outcome("wrong answer", "wrong answer", f"{how}, {name}, binding {b}: {wrong}")
    return None


def _loaded(folder: Path, options: dict[str, Any]) -> InProcess | torshc.Model:
    """The model in a folder; by the C compiler where it needs the host."""
    if options.get("target") == "llvm":
        with suppress(UnsupportedError):
            return load_model(folder / "m.onnx", **options)
    options = {name: option for name, option in options.items() if name != "target"}
    torshc.compile(folder / "m.onnx", folder / "m.tsc", threads=1, jobs=1, **options)
    return torshc.load(folder / "m.tsc", threads=1)


def _line(error: Exception) -> str:
    return f"{type(error).__name__} {str(error).splitlines()[0][:80]}"


# -- smaller ones ------------------------------------------------------------------------------------------------------


def shrink(graph: TypedGraph, outcome: Outcome, ways: tuple[str, ...]) -> TypedGraph:
    """A smaller graph that fails in the same kind of way: first one node with its operands as inputs."""

    def still(candidate: TypedGraph) -> bool:
        return worked([(candidate, ways)], checked)[0].kind == outcome.kind

    short = (part for length in (1, 2, 3) for part in cut(graph, length))
    return least(next(filter(still, short), graph), still, smaller, tries=60)


def located(case: Case, folder: Path) -> Outcome:
    """Where a wrong answer comes from, for the first way and the first binding that has one."""
    return attempt(lambda: _located(case, folder), seconds=100)


def _located(case: Case, folder: Path) -> Outcome:
    graph, ways = case
    onnx.save(model_of(graph), folder / "m.onnx")
    for how, b in itertools.product(ways, range(graph.bindings)):
        np.savez(folder / "m.npz", **graph.feeds(b))

        def judge(name: str, got: Any, wanted: Any, b: int = b) -> OutputCheck:
            text = difference(np.asarray(got), graph.values[name].rows[b], graph.values[name].unit)
            return OutputCheck(name, np.shape(got), float(bool(text)), text, not text)

        options = CompileOptions.create(threads=1, jobs=1, **(WAYS | COMPILERS)[how])
        files = [str(folder / "m.npz")]
        place = bisect_model(folder / "m.onnx", options, folder / "small.onnx", inputs=files, judge=judge).place
        if place is not None:
            kernels = ", ".join(f"{k.symbol} ({k.template}) of {', '.join(k.nodes)}" for k in place.kernels)
            return Outcome("wrong answer", detail=f"{how}: step {place.step or 'none'}, node {place.node}, {kernels}")
    return Outcome("fine", detail="the bisection finds nothing wrong")


def keep(graph: TypedGraph, outcome: Outcome) -> Path:
    """Write a failing graph, its inputs, and why it fails."""
    model = model_of(graph)
    path = workers.keep(
        FAILURES / f"{graph.seed}.onnx", model.SerializeToString(), outcome, onnx.printer.to_text(model)
    )
    for b in range(graph.bindings):
        np.savez(path.with_name(f"{graph.seed}-{b}.npz"), **graph.feeds(b))
    return path


@dataclass
class Tally:
    """What became of some graphs."""

    kinds: Counter[str] = field(default_factory=Counter)
    causes: Counter[str] = field(default_factory=Counter)
    unusable: Counter[str] = field(default_factory=Counter)
    lines: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        for name in ("kinds", "causes", "unusable"):
            getattr(self, name).update(getattr(other, name))


def swept(seeds: range, ways: tuple[str, ...], whole: bool) -> Tally:
    """Draw graphs and check them in these ways, or in those of their seeds where none is named.

    Failures are made smaller, unless whole ones are asked for, and kept.
    """
    tally = Tally()
    for (graph, tried), outcome in workers.outcomes(_drawn(seeds, ways, tally), checked):
        tally.kinds[outcome.kind] += 1
        detail = " ".join(outcome.detail.split())
        if outcome.kind in GOOD:
            tally.lines += [f"seed {graph.seed}: {outcome.kind}: {detail[:200]}"] if outcome.kind != "fine" else []
            continue
        how = outcome.cause.partition(":")[0]
        small = graph if whole else shrink(graph, outcome, (how,) if how in WAYS else tried)
        cause = f"{outcome.cause} of {' '.join(sorted(set(small.operators)))}"
        tally.causes[cause] += 1
        last = worked([(small, tried)], checked)[0]
        if outcome.kind == "wrong answer":
            place = worked([(small, (how,))], located)[0]
            last = replace(last, detail=f"{last.detail}\n{place.detail}")
        tally.lines.append(f"{keep(small, last)}: {cause}\n    {' '.join(last.detail.split())[:500]}")
    return tally


def _drawn(seeds: range, ways: tuple[str, ...], tally: Tally) -> Iterator[Case]:
    """Graphs that onnx's checker takes."""
    for seed in seeds:
        graph = make_graph(seed)
        try:
            model_of(graph)
        except Exception as e:  # of several modules of onnx
            tally.unusable[type(e).__name__] += 1
            continue
        yield graph, ways or ways_of(seed)


def _warm() -> None:
    """Read templates and rules, which workers then have from the start."""
    with tempfile.TemporaryDirectory() as name:
        onnx.save(model_of(make_graph(0)), Path(name) / "m.onnx")
        for options in WAYS.values():
            prepare(Path(name) / "m.onnx", CompileOptions.create(emit="source", **options))


def main() -> int:
    parser = argparse.ArgumentParser(description="Random typed graphs against onnx's evaluator and ONNX Runtime.")
    parser.add_argument("--count", type=int, default=5000, help="graphs")
    parser.add_argument("--seed", type=int, default=0, help="the first graph's")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--way", choices=WAYS, action="append", help="how to compile; by default as the seed says")
    parser.add_argument("--compilers", action="store_true", help="each graph at -O3 by LLVM, clang and gcc")
    parser.add_argument("--whole", action="store_true", help="do not make failing graphs smaller")
    given = parser.parse_args()
    last = given.seed + given.count
    print(f"seeds {given.seed} to {last - 1}", flush=True)
    blocks = [range(first, min(first + workers.BATCH, last)) for first in range(given.seed, last, workers.BATCH)]
    tally = Tally()
    with ProcessPoolExecutor(given.jobs, get_context("fork"), _warm) as pool:
        check = partial(swept, ways=tuple(COMPILERS if given.compilers else given.way or ()), whole=given.whole)
        for block, found in zip(blocks, pool.map(check, blocks), strict=True):
            tally.add(found)
            print("\n".join([*found.lines, f"up to seed {block[-1]}: {dict(tally.kinds)}"]), flush=True)
    print(", ".join(f"{n} {kind}" for kind, n in tally.kinds.most_common()), f"and {tally.unusable.total()} unusable")
    for cause, n in tally.causes.most_common():
        print(f"{n:6} {cause}")
    return bool(tally.causes)


if __name__ == "__main__":
    sys.exit(main())
