"""Work on many items in forked processes, within limits of time and memory; whatever ends an item is its outcome."""

from __future__ import annotations

import gc
import json
import os
import re
import resource
import select
import signal
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from torshc.base.errors import InternalError, ResourceError, ToolchainError, TorshcError

SECONDS, MEMORY = 10, 2 << 30  # of the processor, of addresses beside those of the process that forks
BATCH = 40  # items a worker

Item = TypeVar("Item")


@dataclass(frozen=True)
class Outcome:
    """What became of an item.

    Attributes:
        kind: "fine", "refused", "internal error", "no library", "other exception", "signal", "too slow", "too big", or
            what a task calls it.
        cause: what failures of one cause share: the error, where it was raised and its message without numbers.
        detail: the message, and the end of the traceback.
        seconds: processor time.
        mib: the largest memory of the worker until then, without what it had when it was made.
    """

    kind: str
    cause: str = ""
    detail: str = ""
    seconds: float = 0.0
    mib: float = 0.0


Task = Callable[[Item, Path], Outcome]  # is given a folder of its own


class _TooSlow(BaseException):
    pass


def _stop(*_: object) -> None:
    raise _TooSlow


def attempt(action: Callable[[], object], seconds: int = SECONDS) -> Outcome:
    """What becomes of an action in this process, within a limit of time; 0 is none. It may return an outcome."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        found = action()
    except InternalError as e:
        return _failed("internal error", e)
    except ToolchainError as e:
        return _failed("no library", e)
    except ResourceError as e:
        return _failed("too big", e)
    except TorshcError as e:
        return Outcome("refused", type(e).__name__, str(e)) if str(e).strip() else _failed("other exception", e)
    except _TooSlow as e:
        return _failed("too slow", e)
    except MemoryError as e:
        return _failed("too big", e)
    except BaseException as e:
        return _failed("other exception", e)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return found if isinstance(found, Outcome) else Outcome("fine")


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


def outcomes(items: Iterable[Item], task: Task[Item]) -> Iterator[tuple[Item, Outcome]]:
    """What became of each, in order; a worker that dies takes one item with it."""
    pending = iter(items)
    batch: list[Item] = []
    while batch or (batch := [m for _, m in zip(range(BATCH), pending, strict=False)]):
        done = worked(batch, task)
        yield from zip(batch, done, strict=False)
        batch = batch[len(done) :]


def worked(batch: list[Item], task: Task[Item]) -> list[Outcome]:
    """The outcomes of a batch in a worker, as far as it came; the last is that it died of, if it did."""
    reader, writer = os.pipe()
    worker = os.fork()
    if not worker:
        os.close(reader)
        _work(batch, task, writer)
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


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _work(batch: list[Item], task: Task[Item], writer: int) -> None:
    """The worker; never returns."""
    try:
        warnings.simplefilter("ignore")
        gc.freeze()  # what is shared with the process that forked stays so
        own = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resident = _peak()
        resource.setrlimit(resource.RLIMIT_AS, (own + MEMORY, own + MEMORY))
        signal.signal(signal.SIGPROF, _stop)
        with tempfile.TemporaryDirectory() as name:
            for item in batch:
                began = time.process_time()
                outcome = task(item, Path(name))
                outcome = replace(outcome, seconds=time.process_time() - began, mib=_peak() - resident)
                os.write(writer, json.dumps(vars(outcome)).encode() + b"\n")
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def keep(path: Path, data: bytes, outcome: Outcome, text: Any) -> Path:
    """Write a failing model, and what it failed of in a file beside it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    path.with_suffix(".txt").write_text(f"{outcome.cause}\n{outcome.detail}\n{str(text)[:20000]}\n")
    return path
