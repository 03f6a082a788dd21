"""Children of fork() find no lock held for ever."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import numpy as np
import pytest

from tests.bundle import tiny
from torshc.base.errors import RunError
from torshc.runtime import Model, load

X = np.ones((4, 16), np.float32)


def refused(model: Model) -> bool:
    try:
        model(X)
    except RunError as error:
        return "fork" in str(error)
    return False


def child(model: Model, bundle: Path) -> int:
    """A model of the parent is refused and closed; one of its own runs."""
    signal.alarm(60)
    context = refused(model)
    model.close()
    with load(bundle, threads=1) as mine:
        return 0 if context and np.array_equal(mine(X)[0], np.maximum(X, 0) + tiny.WEIGHTS) else 1


@pytest.mark.parametrize("threads", [1, 2])
def test_children_of_a_process_that_runs_and_loads(tmp_path: Path, threads: int) -> None:
    """Other threads run the model and load it all the time, so that locks are held when the process forks."""
    bundle, stop = tiny.write(tmp_path / "b.tsc"), threading.Event()
    model = load(bundle, threads=threads)

    def run() -> None:
        while not stop.is_set():
            model(X)

    def open_and_close() -> None:
        while not stop.is_set():
            load(bundle, threads=1).close()

    busy = [threading.Thread(target=work, daemon=True) for work in (run, run, open_and_close)]
    for thread in busy:
        thread.start()
    found = []
    for _ in range(20):
        made = os.fork()
        if not made:
            os._exit(child(model, bundle))
        found.append(os.waitstatus_to_exitcode(os.waitpid(made, 0)[1]))
    stop.set()
    for thread in busy:
        thread.join()
    assert found == [0] * 20
    assert np.array_equal(model(X)[0], np.maximum(X, 0) + tiny.WEIGHTS)
    model.close()


def test_a_lock_that_is_held_when_a_process_forks(tmp_path: Path) -> None:
    with load(tiny.write(tmp_path / "b.tsc"), threads=1) as model:
        with model._lock:
            made = os.fork()
            if not made:
                signal.alarm(60)
                os._exit(0 if refused(model) else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(made, 0)[1]) == 0
        assert not refused(model)
