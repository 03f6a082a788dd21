"""Tuning: variants of a model's kernels, measured where they will run, and the faster ones as records.

How a kernel is measured stands in :mod:`.tune_kernel`. It is done in this process, or by workers of a scheduler
(:mod:`.tune_cluster`); the records are the same.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ..base.errors import ConfigError
from ..base.options import CompileOptions
from ..pipeline.records import Record, Records, TuningKey, read_records, write_records
from ..targets import Target
from .tune_cluster import tuning_there
from .tune_kernel import Answer, OutOfTime, Say, Tuned, TuningBench, kernels_of


@dataclass(frozen=True)
class Outcome:
    """What tuning came to.

    Attributes:
        path: the file of records.
        place: what they hold for.
        tuned: the kernels that were measured, those with the most work first.
        known: kernels that had a record before.
        left: kernels that the time did not suffice for.
        skipped: why others were not measured, a line each.
        interrupted: whether SIGINT ended it.
        seconds: what it took.
        workers: how many of the kernels were measured where, by the address of a scheduler's worker.
    """

    path: str
    place: TuningKey
    tuned: tuple[Tuned, ...]
    known: int
    left: int
    skipped: tuple[str, ...]
    interrupted: bool
    seconds: float
    workers: Mapping[str, int] = field(default_factory=dict)


def tune_model(
    path: str | Path,
    options: CompileOptions,
    records: Path,
    budget: float,
    dims: Mapping[str, int] | None = None,
    say: Say = lambda stage, seconds: None,
) -> Outcome:
    """Measures variants of a model's kernels and writes the faster ones to a file, a kernel at a time.

    Args:
        options: those with a scheduler have its workers measure.
        records: the file; kernels that have a record there for this machine are left alone.
        budget: seconds that measuring may take.
        dims: sizes of symbolic dimensions; 1, or what the model can take, where left out.
        say: hears of each step.

    Raises:
        ConfigError: no time, a target or a model that has nothing to tune, or a processor or card that is not here.
        TorshcError: another member of the family, by cause.
    """
    if not budget > 0:  # of NaN nothing is true
        raise ConfigError(
            f"--budget {budget:g} leaves no time to measure anything", "give seconds, such as --budget 60"
        )
    began = time.monotonic()
    with (tuning_there if options.scheduler else _tuning_here)(Path(path), options, dims or {}, say) as bench:
        found = _read_kept(records, bench.target, bench.place)
        write_records(records, found)  # so that a place that cannot be written is known at once
        wanted = [symbol for symbol in bench.kernels if symbol not in found[bench.place]]
        answers: dict[str, Answer] = {}
        workers: Counter[str] = Counter()
        interrupted = False
        try:
            with closing(bench.measure(wanted, time.monotonic() + budget)) as measured:
                for symbol, worker, answer in measured:
                    answers[symbol] = answer
                    if isinstance(answer, Tuned):
                        workers[worker] += 1
                        found[bench.place][symbol] = answer.record
                        write_records(records, found)
        except KeyboardInterrupt:
            interrupted = True
    given = {symbol: answers[symbol] for symbol in wanted if symbol in answers}
    return Outcome(
        str(records),
        bench.place,
        tuple(a for a in given.values() if isinstance(a, Tuned)),
        len(bench.kernels) - len(wanted),
        len(wanted) - len(given),
        tuple(f"{s} ({bench.kernels[s]}): {a}" for s, a in given.items() if isinstance(a, str)),
        interrupted,
        time.monotonic() - began,
        dict(sorted(workers.items())) if options.scheduler else {},
    )


@contextmanager
def _tuning_here(path: Path, options: CompileOptions, dims: Mapping[str, int], say: Say) -> Iterator[TuningBench]:
    """Measures a model's kernels in this process."""
    kernels = kernels_of(path, options, dims, say)

    def measure(wanted: Sequence[str], end: float) -> Generator[tuple[str, str, Answer], None, None]:
        tuner = kernels.tuner(end, say)
        subjects = [kernels.subjects[symbol] for symbol in wanted]
        try:
            for number, subject in enumerate(subjects, 1):
                tuner.hurry(subjects[number : number + 1])
                yield subject.symbol, "", tuner.answer(subject, f"kernel {number} of {len(subjects)}, {subject}")
        except OutOfTime:
            return
        finally:
            tuner.close()

    names = {symbol: str(subject) for symbol, subject in kernels.subjects.items()}
    yield TuningBench(kernels.place, kernels.compilation.target, names, measure)


def _read_kept(path: Path, target: Target, place: TuningKey) -> dict[TuningKey, dict[str, Record]]:
    """The records of a file that is there; those of other versions for this machine make way."""
    found: Records = read_records(path, target, place) if path.exists() else {}
    kept = {
        p: dict(r) for p, r in found.items() if (p.target, p.machine) != (place.target, place.machine) or p == place
    }
    kept.setdefault(place, {})
    return kept
