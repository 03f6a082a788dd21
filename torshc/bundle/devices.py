"""Jobs that want a device for themselves, as measurements do, on workers of a Dask scheduler.

A worker says by a resource of Dask's (``dask worker --resources processor=1``) that it has a device and that nobody
else uses it. Dask gives it to one job at a time, whoever asks, and starts a job again where its worker died. What is
seen to here is that only workers with the device in question are asked, those among them that come later too.
"""

from __future__ import annotations

import contextlib
import importlib
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from queue import Empty, Queue
from typing import Any
from uuid import uuid4

from ..base.errors import ToolchainError

_POLL_SECONDS = 0.5
_GRACE_SECONDS = 20  # for jobs that know when to end, to say so
_ATTEMPTS = 4  # of a job, whose worker had another device or whose files were lost with their workers

Job = Callable[[bytes, bytes], bytes]
Tell = Callable[[str, str], None]


@dataclass(frozen=True)
class Reply:
    """What a worker answered, by the name of the job; or why none could, where `failure` says so."""

    name: str
    worker: str
    data: bytes
    failure: str = ""


@dataclass
class Devices:
    """Workers that have a device.

    Attributes:
        client: Dask's client.
        resource: which workers say that they have one.
        describe: a function of a module of torshc, which a worker calls to tell what it has.
        asked: its argument.
        wanted: what those workers tell that jobs are for.
        answers: what each tells that was there, by address.
        present: addresses of those that are there.
    """

    client: Any
    resource: str
    describe: Callable[[bytes], bytes]
    asked: bytes
    wanted: bytes = b""
    answers: dict[str, bytes] = field(default_factory=dict)
    present: tuple[str, ...] = ()

    @property
    def usable(self) -> list[str]:
        """Addresses of the workers for jobs."""
        return [address for address in self.present if self.wanted and self.answers[address] == self.wanted]

    def ask(self) -> None:
        """Ask those workers what they have that were not asked yet.

        Raises:
            ToolchainError: the scheduler does not answer any more.
        """
        with _losing(self.client):
            self.present = tuple(sorted(self.client.nthreads()))
            fresh = [address for address in self.present if address not in self.answers]
            if fresh:
                found = self.client.run(
                    describe_worker, self.resource, self.describe, self.asked, workers=fresh, on_error="return"
                )
                self.answers |= {address: _words(found.get(address)) for address in fresh}

    def run(
        self, job: Job, names: Sequence[str], request: Callable[[str], bytes], files: bytes, end: float, tell: Tell
    ) -> Generator[Reply, None, None]:
        """Replies in the order in which they come; when the iterator is closed, no other job is started.

        Args:
            job: a function of a module of torshc, which takes a request and the files.
            names: names of jobs, in the order in which they are started.
            request: makes that of a job when it is started.
            end: moment of ``time.monotonic()`` after which none is started.
            tell: hears the name of each job that begins, and of its worker.

        Raises:
            ToolchainError: the scheduler does not answer any more.
        """
        waiting, running = deque((name, 1) for name in names), _Running(self, job, files)
        try:
            while (waiting or running.jobs) and time.monotonic() < end + _GRACE_SECONDS:
                self.ask()
                while waiting and len(running.jobs) < len(self.usable) and time.monotonic() < end:
                    name, attempt = waiting[0]
                    if not running.start(name, attempt, request(name)):
                        break
                    waiting.popleft()
                if time.monotonic() >= end and not running.jobs:
                    return
                running.tell(tell)
                for name, attempt, reply in running.ended():
                    if reply is None and attempt < _ATTEMPTS:
                        waiting.appendleft((name, attempt + 1))
                    else:
                        yield reply or Reply(name, "", b"", "each worker that it was given to was lost, or another")
        finally:
            running.stop()


class _Running:
    """Jobs that were given to Dask."""

    def __init__(self, devices: Devices, job: Job, files: bytes) -> None:
        self.devices, self.client, self.job, self.files = devices, devices.client, job, files
        self.done: Queue[Any] = Queue()  # futures, as Dask's threads find that they are
        self.jobs: dict[Any, tuple[str, int]] = {}  # name and attempt by Dask's future
        self.sent: Any = None  # the files, as workers know them
        self.told: set[tuple[str, str]] = set()

    def start(self, name: str, attempt: int, request: bytes) -> bool:
        """Whether it could: a worker that was there a moment ago may be gone when the files are sent to it."""
        devices, usable = self.devices, self.devices.usable
        with _losing(self.client):
            if self.sent is None or self.sent.cancelled():
                try:
                    self.sent = self.client.scatter(self.files, workers=usable, broadcast=True, hash=False)
                except (KeyError, TimeoutError):  # how the scheduler tells of one that is gone, and of all
                    return False
            future = self.client.submit(
                run_job, self.job, devices.describe, devices.asked, devices.wanted, request, self.sent,
                key=f"torshc-{name}-{uuid4()}", workers=usable, allow_other_workers=True,
                resources={devices.resource: 1}, pure=False,
            )  # fmt: skip
        self.jobs[future] = name, attempt
        future.add_done_callback(self.done.put)
        return True

    def tell(self, tell: Tell) -> None:
        """Say which jobs workers have begun."""
        names = {future.key: name for future, (name, _) in self.jobs.items()}
        with _losing(self.client):
            placed = [(key, worker) for worker, keys in self.client.processing().items() for key in keys]
        for key, worker in placed:
            if key in names and (key, worker) not in self.told:
                self.told.add((key, worker))
                tell(names[key], worker)

    def ended(self) -> Iterator[tuple[str, int, Reply | None]]:
        """A job that ends within a moment, by name and attempt; None where it is to be given to another worker."""
        with contextlib.suppress(Empty):
            future = self.done.get(timeout=_POLL_SECONDS)
            yield *self.jobs[future], self._reply(self.jobs.pop(future)[0], future)

    def _reply(self, name: str, future: Any) -> Reply | None:
        try:
            worker, fits, data = future.result()
        except CancelledError:  # all workers that had the files are gone
            return None
        except Exception as error:  # whatever Dask raises, as for a job whose workers died one after another
            return Reply(name, "", b"", f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")
        if not fits:
            self.devices.answers[worker] = data
            return None
        return Reply(name, worker, data)

    def stop(self) -> None:
        """Start no more; those that run end by themselves."""
        with contextlib.suppress(ToolchainError), _losing(self.client):
            self.client.cancel(list(self.jobs), force=True)


@contextlib.contextmanager
def _losing(client: Any) -> Iterator[None]:
    """What Dask raises for a scheduler that is gone, as an error of ours."""
    try:
        if client.status == "closed":  # as it is once it could not connect again
            raise OSError("it closed the connection")
        yield
    except OSError as error:
        raise ToolchainError(
            f"the scheduler does not answer any more: {str(error)[:200]}", "start it, and the command, again"
        ) from error


def describe_worker(resource: str, describe: Callable[[bytes], bytes], asked: bytes, dask_worker: Any = None) -> bytes:
    """Runs on a worker: what it has, or that it was not started for such jobs."""
    if dask_worker.state.total_resources.get(resource, 0) < 1:
        return f"it was started without --resources {resource}=1".encode()
    return describe(asked)


def run_job(
    job: Job, describe: Callable[[bytes], bytes], asked: bytes, wanted: bytes, request: bytes, files: bytes
) -> tuple[str, bool, bytes]:
    """Runs on a worker: its address, whether it has the wanted device, and the job's reply or what it has instead."""
    address = importlib.import_module("distributed").get_worker().address
    has = describe(asked)
    return (address, True, job(request, files)) if has == wanted else (address, False, has)


def _words(answer: object) -> bytes:
    """What a worker answers; one that has no torshc, or another, cannot."""
    return answer if isinstance(answer, bytes) else f"{type(answer).__name__}: {str(answer)[:300]}".encode()
