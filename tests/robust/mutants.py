"""Compiles mutants as far as their sources, each within limits, and tells what went wrong.

    make mutants COUNT=5000 SEED=0

Mutants run in forked workers. A failure is made smaller, written as a model file, and shown once for each cause.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError
from onnx import ModelProto

import torshc
from tests.support.mutate import graphs, mutant
from tests.support.zoo import zoo
from torshc.errors import InternalError, ResourceError, TorshcError

FAILURES = Path("build/mutants")
SECONDS, MEMORY = 10, 2 << 30  # of the processor, of addresses beside those of the process that forks
BATCH = 40  # mutants a worker
GOOD = ("fine", "refused")
WAYS: tuple[dict[str, Any], ...] = (
    {"opt_level": 0}, {"opt_level": 1}, {"opt_level": 3}, {"opt_level": 3}, {"opt_level": 3, "fusion": "aggressive"},
    {"opt_level": 3, "target": "cuda"}, {"opt_level": 3, "target": "metal"}, {"opt_level": 0, "target": "cuda"},
)  # fmt: skip
Mutant = tuple[str, bytes]  # its name and its bytes


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant.

    Attributes:
        kind: "fine", "refused", "internal error", "other exception", "signal", "too slow", "too big".
        cause: what failures of one cause share: the error, where it was raised and its message without numbers.
        detail: the message, and the end of the traceback.
        seconds: of the processor.
    """

    kind: str
    cause: str = ""
    detail: str = ""
    seconds: float = 0.0


class _TooSlow(BaseException):
    pass


def _stop(*_: object) -> None:
    raise _TooSlow


def way(name: str) -> dict[str, Any]:
    """The options that a mutant is compiled with, by its name, so that a smaller one has them too."""
    return WAYS[zlib.crc32(name.encode()) % len(WAYS)]


def compiled(mutant: Mutant, folder: Path, seconds: int = SECONDS) -> Outcome:
    """Compile in this process, within a limit of time; 0 is none."""
    name, data = mutant
    path = folder / "m.onnx"
    path.write_bytes(data)
    options = {**way(name), "emit": "source", "cache": False, "mcpu": "x86-64-v3"}
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        torshc.compile(path, folder / "m.tsc", **options)
    except InternalError as e:
        return _failed("internal error", e)
    except ResourceError as e:
        return _failed("too big", e)
    except TorshcError as e:
        return Outcome("refused", detail=str(e)) if str(e).strip() else _failed("other exception", e)
    except _TooSlow as e:
        return _failed("too slow", e)
    except MemoryError as e:
        return _failed("too big", e)
    except BaseException as e:
        return _failed("other exception", e)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        shutil.rmtree(folder / "m.tsc", ignore_errors=True)
    return Outcome("fine")


def _failed(kind: str, error: BaseException) -> Outcome:
    root: BaseException = error
    while kind == "internal error" and root.__cause__ is not None:
        root = root.__cause__
    frames = [f for f in traceback.extract_tb(root.__traceback__) if "torshc" in f.filename]
    place = f"{Path(frames[-1].filename).name}:{frames[-1].name}" if frames else ""
    text = f"{type(root).__name__} {root}"
    said = "" if kind in ("too slow", "too big") else re.sub(r"'[^']*'|\d+|\[.*\]|/\S+", "#", text)[:120]
    lines = "".join(traceback.format_exception(root, limit=-12))
    return Outcome(kind, f"{kind} at {place}: {said}", f"{text[:500]}\n{lines[-3000:]}")


def outcomes(mutants: Iterable[Mutant]) -> Iterator[tuple[Mutant, Outcome]]:
    """What became of each, in order; a worker that dies takes one mutant with it."""
    _warm()
    pending = iter(mutants)
    batch: list[Mutant] = []
    while batch or (batch := [m for _, m in zip(range(BATCH), pending, strict=False)]):
        done = _worked(batch)
        yield from zip(batch, done, strict=False)
        batch = batch[len(done) :]


@lru_cache(maxsize=1)
def _warm() -> None:
    """Import the compiler and read its templates, which workers then have from the start."""
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for label, specimen in zoo().items():
            compiled((label, specimen.model.SerializeToString()), Path(name), seconds=0)


def _worked(batch: list[Mutant]) -> list[Outcome]:
    """The outcomes of a batch in a worker, as far as it came; the last is that it died of, if it did."""
    reader, writer = os.pipe()
    worker = os.fork()
    if not worker:
        os.close(reader)
        _work(batch, writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        found: list[Outcome] = []
        while len(found) < len(batch):
            ready, _, _ = select.select([stream], [], [], 12 * SECONDS)
            line = stream.readline() if ready else b""
            if not line:
                break
            found.append(Outcome(**json.loads(line)))
    if len(found) < len(batch):
        os.kill(worker, signal.SIGKILL)
    _, status = os.waitpid(worker, 0)
    if len(found) < len(batch):
        number = os.waitstatus_to_exitcode(status)
        kind = "too slow" if number == -signal.SIGKILL else "signal"
        found.append(Outcome(kind, f"{kind} {number}"))
    return found


def _work(batch: list[Mutant], writer: int) -> None:
    """The worker; never returns."""
    try:
        warnings.simplefilter("ignore")
        own = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (own + MEMORY, own + MEMORY))
        signal.signal(signal.SIGPROF, _stop)
        with tempfile.TemporaryDirectory() as name:
            for mutant in batch:
                began = time.process_time()
                outcome = replace(compiled(mutant, Path(name)), seconds=time.process_time() - began)
                os.write(writer, json.dumps(vars(outcome)).encode() + b"\n")
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


# -- smaller ones ------------------------------------------------------------------------------------------------------


def smaller(data: bytes, fails: Callable[[bytes], bool]) -> bytes:
    """The mutant without what its failure does not need."""
    again = True
    while again:
        again = False
        for candidate in _candidates(data):
            if len(candidate) < len(data) and fails(candidate):
                data, again = candidate, True
                break
    return data


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
    FAILURES.mkdir(parents=True, exist_ok=True)
    path = FAILURES / f"{number}.onnx"
    path.write_bytes(data)
    text = ""
    try:
        text = str(ModelProto.FromString(data))
    except (DecodeError, ValueError) as e:
        text = f"not well-formed: {e}"
    path.with_suffix(".txt").write_text(f"{outcome.cause}\n{outcome.detail}\n{text[:20000]}\n")
    return path


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
            small = data if slow else smaller(data, lambda d, n=name, c=cause: _worked([(n, d)])[0].cause == c)
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
