"""Jobs that have a device for themselves: one at a time, on workers that have it, and again where that failed."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import distributed
import pytest

from torshc.base.errors import ToolchainError
from torshc.bundle.devices import Devices, Reply

BUSY = threading.Lock()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two workers of this process with a processor each, and threads for more jobs than that."""
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=3, processes=False, dashboard_address=":0", resources={"processor": 1}
    ) as found:
        yield found


@pytest.fixture
def client(cluster: Any) -> Iterator[Any]:
    with distributed.Client(cluster, set_as_default=False) as found:
        yield found


def describe(asked: bytes) -> bytes:
    """What a worker has: what it is asked for."""
    return asked


def devices_of(client: Any, resource: str = "processor", has: bytes = b"an EPYC") -> Devices:
    found = Devices(client, resource, describe, has, wanted=b"an EPYC")
    found.ask()
    return found


def run(devices: Devices, job: Any, names: list[str], seconds: float = 30) -> list[Reply]:
    return list(devices.run(job, names, str.encode, b"files", time.monotonic() + seconds, lambda name, worker: None))


def count_neighbours(request: bytes, files: bytes) -> bytes:
    """Most jobs that a worker had at a time."""
    worker: Any = distributed.get_worker()
    with BUSY:
        worker.busy = getattr(worker, "busy", 0) + 1
        worker.most = max(worker.busy, getattr(worker, "most", 0))
    time.sleep(0.02)
    with BUSY:
        worker.busy -= 1
    return request + b" " + files + str(worker.most).encode()


def test_a_device_has_one_job_at_a_time(client: Any) -> None:
    """Also where two ask for it."""
    found: list[list[Reply]] = [[], []]

    def ask(k: int) -> None:
        found[k] = run(devices_of(client), count_neighbours, [f"{k}{n}" for n in range(6)])

    threads = [threading.Thread(target=ask, args=(k,)) for k in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for k, replies in enumerate(found):
        assert sorted(r.name for r in replies) == [f"{k}{n}" for n in range(6)]
        assert {r.data for r in replies} == {f"{k}{n} files1".encode() for n in range(6)}
    assert len({r.worker for replies in found for r in replies}) == 2


def test_only_workers_that_say_so_are_asked(client: Any) -> None:
    found = devices_of(client, "card")
    assert not found.usable
    assert {*found.answers.values()} == {b"it was started without --resources card=1"}
    assert not devices_of(client, has=b"a Xeon").usable


def fail(request: bytes, files: bytes) -> bytes:
    """A job with a fault."""
    raise ZeroDivisionError("a fault")


def test_a_job_that_fails_is_told_and_others_go_on(client: Any) -> None:
    (reply,) = run(devices_of(client), fail, ["a"])
    assert (reply.name, reply.data, reply.failure) == ("a", b"", "ZeroDivisionError: a fault")


OTHER: list[str] = []


def describe_changed(asked: bytes) -> bytes:
    """What a worker has in a job: another device on the worker that is first asked there."""
    address = distributed.get_worker().address
    with BUSY:
        OTHER[:] = OTHER or [address]
    return b"a Xeon" if address == OTHER[0] else asked


def test_a_worker_with_another_device_hands_the_job_back(client: Any) -> None:
    """As one may that came in place of one that died: Dask knows resources only."""
    devices = devices_of(client)
    devices.describe = describe_changed
    replies = run(devices, count_neighbours, ["a", "b", "c"])
    assert sorted(r.name for r in replies) == ["a", "b", "c"] and not any(r.failure for r in replies)
    assert devices.answers[OTHER[0]] == b"a Xeon" and [*{r.worker for r in replies}] == devices.usable


def test_no_job_is_started_when_the_time_is_over(client: Any) -> None:
    """Those that run may end."""
    began = time.monotonic()
    asked: list[float] = []

    def request(name: str) -> bytes:
        asked.append(time.monotonic())
        time.sleep(0.3)
        return name.encode()

    replies = devices_of(client).run(
        count_neighbours, list("abcdefgh"), request, b"", began + 0.5, lambda name, worker: None
    )
    names = [r.name for r in replies]
    assert len(names) == len(asked) < 4 and all(moment < began + 0.5 for moment in asked)


def test_jobs_that_wait_are_cancelled_with_the_rest(client: Any) -> None:
    replies = devices_of(client).run(
        count_neighbours, list("abcdefgh"), str.encode, b"", time.monotonic() + 30, lambda name, worker: None
    )
    next(replies)
    replies.close()
    assert run(devices_of(client), count_neighbours, ["z"])[0].data == b"z files1"


def sleep(request: bytes, files: bytes) -> bytes:
    """A job that takes a while."""
    time.sleep(0.2)
    return request + files


def test_files_that_were_lost_are_sent_again(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As they are where all workers that held them died: Dask cancels the jobs."""
    scatter, sent = client.scatter, []

    def remember(*given: Any, **more: Any) -> Any:
        sent.append(scatter(*given, **more))
        return sent[-1]

    monkeypatch.setattr(client, "scatter", remember)
    monkeypatch.setattr("torshc.bundle.devices._POLL_SECONDS", 0.02)

    def lose(name: str, worker: str) -> None:
        if len(sent) == 1:
            client.cancel(sent[0], force=True)

    found = list(devices_of(client).run(sleep, ["a", "b"], str.encode, b"files", time.monotonic() + 30, lose))
    assert len(sent) == 2 and sorted(r.data for r in found) == [b"afiles", b"bfiles"]


@pytest.mark.parametrize("told", [KeyError("tcp://127.0.0.1:9"), TimeoutError("No valid workers found")], ids=type)
def test_a_worker_that_goes_before_files_come_ends_nothing(
    told: Exception, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scheduler says so of one that is lost between two looks."""
    scatter, asked = client.scatter, []

    def lose(*given: Any, **more: Any) -> Any:
        asked.append(given)
        if len(asked) == 1:
            raise told
        return scatter(*given, **more)

    monkeypatch.setattr(client, "scatter", lose)
    monkeypatch.setattr("torshc.bundle.devices._POLL_SECONDS", 0.02)
    assert sorted(r.data for r in run(devices_of(client), sleep, ["a", "b"])) == [b"afiles", b"bfiles"]
    assert len(asked) == 2


def test_a_scheduler_that_is_gone_is_told() -> None:
    with distributed.LocalCluster(n_workers=1, processes=False, dashboard_address=":0") as cluster:
        client = distributed.Client(cluster, set_as_default=False, timeout=1)
        devices = Devices(client, "processor", describe, b"", wanted=b"")
    with pytest.raises(ToolchainError, match="does not answer any more"):
        for _ in range(2):
            devices.ask()
