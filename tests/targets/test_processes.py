"""Commands end with the process that started them, however that ends, and so do those that they started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from torshc.base.errors import ToolchainError
from torshc.targets.processes import end_commands, execute

PARENT = """
import signal, sys
from pathlib import Path
from torshc.targets.processes import execute
for number in (signal.SIGINT, signal.SIGHUP):  # which nohup and shells have the tests ignore
    signal.signal(number, signal.SIG_DFL)
execute([sys.argv[1]], Path.cwd(), 60)
"""


def tool(folder: Path) -> Path:
    """A command that starts another, as compilers do, and waits for it; both leave their numbers in files."""
    path = folder / "tool"
    path.write_text("#!/bin/sh\nsleep 60 & echo $! > child\necho $$ > tool.pid\nwait\n")
    path.chmod(0o755)
    return path


def numbers(folder: Path, seconds: float = 10) -> list[int]:
    """The processes of :func:`tool`, once they run."""
    files = [folder / "child", folder / "tool.pid"]
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if all(file.exists() and file.read_text().endswith("\n") for file in files):
            return [int(file.read_text()) for file in files]
        time.sleep(0.01)
    pytest.fail("the tool did not start")


def alive(process: int) -> bool:
    state = Path(f"/proc/{process}/stat")
    try:
        return state.read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def gone(processes: list[int], seconds: float = 10) -> bool:
    until = time.monotonic() + seconds
    while any(map(alive, processes)):
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_command_ends_with_the_process_that_started_it(number: int, tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    parent = subprocess.Popen([sys.executable, "-c", PARENT, tool(tmp_path)], cwd=tmp_path, env=env, stderr=-3)
    started = numbers(tmp_path)
    parent.send_signal(number)
    parent.wait(10)
    assert gone(started)


def test_a_command_leaves_nothing_behind(tmp_path: Path) -> None:
    tool(tmp_path).write_text("#!/bin/sh\nsleep 60 >&- 2>&- & echo $! > child\necho $$ > tool.pid\n")
    assert execute([str(tmp_path / "tool")], tmp_path, 60)[0] == 0
    assert gone(numbers(tmp_path))


def test_a_command_that_takes_too_long(tmp_path: Path) -> None:
    assert execute([str(tool(tmp_path))], tmp_path, 0.5)[0] is None
    assert gone(numbers(tmp_path))


def test_commands_of_threads_are_ended(tmp_path: Path) -> None:
    found: list[int | None] = []
    thread = threading.Thread(target=lambda: found.append(execute([str(tool(tmp_path))], tmp_path, 60)[0]))
    thread.start()
    started = numbers(tmp_path)
    end_commands([threading.get_ident()])
    assert all(map(alive, started))
    end_commands([thread.ident or 0])
    thread.join(10)
    assert found == [-signal.SIGKILL] and gone(started)


def test_what_cannot_be_started_leaves_no_process(tmp_path: Path) -> None:
    before = len([*Path("/proc/self/fd").iterdir()])
    for _ in range(3):
        with pytest.raises(ToolchainError, match="cannot start"):
            execute([str(tmp_path / "none")], tmp_path, 60)
    assert len([*Path("/proc/self/fd").iterdir()]) == before
