"""Processes that torshc starts: what they see of the environment, and that none outlives it."""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import signal
import subprocess
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from ..base.errors import ToolchainError, resource_error

_log = logging.getLogger(__name__)
# These change what a compiler reads or writes behind our back; LD_RUN_PATH would end up in the library.
_DROPPED = (
    "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "OBJC_INCLUDE_PATH", "LIBRARY_PATH", "LD_RUN_PATH",
    "COMPILER_PATH", "GCC_EXEC_PREFIX", "DEPENDENCIES_OUTPUT", "SUNPRO_DEPENDENCIES", "CCC_OVERRIDE_OPTIONS",
    "LD_PRELOAD", "CFLAGS", "LDFLAGS",
)  # fmt: skip
_GROUPS: dict[int, int] = {}  # process groups, by the thread that waits for them
_GROUPS_LOCK = threading.Lock()
_LEADER = ("/bin/sh", "-c", "read -r line; kill -9 0")


def clean_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of every tool: the process's own without what would leak into results."""
    env = {key: value for key, value in os.environ.items() if key not in _DROPPED and not key.startswith("LC_")}
    return {**env, "LC_ALL": "C", "LANG": "C", "SOURCE_DATE_EPOCH": "0", "ZERO_AR_DATE": "1", **(extra or {})}


def execute(
    command: Sequence[str], cwd: Path, timeout: float | None, env: Mapping[str, str] | None = None
) -> tuple[int | None, str, str]:
    """Runs a command, which ends with this process: (status or None when it took too long, stdout, stderr).

    Logs the command, at level INFO.

    Raises:
        ToolchainError: it cannot be started.
        ResourceError: the system has no files, processes or memory left for it.
    """
    _log.info("%s", shlex.join(command))
    with contextlib.ExitStack() as stack:
        try:
            group = stack.enter_context(_group())
            process = subprocess.Popen(
                list(command),
                cwd=cwd,
                env=clean_environment(env),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                process_group=group,
            )
        except (OSError, ValueError) as error:
            if isinstance(error, OSError) and (refused := resource_error(error, f"cannot start {command[0]}")):
                raise refused from error
            raise ToolchainError(
                f"cannot start {command[0]}: {error}",
                "install it, or name another; `torshc targets` lists what is here",
            ) from error
        try:
            out, err = process.communicate(timeout=timeout)
            return process.returncode, out, err
        except subprocess.TimeoutExpired:
            os.killpg(group, signal.SIGKILL)
            out, err = process.communicate()
            return None, out, err
        except BaseException:  # an interrupt: the group does not get the terminal's, so end it here
            os.killpg(group, signal.SIGKILL)
            process.communicate()
            raise


@contextlib.contextmanager
def _group() -> Iterator[int]:
    """A group for processes, all of which are killed at the end of the block, or of this process, even by SIGKILL.

    Its leader is a shell that waits for the end of a pipe, of which this process alone has the other end. A process
    joins the group before it becomes the tool, and cannot once the leader is gone, so that none gets past it.
    """
    leader = subprocess.Popen(
        _LEADER, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, process_group=0
    )
    thread = threading.get_ident()
    try:
        with _GROUPS_LOCK:
            _GROUPS[thread] = leader.pid
        yield leader.pid
    finally:
        with _GROUPS_LOCK:
            del _GROUPS[thread]
        os.killpg(leader.pid, signal.SIGKILL)
        leader.communicate()


def end_commands(threads: Iterable[int]) -> None:
    """Kills what some threads execute at this moment."""
    with _GROUPS_LOCK:
        for group in filter(None, map(_GROUPS.get, threads)):
            os.killpg(group, signal.SIGKILL)
