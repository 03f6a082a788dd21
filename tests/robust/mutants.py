"""Compiles mutants as far as their sources, each within limits, and tells what went wrong.

    make mutants COUNT=5000 SEED=0

Mutants run in forked workers. A failure is made smaller, written as a model file, and shown once for each cause.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError
from onnx import ModelProto

import torshc
from tests.support.mutate import graphs, mutant
from tests.support.zoo import zoo

from . import workers
from .reduce import least
from .workers import SECONDS, Outcome, attempt, worked

FAILURES = Path("build/mutants")
GOOD = ("fine", "refused")
WAYS: tuple[dict[str, Any], ...] = (
    {"opt_level": 0}, {"opt_level": 1}, {"opt_level": 3}, {"opt_level": 3}, {"opt_level": 3, "fusion": "aggressive"},
    {"opt_level": 3, "target": "cuda"}, {"opt_level": 3, "target": "metal"}, {"opt_level": 0, "target": "cuda"},
)  # fmt: skip
Mutant = tuple[str, bytes]  # its name and its bytes


def way(name: str) -> dict[str, Any]:
    """The options that a mutant is compiled with, by its name, so that a smaller one has them too."""
    return WAYS[zlib.crc32(name.encode()) % len(WAYS)]


def compiled(mutant: Mutant, folder: Path, seconds: int = SECONDS) -> Outcome:
    """Compile in this process, within a limit of time; 0 is none."""
    name, data = mutant
    path = folder / "m.onnx"
    path.write_bytes(data)
    options = {**way(name), "emit": "source", "cache": False, "mcpu": "x86-64-v3"}
    try:
        return attempt(lambda: torshc.compile(path, folder / "m.tsc", **options), seconds)
    finally:
        shutil.rmtree(folder / "m.tsc", ignore_errors=True)


def outcomes(mutants: Iterable[Mutant]) -> Iterator[tuple[Mutant, Outcome]]:
    """What became of each, in order."""
    _warm()
    return workers.outcomes(mutants, compiled)


@lru_cache(maxsize=1)
def _warm() -> None:
    """Import the compiler and read its templates, which workers then have from the start."""
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for label, specimen in zoo().items():
            compiled((label, specimen.model.SerializeToString()), Path(name), seconds=0)


# -- smaller ones ------------------------------------------------------------------------------------------------------


def smaller(data: bytes, fails: Callable[[bytes], bool]) -> bytes:
    """The mutant without what its failure does not need."""
    return least(data, fails, lambda d: (c for c in _candidates(d) if len(c) < len(d)))


def _candidates(data: bytes) -> Iterator[bytes]:
    try:
        model = ModelProto.FromString(data)
    except (DecodeError, ValueError):  # not well-formed; upb raises a ValueError of text that is not UTF-8
        return
    for g in range(len(graphs(model))):
        parts = ["node", "initializer", "value_info", "input", "output"]
        for part, k in [(p, k) for p in parts for k in range(len(getattr(graphs(model)[g], p)))]:
            yield _without(data, lambda m, g=g, part=part: getattr(graphs(m)[g], part), k)
        for n in range(len(graphs(model)[g].node)):
            for part in ("attribute", "input"):
                for k in range(len(getattr(graphs(model)[g].node[n], part))):
                    yield _without(data, lambda m, g=g, n=n, part=part: getattr(graphs(m)[g].node[n], part), k)


def _without(data: bytes, part: Callable[[ModelProto], Any], k: int) -> bytes:
    model = ModelProto.FromString(data)
    found = part(model)
    del found[k]
    return model.SerializeToString()


def keep(number: int, data: bytes, outcome: Outcome) -> Path:
    """Write a failing mutant, and what it failed of in a file beside it."""
    try:
        text = str(ModelProto.FromString(data))
    except (DecodeError, ValueError) as e:
        text = f"not well-formed: {e}"
    return workers.keep(FAILURES / f"{number}.onnx", data, outcome, text)


def main() -> int:
    parser = argparse.ArgumentParser(description="Compiles mutants of models as far as their sources.")
    parser.add_argument("--count", type=int, default=5000, help="mutants")
    parser.add_argument("--seed", type=int, default=0, help="the first mutant's")
    parser.add_argument("--whole", action="store_true", help="do not make failing mutants smaller")
    given = parser.parse_args()
    print(f"seeds {given.seed} to {given.seed + given.count - 1}", flush=True)
    kinds: Counter[str] = Counter()
    causes: Counter[str] = Counter()
    slowest = (0.0, "")
    for k, ((name, data), outcome) in enumerate(outcomes(mutant(given.seed + k) for k in range(given.count))):
        kinds[outcome.kind] += 1
        slowest = max(slowest, (outcome.seconds, name))
        if outcome.kind not in GOOD:
            causes[outcome.cause] += 1
        if outcome.kind not in GOOD and causes[outcome.cause] == 1:
            cause = outcome.cause
            slow = given.whole or outcome.kind in ("too slow", "signal")
            small = data if slow else smaller(data, lambda d, n=name, c=cause: worked([(n, d)], compiled)[0].cause == c)
            print(f"{name}, {way(name)}\n    {outcome.cause}\n    {keep(given.seed + k, small, outcome)}", flush=True)
        if k % 500 == 499:
            print(f"{k + 1} mutants", flush=True)
    print(", ".join(f"{n} {kind}" for kind, n in kinds.most_common()))
    print(f"the slowest took {slowest[0]:.1f} s: {slowest[1]}")
    for cause, n in causes.most_common():
        print(f"{n:6} {cause}")
    return bool(causes)


if __name__ == "__main__":
    sys.exit(main())
