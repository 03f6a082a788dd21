"""Tuning of one kernel: variants of it, measured in turns where they run, and the best of them.

Its parameters are tried one after the other, each with the best values of those before. A variant counts when it
computes what the usual kernel does, and when it is faster by more than the noise: they take turns, and one has to win
in nearly all rounds. What won is measured against the usual kernel once more, since the best of many measurements is
partly luck.
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..base.errors import ConfigError, TorshcError
from ..base.folders import scratch_folder
from ..base.options import CompileOptions
from ..bundle.host import CPU
from ..explain.sizes import Evaluator, choose_sizes
from ..graph import Value
from ..kernels.base import Kernel
from ..pipeline.compilation import Compilation, Unit
from ..pipeline.compiler import prepare
from ..pipeline.records import Choices, Record, TuningKey, name_of, tunable, tuning_key
from ..targets import TARGETS, Target, target_of
from ..targets.isa import resolve
from ..targets.parameters import Parameter
from ..targets.toolchain import Tools
from .measure import Array, KernelBench, Unmeasured, Variant, agree, compile_sources, sources_of, variant_of

GAIN = 0.98  # of the usual time; what is nearer may be another machine's noise
LOOKS, ROUNDS = 3, 9  # of a first look at all values, and of a comparison
TURN_SECONDS, MOST_CALLS = 0.004, 15  # of a turn
KEPT = 2  # values of a parameter that are compared after a first look

Say = Callable[[str, float], None]
Run = Callable[[], float]


@dataclass(frozen=True)
class Tuned:
    """A kernel that was measured.

    Attributes:
        record: what became of it.
        launches: how often a run of the model launches the kernel.
        usual, best: seconds that its group takes with the usual choices and with those of the record.
        variants: how many were measured; refused: how many of them computed something else.
    """

    record: Record
    launches: int
    usual: float
    best: float
    variants: int
    refused: int


Answer = Tuned | str | None  # what was measured, why nothing could be, or None where sizes leave nothing to choose


@dataclass(frozen=True)
class Subject:
    """A kernel to be tuned: its name in records, itself, its group, its sizes for people, launches in a run."""

    symbol: str
    kernel: Kernel
    unit: Unit
    shape: str
    launches: int

    def __str__(self) -> str:
        return f"{self.kernel.kind} {self.shape}"


class OutOfTime(Exception):
    """The budget is spent."""


@dataclass(frozen=True)
class TuningBench:
    """Where a model's kernels are measured.

    Attributes:
        place: what their records hold for.
        target: what records of it are checked by.
        kernels: what they are, for people, by their names in records; those with the most work first.
        measure: given names and the moment of ``time.monotonic()`` when to end, yields a name, the worker that measured
            it ("" in this process), and what came of it.
    """

    place: TuningKey
    target: Target
    kernels: Mapping[str, str]
    measure: Callable[[Sequence[str], float], Generator[tuple[str, str, Answer], None, None]]


@dataclass(frozen=True)
class Kernels:
    """The kernels of a model that can be tuned on this machine, by their names in records, those with most work first.

    Attributes:
        compilation: compilation of the model, with the usual kernels.
        sizes: sizes of symbolic dimensions.
    """

    compilation: Compilation
    sizes: Evaluator
    subjects: Mapping[str, Subject]

    @property
    def place(self) -> TuningKey:
        """What their records hold for."""
        return tuning_key(self.compilation.target, self.compilation.isa)

    def tuner(self, end: float, say: Say) -> Tuner:
        """What tunes them until a moment of ``time.monotonic()``.

        Raises:
            ToolchainError: there is no compiler.
        """
        c = self.compilation
        return Tuner(c, self.sizes, c.target.toolchain.find(c.options, c.isa), end, say)


def measured_here(options: CompileOptions) -> CompileOptions:
    """Options with the one processor whose kernels are measured.

    Raises:
        ConfigError: the target has nothing to tune, or its kernels cannot be measured on this machine.
    """
    target = target_of(options)
    if not target.tunable:
        known = ", ".join(name for name, t in sorted(TARGETS.items()) if t.tunable)
        raise ConfigError(f"the target {target.name} has nothing to tune: its templates state no parameters",
                          f"targets that have: {known}")  # fmt: skip
    if len(options.isa) == 1 and options.mcpu == "native":
        options = dataclasses.replace(options, mcpu=options.isa[0])
    target.toolchain.require_here(options, resolve(options.mcpu, options.triple))
    return options


def kernels_of(path: str | Path, options: CompileOptions, dims: Mapping[str, int], say: Say) -> Kernels:
    """The kernels of a model that can be tuned on this machine.

    Raises:
        ConfigError: as :func:`measured_here`, or the model has none.
        TorshcError: another member of the family, by cause.
    """
    options = measured_here(options)
    c = prepare(path, dataclasses.replace(options, tuning_records=None, loose="none", specialize=(), observed=()), say)
    sizes = Evaluator(choose_sizes(c, dims))
    subjects = {s.symbol: s for s in _subjects(c, sizes)}
    if not subjects:
        raise ConfigError(f"{path} has nothing to tune: no template of its kernels states parameters",
                          "products, convolutions and attention have some")  # fmt: skip
    return Kernels(c, sizes, subjects)


def _subjects(c: Compilation, sizes: Evaluator) -> list[Subject]:
    """The kernels that can be tuned, those with the most work first."""
    found: dict[str, Subject] = {}
    for unit in c.units:
        kernel = tunable(c.target, unit.kernels) if not unit.refused and unit.suffix == c.target.suffix else None
        if kernel is None:
            continue
        symbol = name_of(c.target, kernel)
        launches = found[symbol].launches + 1 if symbol in found else 1
        found[symbol] = Subject(symbol, kernel, unit, _shape(unit, sizes), launches)

    def work(s: Subject) -> int:
        return s.launches * sizes.total([s.kernel.flops, s.kernel.nbytes])

    return sorted(found.values(), key=work, reverse=True)


def _shape(unit: Unit, sizes: Evaluator) -> str:
    """Sizes of the operands of a group's heavy node."""
    node = unit.group.anchor
    operands: Sequence[Value] = node.operands[:2] if node is not None else unit.group.outputs[:1]
    numbers = [[sizes.integer(d) for d in v.shape] for v in operands]
    return ",".join("x".join("?" if n is None else str(n) for n in shape) or "1" for shape in numbers)


class Tuner:
    """Tunes kernels of a compilation until a moment of ``time.monotonic()``."""

    def __init__(self, compilation: Compilation, sizes: Evaluator, tools: Tools, end: float, say: Say) -> None:
        self.compilation, self.sizes, self.tools, self.end, self.say = compilation, sizes, tools, end, say
        self.compilers = ThreadPoolExecutor(compilation.options.workers)

    def close(self) -> None:
        """Compiles nothing more ahead."""
        self.compilers.shutdown(wait=False, cancel_futures=True)

    def hurry(self, subjects: Sequence[Subject]) -> None:
        """Compile kernels that come next into the cache, while a device measures and the processor is idle."""
        if self.compilation.target.device == CPU or not self.compilation.options.cache:
            return
        for subject in subjects:
            for name, text in sources_of(self.compilation, self.singles(subject)).items():
                self.compilers.submit(self._compile, {name: text})  # each alone, so that little is left to wait for

    def _compile(self, sources: Mapping[str, str]) -> None:
        with suppress(TorshcError), scratch_folder() as folder:  # who needs them is told
            compile_sources(self.compilation, self.tools, sources, folder)

    def answer(self, subject: Subject, title: str) -> Answer:
        """What comes of measuring a kernel.

        Raises:
            OutOfTime: before that is known.
            TorshcError: its usual variant cannot be compiled, or there is no memory.
        """
        if len(self.singles(subject)) == 1:
            return None
        try:
            return self.tune(subject, title)
        except Unmeasured as reason:
            return str(reason)

    def singles(self, subject: Subject) -> list[Variant]:
        """The usual variant, and those that differ from it in one parameter."""
        found: dict[tuple[str, ...], Variant] = {}
        choices = [((p.name, v),) for p in self.compilation.target.parameters(subject.kernel) for v in p.values]
        for one in ((), *choices):
            variant = variant_of(self.compilation, subject.unit, one)
            found.setdefault(variant.symbols, variant)
        return list(found.values())

    def tune(self, subject: Subject, title: str) -> Tuned:
        """What is best for a kernel.

        Raises:
            OutOfTime: before that is known.
            Unmeasured: it cannot be run alone.
        """
        self.look(title)
        with KernelBench(self.compilation, self.sizes, self.tools) as bench:
            usual = variant_of(self.compilation, subject.unit, ())
            runs = bench.add([usual])
            expected = bench.results(runs[usual], usual)
            seen, best, refused = {usual.symbols}, usual, 0
            for parameter in self.compilation.target.parameters(subject.kernel):
                self.look(f"{title}: {parameter.name}")
                fresh = self._fresh(subject, parameter, best, seen)
                added = bench.add(fresh) if fresh else {}
                right = {v: run for v, run in added.items() if _agrees(bench, v, run, expected)}
                refused += len(added) - len(right)
                runs |= right
                best = self._best(best, list(right), runs)
            times = self.turns({v: runs[v] for v in (usual, best)}, 2 * ROUNDS)
            if best is not usual and not faster(times[best], times[usual]):
                best = usual
            before, after = (statistics.median(times[v]) for v in (usual, best))
            note = f"{after * 1e6:.1f} us" + (f", {before * 1e6:.1f} before" if best is not usual else "")
            record = Record(subject.symbol, subject.kernel.template, subject.shape, best.choices, note)
            return Tuned(record, subject.launches, before, after, len(seen) - 1, refused)

    def look(self, stage: str = "") -> None:
        """Say what comes, if there is time for it."""
        if time.monotonic() > self.end:
            raise OutOfTime
        if stage:
            self.say(stage, 0.0)

    def _fresh(
        self, subject: Subject, parameter: Parameter, best: Variant, seen: set[tuple[str, ...]]
    ) -> list[Variant]:
        """The variants that differ from the best in one parameter, and from all that were seen in their text."""
        fresh = []
        for value in parameter.values:
            choices: Choices = tuple(sorted({**dict(best.choices), parameter.name: value}.items()))
            variant = variant_of(self.compilation, subject.unit, choices)
            if variant.symbols not in seen:
                seen.add(variant.symbols)
                fresh.append(variant)
        return fresh

    def _best(self, best: Variant, others: Sequence[Variant], runs: Mapping[Variant, Run]) -> Variant:
        """The best of some variants, where one is better than the best before."""
        if not others:
            return best
        first = self.turns({v: runs[v] for v in (best, *others)}, LOOKS)
        likely = sorted(others, key=lambda v: statistics.median(first[v]))[:KEPT]
        times = self.turns({v: runs[v] for v in (best, *likely)}, ROUNDS)
        better = [v for v in likely if faster(times[v], times[best])]
        return min(better, key=lambda v: statistics.median(times[v]), default=best)

    def turns(self, runs: Mapping[Variant, Run], rounds: int) -> dict[Variant, list[float]]:
        """The median of each variant in each round, in which all take turns."""
        times: dict[Variant, list[float]] = {v: [] for v in runs}
        for _ in range(rounds):
            self.look()
            for variant, run in runs.items():
                took = [run()]
                while len(took) < MOST_CALLS and sum(took) < TURN_SECONDS:
                    took.append(run())
                times[variant].append(statistics.median(took))
        return times


def _agrees(bench: KernelBench, variant: Variant, run: Run, expected: Mapping[Value, Array]) -> bool:
    """Whether a variant computes what the usual one does."""
    found = bench.results(run, variant)
    return found.keys() == expected.keys() and all(agree(a, expected[v], v.dtype.name) for v, a in found.items())


def faster(times: Sequence[float], usual: Sequence[float]) -> bool:
    """Whether rounds of a variant are faster than those of another by more than the noise: in three of four, by 2 %.

    >>> faster([0.9, 0.9, 0.8, 1.1], [1.0, 1.0, 1.0, 1.0]), faster([0.9, 1.1, 0.8, 1.1], [1.0, 1.0, 1.0, 1.0])
    (True, False)
    """
    ratios = sorted(a / b for a, b in zip(times, usual, strict=True))
    return ratios[(3 * len(ratios) - 1) // 4] <= GAIN
