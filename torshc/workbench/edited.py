"""Bundles with kernels that a person edited, run in a process of their own before a command runs them in its own."""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import signal
from pathlib import Path

from ..base.errors import RunError
from ..base.manifest import FILE
from ..runtime import load
from .feeds import Arrays


def require_survival(bundle: Path, arrays: Arrays, threads: int = 1) -> None:
    """Runs a bundle with edited kernels in a child of this process, which a kernel may end; others are not run.

    Raises:
        RunError: it did; names the edited kernels.
    """
    body = json.loads((bundle / FILE).read_bytes())
    edited = [kernel for kernel in body["kernels"] if kernel["pinned"]]
    if not edited or not hasattr(os, "fork"):
        return
    number = _signal_that_ends(bundle, arrays, threads)
    if number == 0:
        return
    named = [f"{k['symbol']} of {', '.join(map(repr, k['nodes']))}" for k in edited]
    which = f"the edited kernel {named[0]}" if len(named) == 1 else "one of the edited kernels " + "; ".join(named)
    raise RunError(
        f"{which} ended the process: {signal.strsignal(number) or f'signal {number}'}",
        "`make check` in its folder runs one alone; it may read and write its buffers only as contract.json says",
    )


def _signal_that_ends(bundle: Path, arrays: Arrays, threads: int) -> int:
    """The signal by which a child ends that runs a bundle; 0 where it ends by itself."""
    child = os.fork()
    if child == 0:
        faulthandler.disable()
        # The parent meets what a run raises, and tells of it; here only the end of the process counts.
        with contextlib.suppress(BaseException), load(bundle, max(threads, 1)) as model:
            model.run(arrays)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
